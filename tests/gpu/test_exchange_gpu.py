"""Exchanged loops and sums that go round the lanes, on a GPU against the CPU backend's gradient."""

from __future__ import annotations

import numpy as np
import pytest

import kernelgrad as kg
from exchange_cases import CASES, SIZE, arguments, typed

cupy = pytest.importorskip("cupy")


@pytest.mark.parametrize("form", ["joint", "primal=False", "split"])
@pytest.mark.parametrize("name", CASES)
def test_gpu_gives_what_the_cpu_gives(name: str, form: str) -> None:
    case = CASES[name]
    kernel = kg.compile(case.source)["k"]
    gradient = kg.gradient(kernel, primal=form == "joint")
    forward, reverse = kg.split(kernel)
    seed = np.random.default_rng(3).standard_normal(SIZE)
    host = typed(case, [*arguments(case), seed, np.zeros(SIZE), np.zeros(SIZE)])
    device = [cupy.asarray(a) if isinstance(a, np.ndarray) else a for a in host]
    for values in (host, device):
        if form == "split":
            reverse[case.launch](forward[case.launch](*values[:4]), *values)
        else:
            gradient[case.launch](*values)
    tolerance = 1e-11 if case.dtype == np.float64 else 2e-5
    for want, got in zip(host[5:], device[5:], strict=True):
        np.testing.assert_allclose(got.get(), want, rtol=tolerance, atol=tolerance * abs(want).max())
