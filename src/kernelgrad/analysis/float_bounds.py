"""How small a float can be, as far as the arithmetic tells that it comes from: an analysis."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from ..ir.ops import Apply, Constant, Op, Value
from ..ir.types import F32, F64

Definitions = Mapping[Value, Op]


_DEPTH = 8  # operations that are looked through


def at_least(value: Value, definition: Definitions, depth: int = _DEPTH) -> float:
    """A bound from below that a float keeps, unless it is NaN; minus infinity where none is known."""
    op = definition.get(value)
    if value.type not in (F32, F64) or not depth:
        return -math.inf
    match op:
        case Constant(number):
            return float(number)
        case Apply("mul" | "mul_rn", (a, b)) if a is b:
            low = at_least(a, definition, depth - 1)
            return max(0.0, _product(low, low))
        case Apply(fn, args) if fn in _BOUNDS:
            return _BOUNDS[fn](*(at_least(a, definition, depth - 1) for a in args))
    return -math.inf


def _product(a: float, b: float) -> float:
    return a * b if 0 <= a < math.inf and 0 <= b < math.inf else -math.inf


_BOUNDS: dict[str, Callable[..., float]] = {
    **dict.fromkeys(("add", "add_rn"), lambda a, b: a + b),
    **dict.fromkeys(("mul", "mul_rn"), _product),
    "max": max,
    "abs": lambda a: 0.0,
    "exp": lambda a: 0.0,
    "exp2": lambda a: 0.0,
    "sqrt": lambda a: math.sqrt(a) if a > 0 else 0.0,
    "convert": lambda a: a,
}
