"""Plain updates through promised index buffers, on a GPU: what atomics give, at a size where threads would collide."""

from __future__ import annotations

import numpy as np
import pytest

import kernelgrad as kg

cupy = pytest.importorskip("cupy")

SOURCE = """
__global__ void gather(float *y, const float *x, const int *idx, int n, int w) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[idx[i]] * x[idx[i]];
}
__global__ void scatter(float *y, const float *x, const int *idx, int n, int w) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[idx[i]] = x[i] * x[i];
}
__global__ void rows(float *y, const float *x, const int *idx, int n, int w) {
    for (int c = threadIdx.x; c < w; c += blockDim.x) {
        float v = x[idx[blockIdx.x] * w + c];
        y[blockIdx.x * w + c] = v * v;
    }
}
"""
ROWS, WIDTH = 1 << 14, 100


@pytest.mark.parametrize(("name", "grid", "length"), [("gather", 64, 1), ("scatter", 64, 1), ("rows", ROWS, WIDTH)])
@pytest.mark.parametrize("settings", [{}, {"primal": False, "assign": "x"}])
def test_gpu_gives_what_atomics_give(name: str, grid: int, length: int, settings: dict[str, object]) -> None:
    kernel = kg.compile(SOURCE)[name]
    promised = kg.gradient(kernel, "y, x", assume=kg.assume(unique="idx"), **settings)
    assert "atomicAdd" not in promised.source
    random = np.random.default_rng(5)
    x, seed = (cupy.asarray(random.random(ROWS * length, np.float32)) for _ in range(2))
    idx = cupy.asarray(random.permutation(ROWS).astype(np.int32))
    results = []
    for gradient in (promised, kg.gradient(kernel, "y, x", **settings)):
        y, d_y, d_x = cupy.zeros_like(x), seed.copy(), cupy.full_like(x, 0 if not settings else 7)
        gradient[grid, 256](y, x, idx, ROWS, WIDTH, d_y, d_x)
        results.append((y.get(), d_y.get(), d_x.get()))
    for got, want in zip(*results, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-6)
    assert abs(results[0][2]).sum() > 0
