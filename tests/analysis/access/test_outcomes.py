"""Branches around barriers that all blocks of a launch take: gradients without them, and other launches with them."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from derived import kernel_of

SUM = """
__device__ double total(double *s, int t, double v) {
    s[t] = v;
    __syncthreads();
    for (int d = 16; d > 0; d >>= 1) { if (t < d) s[t] += s[t + d]; __syncthreads(); }
    double r = s[0];
    __syncthreads();
    return r;
}
"""
ROWS = 3
N = 70
LOOP = "for (int c = t; c < n; c += 32)"
BODY = (
    f"double a = 0; {LOOP} a += x[row * n + c] * x[row * n + c]; a = total(s, t, a);"
    f" {LOOP} y[row * n + c] = x[row * n + c] * a;"
)
GUARDS = {
    "return": f"if (row >= rows) return; {BODY}",
    "if": f"if (row < rows) {{ {BODY} }}",
    "two": f"if (row < 0 || row >= rows) return; {BODY}",
    "else": f"if (row >= rows) {{ if (t == 0) y[row * n] = 5; }} else {{ {BODY} }}",
    "of a number": f"if (rows > 2 && row < rows) {{ {BODY} }}",
}


def made(guard: str) -> Any:
    head = "__shared__ double s[32]; int row = blockIdx.x, t = threadIdx.x;"
    params = "double *y, const double *x, int rows, int n"
    return kernel_of(f"{SUM}__global__ void k({params}) {{ {head} {GUARDS[guard]} }}")


def expected(guard: str, x: Any, d_y: Any, rows: int, grid: int) -> Any:
    """Of y = x * sum(x * x), row by row."""
    d_x = np.zeros_like(x)
    for row in range(min(rows, grid)):
        if guard != "of a number" or rows > 2:
            sums = x[row] @ x[row]
            d_x[row] = sums * d_y[row] + 2 * (x[row] @ d_y[row]) * x[row]
    return d_x


@pytest.mark.parametrize("contract", ["joint", "reverse", "deterministic", "split"])
@pytest.mark.parametrize("guard", GUARDS)
def test_launches_one_after_the_other(guard: str, contract: str) -> None:
    """What one launch takes for granted, the next must not: more blocks than rows, fewer, as many."""
    kernel = made(guard)
    options = {"reverse": {"primal": False, "keep": "y", "assign": "x"}, "deterministic": {"deterministic": True}}
    gradient: Any = None if contract == "split" else kg.gradient(kernel, "y, x", **options.get(contract, {}))
    forward, reverse = kg.split(kernel, "y, x")
    random = np.random.default_rng(2)
    x, seed = random.random((2, ROWS + 2, N))
    for rows, grid in ((3, 3), (1, 3), (3, 5), (5, 3), (2, 2), (3, 3), (0, 2)):
        y, d_y, d_x = np.zeros_like(x), seed.copy(), np.zeros_like(x)
        if contract == "split":
            own = y.ravel(), x.ravel(), rows, N
            reverse[grid, 32](forward[grid, 32](*own), *own, d_y.ravel(), d_x.ravel())
        else:
            gradient[grid, 32](y.ravel(), x.ravel(), rows, N, d_y.ravel(), d_x.ravel())
        np.testing.assert_allclose(d_x, expected(guard, x, seed, rows, grid), rtol=1e-12)


def test_what_is_known_is_told_by_the_text() -> None:
    gradient = kg.gradient(made("return"), "y, x", primal=False)
    x = np.zeros(ROWS * N)
    free, guarded = (gradient.source_for(grid, 32, x, x, ROWS, N) for grid in (ROWS, ROWS + 1))
    uses = re.compile(r"\brows\b(?!,)")  # besides the parameter
    assert not uses.search(free) and uses.search(guarded)
