"""Rule 19: what reverse mode emits is ordinary IR. Forward mode of every case's gradient, against differences of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from gradient_cases import ALL, Case, adjoints

# The derivative is piecewise constant or has jumps near the point, or the arguments hold records.
SECOND = [case for case in ALL if case.smooth and case.name not in ("fast_forms", "casts_between_floats")]
Vectors = list[np.ndarray[Any, Any]]


def _moved(values: Vectors, direction: Vectors, h: float) -> Vectors:
    return [v + h * d for v, d in zip(values, direction, strict=True)]


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in SECOND])
def test_tangent_of_the_gradient(case: Case) -> None:
    args = case.arguments("f8")
    if any(isinstance(a, np.ndarray) and a.dtype.names for a in args):
        pytest.skip("records: the directions here are vectors")
    names = case.names()
    order = [p.name for p in case.compiled().function.params]
    at = [order.index(name) for name in names]
    start = [np.atleast_1d(np.array(args[k], "f8")) for k in at] + adjoints(case, args)
    random = np.random.default_rng(11)
    direction = [random.uniform(-1, 1, v.shape) for v in start]
    gradient = kg.gradient(case.compiled(), case.listed)
    second = kg.jvp(gradient, ", ".join((*names, *(f"d_{n}" for n in names))))

    def call(target: Any, values: Vectors, tangents: Vectors) -> Vectors:
        values, tangents = [v.copy() for v in values], [t.copy() for t in tangents]
        own = list(case.arguments("f8"))
        for k, position in enumerate(at):
            own[position] = float(values[k][0]) if np.ndim(args[position]) == 0 else values[k]
        target[case.grid, case.block](*own, *values[len(at) :], *tangents)
        return tangents or values

    h = 1e-6
    ahead, behind = (call(gradient, _moved(start, direction, s * h), []) for s in (1, -1))
    for got, one, other in zip(call(second, start, direction), ahead, behind, strict=True):
        want = (one - other) / (2 * h)
        np.testing.assert_allclose(got, want, rtol=0, atol=2e-6 * max(1.0, float(np.abs(want).max())))
