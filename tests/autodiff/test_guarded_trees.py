"""Trees in blocks of which some do nothing: their reverse is a sum over the block, as where all do something."""

from __future__ import annotations

import shutil
from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from derived import gradient_of, kernel_of
from kernelgrad.runtime.config import make_launch

from ..emulation.run_text import run_emitted

TREE = """
    const double *r = x + row * n;
    __shared__ double s[64];
    double a = 0;
    for (int i = threadIdx.x; i < n; i += 64) a += r[i] * r[i];
    s[threadIdx.x] = a;
    __syncthreads();
    for (int d = 32; d > 0; d >>= 1) {
        if (threadIdx.x < d) s[threadIdx.x] += s[threadIdx.x + d];
        __syncthreads();
    }
    for (int i = threadIdx.x; i < n; i += 64) y[row * n + i] = r[i] / (1 + s[0]);
"""
NONE = ""
GUARDS = {
    "data": "if (label[row] < 0) return;",
    "two": "if (label[row] < 0 || row > 5) return;",
    "the grid": "if (row >= (int)gridDim.x - 2) return;",
    "a number": "if (row >= label[7]) return;",
    "a branch": "if (label[row] >= 0) {",
}
OTHERS = {
    "stores before": "if (threadIdx.x == 0) y[row * n] = 2 * x[row * n + n - 1]; if (label[row] < 0) return;",
    "threads": "if (threadIdx.x == 0 && label[row] < 0) y[row * n] = x[row * n];",
    "after": "",
}
ROWS, N, BLOCK = 8, 150, 64


def compiled(guard: str, end: str = "") -> Any:
    params = "double *y, const double *x, const int *label, int n"
    closing = "}" if guard.endswith("{") else ""
    return kernel_of(f"__global__ void k({params}) {{ int row = blockIdx.x; {guard} {TREE} {closing} {end} }}")


def numbers() -> tuple[Any, ...]:
    rng = np.random.default_rng(3)
    y, x, d_y, d_x = (rng.uniform(-1, 1, ROWS * N) for _ in range(4))
    return y, x, np.array([1, -1, 0, 3, -4, 1, 1, 6], np.int32), N, d_y, d_x


def barriers(kernel: Any) -> int:
    gradient = gradient_of(kernel, "y, x", primal=False, keep="y")
    plan = gradient.planned(make_launch(ROWS, BLOCK), numbers()[:4], {}, on_gpu=True).plan
    text: str = plan.variant.source(0)
    return text[text.index("k_grad(") :].count("__syncthreads()")


@pytest.mark.parametrize("name", GUARDS)
def test_barriers(name: str) -> None:
    """The kernel's own tree stays; reversed level by level, it would take as many again."""
    assert barriers(compiled(NONE)) <= barriers(compiled(GUARDS[name])) <= 7


@pytest.mark.parametrize("options", [{}, {"primal": False}], ids=str)
@pytest.mark.parametrize("name", [*GUARDS, *OTHERS])
def test_values(name: str, options: dict[str, Any]) -> None:
    end = "if (label[row] < 0 && threadIdx.x == 0) y[row * n + 3] = x[row * n];" if name == "after" else ""
    if name == "stores before" and not options.get("primal", True):
        return
    kernel = compiled((GUARDS | OTHERS)[name], end)
    y, x, label, n, d_y, d_x = numbers()
    before, seed, t_x = d_x.copy(), d_y.copy(), np.random.default_rng(8).uniform(-1, 1, x.size)
    t_y, old = np.random.default_rng(9).uniform(-1, 1, x.size), y.copy()
    want = t_y.copy()
    kg.jvp(kernel, "y, x")[ROWS, BLOCK](old, x, label, n, want, t_x)
    kg.gradient(kernel, "y, x", **options)[ROWS, BLOCK](y, x, label, n, d_y, d_x)
    np.testing.assert_allclose((d_x - before) @ t_x + d_y @ t_y, seed @ want, rtol=1e-11)


@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
@pytest.mark.parametrize("name", ["data", "a branch"])
def test_as_text(name: str) -> None:
    kernel, (y, x, label, n, d_y, d_x) = compiled(GUARDS[name]), numbers()
    gradient = kg.gradient(kernel, "y, x", primal=False, keep="y")
    text = gradient.source_for(ROWS, BLOCK, y, x, label, n, d_y, d_x, on_gpu=True)
    got, want = d_x.copy(), d_x.copy()
    gradient[ROWS, BLOCK](y, x, label, n, d_y.copy(), want)
    run_emitted(text, "k_grad", ROWS, BLOCK, (y, x, label, np.int32(n), d_y, got))
    np.testing.assert_allclose(got, want, rtol=1e-11, atol=1e-13)
