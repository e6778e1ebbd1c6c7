"""Loops whose turns are independent become blocks, and their threads do several neighbouring elements each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from kernelgrad.derivatives.gradient import Gradient
from kernelgrad.launches import vector_width
from kernelgrad.runtime.config import make_launch
from kernelgrad.runtime.integers import Ways
from spread_loop_cases import SIZES, SPREAD, STAYING, compiled

BLOCKS, BLOCK = 2, 16


@pytest.fixture(autouse=True)
def small_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vector_width, "_ENOUGH", 1)
    monkeypatch.setattr(Gradient, "ways", staticmethod(lambda *_: Ways(on_gpu=True)))


def spread_in(gradient: Any) -> list[Any]:
    facts = (v.options.facts for v in gradient.forms.made.values())
    return [f.vector for f in facts if f.vector is not None and f.vector.turns]


def launched(gradient: Any, n: int, type: Any) -> list[Any]:
    rng = np.random.default_rng(n)
    y, x, w, d_y, d_x, d_w = (rng.uniform(-2, 2, 160).astype(type) for _ in range(6))
    gradient[BLOCKS, BLOCK](y, x, w, n, 2, d_y, d_x, d_w)
    return [y, d_y, d_x, d_w]


OPTIONS: dict[str, dict[str, Any]] = {
    "R": {"primal": False},
    "kept": {"primal": False, "keep": "y", "assign": "x, w"},
}


@pytest.mark.parametrize("how", OPTIONS)
@pytest.mark.parametrize("name", SPREAD)
def test_values(name: str, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same as turn by turn."""
    for type in ("float", "double") if how == "kept" else ("float",):
        kernel, numbers = compiled(SPREAD[name], type), np.float32 if type == "float" else np.float64
        wide, plain = (kg.gradient(kernel, "y, x, w", **OPTIONS[how]) for _ in range(2))
        with monkeypatch.context() as gpu:
            gpu.setattr(Gradient, "ways", staticmethod(lambda *_: Ways(on_gpu=True)))
            found = {n: launched(wide, n, numbers) for n in SIZES}
        monkeypatch.setattr(Gradient, "ways", staticmethod(lambda *_: Ways()))
        for n in SIZES:
            for got, want in zip(found[n], launched(plain, n, numbers), strict=True):
                tolerance = 1e-5 if type == "float" else 1e-13  # sines of vectors are not those of numbers
                np.testing.assert_allclose(got, want, tolerance, tolerance, err_msg=f"n = {n}")
        assert spread_in(wide) and not spread_in(plain)


@pytest.mark.parametrize("name", SPREAD)
def test_no_races(name: str) -> None:
    gradient = kg.gradient(compiled(SPREAD[name], "float"), "y, x, w", primal=False)
    arrays = [np.ones(160, np.float32) for _ in range(6)]
    for order in (None, 1):
        report = gradient.check(BLOCKS, BLOCK, *arrays[:3], 125, 2, *arrays[3:], seed=order)
        assert report.ok, str(report)
    assert spread_in(gradient)


@pytest.mark.parametrize("name", STAYING)
def test_staying(name: str) -> None:
    gradient = kg.gradient(compiled(STAYING[name], "float"), "y, x, w")
    launched(gradient, 125, np.float32)
    assert not spread_in(gradient)


def test_few_turns_of_unaligned_arrays_stay() -> None:
    gradient = kg.gradient(compiled(SPREAD["grid strides"], "float"), "y, x, w", primal=False)
    whole = [np.ones(164, np.float32) for _ in range(6)]
    shifted = [a[1:161] for a in whole]
    gradient[BLOCKS, BLOCK](*shifted[:3], 125, 2, *shifted[3:])
    assert not spread_in(gradient)


@pytest.mark.parametrize(("body", "launches"), [("SUM", 1), ("LOOP", 2)])
def test_a_launch_of_its_own_is_for_turns(body: str, launches: int) -> None:
    """What a thread stores once is stored while a kernel that waits for others does."""
    bodies = {
        "SUM": "__shared__ float s[256]; int t = threadIdx.x; s[t] = x[blockIdx.x * 256 + t]; __syncthreads();"
        " for (int d = 128; d > 0; d >>= 1) { if (t < d) s[t] += s[t + d]; __syncthreads(); }"
        " if (t == 0) y[blockIdx.x] = s[0];",
        "LOOP": "for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)"
        " y[i] = tanhf(x[i]) * x[i];",
    }
    gradient = kg.gradient(kg.compile(f"__global__ void k(float *y, const float *x, int n) {{ {bodies[body]} }}")["k"])
    n, grid = 1 << 26, 1 << 18 if body == "SUM" else 1056
    arrays = np.zeros(n // 256 if body == "SUM" else n, np.float32), np.zeros(n, np.float32)
    plan = gradient.planned(make_launch(grid, 256), (*arrays, n), {}, on_gpu=True).plan
    assert len(plan.steps) == launches
