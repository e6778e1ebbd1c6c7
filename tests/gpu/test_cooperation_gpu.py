"""Gradients of threads that cooperate, on a GPU against the CPU backend's."""

from __future__ import annotations

import numpy as np
import pytest

import kernelgrad as kg
from cooperation_cases import CASES, inputs

cupy = pytest.importorskip("cupy")


@pytest.mark.parametrize("name", CASES)
def test_gpu_gives_what_the_cpu_gives(name: str) -> None:
    case = CASES[name]
    gradient = kg.gradient(case.compiled())
    y, x, d_y = inputs()
    host = [y, x, d_y, np.zeros_like(x)]
    device = [cupy.asarray(a) for a in host]
    for y_, x_, d_y_, d_x_ in (host, device):
        gradient[case.launch](y_, x_, case.n, d_y_, d_x_)
    exact = 1e-10 if case.is_double else case.tolerance
    for want, got in zip(host, device, strict=True):
        np.testing.assert_allclose(got.get(), want, rtol=exact, atol=exact / 100)
