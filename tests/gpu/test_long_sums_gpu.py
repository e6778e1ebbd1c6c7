"""Sums of adjoints over very many equal floats on the GPU: nothing of what is added gets lost."""

from __future__ import annotations

import numpy as np
import pytest

import kernelgrad as kg

cp = pytest.importorskip("cupy")

_LOOPS = {
    "element": "for (int j = 0; j < n; j++) s += w[0] * 1.1f;",
    "local": "float v = w[0] * 1.0f; for (int j = 0; j < n; j++) s += v * 1.1f;",
    "branch": "for (int j = 0; j < 2 * n; j++) if (j % 2 == 0) s += w[0] * 1.1f;",
    "nested": "for (int j = 0; j < n / 2048; j++) for (int k = 0; k < 2048; k++) s += w[0] * 1.1f;",
    "threads": "for (int j = threadIdx.x; j < n; j += blockDim.x) s += w[0] * 1.1f;",
}


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("name", _LOOPS)
def test_one_threads_sum(name: str, deterministic: bool) -> None:
    head = "__global__ void k(float *y, const float *w, int n)"
    kernel = kg.compile(f"{head} {{ float s = 0; {_LOOPS[name]} y[threadIdx.x] = s; }}")["k"]
    n, threads = (1 << 26, 256) if name == "threads" else (1 << 24, 1)
    w, d_w = cp.full(1, 0.5, "f4"), cp.zeros(1, "f4")
    gradient = kg.gradient(kernel, "y, w", deterministic=deterministic)
    gradient[1, threads](cp.zeros(threads, "f4"), w, n, cp.ones(threads, "f4"), d_w)
    np.testing.assert_allclose(d_w.get(), [float(np.float32(1.1)) * n], rtol=1e-5)


@pytest.mark.parametrize("n", [1 << 24, 1 << 26])
def test_the_sum_of_a_number(n: int) -> None:
    kernel = kg.compile("""__global__ void k(float *y, float a) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        y[i] = a * 1.1f;
    }""")["k"]
    d_a = cp.zeros(1, "f4")
    kg.gradient(kernel, "y, a")[n // 256, 256](cp.zeros(n, "f4"), 0.5, cp.ones(n, "f4"), d_a)
    np.testing.assert_allclose(d_a.get(), [float(np.float32(1.1)) * n], rtol=1e-5)
