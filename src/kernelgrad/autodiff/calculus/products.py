"""Powers that are written as products."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ...ir.ops import Apply, Op, Value

_HIGHEST = 8  # exponent

Definitions = Mapping[Value, Op]


class Power(NamedTuple):
    """`base` to the `exponent`; `below` is the power below it, which is there as a value."""

    base: Value
    exponent: int
    below: Value


def power_of(op: Apply, definition: Definitions) -> Power | None:
    """A product of nothing but one value, such as `r * r * r`: its derivative is `3 * (r * r)`, in one piece."""
    if op.fn not in ("mul", "mul_rn"):
        return None
    left, right = op.args
    if left is right:
        return Power(left, 2, left)
    for below, base in ((left, right), (right, left)):
        inner = definition.get(below)
        found = power_of(inner, definition) if isinstance(inner, Apply) and base in inner.args else None
        if found is not None and found.base is base and found.exponent < _HIGHEST:
            return Power(base, found.exponent + 1, below)
    return None
