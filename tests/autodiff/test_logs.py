"""Logs of shared memory in deterministic gradients: each barrier adds up what may be logged since the last, no more."""

from __future__ import annotations

import numpy as np
import pytest

import kernelgrad as kg
from kernelgrad.ir.ops import BarrierReduce, For
from kernelgrad.ir.traverse import walk

HEAD = "__global__ void k(double *y, const double *x, const int *at, int n)"
START = "__shared__ double s[8], r[8]; int t = threadIdx.x; double a = x[t]; s[t] = a; r[t] = a * a; __syncthreads();"
PATTERNS = {
    "in one phase after another": """a += s[at[t]] * a; __syncthreads(); s[t] = a; __syncthreads();
        a += r[at[t]] * s[at[t]];""",
    "in a loop, before its barrier": """for (int k = 0; k < n; k++) {
        a += s[at[t]] * a; __syncthreads(); r[t] = a; __syncthreads(); a += r[at[t]]; __syncthreads(); s[t] = a;
        __syncthreads(); }""",
    "in a loop, after its barrier": "for (int k = 0; k < n; k++) { __syncthreads(); a += s[at[t]] * a; }",
    "before a loop with barriers": """a += s[at[t]] * a;
        for (int k = 0; k < n; k++) { __syncthreads(); r[t] = a; __syncthreads(); a += r[at[t]]; }""",
    "after a loop that may not run": """for (int k = 0; k < n; k++) { __syncthreads(); s[t] = a; __syncthreads(); }
        a += s[at[t]] * s[at[t]];""",
    "in a branch with a barrier": """if (n > 2) { a += s[at[t]] * a; __syncthreads(); s[t] = a; __syncthreads(); }
        else a += r[at[t]]; a += s[at[t]] * r[at[t]];""",
    "a barrier in the other branch": """a += s[at[t]] * a; if (n > 2) a += r[at[t]];
        else { __syncthreads(); r[t] = a; __syncthreads(); } a += r[at[t]]; __syncthreads(); s[t] = a;
        __syncthreads(); a += s[at[t]];""",
    "in loops in loops": """for (int k = 0; k < n; k++) { for (int l = 0; l < k; l++) {
        a += s[at[t]] * 0.1; __syncthreads(); r[t] = a; __syncthreads(); } a += r[at[t]] * 0.1; __syncthreads(); }""",
}


@pytest.mark.parametrize("n", [0, 1, 3])
@pytest.mark.parametrize("name", PATTERNS)
def test_nothing_that_is_logged_is_lost(name: str, n: int) -> None:
    kernel = kg.compile(f"{HEAD} {{ {START} {PATTERNS[name]} y[t] = a; }}")["k"]
    at, x = np.array([3, 3, 0, 1, 3, 7, 7, 2], "i4"), np.linspace(0.2, 0.9, 8)
    found = []
    for options in ({}, {"deterministic": True}):
        gradient = kg.gradient(kernel, "y, x", **options)
        d_x = np.zeros(8)
        gradient[1, 8](np.zeros(8), x, at, n, np.arange(1.0, 9), d_x)
        found.append(d_x)
    assert gradient.check(1, 8, np.zeros(8), x, at, n, np.arange(1.0, 9), np.zeros(8), seed=1).ok
    np.testing.assert_allclose(*found, rtol=1e-12)
    assert "_log_places_s" in gradient.source


def test_code_grows_with_what_is_logged_and_not_with_barriers_times_variables() -> None:
    def loops(count: int) -> tuple[int, int]:
        tiles = "".join(f"__shared__ double s{k}[8];" for k in range(count))
        steps = "".join(f"s{k}[t] = a; __syncthreads(); a += s{k}[at[t]] * a; __syncthreads();" for k in range(count))
        source = f"{HEAD} {{ {tiles} int t = threadIdx.x; double a = x[t]; {steps} y[t] = a; }}"
        function = kg.gradient(kg.compile(source)["k"], "y, x", deterministic=True).variant().reverse.function
        ops = list(walk(function.body))
        return sum(isinstance(op, For) for op in ops), sum(isinstance(op, BarrierReduce) for op in ops)

    assert loops(6) == tuple(3 * number for number in loops(2))
