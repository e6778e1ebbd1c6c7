"""Gradients of threads that cooperate: each against finite differences, in check mode with shuffled orders too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from cooperation_cases import CASES


@pytest.mark.parametrize("name", CASES)
def test_gradient(name: str) -> None:
    case = CASES[name]
    kernel = kg.compile(case.source)["k"]
    rng = np.random.default_rng(3)
    y, x, seed = rng.random(96), rng.random(96) + 0.2, rng.standard_normal(96)
    gradient = kg.gradient(kernel)
    launch = (case.grid, case.block, case.shared, None)

    def primal(x: Any, y: Any) -> Any:
        y = y.copy()
        kernel[launch](y, x, case.n)
        return y

    after, d_y, d_x = y.copy(), seed.copy(), np.zeros_like(x)
    gradient[launch](after, x, case.n, d_y, d_x)
    np.testing.assert_allclose(after, primal(x, y), rtol=1e-12)
    step = 1e-6
    for _ in range(6):
        v_x, v_y = rng.standard_normal(96), rng.standard_normal(96)
        change = primal(x + step * v_x, y + step * v_y) - primal(x - step * v_x, y - step * v_y)
        expected = change @ seed / (2 * step)
        assert d_x @ v_x + d_y @ v_y == pytest.approx(expected, rel=1e-5, abs=1e-5)
    for order in (None, 1, 2):
        report = gradient.check(
            case.grid, case.block, y.copy(), x, case.n, seed.copy(), np.zeros_like(x), shared=case.shared, seed=order
        )
        assert report.ok, str(report)


@pytest.mark.parametrize("name", CASES)
def test_split(name: str) -> None:
    case = CASES[name]
    kernel = kg.compile(case.source)["k"]
    rng = np.random.default_rng(4)
    y, x, seed = rng.random(96), rng.random(96) + 0.2, rng.standard_normal(96)
    launch = (case.grid, case.block, case.shared, None)
    d_y, d_x = seed.copy(), np.zeros_like(x)
    kg.gradient(kernel)[launch](y.copy(), x, case.n, d_y, d_x)
    forward, reverse = kg.split(kernel)
    buffer, s_y, s_x = y.copy(), seed.copy(), np.zeros_like(x)
    tape = forward[launch](buffer, x, case.n)
    reverse[launch](tape, buffer, x, case.n, s_y, s_x)
    np.testing.assert_allclose(s_y, d_y, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(s_x, d_x, rtol=1e-12, atol=1e-14)


REFUSED = {
    "volatile memory has no gradient": """
        __global__ void k(double* y, const double* x, int n) {
          volatile __shared__ double s[64];
          s[threadIdx.x] = x[threadIdx.x];
          s[threadIdx.x] += s[threadIdx.x + 16];
          y[threadIdx.x] = s[threadIdx.x];
        }""",
    "passes values between blocks": """
        __device__ int done;
        __global__ void k(double* y, const double* x, int n) {
          y[blockIdx.x + 1] = x[blockIdx.x];
          __threadfence();
          if (atomicAdd(&done, 1) == gridDim.x - 1) y[0] = y[1] + y[2];
        }""",
}


@pytest.mark.parametrize("reason", REFUSED)
def test_refused(reason: str) -> None:
    with pytest.raises(kg.UnsupportedError, match=reason):
        kg.gradient(kg.compile(REFUSED[reason])["k"], "y, x")
