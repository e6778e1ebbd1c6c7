"""`rotate`: loops in one another are not copied over and over, and have the right gradients."""

from __future__ import annotations

import numpy as np
import pytest

import kernelgrad as kg
from kernelgrad.analysis.structure import is_rotated
from kernelgrad.ir.ops import While
from kernelgrad.ir.traverse import walk
from kernelgrad.transforms import rotate

DO = "int c{0} = 0; do {{ c{0}++; v += 0.1 * v * x[c{0}];", "v *= 0.9; }} while (v < 0.9 + 0.01 * {0} && c{0} < 3);"
STEP = "__device__ bool step(double &v, double x, int &c) { c++; v = 0.9 * v + 0.01 * x * v; return c < 3; }\n"
WHILE = "int c{0} = 0; while (step(v, x[1], c{0})) {{ v += 0.01 * x[0] * x[0];", "}}"


def _kernel(loop: tuple[str, str], depth: int) -> kg.Kernel:
    opened = "".join(loop[0].format(k) for k in range(depth))
    closed = "".join(loop[1].format(k) for k in reversed(range(depth)))
    body = f"double v = x[0]; {opened} v = v * x[2] + 0.3; {closed} y[0] = v;"
    return kg.compile(f"{STEP}__global__ void k(double *y, const double *x) {{ {body} }}")["k"]


def test_few_copies() -> None:
    counts = []
    for depth in (4, 5, 8):
        kernel = _kernel(DO, depth)
        loops = [op for op in walk(rotate.run(kernel.function, kernel.module).body) if isinstance(op, While)]
        assert all(map(is_rotated, loops))
        counts.append(len(loops))
    assert [counts[1] - counts[0], counts[2] - counts[1]] == [1, 3]


@pytest.mark.parametrize("loop", [DO, WHILE], ids=["do", "while"])
def test_gradient(loop: tuple[str, str]) -> None:
    kernel, x = _kernel(loop, 4), np.array([0.3, 0.5, 0.7, 0.9])
    d_x, step = np.zeros(4), 1e-6
    kg.gradient(kernel, "y, x")[1, 1](np.zeros(1), x, np.ones(1), d_x)
    for k in range(4):
        y = np.zeros((2, 1))
        for side, sign in enumerate((1, -1)):
            kernel[1, 1](y[side], x + sign * step * np.eye(4)[k])
        assert d_x[k] == pytest.approx(float(y[0, 0] - y[1, 0]) / (2 * step), rel=1e-6, abs=1e-9)
