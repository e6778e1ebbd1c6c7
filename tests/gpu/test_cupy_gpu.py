"""`cupy.RawKernel`: its gradient, with CuPy's arrays."""

from __future__ import annotations

import pytest

import kernelgrad as kg

cupy = pytest.importorskip("cupy")

CODE = r"""
extern "C" __global__ void scaled(float *y, const float *x, float a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i] * x[i];
}
"""


def test_a_raw_kernel_and_its_gradient() -> None:
    raw, n = cupy.RawKernel(CODE, "scaled"), 100_000
    grid = (n + 255) // 256
    x, y = cupy.arange(n, dtype="f4") / n, cupy.zeros(n, "f4")
    raw((grid,), (256,), (y, x, cupy.float32(2), n))
    g = kg.gradient(raw, "y, x, a", primal=False, keep="y", assign="x, a")
    d_y, d_x, d_a = cupy.ones(n, "f4"), cupy.empty(n, "f4"), cupy.empty(1, "f4")
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.get_current_stream().synchronize()
    with stream:
        g[grid, 256](y, x, 2.0, n, d_y, d_x, d_a)
    stream.synchronize()
    cupy.testing.assert_allclose(d_x, 4 * x, rtol=1e-6)
    cupy.testing.assert_allclose(d_a, (x * x).sum(), rtol=1e-5)
    cupy.testing.assert_allclose(y, 2 * x * x, rtol=1e-6)
