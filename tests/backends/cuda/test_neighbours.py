"""Atomic additions to neighbouring floats are made together."""

from __future__ import annotations

import re
import shutil
from functools import cache
from typing import Any

import numpy as np
import pytest
from run_text import run_emitted

import kernelgrad as kg
from derived import kernel_of
from kernelgrad.runtime.nvrtc import compile_only

EMULATED = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
SIZE = 64
# The parameters between y and n, the body; how many additions of four, two and one element.
CASES: dict[str, tuple[str, str, tuple[int, int, int]]] = {
    "float4": ("const float4 *x", "float4 v = x[j[i]]; y[i] = v.x * v.y + v.z * v.w;", (1, 0, 0)),
    "float2": ("const float2 *x", "float2 v = x[j[i]]; y[i] = v.x * v.y;", (0, 1, 0)),
    "float3": ("const float3 *x", "float3 v = x[j[i]]; y[i] = v.x * v.y * v.z;", (0, 1, 1)),
    "some of a float4": ("const float4 *x", "float4 v = x[j[i]]; y[i] = v.x * v.w;", (0, 0, 2)),
    "a row": ("const float *x", "const float *p = x + 4 * j[i]; y[i] = p[0] * p[1] + p[3] * p[2];", (1, 0, 0)),
    "a row of five": (
        "const float *x",
        "int k = 5 * j[i]; y[i] = x[k] * x[k + 1] + x[k + 2] * x[k + 3] * x[k + 4];",
        (1, 0, 1),
    ),
    "a row, in part of pairs": (
        "const float *x",
        "int k = 4 * j[i]; float2 v = *(const float2 *)(x + k); y[i] = v.x * v.y + x[k + 2] * x[k + 3];",
        (1, 0, 0),
    ),
    "two rows": (
        "const float2 *x",
        "float2 a = x[j[i]], b = x[(j[i] + 7) % n]; y[i] = a.x * b.x + a.y * b.y;",
        (0, 2, 0),
    ),
    "an element twice": ("const float2 *x", "float2 a = x[j[i]]; y[i] = a.x * x[j[i]].x * a.y;", (0, 1, 1)),
    "indices that may wrap": (
        "const float *x",
        "unsigned k = 2u * j[i]; y[i] = x[k] * x[k + 1u];",
        (0, 0, 2),
    ),
    "doubles": ("const double2 *x", "double2 v = x[j[i]]; y[i] = v.x * v.y;", (0, 0, 2)),
    "one of them in a branch": (
        "const float *x",
        "int k = 2 * j[i]; float r = x[k] * x[k]; if (r > 0.1f) r += x[k + 1] * r; y[i] = r;",
        (0, 0, 2),
    ),
}


def gradient_of(name: str) -> Any:
    params, body, _ = CASES[name]
    start = "int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return;"
    kernel = kernel_of(f"__global__ void k(float *y, {params}, const int *j, int n) {{ {start} {body} }}")
    return kg.gradient(kernel, "y, x", primal=False, keep="y")


def arguments(name: str) -> tuple[Any, ...]:
    rng = np.random.default_rng(5)
    element = np.float64 if name == "doubles" else np.float32
    x = rng.uniform(-1, 1, SIZE * 6).astype(element)
    j = rng.integers(0, SIZE, SIZE).astype(np.int32)
    j[:32] = 3  # a warp that adds to one place
    return np.zeros(SIZE, np.float32), x, j, np.int32(SIZE - 3)


@pytest.mark.parametrize("name", CASES)
def test_calls(name: str) -> None:
    text = gradient_of(name).source
    body = text[text.index('extern "C"') :]
    calls = tuple(len(re.findall(rf"\b{call}\(", body)) for call in ("warp_add_4", "warp_add_2"))
    singly = sum(len(re.findall(rf"\b{call}\(", body)) for call in ("warp_add", "atomicAdd"))
    assert (*calls, singly) == CASES[name][2], text
    for architecture in ("sm_80", "sm_90"):
        assert compile_only(text, architecture)


# Weights that all threads share: the parameters, the body, and the calls for rows of them.
ROWS = {
    "sixteen": ("float", "float s = 0; for (int k = 0; k < 16; ++k) s += w[k] * v[k]; y[i] = s * s;", {16: 1}),
    "forty": ("float", "float s = 0; for (int k = 0; k < 40; ++k) s += w[k] * v[k % 16]; y[i] = s * s;", {32: 1, 8: 1}),
    "eleven": ("float", "float s = 0; for (int k = 0; k < 11; ++k) s += w[k] * v[k]; y[i] = s * s;", {8: 1, 2: 1}),
    "doubles": ("double", "double s = 0; for (int k = 0; k < 16; ++k) s += w[k] * v[k]; y[i] = s * s;", {16: 1}),
    "each its own": (
        "float",
        "float s = 0; for (int k = 0; k < 8; ++k) s += w[j[i] + k] * v[k]; y[i] = s * s;",
        {8: 1},
    ),
}


@cache
def shared_weights(name: str) -> Any:
    type, body, _ = ROWS[name]
    start = "int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return;"
    fill = f"{type} v[16]; for (int k = 0; k < 16; ++k) v[k] = x[i * 16 + k];"
    params = f"{type} *y, const {type} *x, const {type} *w, const int *j, int n"
    kernel = kernel_of(f"__global__ void k({params}) {{ {start} {fill} {body} }}")
    return kg.gradient(kernel, "y, x, w", primal=False, keep="y")


@EMULATED
@pytest.mark.parametrize("count", [64, 61, 20])
@pytest.mark.parametrize("name", ROWS)
def test_rows_of_weights(name: str, count: int) -> None:
    type, _, calls = ROWS[name]
    gradient, real = shared_weights(name), np.float64 if type == "double" else np.float32
    for size in (32, 16, 8, 4, 2):
        body = gradient.source[gradient.source.index('extern "C"') :]
        assert len(re.findall(rf"\bwarp_add_{size}\(", body)) == calls.get(size, 0), gradient.source
    assert compile_only(gradient.source, "sm_90") and compile_only(gradient.source, "sm_80")
    rng = np.random.default_rng(3)
    x, w, d_y = (rng.uniform(-1, 1, size).astype(real) for size in (64 * 16, 72, 64))
    j = rng.integers(0, 60, 64).astype(np.int32)
    adjoints = []
    for run in (gradient[2, 32], lambda *args: run_emitted(gradient.source, "k_grad", 2, 32, list(args))):
        d_x, d_w = np.zeros_like(x), np.zeros_like(w)
        run(np.zeros(64, real), x, w, j, np.int32(count), d_y, d_x, d_w)
        adjoints.append((d_x, d_w))
    (native_x, native_w), (emulated_x, emulated_w) = adjoints
    assert native_w.any()
    np.testing.assert_allclose(emulated_x, native_x, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(emulated_w, native_w, rtol=1e-5, atol=1e-5)


@EMULATED
@pytest.mark.parametrize("name", CASES)
def test_values(name: str) -> None:
    y, x, j, n = arguments(name)
    d_y = np.random.default_rng(7).uniform(-1, 1, SIZE).astype(np.float32)
    native, emulated = np.zeros_like(x), np.zeros_like(x)
    gradient = gradient_of(name)
    gradient[2, 32](y, x, j, int(n), d_y, native)
    run_emitted(gradient.source, "k_grad", 2, 32, [y, x, j, n, d_y, emulated])
    assert native.any()
    np.testing.assert_allclose(emulated, native, rtol=1e-5, atol=1e-5)
