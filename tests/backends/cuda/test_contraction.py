"""Sums over lanes of products as products of matrices: when they are, and what comes out.

The text runs under the emulation, where the lanes of a warp meet as on a GPU; the CPU, which has no such products, says
what is right.
"""

from __future__ import annotations

import shutil
from typing import Any

import numpy as np
import pytest
from run_text import run_emitted

import kernelgrad as kg
from some_cases import in_turn

EMULATED = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
N, INPUTS = 150, 16

# Each with `y` of 150, `x` of 151 * 16, `w` of 600 and `b` of 40 numbers, `m` = 5: how many groups of sums are products
# of matrices.
HEAD = "int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return; T s, out = 0, v[33], acc[32] = {0};"
READ = "for (int k = 0; k < 16; ++k) v[k] = x[i * 16 + k];"
KERNELS = {
    "layer": (
        1,
        f"{READ} for (int j = 0; j < 7; ++j) {{ s = b[j]; for (int k = 0; k < 16; ++k) s += w[j * 16 + k] * v[k];"
        " out += b[20 + j] * tanh(s); } y[i] = out;",
    ),
    "runtime_outputs": (
        1,
        f"{READ} for (int j = 0; j < m; ++j) {{ s = 0; for (int k = 0; k < 16; ++k) s += w[j * 16 + k] * v[k];"
        " out += s * s; } y[i] = out;",
    ),
    "weights_by_columns": (
        1,
        f"{READ} for (int j = 0; j < m; ++j) {{ s = 0; for (int k = 0; k < 16; ++k) s += w[k * 7 + j] * v[k];"
        " out += s * s; } y[i] = out;",
    ),
    "nine_inputs": (
        1,
        f"{READ} for (int j = 0; j < 7; ++j) {{ s = 0; for (int k = 0; k < 9; ++k) s += w[j * 9 + k] * v[k];"
        " out += fmax(s, (T)0); } y[i] = out;",
    ),
    "grid_stride": (
        1,
        "for (; i < n; i += 64) { for (int k = 0; k < 16; ++k) v[k] = x[i * 16 + k]; out = 0;"
        " for (int j = 0; j < m; ++j) { s = 0; for (int k = 0; k < 16; ++k) s += w[j * 16 + k] * v[k];"
        " out += s * s; } y[i] = out; }",
    ),
    "twenty_inputs": (
        1,
        "for (int k = 0; k < 20; ++k) v[k] = x[i * 16 + k]; for (int j = 0; j < m; ++j) { s = 0;"
        " for (int k = 0; k < 20; ++k) s += w[j * 20 + k] * v[k]; out += s * s; } y[i] = out;",
    ),
    "two_of_32_inputs": (
        2,
        "for (int k = 0; k < 32; ++k) v[k] = x[i * 16 + k]; for (int j = 0; j < m; ++j) { s = 0;"
        " for (int k = 0; k < 32; ++k) s += w[j * 32 + k] * v[k]; for (int k = 0; k < 32; ++k)"
        " s += w[300 + j * 32 + k] * v[31 - k]; out += s * s; } y[i] = out;",
    ),
    # What the loop adds up to has adjoints that are there before it is reversed.
    "rows_of_weights": (
        1,
        "for (int j = 0; j < m; ++j) { s = tanh(x[i * 16 + j]); for (int k = 0; k < 32; ++k)"
        " acc[k] += s * w[j * 32 + k]; } for (int k = 0; k < 32; ++k) out += acc[k] * acc[k]; y[i] = out;",
    ),
    "rows_and_columns": (
        2,
        f"{READ} for (int j = 0; j < m; ++j) {{ s = 0; for (int k = 0; k < 16; ++k)"
        " s += w[j * 16 + k] * v[k]; s = tanh(s); for (int k = 0; k < 16; ++k) acc[k] += s * w[200 + j * 16 + k]; }"
        " for (int k = 0; k < 16; ++k) out += acc[k] * acc[k]; y[i] = out;",
    ),
    "one_too_many": (
        1,
        "for (int k = 0; k < 33; ++k) v[k] = x[i * 16 + k % 32]; for (int j = 0; j < m; ++j) { s = 0;"
        " for (int k = 0; k < 33; ++k) s += w[j * 33 + k] * v[k]; out += s * s; } y[i] = out;",
    ),
    # Few sums, few iterations, weights of the lane's own, a loop of the lane's own length, a branch around.
    "three_inputs": (
        0,
        f"{READ} for (int j = 0; j < 7; ++j) {{ s = 0; for (int k = 0; k < 3; ++k) s += w[j * 9 + k] * v[k];"
        " out += s * s; } y[i] = out;",
    ),
    "own_weights": (
        0,
        f"{READ} for (int j = 0; j < m; ++j) {{ s = 0; for (int k = 0; k < 16; ++k) s += w[j * 16 + k + i % 2] * v[k];"
        " out += s * s; } y[i] = out;",
    ),
    "own_length": (
        0,
        f"{READ} for (int j = 0; j < m + i % 3; ++j) {{ s = 0; for (int k = 0; k < 16; ++k) s += w[j * 16 + k] * v[k];"
        " out += s * s; } y[i] = out;",
    ),
    "branch": (
        0,
        f"{READ} for (int j = 0; j < m; ++j) if (v[j] > 0) {{ s = 0; for (int k = 0; k < 16; ++k)"
        " s += w[j * 16 + k] * v[k]; out += s * s; } y[i] = out;",
    ),
}


def gradient_of(body: str, real: str) -> Any:
    parameters = f"{real} *y, const {real} *x, const {real} *w, const {real} *b, int n, int m"
    head = HEAD.replace("T ", f"{real} ")
    text = f"__global__ void k({parameters}) {{ {head} {body.replace('(T)', f'({real})')} }}"
    return kg.gradient(kg.compile(text)["k"], "y, x, w, b", primal=False, keep="y")


def arrays(rng: np.random.Generator, type: str) -> list[Any]:
    return [rng.standard_normal(n).astype(type) for n in ((N + 1) * INPUTS, 600, 40)]


WIDE = ("twenty_inputs", "two_of_32_inputs", "rows_of_weights", "rows_and_columns", "one_too_many")
SLOW = {(name, real) for name in WIDE for real in ("float", "double")} - {("rows_and_columns", "float")}


def kinds() -> list[Any]:
    reals = ("float", "double")
    wide = [pytest.param(n, real, marks=pytest.mark.slow if (n, real) in SLOW else ()) for n in WIDE for real in reals]
    return [*in_turn([name for name in KERNELS if name not in WIDE], reals), *wide]


@EMULATED
@pytest.mark.parametrize(("name", "real"), kinds())
def test_values(name: str, real: str) -> None:
    """Of whole warps, and of those at the end of blocks and of the launch. Zeros of the seed stay out."""
    groups, body = KERNELS[name]
    gradient = gradient_of(body, real)
    assert gradient.source.count("kg::lane_products(") == groups
    rng, type = np.random.default_rng(2), {"float": "f4", "double": "f8"}[real]
    x, w, b = arrays(rng, type)
    seed = (rng.standard_normal(N) * (np.arange(N) % 7 != 0)).astype(type)
    for grid, block in ((5, 32), (2, 80)) if name != "grid_stride" else ((2, 32), (1, 64)):
        expected = [np.ones(array.size, type) for array in (x, w, b)]
        gradient[grid, block](np.zeros(N, type), x, w, b, N, 5, seed.copy(), *expected)
        got = [np.ones(array.size, type) for array in (x, w, b)]
        arguments = [np.zeros(N, type), x, w, b, np.int32(N), np.int32(5), seed.copy(), *got]
        run_emitted(gradient.source, "k_grad", grid, block, arguments)
        for one, other in zip(got, expected, strict=True):
            tolerance = 1e-12 if real == "double" else 2e-5
            np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance * abs(other).max())


@EMULATED
@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_zeros_meet_what_is_not_finite(value: float) -> None:
    """An adjoint of zero adds nothing; the thread that has none has an input that is no number."""
    gradient = gradient_of(KERNELS["runtime_outputs"][1], "double")
    x, w, b = arrays(np.random.default_rng(2), "f8")
    seed = np.ones(N)
    seed[40] = 0
    x[40 * 16 + 3] = value
    got, expected = ([np.zeros(array.size) for array in (x, w, b)] for _ in range(2))
    run_emitted(gradient.source, "k_grad", 5, 32, [np.zeros(N), x, w, b, np.int32(N), np.int32(5), seed.copy(), *got])
    gradient[5, 32](np.zeros(N), x, w, b, N, 5, seed.copy(), *expected)
    assert np.isfinite(got[1]).all()
    np.testing.assert_allclose(got[1], expected[1], rtol=1e-12)


@EMULATED
@pytest.mark.parametrize("value", [np.inf, pytest.param(np.nan, marks=pytest.mark.slow)])
def test_zeros_from_before_meet_what_is_not_finite(value: float) -> None:
    """Adjoints of zero are what is exchanged before the loop; what they are multiplied by there is no number."""
    _, body = KERNELS["rows_of_weights"]
    gradient = gradient_of(body.replace("tanh(x[i * 16 + j])", "x[i * 16 + j] * 2"), "double")
    assert gradient.source.count("kg::lane_products(") == 1
    x, w, b = arrays(np.random.default_rng(2), "f8")
    seed = np.ones(N)
    seed[40] = 0
    x[40 * 16 + 3] = value
    got, expected = ([np.zeros(array.size) for array in (x, w, b)] for _ in range(2))
    run_emitted(gradient.source, "k_grad", 5, 32, [np.zeros(N), x, w, b, np.int32(N), np.int32(5), seed.copy(), *got])
    gradient[5, 32](np.zeros(N), x, w, b, N, 5, seed.copy(), *expected)
    assert np.isfinite(got[1]).all()
    np.testing.assert_allclose(got[1], expected[1], rtol=1e-12)


TILES = """
__global__ void k(float *o, const float *q, const float *a, int rows, int n) {
    __shared__ float tile[8][20], other[8][20];
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    float mine[20], sum[20] = {0};
    for (int d = 0; d < 20; ++d) mine[d] = row < rows ? q[row * 20 + d] : 0;
    for (int start = 0; start < n; start += 8) {
        __syncthreads();
        for (int c = threadIdx.x; c < 160; c += blockDim.x) {
            tile[c / 20][c % 20] = start + c / 20 < n ? a[start * 20 + c] : 0;
            other[c / 20][c % 20] = start + c / 20 < n ? a[(n + start) * 20 + c] : 0;
        }
        __syncthreads();
        LOOP {
            float score = 0;
            for (int d = 0; d < 20; ++d) score += mine[d] * tile[t][d];
            score = tanhf(score);
            for (int d = 0; d < 20; ++d) sum[d] += score * other[t][d];
        }
    }
    if (row < rows) for (int d = 0; d < 20; ++d) o[row * 20 + d] = sum[d];
}"""
LOOPS = {
    "until": "for (int t = 0; t < 8 && start + t < n; ++t)",
    "whole": "for (int t = 0; t < 8; ++t)",
    "minimum": "for (int t = 0; t < min(8, n - start); ++t)",
    "while": "int t = -1; while (++t < 8)",
}


@EMULATED
@pytest.mark.parametrize("loop", ["until", *(pytest.param(k, marks=pytest.mark.slow) for k in LOOPS if k != "until")])
def test_tiles_that_a_block_reads(loop: str) -> None:
    """The adjoints of the shared tile are products of matrices, one of them with adjoints as columns."""
    gradient = kg.gradient(kg.compile(TILES.replace("LOOP", LOOPS[loop]))["k"], "o, q, a", primal=False, keep="o")
    assert gradient.source.count("kg::lane_products(") == 2
    rows, n, rng = 70, 21, np.random.default_rng(3)
    q, a, seed = (rng.standard_normal(size * 20).astype("f4") for size in (rows, 2 * n, rows))
    for grid, block in ((3, 32), (2, 40)):
        got, expected = ([np.zeros_like(array) for array in (q, a)] for _ in range(2))
        given = [np.zeros(rows * 20, "f4"), q, a, np.int32(rows), np.int32(n)]
        gradient[grid, block](*given, seed.copy(), *expected)
        run_emitted(gradient.source, "k_grad", grid, block, [*given, seed.copy(), *got])
        for one, other in zip(got, expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-5 * abs(other).max())


MEETING = """
__global__ void k(float *y, const float *x, const float *w, const float *b, int m) {
    __shared__ float weights[80], row[64];
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    float v[16], out = 0;
    for (int k = 0; k < 16; ++k) v[k] = x[i * 16 + k];
    for (int e = t; e < 80; e += 64) weights[e] = w[e];
    for (int j = 0; j < m; ++j) {
        row[t] = b[j * 64 + t];
        __syncthreads();
        float s = row[(t + 1) % 64];
        for (int k = 0; k < 16; ++k) s += weights[j * 16 + k] * v[k];
        __syncthreads();
        out += s * s;
    }
    y[i] = out;
}"""


@EMULATED
def test_sums_are_added_before_threads_meet() -> None:
    """The barrier in the loop is all that parts the sums from the threads that take them, behind the loop."""
    gradient = kg.gradient(kg.compile(MEETING)["k"], "y, x, w, b", primal=False, keep="y")
    text = gradient.source[gradient.source.index("for (int j = m - 1") :]
    parts = text[: text.index("_d_weights_value")].split("__syncthreads();")
    assert ["kg::lane_products(" in part for part in parts] == [False, False, True, False]
    rng = np.random.default_rng(3)
    x, w, b, seed = (rng.standard_normal(size).astype("f4") for size in (128 * 16, 80, 5 * 64, 128))
    got, expected = ([np.zeros_like(array) for array in (x, w, b)] for _ in range(2))
    given = [np.zeros(128, "f4"), x, w, b, np.int32(5)]
    gradient[2, 64](*given, seed.copy(), *expected)
    run_emitted(gradient.source, "k_grad", 2, 64, [*given, seed.copy(), *got])
    for one, other in zip(got, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-5 * abs(other).max())
