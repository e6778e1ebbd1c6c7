"""Gradients of threads that cooperate: each against finite differences and forward mode, in check mode with shuffled
orders, in two launches, and as text for NVRTC."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from cooperation_cases import CASES, SIZE, Case, inputs
from derived import gradient_of
from scrambling import scramble
from some_cases import some


def joint(case: Case, seed: int) -> tuple[Any, ...]:
    """y after the kernel, and the adjoints of y and x."""
    y, x, d_y = inputs(seed)
    d_x = np.zeros_like(x)
    gradient_of(case.compiled())[case.launch](y, x, case.n, d_y, d_x)
    return y, d_y, d_x


@pytest.mark.parametrize("name", CASES, scope="module")
def test_gradient(name: str) -> None:
    case = CASES[name]
    kernel = case.compiled()
    y, x, seed = inputs(3)
    after, d_y, d_x = joint(case, 3)

    def primal(x: Any, y: Any) -> Any:
        y = y.copy()
        kernel[case.launch](y, x, case.n)
        return y

    np.testing.assert_allclose(after, primal(x, y), rtol=1e-12)
    assert d_x.any()
    rng, step = np.random.default_rng(1), case.step
    for _ in range(4):
        t_y, t_x = rng.standard_normal(SIZE), rng.standard_normal(SIZE)
        change = primal(x + step * t_x, y + step * t_y) - primal(x - step * t_x, y - step * t_y)
        found = d_x @ t_x + d_y @ t_y
        assert found == pytest.approx(change @ seed / (2 * step), rel=case.tolerance, abs=case.tolerance)
    kg.jvp(kernel)[case.launch](y.copy(), x, case.n, t_y, t_x)
    exact = 1e-9 if case.is_double else case.tolerance
    assert t_y @ seed == pytest.approx(found, rel=exact, abs=exact)


@pytest.mark.parametrize("name", some(CASES, 3), scope="module")
def test_no_races(name: str) -> None:
    case = CASES[name]
    gradient = gradient_of(case.compiled())
    for order in (None, 1, 2):
        y, x, d_y = inputs(3)
        report = gradient.check(
            case.grid, case.block, y, x, case.n, d_y, np.zeros_like(x), shared=case.shared, seed=order
        )
        assert report.ok, str(report)


@pytest.mark.parametrize("name", some((name for name, case in CASES.items() if case.splits), 4), scope="module")
def test_split(name: str) -> None:
    """Whatever the buffers hold when the reverse runs."""
    case = CASES[name]
    _, d_y, d_x = joint(case, 4)
    y, x, s_y = inputs(4)
    s_x = np.zeros_like(x)
    forward, reverse = kg.split(case.compiled())
    tape = forward[case.launch](y, x, case.n)
    scramble((y, x))
    reverse[case.launch](tape, y, x, case.n, s_y, s_x)
    np.testing.assert_allclose(s_y, d_y, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(s_x, d_x, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", some(CASES, 4, 1), scope="module")
def test_compiles(name: str) -> None:
    pytest.importorskip("cuda.core")
    from kernelgrad.runtime.cuda import compile_only

    assert compile_only(gradient_of(CASES[name].compiled()).source, "sm_90")


SECOND = """tree_sum tiled_product array_of_structs dynamic_shared_memory two_level_sum hillis_steele_scan layer_norm
    histogram_by_data permuted_lanes group_sum"""


@pytest.mark.parametrize("name", SECOND.split(), scope="module")
def test_second_derivatives(name: str) -> None:
    """Forward mode of the gradient, against its differences."""
    case = CASES[name]
    gradient = gradient_of(case.compiled())
    direction, step = np.random.default_rng(2).standard_normal(SIZE), 1e-5

    def at(move: float) -> Any:
        y, x, d_y = inputs()
        d_x = np.zeros_like(x)
        gradient[case.launch](y, x + move * direction, case.n, d_y, d_x)
        return d_x

    y, x, d_y = inputs()
    tangents = [np.zeros(SIZE), direction.copy(), np.zeros(SIZE), np.zeros(SIZE)]
    kg.jvp(gradient)[case.launch](y, x, case.n, d_y, np.zeros(SIZE), *tangents)
    expected = (at(step) - at(-step)) / (2 * step)
    np.testing.assert_allclose(tangents[3], expected, rtol=1e-5, atol=1e-6 * abs(expected).max())


def test_phases_on_an_unlisted_buffer() -> None:
    """Derivatives flow through it from thread to thread, and it gets no adjoint from the user."""
    source = """
        __global__ void k(double *y, const double *x, double *scratch) {
          int t = threadIdx.x, i = blockIdx.x * blockDim.x + t, first = blockIdx.x * blockDim.x;
          scratch[i] = x[i] * x[i];
          __syncthreads();
          double v = scratch[first + (t + 1) % blockDim.x];
          __syncthreads();
          scratch[first + (t + 3) % blockDim.x] = v * v * x[i];
          __syncthreads();
          y[i] = scratch[i] * v;
        }"""
    kernel = kg.compile(source)["k"]
    x = np.random.default_rng(6).uniform(0.5, 1.2, 24)
    report = kg.check_gradient(kernel, "y, x", 3, 8, (np.zeros(24), x, np.ones(24)))
    assert report.ok and "finite differences agree" in str(report), report
    for order in (None, 1, 2):
        args = (np.zeros(24), x, np.ones(24), np.ones(24), np.zeros(24))
        races = kg.gradient(kernel, "y, x").check(3, 8, *args, seed=order)
        assert races.ok, str(races)


REFUSED = {
    "volatile memory that a launch both reads and writes": """
        __global__ void k(volatile double* y, const double* x, int n) {
          y[threadIdx.x] = x[threadIdx.x];
          y[threadIdx.x] += y[threadIdx.x + 16];
        }""",
    "volatile memory that a launch both": """
        __global__ void k(double* y, const double* x, int n) {
          y[threadIdx.x] = x[threadIdx.x];
          atomicAdd(&y[0], x[1] * *(volatile double *)&y[1]);
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
