"""Where loops end: bounds on what they carry, from the condition that is tested before each iteration."""

from __future__ import annotations

from typing import NamedTuple

from ...ir.ops import Apply, Value, While
from ...ir.types import Scalar, Type
from ..structure import Structure, carried_as


class End(NamedTuple):
    """In the loop's body, `value < bound + more`; with several bounds, one of them holds for each iteration."""

    value: Value
    bounds: tuple[Value, ...]
    more: int


def ends_of(loop: While, structure: Structure) -> list[End]:
    """What the condition bounds, of the body's arguments."""
    condition = loop.before.results[0]
    if condition in loop.before.args:
        return _carried(loop, loop.before.args.index(condition), structure)
    return _tested(loop, structure)


def _carried(loop: While, index: int, structure: Structure) -> list[End]:
    """It is computed before the loop, and again at the end of each iteration."""
    first, again = (_comparison(values[index], structure) for values in (loop.inits, loop.body.results))
    if first is None or again is None or first.more != again.more:
        return []
    bounds, found = first.bounds + again.bounds, []
    for position, arg in enumerate(loop.body.args):
        k = carried_as(loop, position)
        if k is not None and loop.inits[k] in first.values and loop.body.results[k] in again.values:
            found.append(End(arg, bounds, first.more))
    return found


def _tested(loop: While, structure: Structure) -> list[End]:
    condition, *forwarded = loop.before.results
    found = _comparison(condition, structure)
    if found is None:
        return []
    return [End(arg, *found[1:]) for arg, v in zip(loop.body.args, forwarded, strict=True) if v in found.values]


class _Bounded(NamedTuple):
    """`value < bound + more`, for each of the values."""

    values: tuple[Value, ...]
    bounds: tuple[Value, ...]
    more: int


def _comparison(cond: Value, structure: Structure) -> _Bounded | None:
    match structure.definition.get(cond):
        case Apply("lt" | "le" as fn, (left, right)):
            return _Bounded(_converted(left, structure), (right,), int(fn == "le"))
        case Apply("gt" | "ge" as fn, (left, right)):
            return _Bounded(_converted(right, structure), (left,), int(fn == "ge"))
    return None


def _converted(value: Value, structure: Structure) -> tuple[Value, ...]:
    """A bounded value, and what it was before conversions that make no value smaller: `i < n` with an int and an
    unsigned."""
    found = [value]
    op = structure.definition.get(value)
    while isinstance(op, Apply) and op.fn == "convert" and _grows(op.args[0].type, found[-1].type):
        found.append(op.args[0])
        op = structure.definition.get(found[-1])
    return tuple(found)


def _grows(old: Type, new: Type) -> bool:
    if not isinstance(old, Scalar) or not isinstance(new, Scalar) or "float" in (old.kind, new.kind):
        return False
    return new.bits > old.bits or (new.bits == old.bits and (old.is_signed or not new.is_signed))
