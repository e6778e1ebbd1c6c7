"""Threads that do several neighbouring elements, on a GPU: chosen by large launches on aligned arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg

cupy = pytest.importorskip("cupy")

I = "int i = blockIdx.x * blockDim.x + threadIdx.x;"  # noqa: E741
N = (1 << 20) + 3
# The body of `k(T *y, const T *x, int n)` and the derivative of its elements.
CASES: dict[str, tuple[str, Any]] = {
    "sine": (f"{I} if (i < n) y[i] = sin(x[i]) * x[i];", lambda x: np.sin(x) + x * np.cos(x)),
    "polynomial": (
        f"{I} if (i >= n) return; T p = 0; for (int k = 0; k < 5; ++k) p = p * x[i] + 1; y[i] = p;",
        lambda x: 1 + 2 * x + 3 * x**2 + 4 * x**3,
    ),
    "lower bound": (
        f"{I} if (i >= 6 && i < n) y[i] = x[i] * x[i];",
        lambda x: np.where(np.arange(len(x)) < 6, 0, 2 * x),
    ),
    "branch": (f"{I} if (i < n) y[i] = x[i] > 0 ? x[i] * x[i] : -x[i];", lambda x: np.where(x > 0, 2 * x, -1)),
}
OPTIONS: dict[str, dict[str, Any]] = {"J": {}, "R": {"primal": False, "keep": "y", "assign": "x"}}


def is_vectorized(gradient: Any) -> bool:
    return any(v.options.facts.vector is not None for v in gradient.forms.made.values())


def array(values: Any, start: int) -> Any:
    """On the GPU, `start` elements behind an aligned address."""
    whole = cupy.zeros(len(values) + start, values.dtype)
    whole[start:] = cupy.asarray(values)
    return whole[start:]


@pytest.mark.parametrize("how", OPTIONS)
@pytest.mark.parametrize("element", [np.float32, np.float64])
@pytest.mark.parametrize("block", [64, 128, 256, 1024])
@pytest.mark.parametrize("start", [0, 1])
@pytest.mark.parametrize("name", CASES)
def test_values(name: str, start: int, block: int, element: Any, how: str) -> None:
    body, slope = CASES[name]
    scalar = "float" if element == np.float32 else "double"
    kernel = kg.compile(f"typedef {scalar} T; __global__ void k(T *y, const T *x, int n) {{ {body} }}")["k"]
    gradient = kg.gradient(kernel, "y, x", **OPTIONS[how])
    rng = np.random.default_rng(2)
    x, seed = (rng.uniform(-2, 2, N).astype(element) for _ in range(2))
    x[:3] = 1e6, -1e20, 0  # where the reduction of a sine's argument takes longer
    before = np.zeros(N, element) if how == "R" else np.ones(N, element)
    y, d_y, d_x = (array(a, 0) for a in (np.zeros(N, element), seed, before))
    grid = -(-N // block)
    gradient[grid, block](y, array(x, start), N, d_y, d_x)
    assert is_vectorized(gradient) == (start == 0)
    with np.errstate(all="ignore"):
        expected = before + seed * slope(x.astype(np.float64))
    shown = slice(3, None) if name == "polynomial" else slice(None)
    np.testing.assert_allclose(d_x.get()[shown], expected[shown], rtol=1e-4 if scalar == "float" else 1e-11, atol=1e-3)
    plain = cupy.zeros(N, element)
    kernel[grid, block](plain, array(x, start), N)
    if how == "J":
        np.testing.assert_allclose(y.get(), plain.get(), rtol=1e-6, atol=1e-6)
        first = 6 if name == "lower bound" else 0
        assert not d_y.get()[first:].any()
    else:
        np.testing.assert_array_equal(d_y.get(), seed)


def test_few_threads() -> None:
    kernel = kg.compile(f"typedef float T; __global__ void k(T *y, const T *x, int n) {{ {CASES['sine'][0]} }}")["k"]
    gradient = kg.gradient(kernel, "y, x")
    arrays = [cupy.ones(1000, np.float32) for _ in range(4)]
    gradient[4, 256](*arrays[:2], 1000, *arrays[2:])
    assert not is_vectorized(gradient)
