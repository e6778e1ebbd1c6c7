"""Loops whose turns are independent become blocks, and their threads do several neighbouring elements each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from kernelgrad.derivatives.gradient import Gradient
from kernelgrad.launches import vector_width
from kernelgrad.runtime.integers import Ways

I = "int i = blockIdx.x * blockDim.x + threadIdx.x"  # noqa: E741
F = "sin(x[i]) * x[i] * w[i]"

# The body of `k(T *y, const T *x, const T *w, int n, int m)`: two blocks of 16 threads.
SPREAD = {
    "grid strides": f"for ({I}; i < n; i += blockDim.x * gridDim.x) y[i] = {F};",
    "while": f"size_t i = blockIdx.x * blockDim.x + threadIdx.x; while (i < n) {{ y[i] = {F}; i += 32; }}",
    "unsigned": f"for (unsigned i = blockIdx.x * 16 + threadIdx.x; i < n; i += gridDim.x * 16) y[i] = {F};",
    "up to and with": f"for ({I}; i <= n - 1; i += blockDim.x * gridDim.x) y[i] = {F};",
    "behind a guard": f"if (m > 1) for ({I}; i < n; i += blockDim.x * gridDim.x) y[i] = {F};",
    "a guard inside": f"for ({I}; i < n; i += blockDim.x * gridDim.x) if (i < n - 5) y[i] = {F};",
    "several a thread": "int first = blockIdx.x * blockDim.x * 8 + threadIdx.x; for (int k = 0; k < 8; ++k) {"
    f" int i = first + k * blockDim.x; if (i < n) y[i] = {F}; }}",
    "a loop in registers": f"for ({I}; i < n; i += blockDim.x * gridDim.x) {{ T p = 0;"
    " for (int k = 0; k < 5; ++k) p = p * x[i] + w[i]; y[i] = p; }",
}
STAYING = {
    "what many add to": f"for ({I}; i < n; i += blockDim.x * gridDim.x) y[i] = x[i % 7] * w[i];",
    "what is carried": f"T s = 0; for ({I}; i < n; i += blockDim.x * gridDim.x) {{ s += x[i]; y[i] = s * w[i]; }}",
    "what the last turn left": f"for ({I}; i < n - 32; i += 32) {{ y[i + 32] = y[i] * x[i]; }}",
    "one element of all turns": f"for ({I}; i < n; i += blockDim.x * gridDim.x) y[threadIdx.x] = {F};",
    "threads in rows": f"for (int i = blockIdx.x * 64 + threadIdx.x * 4, k = 0; k < 4; ++k, ++i) y[i] = {F};",
}
SIZES = (128, 125, 97, 61, 33, 32, 30, 3, 1, 0)
BLOCKS, BLOCK = 2, 16


@pytest.fixture(autouse=True)
def small_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vector_width, "_ENOUGH", 1)
    monkeypatch.setattr(Gradient, "ways", staticmethod(lambda *_: Ways(on_gpu=True)))


def compiled(body: str, element: str) -> Any:
    return kg.compile(
        f"typedef {element} T; __global__ void k(T *y, const T *x, const T *w, int n, int m) {{ {body} }}"
    )["k"]


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
