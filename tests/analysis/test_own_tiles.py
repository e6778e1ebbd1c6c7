"""Arrays of a thread's own that are filled and then read are filled again in the reverse, and not taped."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg

THREADS, SIZE = 6, 40

# Work on x (SIZE numbers) and which (SIZE indices below 4) for y[i], i < n.
FILLED = {
    "looked up": "for (int t = 0; t < n; ++t) { double a[4]; for (int k = 0; k < 4; ++k) a[k] = sin(x[4 * t + k] * v); "
        "for (int k = 0; k < 3; ++k) s += a[which[t + k]] * a[which[k]] * v; }",
    "filled in part": "for (int t = 0; t < n; ++t) { double a[4] = {v, 0, 0, 0}; if (t % 2) a[which[t]] = x[t] * v; "
        "for (int k = 0; k < 3; ++k) s += a[which[t + k]] * v * a[which[k]]; }",
    "built up": "for (int t = 0; t < n; ++t) { double a[4] = {v, v, v, v}; for (int k = 0; k < 6; ++k) "
        "a[which[k]] = a[which[k]] * 0.5 + x[t + k]; for (int k = 0; k < 3; ++k) s += a[which[t + k]] * a[which[k]]; }",
    "one from another": "for (int t = 0; t < n; ++t) { double a[4], b[4]; "
        "for (int k = 0; k < 4; ++k) a[k] = x[t + k] * v; for (int k = 0; k < 4; ++k) b[k] = a[which[k]] * a[k]; "
        "for (int k = 0; k < 3; ++k) s += b[which[t + k]] * v; }",
    "once": "double a[4]; for (int k = 0; k < 4; ++k) a[k] = sin(x[k] * v); for (int t = 0; t < n; ++t) "
        "s += a[which[t]] * a[which[t + 1]] * v;",
}  # fmt: skip
KEPT = {
    "filled before": "double a[4] = {v, v, v, v}; for (int t = 0; t < n; ++t) { a[which[t]] = x[t] * v; "
        "for (int k = 0; k < 3; ++k) s += a[which[t + k]] * v * a[which[k]]; }",
    "filled after": "for (int t = 0; t < n; ++t) { double a[4] = {v, x[t], v, v}; for (int k = 0; k < 3; ++k) { "
        "s += a[which[t + k]] * v * a[which[k]]; a[which[k]] = x[t + k] * s; } }",
}  # fmt: skip


def compiled(work: str) -> Any:
    source = f"""__global__ void k(const double *x, const int *which, double *y, int n) {{
        int i = threadIdx.x;
        double v = x[i], s = 0;
        {work}
        y[i] = s;
    }}"""
    return kg.compile(source)["k"]


def check(kernel: Any, n: int, **options: Any) -> None:
    rng = np.random.default_rng(3)
    x, which, seed = rng.random(SIZE), rng.integers(0, 4, SIZE).astype(np.int32), rng.standard_normal(THREADS)
    d_x, moved, step = np.zeros(SIZE), rng.standard_normal(SIZE), 1e-6
    args = (which, np.zeros(THREADS), n)
    if options.pop("split", False):
        forward, reverse = kg.split(kernel, "y, x")
        reverse[1, THREADS](forward[1, THREADS](x, *args), x, *args, d_x=d_x, d_y=seed.copy())
    else:
        kg.gradient(kernel, "y, x", **options)[1, THREADS](x, *args, d_x=d_x, d_y=seed.copy())

    def at(by: float) -> Any:
        y = np.zeros(THREADS)
        kernel[1, THREADS](x + by * moved, which, y, n)
        return y

    assert d_x @ moved == pytest.approx((at(step) - at(-step)) @ seed / (2 * step), rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("name", FILLED)
def test_filled_again(name: str) -> None:
    kernel = compiled(FILLED[name])
    for options in ({}, {"primal": False}, {"deterministic": True}, {"split": True}):
        check(kernel, 5, **options)
    check(kernel, 0)
    x, which = np.zeros(SIZE), np.zeros(SIZE, np.int32)
    assert kg.gradient(kernel, "y, x").tape_bytes(1, THREADS, x, which, np.zeros(THREADS), 5) == 0


@pytest.mark.parametrize("name", KEPT)
def test_kept(name: str) -> None:
    kernel = compiled(KEPT[name])
    check(kernel, 5)
    x, which = np.zeros(SIZE), np.zeros(SIZE, np.int32)
    assert kg.gradient(kernel, "y, x").tape_bytes(1, THREADS, x, which, np.zeros(THREADS), 5) > 0
