"""Pointers that walk are as good as indices: the same gradient, no tape, the same way of adding."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from derived import kernel_of

ROWS, COLUMNS = 5, 6

PRELUDE = """
struct View { const double *p; int step; __device__ double next() { double v = *p; p += step; return v; } };
struct Four { double a, b, c, d; };
#define ROW const double *p = x + r * n
__device__ double take(const double *&p) { return *p++; }
"""

# Sums over row r of x (n columns) and its element c (of rows n apart), indexed first and then as people write it.
DOT = "for (int k = 0; k < n; ++k) s += x[r * n + k] * w[k * m + r];"
SQUARES = "for (int k = 0; k < n; ++k) s += x[r * n + k] * x[r * n + k];"
ALL = "for (int i = 0; i < m; ++i) for (int k = 0; k < n; ++k) s += x[i * n + k] * w[i * n + k] * w[r];"
PAIRS = "for (int k = 0; k < n; k += 2) s += x[r * n + k] * x[r * n + k + 1];"
LATER = "for (int k = n - 1; k >= 0; --k) s += x[r * n + k] * x[r * n + k];"
DO = "int k = 0; if (n > 0) do { s += x[r * n + k] * x[r * n + k]; } while (++k < n);"
SPELLINGS = {
    "post-increment": (DOT, "ROW, *q = w + r; "
        "for (int k = 0; k < n; ++k) { s += *p++ * *q; q += m; }"),
    "pre-increment": (DOT, "const double *p = x + r * n - 1, *q = w + r - m; "
        "for (int k = 0; k < n; ++k) s += *++p * *(q += m);"),
    "until a pointer": (SQUARES, "ROW; "
        "for (const double *end = p + n; p < end; ++p) s += *p * *p;"),
    "until another pointer": (SQUARES, "ROW, *end = x + r * n + n; "
        "while (p != end) { s += *p * *p; ++p; }"),
    "counting down": (SQUARES, "ROW; int k = n; while (k--) { s += *p * *p; p++; }"),
    "a do loop": (DO, "ROW; int k = 0; if (n > 0) do { s += *p * *p; p++; } "
        "while (++k < n);"),
    "backwards": (LATER, "const double *p = x + r * n + n; for (int k = 0; k < n; ++k) { --p; s += *p * *p; }"),
    "nested": (ALL, "const double *p = x, *q = w; "
        "for (int i = 0; i < m; ++i) for (int k = 0; k < n; ++k) s += *p++ * *q++ * w[r];"),
    "reset for each row": (ALL, "for (int i = 0; i < m; ++i) { const double *p = x + i * n, *q = w + i * n; "
        "for (int k = 0; k < n; ++k) s += *p++ * *q++ * w[r]; }"),
    "rows that walk": (ALL, "const double *row = x; for (int i = 0; i < m; ++i, row += n) { const double *p = row; "
        "for (int k = 0; k < n; ++k, ++p) s += *p * w[p - x] * w[r]; }"),
    "two at a time": (PAIRS, "ROW; for (int k = 0; k < n; k += 2) { s += p[0] * p[1]; p += 2; }"),
    "two in turn": (PAIRS, "ROW; for (int k = 0; k < n; k += 2) { double a = *p++; s += a * *p++; }"),
    "members": (DOT, "View p{x + r * n, 1}, q{w + r, m}; for (int k = 0; k < n; ++k) s += p.next() * q.next();"),
    "by reference": (SQUARES, "ROW; for (int k = 0; k < n; ++k) { double v = take(p); s += v * v; }"),
    "an index that walks": (DOT, "int i = r * n, j = r; for (int k = 0; k < n; ++k) { s += x[i++] * w[j]; j += m; }"),
}  # fmt: skip


@lru_cache(64)
def compiled(loop: str) -> Any:
    source = f"""{PRELUDE}__global__ void k(const double *x, const double *w, double *y, int n, int m) {{
        int r = blockIdx.x * blockDim.x + threadIdx.x;
        if (r >= m) return;
        double s = 0;
        {loop}
        y[r] = s * s;
    }}"""
    return kernel_of(source)


def arrays(n: int) -> tuple[Any, ...]:
    rng = np.random.default_rng(n)
    return rng.standard_normal(ROWS * n + 1), rng.standard_normal(ROWS * n + 8), rng.standard_normal(ROWS)


def gradients(loop: str, n: int, **options: Any) -> list[Any]:
    x, w, seed = arrays(n)
    d_x, d_w = np.zeros_like(x), np.zeros_like(w)
    kg.gradient(compiled(loop), **options)[2, 4](x, w, np.zeros(ROWS), n, ROWS, d_x, d_w, seed.copy())
    return [d_x, d_w]


@pytest.mark.parametrize("name", SPELLINGS)
@pytest.mark.parametrize("n", (0, COLUMNS))
def test_same_gradient(name: str, n: int) -> None:
    indexed, walking = SPELLINGS[name]
    for options in ({}, {"primal": False}, {"deterministic": True}, {"tape_budget": 4096}):
        for found, expected in zip(gradients(walking, n, **options), gradients(indexed, n), strict=True):
            assert found == pytest.approx(expected, rel=1e-12, abs=1e-12)


def plan(loop: str) -> list[str]:
    """How the gradient of a launch adds up, without places in the source and names."""
    x, w, _ = arrays(COLUMNS)
    text = kg.gradient(compiled(loop)).explain(2, 4, x, w, np.zeros(ROWS), COLUMNS, ROWS)
    ways = re.findall(r"kernel\.cu:\d+:\d+: (shadow of .*)", text)
    return [
        *sorted(re.sub(r" \(\d+ times\)", "", way) for way in ways),
        *re.findall("atomic additions in its code", text),
    ]


@pytest.mark.parametrize("name", SPELLINGS)
def test_same_plan(name: str) -> None:
    indexed, walking = SPELLINGS[name]
    x, w, _ = arrays(COLUMNS)
    assert kg.gradient(compiled(walking)).tape_bytes(2, 4, x, w, np.zeros(ROWS), COLUMNS, ROWS) == 0
    if name != "a do loop":  # where an index is known to stay in its row, and a distance is not
        assert set(plan(walking)) == set(plan(indexed))


@pytest.mark.parametrize("name", SPELLINGS)
def test_same_values(name: str) -> None:
    results = []
    for loop in SPELLINGS[name]:
        x, w, _ = arrays(COLUMNS)
        y = np.zeros(ROWS)
        compiled(loop)[2, 4](x, w, y, COLUMNS, ROWS)
        results.append(y)
    assert results[0] == pytest.approx(results[1], rel=1e-13)


# Ends that are parts of an element away.
FIRST = "for (int k = 0; k < n; k += 4) s += x[r * n + k] * x[r * n + k];"
WHOLE = "for (int k = 0; k + 4 <= n; k += 4) s += x[r * n + k] * x[r * n + k + 3];"
BEFORE = "for (int k = n - 4; k >= 0; k -= 4) s += x[r * n + k] * x[r * n + k + 3];"
FOURS = "const Four *p = (const Four *)(x + r * n), *end = (const Four *)(x + r * n + n);"
PARTS = {
    "below": (FIRST, FOURS + "for (; p < end; ++p) s += p->a * p->a;"),
    "above": (FIRST, FOURS + "while (end > p) { s += p->a * p->a; p++; }"),
    "up to": (WHOLE, FOURS + "for (--end; p <= end; ++p) s += p->a * p->d;"),
    "back to": (BEFORE, FOURS + "for (--end; end >= p; --end) s += end->a * end->d;"),
    "up to the next": (WHOLE, FOURS + "for (; p + 1 <= end; ++p) s += p->a * p->d;"),
}


@pytest.mark.parametrize("name", PARTS)
def test_parts_of_elements(name: str) -> None:
    indexed, walking = PARTS[name]
    for n in (0, 4, 6, 7):
        for found, expected in zip(gradients(walking, n), gradients(indexed, n), strict=True):
            assert found == pytest.approx(expected, rel=1e-12, abs=1e-12)


# Where the distance hangs on data: saved, as integers.
CONDITIONAL = {
    "some iterations": "ROW; for (int k = 0; k < n - 1; ++k) { s += *p * w[k]; if (*p > 0) ++p; }",
    "one of two": "ROW; for (int k = 0; k < n - 1; ++k) { p += w[k] > 0 ? 1 : 0; s += *p * *p; }",
    "until a value": "ROW, *end = p + n; while (p < end && *p < 1) { s += *p * *p; ++p; }",
    "break": "for (ROW, *end = p + n; p < end; ++p) { if (*p > 1) break; s += *p * *p; }",
    "set again": "const double *p = x; for (int k = 0; k < n - 1; ++k) { s += *p * *p; p = w[k] > 0 ? p + 1 : w + k; }",
}  # fmt: skip


@pytest.mark.parametrize("options", ({}, {"primal": False}, {"deterministic": True}, {"tape_budget": 1024}), ids=str)
@pytest.mark.parametrize("name", CONDITIONAL)
def test_conditional(name: str, options: dict[str, Any]) -> None:
    loop, n = CONDITIONAL[name], COLUMNS
    x, w, seed = arrays(n)
    d_x, d_w = gradients(loop, n, **options)
    rng = np.random.default_rng(1)
    v, u, step = rng.standard_normal(x.size), rng.standard_normal(w.size), 1e-6

    def run(by: float) -> Any:
        y = np.zeros(ROWS)
        compiled(loop)[2, 4](x + by * v, w + by * u, y, n, ROWS)
        return y

    assert d_x @ v + d_w @ u == pytest.approx((run(step) - run(-step)) @ seed / (2 * step), rel=1e-6, abs=1e-8)


@pytest.mark.parametrize("name", ("nested", "counting down", "members"))
def test_split(name: str) -> None:
    indexed, walking = SPELLINGS[name]
    x, w, seed = arrays(COLUMNS)
    d_x, d_w = np.zeros_like(x), np.zeros_like(w)
    forward, reverse = kg.split(compiled(walking))
    args = x, w, np.zeros(ROWS), COLUMNS, ROWS
    tape = forward[2, 4](*args)
    reverse[2, 4](tape, *args, d_x, d_w, seed.copy())
    assert d_x == pytest.approx(gradients(indexed, COLUMNS)[0], rel=1e-12)
