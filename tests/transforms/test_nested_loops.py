"""Loops in one another: the work for them grows with their number, not twofold with each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from kernelgrad.ir.ops import For
from kernelgrad.ir.traverse import walk
from kernelgrad.transforms import masks
from kernelgrad.transforms.unroll import unroll

pytestmark = pytest.mark.usefixtures("cache_of_its_own")  # what is found there is not done again
DO = "do {{ v = 0.9 * v + 0.01 * x[{0}] * v;", "}} while (v < -1);"
CONTINUE = "for (int c{0} = 0; c{0} < 2; c{0}++) {{ if (v > {0} + 100) continue;", "}}"


def _kernel(loop: tuple[str, str], depth: int) -> kg.Kernel:
    opened = "".join(loop[0].format(k) for k in range(depth))
    closed = "".join(loop[1].format(k) for k in reversed(range(depth)))
    body = f"double v = x[0]; {opened} v = v * x[2] + 0.3; {closed} y[0] = v;"
    return kg.compile(f"__global__ void k(double *y, const double *x) {{ {body} }}")["k"]


def test_what_loops_carry_is_tried_a_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each loop tries again what is not only scaled in it, and so do those inside, for each trial of those around."""
    visits, plain = [0], masks._Masks.scaling

    def scaling(self: Any, op: For) -> int:
        visits[0] += 1
        return plain(self, op)

    monkeypatch.setattr(masks._Masks, "scaling", scaling)
    counts = []
    for depth in (8, 12, 16):
        kernel, x, d_x = _kernel(DO, depth), np.linspace(0.3, 0.9, 16), np.zeros(16)
        visits[0] = 0
        kg.gradient(kernel, "y, x")[1, 1](np.zeros(1), x, np.ones(1), d_x)
        counts.append(visits[0])
        t_y, t_x = np.zeros(1), np.linspace(1, 2, 16)
        kg.jvp(kernel, "y, x")[1, 1](np.zeros(1), x, t_y, t_x.copy())
        assert d_x @ t_x == pytest.approx(t_y[0], rel=1e-12)
    assert counts[2] - counts[1] < 2 * (counts[1] - counts[0])


def test_unrolling_ends_where_it_is_too_much_code() -> None:
    for depth in (5, 16):
        function = _kernel(CONTINUE, depth).function
        unrolled = unroll(function, lambda loop: isinstance(loop, For))
        left = sum(isinstance(op, For) for op in walk(unrolled.body))
        assert left == 0 if depth == 5 else 0 < left < depth
        assert sum(1 for _ in walk(unrolled.body)) < 5000
