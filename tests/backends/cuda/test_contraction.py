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

# Each with `y` of 150, `x` of 150 * 16, `w` of 600 and `b` of 40 numbers, `m` = 5: how many groups of sums are products
# of matrices.
HEAD = "int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return; T s, out = 0, v[16];"
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
    return [rng.standard_normal(n).astype(type) for n in (N * INPUTS, 600, 40)]


@EMULATED
@pytest.mark.parametrize(("name", "real"), in_turn(KERNELS, ("float", "double")))
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
