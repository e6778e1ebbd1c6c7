"""Sines and cosines of one argument are computed together."""

from __future__ import annotations

import shutil
from typing import Any

import numpy as np
import pytest
from run_text import run_emitted

import kernelgrad as kg
from kernelgrad.runtime.nvrtc import compile_only

EMULATED = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
I = "int i = threadIdx.x;"  # noqa: E741


def text_of(body: str, element: str = "float") -> str:
    text = str(kg.compile(f"__global__ void k({element} *y, const {element} *x) {{ {I} {body} }}")["k"].source)
    compile_only(text, "sm_90")
    return text


# The body; calls of sincos, of sin and of cos.
CASES: dict[str, tuple[str, tuple[int, int, int]]] = {
    "both": ("y[i] = sinf(x[i]) * cosf(x[i]);", (1, 0, 0)),
    "cosine first": ("float v = x[i], c = cosf(v); y[i] = c * c + sinf(v);", (1, 0, 0)),
    "between them a store": ("float v = x[i]; y[i] = sinf(v); y[i + 16] = cosf(v) * y[i];", (1, 0, 0)),
    "other arguments": ("float v = x[i]; y[i] = sinf(v) * cosf(v + 1.0f);", (0, 1, 1)),
    "two arguments": ("float v = x[i]; y[i] = sinf(v) * cosf(v + 1.0f) + cosf(v) * sinf(v + 1.0f);", (2, 0, 0)),
    "sines alone": ("float v = x[i]; y[i] = sinf(v) * sinf(v * v);", (0, 2, 0)),
    "a branch": ("float v = x[i], s = sinf(v); if (v > 0.5f) s += cosf(v) * v; y[i] = s;", (0, 1, 1)),
    "both in a branch": ("float v = x[i]; if (v > 0.5f) y[i] = sinf(v) + cosf(v); else y[i] = v;", (1, 0, 0)),
    "a loop": ("float v = x[i]; for (int k = 0; k < 3; k++) v = sinf(v) + cosf(v); y[i] = v;", (1, 0, 0)),
    "a rotation": ("float a = x[i], b = sinf(a); a = cosf(a) * b; y[i] = a + b;", (1, 0, 0)),
    "as the source has it": ("float s, c; sincosf(x[i], &s, &c); y[i] = s * c;", (1, 0, 0)),
    "its name is taken": (
        "float sincosf_ = x[i], sincosf = sinf(sincosf_); y[i] = cosf(sincosf_) * sincosf;",
        (1, 0, 0),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_calls(name: str) -> None:
    body, calls = CASES[name]
    text = text_of(body)
    assert tuple(text.count(f" {call}(") for call in ("sincosf", "sinf", "cosf")) == calls, text


@EMULATED
@pytest.mark.parametrize("name", CASES)
def test_values(name: str) -> None:
    body, _ = CASES[name]
    kernel = kg.compile(f"__global__ void k(float *y, const float *x) {{ {I} {body} }}")["k"]
    x = np.linspace(-3, 3, 16, dtype=np.float32)
    native, emulated = np.zeros(32, np.float32), np.zeros(32, np.float32)
    kernel[1, 16](native, x)
    run_emitted(kernel.source, "k", 1, 16, [emulated, x])
    np.testing.assert_allclose(emulated, native, rtol=1e-5, atol=1e-6)


@EMULATED
def test_doubles() -> None:
    kernel: Any = kg.compile(f"__global__ void k(double *y, const double *x) {{ {I} y[i] = sin(x[i]) * x[i]; }}")["k"]
    text = kg.gradient(kernel, "y, x").source
    assert "sincos(" in text and " sin(" not in text
    x, d_y, d_x = np.linspace(-3, 3, 16), np.ones(16), np.zeros(16)
    run_emitted(text, "k_grad", 1, 16, [np.zeros(16), x, d_y, d_x])
    np.testing.assert_allclose(d_x, np.sin(x) + x * np.cos(x), rtol=1e-12)


def test_half_precision() -> None:
    assert " sincosf(" in text_of("y[i] = hsin(x[i]) * hcos(x[i]);", "__half")  # by way of floats
