"""Rows that stay in registers or shared memory, and loops that are spread over blocks, on a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kept_row_cases
import kernelgrad as kg
import spread_loop_cases
from kept_row_cases import KEPT, KEPT_BY_THREADS, ROWS, arrays, launch_of
from kernelgrad.launches import vector_width
from kernelgrad.schedule.rows import room
from spread_loop_cases import SPREAD

cupy = pytest.importorskip("cupy")
OPTIONS: dict[str, dict[str, Any]] = {
    "J": {},
    "R": {"primal": False},
    "kept": {"primal": False, "keep": "y", "assign": "x, w"},
}


def compare(gradient: Any, launch: Any, host: list[Any]) -> None:
    device = [cupy.asarray(a) if isinstance(a, np.ndarray) else a for a in host]
    for values in (host, device):
        gradient[launch](*values)
    for want, got in zip(host, device, strict=True):
        if isinstance(want, np.ndarray):
            np.testing.assert_allclose(got.get(), want, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("how", OPTIONS)
@pytest.mark.parametrize("name", KEPT)
def test_kept_rows(name: str, how: str) -> None:
    gradient = kg.gradient(kept_row_cases.compiled(KEPT[name]), "y, x, w", **OPTIONS[how])
    for n in (128, 150, 40, 1, 1000):
        data = arrays(n)
        adjoints = [np.cos(np.arange(a.size)) for a in data]
        compare(gradient, launch_of(KEPT[name]), [*data, ROWS, n, *adjoints])


@pytest.mark.parametrize("how", OPTIONS)
@pytest.mark.parametrize("name", KEPT_BY_THREADS)
def test_a_row_a_thread(name: str, how: str) -> None:
    gradient = kg.gradient(kept_row_cases.compiled(KEPT_BY_THREADS[name]), "y, x, w", **OPTIONS[how])
    for n in (24, 7, 40):
        data = arrays(n)
        adjoints = [np.cos(np.arange(a.size)) for a in data]
        compare(gradient, launch_of(KEPT_BY_THREADS[name]), [*data, ROWS, n, *adjoints])


@pytest.mark.parametrize("how", OPTIONS)
@pytest.mark.parametrize("name", KEPT)
def test_rows_in_shared_memory(name: str, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "MOST_SHORT", 2)
    monkeypatch.setattr(room.Room, "pays", lambda *_: True)
    gradient = kg.gradient(kept_row_cases.compiled(KEPT[name]), "y, x, w", **OPTIONS[how])
    for n in (1000, 150, 40, 20_000):
        data = arrays(n)
        adjoints = [np.cos(np.arange(a.size)) for a in data]
        compare(gradient, launch_of(KEPT[name]), [*data, ROWS, n, *adjoints])


@pytest.mark.parametrize("how", OPTIONS)
@pytest.mark.parametrize("name", SPREAD)
def test_spread_loops(name: str, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vector_width, "_ENOUGH", 1)
    gradient = kg.gradient(spread_loop_cases.compiled(SPREAD[name], "double"), "y, x, w", **OPTIONS[how])
    for n in (128, 125, 61, 30, 1):
        data = list(np.random.default_rng(n).uniform(-2, 2, (6, 160)))
        compare(gradient, (2, 16), [*data[:3], n, 2, *data[3:]])
