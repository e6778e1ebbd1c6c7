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


SEGMENTED = """
__global__ void csr(float *y, const float *x, const int *row, const int *count, int n) {
    int s = blockIdx.x * blockDim.x + threadIdx.x;
    if (s >= n) return;
    float a = 0;
    for (int k = row[s]; k < row[s + 1]; ++k) a += x[k] * x[k];
    y[s] = a;
}
__global__ void ragged(float *y, const float *x, const int *row, const int *count, int n) {
    int s = blockIdx.x * blockDim.x + threadIdx.x;
    if (s >= n) return;
    float a = 0;
    for (int j = 0; j < count[s]; ++j) a += x[row[s] + j] * x[row[s] + j];
    y[s] = a;
}
__global__ void lanes(float *y, const float *x, const int *row, const int *count, int n) {
    int s = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (s >= n) return;
    float a = 0;
    for (int k = row[s] + lane; k < row[s + 1]; k += 32) a += x[k] * x[k];
    for (int d = 16; d > 0; d /= 2) a += __shfl_xor_sync(0xffffffff, a, d);
    if (lane == 0) y[s] = a;
}
"""


@pytest.mark.parametrize(("name", "each"), [("csr", 1), ("ragged", 1), ("lanes", 32)])
@pytest.mark.parametrize("settings", [{}, {"primal": False, "keep": "y"}, {"deterministic": True}])
def test_gpu_segments_give_what_atomics_give(name: str, each: int, settings: dict[str, object]) -> None:
    kernel, segments = kg.compile(SEGMENTED)[name], 5000
    promised = kg.assume(disjoint=("row", "count") if name == "ragged" else "row")
    random = np.random.default_rng(7)
    lengths = random.integers(0, 70, segments)
    row = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    x, seed = random.random(row[-1], np.float32), random.random(segments, np.float32)
    arrays = [cupy.asarray(a) for a in (np.zeros(segments, np.float32), x, row, lengths.astype(np.int32))]
    results = []
    for assume in (None, promised):
        d_x = cupy.zeros_like(arrays[1])
        gradient = kg.gradient(kernel, "y, x", assume=assume, **settings)
        gradient[-(-segments * each // 256), 256](*arrays, segments, cupy.asarray(seed), d_x)
        results.append(cupy.asnumpy(d_x))
    np.testing.assert_allclose(results[1], results[0], rtol=1e-5)
    np.testing.assert_allclose(results[1], 2 * x * np.repeat(seed, lengths), rtol=1e-5)


RESULTS = """
__global__ void norm(float *y, float *mean, float *rstd, const float *x, int rows, int n) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    float s = 0, q = 0;
    for (int c = 0; c < n; ++c) s += x[row * n + c];
    float m = s / n;
    mean[row] = m;
    for (int c = 0; c < n; ++c) q += (x[row * n + c] - m) * (x[row * n + c] - m);
    float r = rsqrtf(q / n + 1e-5f);
    rstd[row] = r;
    for (int c = 0; c < n; ++c) y[row * n + c] = (x[row * n + c] - m) * r;
}
"""


@pytest.mark.parametrize("settings", [{}, {"keep": "y, mean, rstd", "assign": "x"}])
def test_gpu_results_that_are_read_give_what_computing_gives(settings: dict[str, object]) -> None:
    kernel, rows, n = kg.compile(RESULTS)["norm"], 3000, 48
    random = np.random.default_rng(2)
    x, seed = (cupy.asarray(random.random(rows * n, np.float32)) for _ in range(2))
    y, mean, rstd = cupy.zeros_like(x), cupy.zeros(rows, np.float32), cupy.zeros(rows, np.float32)
    kernel[-(-rows // 128), 128](y, mean, rstd, x, rows, n)
    results = []
    for assume in (None, kg.assume(results="mean, rstd")):
        gradient = kg.gradient(kernel, primal=False, assume=assume, **settings)
        d_x, small = cupy.zeros_like(x), cupy.ones(rows, np.float32)
        gradient[-(-rows // 128), 128](y, mean, rstd, x, rows, n, seed.copy(), small, small.copy(), d_x)
        results.append(cupy.asnumpy(d_x))
    np.testing.assert_allclose(results[1], results[0], rtol=1e-4, atol=1e-5)
