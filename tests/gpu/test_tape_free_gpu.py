"""Loops whose reverse needs no tape, on a GPU: attention, running maxima, pointers that walk, as on the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg

cupy = pytest.importorskip("cupy")

D, N, ROWS = 16, 37, 150
ATTENTION = r"""
__global__ void attend(const double *q, const double *k, const double *v, double *o, int n, int rows) {
    const int D = 16;
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    double m = -1e30, l = 0, acc[D], own[D];
    for (int d = 0; d < D; ++d) { acc[d] = 0; own[d] = q[row * D + d]; }
    for (int j = 0; j < n; ++j) {
        double s = 0;
        for (int d = 0; d < D; ++d) s += own[d] * k[j * D + d];
        double top = fmax(m, s), c = exp(m - top), p = exp(s - top);
        l = l * c + p;
        for (int d = 0; d < D; ++d) acc[d] = acc[d] * c + p * v[j * D + d];
        m = top;
    }
    for (int d = 0; d < D; ++d) o[row * D + d] = acc[d] / l;
}
__global__ void walk(const double *q, const double *k, const double *v, double *o, int n, int rows) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    const double *p = q + row * 16, *w = k;
    double sum = 0, top = -1e30;
    for (int left = n; left--; w += 16) {
        double s = *w * p[left % 16] + v[left];
        top = fmax(top, s);
        sum += *w * s;
    }
    o[row * 16] = sum * top;
}
__global__ void tiles(const double *q, const double *k, const double *v, double *o, int n, int rows) {
    const int D = 16, B = 8;
    __shared__ double ks[B * D], vs[B * D];
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    double m = -1e30, l = 0, acc[D], own[D];
    for (int d = 0; d < D; ++d) { acc[d] = 0; own[d] = row < rows ? q[row * D + d] : 0; }
    for (int b = 0; b < n; b += B) {
        __syncthreads();
        for (int i = threadIdx.x; i < B * D; i += blockDim.x) {
            ks[i] = b * D + i < n * D ? k[b * D + i] : 0;
            vs[i] = b * D + i < n * D ? v[b * D + i] : 0;
        }
        __syncthreads();
        for (int t = 0; t < B && b + t < n; ++t) {
            double s = 0;
            for (int d = 0; d < D; ++d) s += own[d] * ks[t * D + d];
            double top = fmax(m, s), c = exp(m - top), p = exp(s - top);
            l = l * c + p;
            for (int d = 0; d < D; ++d) acc[d] = acc[d] * c + p * vs[t * D + d];
            m = top;
        }
    }
    if (row < rows) for (int d = 0; d < D; ++d) o[row * D + d] = acc[d] / l;
}
"""
WAYS: list[dict[str, Any]] = [{}, {"primal": False}, {"deterministic": True}, {"tape_budget": 1 << 20}]


@pytest.fixture(scope="module")
def module() -> Any:
    return kg.compile(ATTENTION)


@pytest.mark.parametrize("name", ["attend", "walk", "tiles"])
@pytest.mark.parametrize("way", WAYS, ids=str)
def test_as_on_the_cpu(module: Any, name: str, way: dict[str, Any]) -> None:
    made = kg.gradient(module[name], "o, q, k, v", **way)
    rng = np.random.default_rng(5)
    q, k, v, o = (rng.normal(size=(count, D)) for count in (ROWS, N, N, ROWS))
    d_o, d_q, d_k, d_v = (rng.normal(size=a.shape) for a in (o, q, k, v))
    want = [q, k, v, o, N, ROWS, d_o, d_q, d_k, d_v]
    found = [cupy.asarray(a) if isinstance(a, np.ndarray) else a for a in want]
    made[5, 32](*want)
    made[5, 32](*found)
    for got, expected in zip(found, want, strict=True):
        np.testing.assert_allclose(cupy.asnumpy(got), expected, rtol=1e-9, atol=1e-11)
