"""Additions that follow the launch, and those that the threads of a block make in turns, on a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import deferred_cases
import kernelgrad as kg
import turn_cases
from deferred_cases import DEFERRED, NOT_DEFERRED
from turn_cases import NOT_IN_TURNS, TURNS

cupy = pytest.importorskip("cupy")
OPTIONS: dict[str, dict[str, Any]] = {
    "J": {},
    "kept": {"primal": False, "keep": "loss", "assign": "x"},
    "deterministic": {"deterministic": True},
}


def compare(gradient: Any, launch: Any, host: list[Any]) -> None:
    device = [cupy.asarray(a) if isinstance(a, np.ndarray) else a for a in host]
    for values in (host, device):
        gradient[launch](*values)
    for want, got in zip(host, device, strict=True):
        if isinstance(want, np.ndarray):
            np.testing.assert_allclose(got.get(), want, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("how", OPTIONS)
@pytest.mark.parametrize("name", [*DEFERRED, *NOT_DEFERRED])
def test_deferred(name: str, how: str) -> None:
    body = {**DEFERRED, **NOT_DEFERRED}[name]
    gradient = kg.gradient(deferred_cases.compiled(body), "loss, x, w", **OPTIONS[how])
    for n, far in ((900, False), (900, True), (64, True), (33, False)):
        given = deferred_cases.arrays(n, far=far)
        adjoints = [np.cos(np.arange(given[k].size)) for k in (0, 1, 3)]
        compare(gradient, deferred_cases.launch_of(body), [*given, *adjoints])


@pytest.mark.parametrize("name", [*TURNS, *NOT_IN_TURNS])
def test_turns(name: str) -> None:
    gradient = turn_cases.gradient_of({**TURNS, **NOT_IN_TURNS}[name])
    for n in (131, 192, 0):
        compare(gradient, (3, 64), turn_cases.arrays(n))
