"""Loops that test after an iteration, or leave in its middle, have the plan of loops that test first."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from kernelgrad.explain.counted import Counts, counts
from kernelgrad.runtime.config import make_launch

I = "int i = blockIdx.x * blockDim.x + threadIdx.x;"  # noqa: E741
STEP = "gridDim.x * blockDim.x"
ROW = f"{I} const double *b = x + i * 16, *p = b, *e = b + n; double s = 0;"
# Bodies of `k(double *y, const double *x, int n)`: sums of squares of each thread's 16 elements.
ROWS = {
    "for": f"{I} double s = 0; for (int j = 0; j < n; ++j) s += x[i * 16 + j] * x[i * 16 + j]; y[i] = s;",
    "do": f"{ROW} do {{ s += *p * *p; ++p; }} while (p < e); y[i] = s;",
    "do, in the condition": f"{ROW} do s += *p * *p; while (++p != e); y[i] = s;",
    "do, with a counter": f"{ROW} int j = n; do {{ s += *p * *p; ++p; }} while (--j); y[i] = s;",
    "do, an index": f"{I} int j = 0; double s = 0;"
    " do { double v = x[i * 16 + j]; s += v * v; } while (++j < n); y[i] = s;",
    "do, backwards": f"{ROW} p = e; do {{ --p; s += *p * *p; }} while (p > b); y[i] = s;",
    "while, backwards": f"{ROW} p = e; while (p > b) {{ --p; s += *p * *p; }} y[i] = s;",
    "do, backwards, later": f"{ROW} p = e - 1; do s += *p * *p; while (p-- != b); y[i] = s;",
    "do, two pointers": f"{ROW} const double *q = e;"
    " do { --q; s += *p * *p * 0.5 + *q * *q * 0.5; ++p; } while (p < e); y[i] = s;",
    "break": f"{ROW} for (;;) {{ s += *p * *p; ++p; if (p == e) break; }} y[i] = s;",
    "break first": f"{ROW} while (true) {{ if (p >= e) break; s += *p * *p; ++p; }} y[i] = s;",
}
# The squares of each element, in grid strides.
STRIDES = {
    "while": f"{I} while (i < n) {{ y[i] = x[i] * x[i]; i += {STEP}; }}",
    "do": f"{I} if (i >= n) return; do {{ y[i] = x[i] * x[i]; i += {STEP}; }} while (i < n);",
    "do, pointers": f"{I} if (i < n) {{ const double *p = x + i, *e = x + n; double *q = y + i;"
    f" do {{ *q = *p * *p; p += {STEP}; q += {STEP}; }} while (p < e); }}",
    "do, unsigned": f"unsigned i = blockIdx.x * blockDim.x + threadIdx.x, m = n; if (i < m)"
    f" do {{ y[i] = x[i] * x[i]; }} while ((i += {STEP}) < m);",
    "break first": f"{I} for (;;) {{ if (i >= n) break; y[i] = x[i] * x[i]; i += {STEP}; }}",
    "break last": f"{I} if (i >= n) return; while (true) {{ y[i] = x[i] * x[i]; i += {STEP}; if (i >= n) return; }}",
}
TABLES: dict[str, tuple[dict[str, str], int, int, int]] = {
    "rows": (ROWS, 16, 64, 64 * 16),
    "strides": (STRIDES, 1000, 1000, 1000),
}


@cache
def planned(table: str, name: str) -> tuple[Any, Counts]:
    bodies, n, ys, xs = TABLES[table]
    kernel: Any = kg.compile(f"__global__ void k(double *y, const double *x, int n) {{ {bodies[name]} }}")["k"]
    gradient = kg.gradient(kernel, "y, x", primal=False, keep="y", assign="x")
    arrays = np.empty(ys), np.empty(xs), n
    return gradient, counts(gradient.planned(make_launch(2, 32), arrays, {}, on_gpu=True))


@pytest.mark.parametrize(("table", "name"), [(t, name) for t, (bodies, *_) in TABLES.items() for name in bodies])
def test_the_plan_and_the_values(table: str, name: str) -> None:
    bodies, n, ys, xs = TABLES[table]
    gradient, found = planned(table, name)
    _, base = planned(table, next(iter(bodies)))
    assert (found.atomics, found.tape) == (0, 0)
    twice = 4.0 if name == "do, two pointers" else 1.0  # each element is read and added to twice
    assert found.moved <= base.moved * 1.1 * twice, (base, found)
    rng = np.random.default_rng(0)
    x, seed, d_x = rng.random(xs), rng.random(ys), np.full(xs, 9.0)
    gradient[2, 32](np.zeros(ys), x, n, seed, d_x)
    np.testing.assert_allclose(d_x, 2 * x * np.repeat(seed, xs // ys))


@pytest.mark.parametrize("n", (1, 0, -2, 5))
def test_at_least_one_iteration(n: int) -> None:
    gradient = kg.gradient(kg.compile(f"__global__ void k(double *y, const double *x, int n) {{ {ROWS['do']} }}")["k"])
    x, d_x = np.arange(1.0, 1025.0), np.zeros(1024)
    gradient[2, 32](np.zeros(64), x, n, np.ones(64), d_x)
    expected = np.zeros((64, 16))
    expected[:, : max(n, 1)] = 2 * x.reshape(64, 16)[:, : max(n, 1)]
    np.testing.assert_allclose(d_x, expected.ravel())


def test_a_stride_that_may_pass_the_end_shares_elements() -> None:
    """Without the guard, threads beyond the end do one iteration, too: x[n] and so on belong to two of them."""
    body = "int i = threadIdx.x; do { y[i] += x[i % n] * x[i % n]; i += blockDim.x; } while (i < n);"
    gradient = kg.gradient(
        kg.compile(f"__global__ void k(double *y, const double *x, int n) {{ {body} }}")["k"], "y, x"
    )
    x, d_x = np.arange(1.0, 6.0), np.zeros(5)
    assert "atomicAdd" in gradient.source
    gradient[1, 8](np.zeros(8), x, 5, np.ones(8), d_x)
    np.testing.assert_allclose(d_x, 2 * x * [2, 2, 2, 1, 1])
