"""What loops carry into iterations that do not come: counters stay counters where a loop is left early."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from kernelgrad.ir.ops import Apply, Function, While
from kernelgrad.ir.traverse import walk
from kernelgrad.transforms import loop_ends, rotate

ROUND = "for (int i = 0; i < n; ++i)"
HEAD = "__global__ void k(double *y, const double *x, const int *f, int n) { int t = threadIdx.x; double a = 0;"
# Loops, and how many choices of integers are carried after the pass: what is used behind the loop, or floats, stays.
LOOPS = {
    "break": ("ROUND { if (f[i] == 2) break; a += x[i] * x[i]; } y[t] = a;", 0),
    "two breaks": (
        "ROUND { if (f[i] == 2) break; a += x[i] * x[i]; if (a > 9) break; a += 1; } y[t] = a;",
        0,
    ),
    "another counter": (
        "int d = n; for (int i = 0; i < n; ++i, d -= 3)"
        " { if (f[i] != 0 && f[i + 1] == 1) break; a += x[i] * d; } y[t] = a;",
        0,
    ),
    "pointers that walk": (
        "const double *p = x, *q = x + n; int i = 0; while (i < n) { a += p[0] * q[0]; if (f[i] == 2) break;"
        " p++; q--; i++; } y[t] = a;",
        0,
    ),
    "used behind": ("int i = 0; for (; i < n; ++i) { if (f[i] == 2) break; a += x[i]; } y[t] = a * i;", 1),
    "continue": ("ROUND { if (f[i] == 1) continue; if (f[i] == 2) break; a += x[i]; } y[t] = a;", 0),
}
OTHERS = {
    "moved now and then": "int c = 0; ROUND { if (f[i] == 2) break; if (f[i]) c = i / 2; a += x[c]; } y[t] = a;",
    "a product": "double p = 1; ROUND { if (f[i] == 2) break; p *= x[i]; a += p; } y[t] = a;",
}


def made(body: str) -> Any:
    return kg.compile(f"{HEAD} {body.replace('ROUND', ROUND)} }}")["k"]


def carried_choices(function: Function) -> int:
    made = {v: op for op in walk(function.body) for v in op.results}
    loops = [op for op in walk(function.body) if isinstance(op, While)]
    ends = [made.get(v) for loop in loops for v in loop.body.results[1:] if getattr(v.type, "kind", "") == "int"]
    return sum(isinstance(op, Apply) and op.fn == "select" for op in ends)


@pytest.mark.parametrize("name", LOOPS)
def test_counters(name: str) -> None:
    body, left = LOOPS[name]
    kernel = made(body)
    rotated = rotate.run(kernel.function, kernel.module)
    assert carried_choices(loop_ends.run(rotated, kernel.module)) == left


@pytest.mark.parametrize("end", [0, 1, 5, 12])
@pytest.mark.parametrize("name", [*LOOPS, *OTHERS])
def test_values(name: str, end: int) -> None:
    """Gradients against forward mode, wherever a loop is left."""
    kernel = made(LOOPS[name][0] if name in LOOPS else OTHERS[name])
    rng = np.random.default_rng(end)
    f = rng.integers(0, 2, 16, dtype=np.int32)
    f[end] = 2
    x, seed, tangent = rng.uniform(0.5, 1.5, 16), rng.uniform(-1, 1, 4), rng.uniform(-1, 1, 16)
    d_x, moved = np.zeros(16), np.zeros(4)
    kg.gradient(kernel, "y, x")[1, 4](np.zeros(4), x, f, 12, seed.copy(), d_x)
    kg.jvp(kernel, "y, x")[1, 4](np.zeros(4), x, f, 12, moved, tangent)
    np.testing.assert_allclose(d_x @ tangent, seed @ moved, rtol=1e-12)
