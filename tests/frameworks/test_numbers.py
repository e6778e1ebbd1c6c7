"""Kernels whose numbers lie in memory."""

from __future__ import annotations

import numpy as np

import kernelgrad as kg
from kernelgrad.frameworks.numbers import by_pointer
from kernelgrad.runtime.nvrtc import compile_only

KERNEL = kg.compile("""
__global__ void weighted(double *y, const double *x, double a, float b, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i] * x[i] * b + (a > 1 ? b : 2 * b);
}
""")["weighted"]


def test_numbers_in_memory() -> None:
    kernel = by_pointer(KERNEL, {"a", "b"})
    assert (
        repr(kernel) == "__global__ void weighted(double *y, const double *x, const double *a, const float *b, int n)"
    )
    x, y, a, b = np.linspace(0.1, 1, 1000), np.zeros(1000), np.array([1.5]), np.array([2], np.float32)
    kernel[4, 256](y, x, a, b, 1000)
    np.testing.assert_allclose(y, 3 * x * x + 2)
    g = kg.gradient(kernel, "y, x, a, b", primal=False, keep="y", assign="x, a, b")
    d_y, d_x, d_a, d_b = np.cos(x), np.empty(1000), np.empty(1), np.empty(1, np.float32)
    g[4, 256](y, x, a, b, 1000, d_y, d_x, d_a, d_b)
    np.testing.assert_allclose(d_x, 6 * x * d_y)
    np.testing.assert_allclose(d_a, (2 * x * x * d_y).sum())
    np.testing.assert_allclose(d_b, ((1.5 * x * x + 1) * d_y).sum(), rtol=1e-6)
    assert kg.check_gradient(kernel, "y, x, a, b", 4, 256, (y, x, a, b, 1000))
    for text in (kernel.source, g.source):
        compile_only(text, "sm_90")


def test_only_those_that_are_named() -> None:
    kernel = by_pointer(KERNEL, {"b"})
    y, x = np.zeros(4), np.ones(4)
    kernel[1, 4](y, x, 1.5, np.array([2], np.float32), 4)
    assert y.tolist() == [5.0] * 4
