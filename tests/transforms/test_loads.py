"""Loads that are not repeated, and those that see something new."""

from __future__ import annotations

import numpy as np
import pytest

import kernelgrad as kg
from kernelgrad.ir.ops import Load
from kernelgrad.ir.traverse import walk

# The body of `k(float *y, float *x, int n)` for one thread, the loads that are left, and y[0] for x[0] = 3 and n = 4.
CASES = {
    "twice": ("y[0] = x[0] + x[0];", 1, 6),
    "just stored": ("x[0] = 5; y[0] = x[0];", 0, 5),
    "behind a barrier": ("float a = x[0]; __syncthreads(); y[0] = a + x[0];", 2, 6),
    "behind a branch that stores": ("float a = x[0]; if (n > 3) x[0] = 5; y[0] = a + x[0];", 2, 8),
    "in a branch that stores later": ("float a = x[0]; if (n > 3) { y[0] = a + x[0]; x[0] = 5; }", 2, 6),
    "in a loop that stores": ("float s = x[0]; for (int k = 0; k < n; k++) { s += x[0]; x[0] = s; } y[0] = s;", 2, 48),
    "behind a loop that stores": ("float s = x[0]; for (int k = 0; k < n; k++) x[0] = k; y[0] = s + x[0];", 2, 6),
    "volatile": ("volatile float *v = x; float a = *v; y[0] = a + *v;", 2, 6),
}


@pytest.mark.parametrize("name", CASES)
def test_loads(name: str) -> None:
    body, loads, expected = CASES[name]
    kernel = kg.compile(f"__global__ void k(float *y, float *x, int n) {{ {body} }}")["k"]
    y, x = np.zeros(1, np.float32), np.full(1, 3, np.float32)
    kernel[1, 1](y, x, 4)
    assert y[0] == expected
    assert sum(isinstance(op, Load) for op in walk(kernel.function.body)) <= loads
