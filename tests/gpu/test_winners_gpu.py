"""Gradients of atomic maxima, minima and exchanges on a GPU against the CPU backend's."""

from __future__ import annotations

import numpy as np
import pytest

import kernelgrad as kg
from winner_cases import CASES, FUNCTIONS

cupy = pytest.importorskip("cupy")


@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_gpu_gives_what_the_cpu_gives(name: str, split: bool) -> None:
    case = CASES[name]
    kernel = kg.compile(case.source)["k"]
    rng = np.random.default_rng(3)
    y, x, seed = rng.random(96) * 0.8 - 0.2, rng.random(96) + 0.2, rng.standard_normal(96)
    host = [y.copy(), x, seed.copy(), np.zeros_like(x)]
    device = [cupy.asarray(a) for a in host]
    for y_, x_, d_y, d_x in (host, device):
        if split:
            forward, reverse = kg.split(kernel)
            tape = forward[case.grid, case.block](y_, x_, case.n)
            reverse[case.grid, case.block](tape, y_, x_, case.n, d_y, d_x)
        else:
            kg.gradient(kernel)[case.grid, case.block](y_, x_, case.n, d_y, d_x)
    for want, got in zip(host, device, strict=True):
        np.testing.assert_allclose(got.get(), want, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("update", ["max_do", "max_while", "max_select", "max_bits"])
def test_ties_go_to_the_lowest_thread(update: str, shared: bool) -> None:
    """Thousands of threads at one cell, half of them with the largest value."""
    blocks = 1 if shared else 64
    if shared:
        body = f"""__shared__ double m; if (threadIdx.x == 0) m = y[0];
          __syncthreads(); {update}(&m, x[i]); __syncthreads(); if (threadIdx.x == 0) y[0] = m;"""
    else:
        body = f"{update}(y, x[i]);"
    head = "__global__ void k(double* y, const double* x) { int i = blockIdx.x * blockDim.x + threadIdx.x;"
    gradient = kg.gradient(kg.compile(FUNCTIONS + head + body + "}")["k"])
    x = np.random.default_rng(1).integers(0, 2, blocks * 512) * 7.0
    x[:100] = 0
    first = int(np.argmax(x))
    for initial in (0.0, 7.0):
        y, d_y, d_x = cupy.array([initial]), cupy.array([5.0]), cupy.zeros(x.size)
        gradient[blocks, 512](y, cupy.asarray(x), d_y, d_x)
        want = np.zeros(x.size)
        want[first] = 5 * (initial == 0)
        np.testing.assert_array_equal(d_x.get(), want)
        assert float(d_y[0]) == 5 * (initial != 0)
