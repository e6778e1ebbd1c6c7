"""Several threads that store the same value in one element: one of them gets its adjoint."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from kernelgrad.runtime.config import make_launch
from same_value import CASES, SIZE


def arguments() -> tuple[Any, ...]:
    random = np.random.default_rng(4)
    return random.random(SIZE), random.random(SIZE) + 0.2, 7


@pytest.mark.parametrize("name", CASES)
def test_gradient(name: str) -> None:
    case = CASES[name]
    report = kg.check_gradient(kg.compile(case.source)["k"], "y, x", case.grid, case.block, arguments())
    assert report.ok, report


@pytest.mark.parametrize("name", CASES)
def test_one_thread_takes_the_adjoint(name: str) -> None:
    """The CPU runs threads one after another: what a GPU does is seen in the text."""
    pytest.importorskip("cuda.core")
    from kernelgrad.runtime.cuda import compile_only

    case = CASES[name]
    kernel = kg.compile(case.source)["k"]
    bound, _ = kernel.bind(arguments())
    variant = kg.gradient(kernel).variant_for(("y", "x"), make_launch(case.grid, case.block), bound)
    text = variant.source(0)
    assert "= kg::take(&_d_" in text
    assert compile_only(text, "sm_90")


def test_second_derivatives() -> None:
    case = CASES["sum_of_a_warp_by_all_its_lanes"]
    gradient = kg.gradient(kg.compile(case.source)["k"])
    y, x, n = arguments()
    seed, direction, step = np.ones(SIZE), np.linspace(-1, 1, SIZE), 1e-5

    def at(move: float) -> Any:
        d_x = np.zeros(SIZE)
        gradient[case.grid, case.block](y.copy(), x + move * direction, n, seed.copy(), d_x)
        return d_x

    tangents = [np.zeros(SIZE), direction, np.zeros(SIZE), np.zeros(SIZE)]
    kg.jvp(gradient)[case.grid, case.block](y.copy(), x, n, seed.copy(), np.zeros(SIZE), *tangents)
    np.testing.assert_allclose(tangents[3], (at(step) - at(-step)) / (2 * step), rtol=1e-6, atol=1e-6)


APART = {
    "own_elements": "y[i] = x[i] * x[i];",
    "first_thread": "if (t == 0) y[blockIdx.x] = x[i];",
    "first_thread_of_a_row": "if (i < n && threadIdx.x == 0) y[blockIdx.x] = x[i];",
    "first_lane": """
        __shared__ double s[4];
        double v = x[i] * x[i];
        for (int d = 16; d > 0; d /= 2) v += __shfl_xor_sync(0xffffffffu, v, d);
        if (t % 32 == 0) s[t / 32] = v;
        __syncthreads();
        y[i] = s[0];""",
    "tree": """
        __shared__ double s[32];
        s[t] = x[i];
        __syncthreads();
        for (int d = 16; d > 0; d /= 2) { if (t < d) s[t] += s[t + d]; __syncthreads(); }
        y[i] = s[0];""",
    "swapped_cells": """
        __shared__ double s[32];
        s[t ^ 5] = x[i];
        __syncthreads();
        y[i] = s[t];""",
}


@pytest.mark.parametrize("name", APART)
def test_threads_that_are_apart_need_no_exchange(name: str) -> None:
    source = f"""__global__ void k(double *y, const double *x, int n) {{
        int t = threadIdx.x, i = blockIdx.x * blockDim.x + t; {APART[name]} }}"""
    assert "take(" not in kg.gradient(kg.compile(source)["k"]).source


ONE_OF_TWO = {
    "by the thread": "double *p = t % 2 ? y : x; p[i / 4] = z[i / 4];",
    "by the thread, apart": "double *p = t % 2 ? y : x; p[i] = z[i];",
    "by a number": "double *p = n > 3 ? y : x; p[i / 2] = z[i / 2];",
    "by a loop": """double *p = y, *q = x; for (int k = 0; k < n; k++) { double *r = p; p = q; q = r; }
        p[i / 2] = z[i / 2];""",
    "in shared memory": """__shared__ double r[32], s[32];
        double *p = t % 2 ? r : s; p[t / 4] = z[i / 4]; __syncthreads(); y[i] = r[t / 4] + s[t / 4];""",
}


@pytest.mark.parametrize("name", ONE_OF_TWO)
def test_stores_in_one_array_or_another(name: str) -> None:
    """Where an address is that of more than one array, its arithmetic says nothing about either."""
    source = f"""__global__ void k(double *y, double *x, const double *z, int n) {{
        int t = threadIdx.x, i = blockIdx.x * blockDim.x + t; {ONE_OF_TWO[name]} }}"""
    kernel = kg.compile(source)["k"]
    report = kg.check_gradient(kernel, "y, x, z", 2, 32, (*np.random.default_rng(5).random((3, 64)), 7))
    assert report.ok, report
    assert "take(" in kg.gradient(kernel).source


@pytest.mark.parametrize("options", [{}, {"primal": False}])
def test_kept_outputs_that_several_threads_store(options: dict[str, bool]) -> None:
    """Each of four threads would count the adjoint that stays where it is."""
    kernel = kg.compile(
        "__global__ void k(double *y, const double *x) { int i = threadIdx.x / 4; y[i] = x[i] * x[i]; }"
    )
    x, d_y, d_x = np.arange(8.0), np.ones(8), np.zeros(8)
    kg.gradient(kernel["k"], "y, x", keep="y", **options)[1, 32](np.zeros(8), x, d_y, d_x)
    np.testing.assert_array_equal(d_x, 2 * x)
    np.testing.assert_array_equal(d_y, 1)
