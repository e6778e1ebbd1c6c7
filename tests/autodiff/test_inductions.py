"""Integers that a loop changes in the same way every time are not taped."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg

# A loop of `k(double *y, const double *x, int n)` in which `i` (or d) is the thread's, and whether a tape is needed.
LOOPS = {
    "grid stride": ("for (int j = t; j < n; j += blockDim.x * gridDim.x) v += x[j] * x[j] * v0;", False),
    "stride from an argument": ("for (int j = t; j < 60; j += n) v += x[j] * x[j] * v0;", False),
    "downwards": ("for (int j = 60 + t; j >= 0; j -= n) v += x[j] * x[j] * v0;", False),
    "64-bit step": ("for (int j = t; j < 60; j += (long long)n) v += x[j] * x[j];", False),
    "halving": ("for (int d = n; d > 0; d >>= 1) v += x[d] * x[t + d];", False),
    "division": ("for (int d = n; d > 0; d /= 4) v += x[d] * x[t + d];", False),
    "division of negatives": ("for (int d = -n; d < 0; d /= 2) v += x[-d] * x[t - d];", False),
    "shift of negatives": ("for (int d = -n; d < -1; d >>= 1) v += x[-d] * x[t - d];", False),
    "doubling": ("for (unsigned d = 1; d < n; d *= 2) v += x[d] * x[t + d];", False),
    "shifting": ("for (unsigned d = 3; d < n; d <<= 1) v += x[d] * x[t + d];", False),
    "two at once": ("for (int j = t, d = 1; j < n; j += 3, d *= 2) v += x[j] * x[d % 60];", False),
    "beside a counter": ("int d = 1; for (int j = 0; j < 5; j++) { v += x[j] * x[d + t]; d <<= 1; }", False),
    "narrower arithmetic": (
        "long long j = (1ll << 32) + t; for (int k = 0; k < n; k++) { v += x[j % 63] * v0; j = (unsigned)j + 3u; }",
        True,
    ),
    "tripling": ("for (unsigned d = 1; d < n; d *= 3) v += x[d] * x[t + d];", True),
    "changing step": ("for (int j = t, d = 1; j < n; j += d, d++) v += x[j] * x[t];", True),
    "a step from memory that changes": ("for (int j = t; j < 60; j += (int)(y[0]) + 7) v += x[j] * x[t];", False),
}


@pytest.mark.parametrize("name", LOOPS)
def test_gradient(name: str) -> None:
    loop, taped = LOOPS[name]
    source = f"""__global__ void k(double *y, const double *x, int n) {{
        int t = threadIdx.x;
        double v = 1, v0 = x[t];
        {loop}
        y[t + 1] = v * v;
    }}"""
    kernel = kg.compile(source)["k"]
    gradient = kg.gradient(kernel)
    rng = np.random.default_rng(5)
    y, x, seed = rng.random(9), rng.random(128), rng.standard_normal(9)
    n = 19

    def run(x: Any) -> Any:
        after = y.copy()
        kernel[1, 8](after, x, n)
        return after

    d_x = np.zeros(128)
    gradient[1, 8](y.copy(), x, n, seed.copy(), d_x)
    for _ in range(3):
        v, step = rng.standard_normal(128), 1e-6
        change = (run(x + step * v) - run(x - step * v)) @ seed / (2 * step)
        assert d_x @ v == pytest.approx(change, rel=1e-6)
    if name != "a step from memory that changes":
        assert bool(gradient.tape_bytes(1, 8, y, x, n)) == taped
