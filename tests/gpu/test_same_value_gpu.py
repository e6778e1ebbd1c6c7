"""Several threads that store the same value in one element, on a GPU against the CPU backend's gradient."""

from __future__ import annotations

import numpy as np
import pytest

import kernelgrad as kg
from same_value import CASES, SIZE

cupy = pytest.importorskip("cupy")


@pytest.mark.parametrize("name", CASES)
def test_gpu_gives_what_the_cpu_gives(name: str) -> None:
    case = CASES[name]
    gradient = kg.gradient(kg.compile(case.source)["k"])
    random = np.random.default_rng(4)
    host = [random.random(SIZE), random.random(SIZE) + 0.2, random.random(SIZE), np.zeros(SIZE)]
    device = [cupy.asarray(a) for a in host]
    for y, x, d_y, d_x in (host, device):
        gradient[case.grid, case.block](y, x, 7, d_y, d_x)
    for want, got in zip(host, device, strict=True):
        np.testing.assert_allclose(got.get(), want, rtol=1e-11, atol=1e-13)
