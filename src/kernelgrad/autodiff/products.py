"""What is known of arithmetic beyond one operation: powers that are written as products, and numbers away from zero."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

from ..ir.ops import Apply, Constant, Op, Value
from ..ir.types import F32, F64

_HIGHEST = 8  # exponent

Definitions = Mapping[Value, Op]


class Power(NamedTuple):
    """`base` to the `exponent`; `below` is the power below it, which is there as a value."""

    base: Value
    exponent: int
    below: Value


def power_of(op: Apply, definition: Definitions) -> Power | None:
    """A product of nothing but one value, such as `r * r * r`: its derivative is `3 * (r * r)`, in one piece."""
    if op.fn != "mul":
        return None
    left, right = op.args
    if left is right:
        return Power(left, 2, left)
    for below, base in ((left, right), (right, left)):
        inner = definition.get(below)
        found = power_of(inner, definition) if isinstance(inner, Apply) else None
        if found is not None and found.base is base and found.exponent < _HIGHEST:
            return Power(base, found.exponent + 1, below)
    return None


def at_least(value: Value, definition: Definitions) -> float:
    """A bound from below that a float keeps, unless it is NaN; minus infinity where none is known."""
    op = definition.get(value)
    if value.type not in (F32, F64):
        return -math.inf
    match op:
        case Constant(number):
            return float(number)
        case Apply("mul", (a, b)) if a is b:
            return 0.0
        case Apply(fn, args) if fn in _BOUNDS:
            return _BOUNDS[fn](*(at_least(a, definition) for a in args))
    return -math.inf


def _product(a: float, b: float) -> float:
    return a * b if 0 <= a < math.inf and 0 <= b < math.inf else -math.inf


_BOUNDS: dict[str, Callable[..., float]] = {
    "add": lambda a, b: a + b,
    "mul": _product,
    "max": max,
    "abs": lambda a: 0.0,
    "exp": lambda a: 0.0,
    "exp2": lambda a: 0.0,
    "sqrt": lambda a: math.sqrt(a) if a > 0 else 0.0,
    "convert": lambda a: a,
}
