"""Additions to shared cells that threads make in turns."""

from __future__ import annotations

import re
import shutil

import numpy as np
import pytest

import kernelgrad as kg
from kernelgrad.derivatives.gradient import Gradient
from kernelgrad.runtime.integers import Ways
from turn_cases import NOT_IN_TURNS, TURNS, arrays, gradient_of

from ..emulation.run_text import run_emitted


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


def test_a_branch_that_decides_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the first variable's branch gives decides whether the second one is added to."""
    monkeypatch.setattr(Gradient, "ways", staticmethod(lambda *_: Ways(on_gpu=True)))
    kernel = kg.compile("""__global__ void k(double *y, const double *x, int n) {
        int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
        __shared__ double s[200], r[200];
        double v = x[i];
        s[t] = r[t] = s[t + 96] = r[t + 96] = 0;
        __syncthreads();
        if (t < 50) {
            int go;
            if (t % 3) { atomicAdd(&s[t + 1], v); go = n - t; } else { atomicAdd(&s[t + 2], v * 2); go = t * n; }
            if (go > n) atomicAdd(&r[t + 1], v * v);
            atomicAdd(&r[t], v);
        }
        __syncthreads();
        y[i] = s[t] * s[t + 1] + r[t] * r[t + 1];
    }""")["k"]
    rng = np.random.default_rng(1)
    x, seed, tangent = rng.standard_normal((3, 192))
    gradient, d_x, d_y = kg.gradient(kernel, "y, x"), np.zeros(192), np.zeros(192)
    assert "take turns" in gradient.source_for(2, 96, np.zeros(192), x, 45, on_gpu=True)
    kg.jvp(kernel, "y, x")[2, 96](np.zeros(192), x, 45, d_y, tangent)
    gradient[2, 96](np.zeros(192), x, 45, seed.copy(), d_x)
    np.testing.assert_allclose(d_x @ tangent, seed @ d_y, rtol=1e-11)
