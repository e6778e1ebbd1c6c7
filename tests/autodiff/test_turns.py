"""Additions to shared cells that threads make in turns."""

from __future__ import annotations

import re
import shutil
from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from kernelgrad.derivatives.gradient import Gradient
from kernelgrad.runtime.integers import Ways

from ..emulation.run_text import run_emitted

START = "__shared__ T s[200]; int t = threadIdx.x, i = blockIdx.x * 64 + t; "
FILL = "s[t + 2] = x[i]; if (t < 4) s[t < 2 ? t : t + 64] = 0; __syncthreads(); "
# The body of `k(T *y, const T *x, int n)`: blocks of 64 threads.
TURNS = {
    "neighbours": FILL + "y[i] = s[t] * s[t + 1] + s[t + 3];",
    "under a guard": FILL + "if (i < n) y[i] = s[t] + 2 * s[t + 4];",
    "on either side": FILL + "y[i] = t % 2 ? s[t] * s[t + 1] : s[t] + s[t + 3];",
    "downwards": FILL + "y[i] = s[67 - t] + s[64 - t] * s[67 - t];",
    "in a loop": ("s[t] = s[t + 64] = 0; s[t] = x[i]; __syncthreads(); T a = 0; for (int j = 0; j < n % 9; ++j) {"
    " a += s[t + j] * s[t + 2 * j]; __syncthreads(); s[t] += 1; __syncthreads(); } y[i] = a;"),
    "a scan": ("int in = 0; s[t] = x[i]; __syncthreads(); for (int d = 1; d < 64; d *= 2) {"
    " s[(1 - in) * 64 + t] = t >= d ? s[in * 64 + t] + s[in * 64 + t - d] : s[in * 64 + t]; in = 1 - in;"
    " __syncthreads(); } y[i] = s[in * 64 + t];"),
}  # fmt: skip
NOT_IN_TURNS = {
    "two threads a cell": FILL + "y[i] = s[t / 2] * s[t / 2 + 1];",
    "all threads one cell, and others": FILL + "y[i] = s[t] * s[3] + s[t + 1];",
    "an index from memory": FILL + "y[i] = s[(int)(x[i] * x[i] * 8)] + s[t];",
    "in a loop without barriers": FILL + "T a = 0; for (int j = 0; j < n % 5; ++j) a += s[t + j] * a + s[t]; y[i] = a;",
}


def gradient_of(body: str) -> Any:
    text = f"typedef double T; __global__ void k(T *y, const T *x, int n) {{ {START} {body} }}"
    return kg.gradient(kg.compile(text)["k"], "y, x", primal=False)


def arrays(n: int) -> list[Any]:
    random = np.random.default_rng(n)
    return [np.zeros(192), random.uniform(-1, 1, 192), n, random.uniform(-1, 1, 192), random.uniform(-1, 1, 192)]


def text_of(body: str, n: int) -> str:
    text: str = gradient_of(body).source_for(3, 64, *arrays(n)[:3], on_gpu=True)
    return text


@pytest.mark.parametrize("name", TURNS)
def test_turns(name: str) -> None:
    text = text_of(TURNS[name], 131)
    assert "take turns" in text and not re.search(r"atomicAdd\(&_d_s|warp_add\(&_d_s", text)


@pytest.mark.parametrize("name", NOT_IN_TURNS)
def test_no_turns(name: str) -> None:
    assert "take turns" not in text_of(NOT_IN_TURNS[name], 131)


@pytest.mark.parametrize("name", [*TURNS, *NOT_IN_TURNS])
def test_values(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The plan of a GPU, here and as text, against that of a CPU; no two threads are at one cell."""
    body = {**TURNS, **NOT_IN_TURNS}[name]
    for n in (131, 192, 0):
        want, got, run = arrays(n), arrays(n), arrays(n)
        gradient_of(body)[3, 64](*want)
        monkeypatch.setattr(Gradient, "ways", staticmethod(lambda *_: Ways(on_gpu=True)))
        gradient = gradient_of(body)
        gradient[3, 64](*got)
        assert not gradient.check(3, 64, *arrays(n), seed=n).findings
        monkeypatch.undo()
        np.testing.assert_allclose(got[4], want[4], rtol=1e-12, atol=1e-12)
        text = text_of(body, n)
        if n == 131 and shutil.which("g++") and "_tape" not in text:
            run[2] = np.int32(n)
            run_emitted(text, "k_grad", 3, 64, run)
            np.testing.assert_allclose(run[4], want[4], rtol=1e-12, atol=1e-12)
