"""Local arrays that short loops fill and read are values: no tape, and the same gradients."""

from __future__ import annotations

import numpy as np
import pytest

import kernelgrad as kg

TILE = """
__global__ void tile(double *c, const double *a, const double *b, int n) {
    __shared__ double as[4][8], bs[4][8];
    int tx = threadIdx.x % 4, ty = threadIdx.x / 4, row = blockIdx.y * 8, col = blockIdx.x * 8;
    double acc[2][2] = {};
    for (int k0 = 0; k0 < n; k0 += 4) {
        for (int e = threadIdx.x; e < 32; e += 16) {
            as[e % 4][e / 4] = a[(row + e / 4) * n + k0 + e % 4];
            bs[e / 8][e % 8] = b[(k0 + e / 8) * n + col + e % 8];
        }
        __syncthreads();
        for (int k = 0; k < 4; k++) {
            double u[2], v[2];
            PRAGMA
            for (int i = 0; i < 2; i++) { u[i] = as[k][ty * 2 + i]; v[i] = bs[k][tx * 2 + i]; }
            for (int i = 0; i < 2; i++)
                for (int j = 0; j < 2; j++) acc[i][j] += u[i] * v[j];
        }
        __syncthreads();
    }
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 2; j++) c[(row + ty * 2 + i) * n + col + tx * 2 + j] = acc[i][j];
}"""

# Bodies over `double x[], int n`, thread t: what is left of the array in memory, and the tape of a thread.
BODIES = {
    "triangle": "double v[4];"
    " for (int i = 0; i < 4; i++) { v[i] = x[t + i]; for (int j = 0; j < i; j++) v[i] *= v[j]; }"
    " for (int s = 0; s < n; s++) for (int i = 0; i < 4; i++) v[i] = sin(v[i]) * v[3 - i]; y[t] = v[0] + v[3];",
    "table": "const double w[3] = {0.5, 2, 3}; double s = 0;"
    " for (int i = 0; i < 3; i++) s += w[2 - i] * x[t + i] * x[t]; y[t] = s;",
    "struct": "struct P { double u[2]; int k; } p; for (int i = 0; i < 2; i++) p.u[i] = x[t + i]; p.k = n;"
    " for (int s = 0; s < p.k; s++) { double z = p.u[0]; for (int i = 0; i < 2; i++) z *= p.u[i]; p.u[1] = z + x[t]; }"
    " y[t] = p.u[1] * p.u[0];",
    "downwards": "double v[3]; for (int i = 2; i >= 0; i--) v[i] = x[t + i]; double s = 1;"
    " for (int i = 4; i >= 0; i -= 2) s *= v[i / 2]; y[t] = s;",
}
DYNAMIC = {
    "data": "double v[4]; for (int i = 0; i < 4; i++) v[i] = x[t + i]; y[t] = v[k[t] & 3] * v[1];",
    "runtime": "double v[4]; for (int i = 0; i < n; i++) v[i & 3] = x[t + i]; y[t] = v[0] * v[n & 3];",
    "escapes": "double v[4], *p; for (int i = 0; i < 4; i++) v[i] = x[t + i]; p = k[t] > 0 ? v : v + 1;"
    " y[t] = p[0] * p[1];",
}


def kernel(body: str) -> kg.Kernel:
    return kg.compile(
        f"__global__ void k(double *y, const double *x, const int *k, int n) {{ int t = threadIdx.x; {body} }}"
    )["k"]


@pytest.mark.parametrize("pragma", ["", "#pragma unroll"])
def test_register_tile_needs_no_tape(pragma: str) -> None:
    tile = kg.compile(TILE.replace("PRAGMA", pragma))["tile"]
    a, b, seed = np.random.default_rng(1).normal(size=(3, 16, 16))
    gradient = kg.gradient(tile, "c, a, b")
    grid, c, d_c, d_a, d_b = (2, 2), np.zeros_like(a), seed.copy(), np.zeros_like(a), np.zeros_like(a)
    assert gradient.tape_bytes(grid, 16, c, a, b, 16) == 0
    gradient[grid, 16](c, a, b, 16, d_c, d_a, d_b)
    np.testing.assert_allclose(c, a @ b)
    np.testing.assert_allclose(d_a, seed @ b.T)
    np.testing.assert_allclose(d_b, a.T @ seed)


@pytest.mark.parametrize("name", [*BODIES, *DYNAMIC])
def test_gradients(name: str) -> None:
    compiled = kernel({**BODIES, **DYNAMIC}[name])
    x, index = np.random.default_rng(2).uniform(0.5, 1.5, 12), np.array([0, 3, 2, 1], np.int32)
    report = kg.check_gradient(compiled, None, 1, 4, (np.zeros(4), x, index, 3))
    assert not report.notes


@pytest.mark.parametrize("name", BODIES)
def test_nothing_is_left_in_memory(name: str) -> None:
    source = kg.gradient(kernel(BODIES[name])).source
    assert "v[" not in source and "u[" not in source


@pytest.mark.parametrize("name", DYNAMIC)
def test_what_is_dynamic_stays(name: str) -> None:
    assert "double v[4];" in kg.gradient(kernel(DYNAMIC[name])).source


def test_long_functions_stay_loops() -> None:
    body = (
        "double v[200]; "
        + "for (int i = 0; i < 200; i++) v[i] = sin(x[t + i]) * i; double s = 0; "
        + "".join(f"for (int i = 0; i < 200; i++) s += v[i] * x[t + {m}]; " for m in range(8))
    )
    assert "v[200]" in kg.gradient(kernel(body + "y[t] = s;")).source
