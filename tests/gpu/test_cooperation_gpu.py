"""Gradients of threads that cooperate, on a GPU against the CPU backend's."""

from __future__ import annotations

import numpy as np
import pytest

import kernelgrad as kg
from cooperation_cases import CASES

cupy = pytest.importorskip("cupy")


@pytest.mark.parametrize("name", CASES)
def test_gpu_gives_what_the_cpu_gives(name: str) -> None:
    case = CASES[name]
    gradient = kg.gradient(kg.compile(case.source)["k"])
    rng = np.random.default_rng(3)
    y, x, seed = rng.random(96), rng.random(96) + 0.2, rng.standard_normal(96)
    host = [y.copy(), x, seed.copy(), np.zeros_like(x)]
    device = [cupy.asarray(a) for a in host]
    launch = (case.grid, case.block, case.shared, None)
    for y_, x_, d_y, d_x in (host, device):
        gradient[launch](y_, x_, case.n, d_y, d_x)
    for want, got in zip(host, device, strict=True):
        np.testing.assert_allclose(got.get(), want, rtol=1e-10, atol=1e-12)
