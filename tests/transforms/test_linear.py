"""An adjoint's multiples as one factor (transforms/linear): where it saves work, and with the same values."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import kernelgrad as kg
from kernelgrad.ir.ops import Function
from kernelgrad.ir.traverse import walk
from kernelgrad.transforms import linear


class Case(NamedTuple):
    body: str
    chosen: bool


POLYNOMIAL = "float v = x[i], p = 0.5f; for (int k = 6; k >= 0; --k) p = p * v + 1.0f / (k + 1);"
CASES = {
    "a polynomial": Case(f"{POLYNOMIAL} y[i] = p;", True),
    "signs": Case("float v = x[i], p = v; for (int k = 0; k < 6; ++k) p = (2.0f - p) * (v - k) - p; y[i] = -p;", True),
    "added twice": Case(f"{POLYNOMIAL} p = p + p; y[i] = p * v - v * 2.0f;", True),
    "in a branch": Case(f"if (x[i] > 0.5f) {{ {POLYNOMIAL} y[i] = p * p; }} else y[i] = x[i];", True),
    "two inputs": Case(f"{POLYNOMIAL} y[i] = p * w[i];", False),
    "two outputs": Case(f"{POLYNOMIAL} y[i] = p; w[i] = p * v;", False),
    "little to save": Case("y[i] = sinf(x[i]) * x[i];", False),
}
N = 70


def compiled(name: str) -> kg.Kernel:
    body = CASES[name].body
    return kg.compile(f"""__global__ void k(float *y, const float *x, float *w, int n) {{
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) {{ {body} }}
    }}""")["k"]


def gradient(name: str) -> kg.Gradient:
    return kg.gradient(compiled(name), "y, x, w", primal=False)


@pytest.mark.parametrize("name", CASES)
def test_is_chosen_where_it_saves_work(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    shorter, run = [], linear.run

    def watched(function: Function, *args: Any) -> Function:
        result = run(function, *args)
        shorter.append(len(list(walk(result.body))) < len(list(walk(function.body))))
        return result

    monkeypatch.setenv("KERNELGRAD_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(linear, "run", watched)
    assert gradient(name).variant().reverse.function is not None
    assert any(shorter) == CASES[name].chosen


@pytest.mark.parametrize("name", CASES)
def test_values(name: str) -> None:
    """Against the derivative forwards."""
    kernel, random = compiled(name), np.random.default_rng(1)
    x, w, y_adj, w_adj, x_tangent = (random.random(N, np.float32) + 0.25 for _ in range(5))
    y, y_tangent, w_tangent, x_adj = (np.zeros_like(x) for _ in range(4))
    kg.jvp(kernel, "y, x, w")[2, 40](y, x, w.copy(), N, y_tangent, x_tangent, w_tangent)
    forward = y_adj @ y_tangent + w_adj @ w_tangent
    gradient(name)[2, 40](y, x, w.copy(), N, y_adj, x_adj, w_adj)
    np.testing.assert_allclose(x_adj @ x_tangent, forward, rtol=1e-4)


def test_zeros_stay_zeros() -> None:
    """A factor of 1e40 is no float; nothing times that is nothing."""
    kernel = kg.compile("""__global__ void k(float *y, const float *x) {
        float v = 1.0f / x[threadIdx.x], p = v;
        for (int k = 0; k < 2; ++k) p = (p + 1.0f) * v - v;
        y[threadIdx.x] = p;
    }""")["k"]
    x, x_adj = np.full(4, 1e-10, np.float32), np.zeros(4, np.float32)
    kg.gradient(kernel, "y, x", primal=False, keep="y")[1, 4](
        np.zeros(4, np.float32), x, np.zeros(4, np.float32), x_adj
    )
    np.testing.assert_array_equal(x_adj, 0.0)


@pytest.mark.parametrize(("value", "adjoint"), [(1e4, 1e-25), (1e-12, 1e20), (3.0, 1.0), (1e-3, 1e35)])
def test_factors_out_of_range(value: float, adjoint: float) -> None:
    """Where the factor overflows or underflows, and the adjoint does not: all steps in double are the reference."""
    body = "T v = x[i], p = v; for (int k = 0; k < 9; ++k) p = p * v + v; y[i] = p;"
    found = []
    for type, dtype in (("double", "f8"), ("float", "f4")):
        source = f"typedef {type} T; __global__ void k(T *y, const T *x) {{ int i = threadIdx.x; {body} }}"
        d_y, d_x = np.full(4, adjoint, dtype), np.zeros(4, dtype)
        kg.gradient(kg.compile(source)["k"])[1, 4](np.zeros(4, dtype), np.full(4, value, dtype), d_y, d_x)
        found.append(d_x)
    assert np.all((found[0] != 0) & (np.abs(found[0]) < 3e38))
    np.testing.assert_allclose(found[1], found[0], rtol=1e-5)
