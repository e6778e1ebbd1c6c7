"""Where loops end: bounds on what they carry, from the condition that is tested before each iteration."""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

from ...ir.ops import Apply, Constant, If, Op, Value, While
from ...ir.types import Scalar, Type
from ..structure import Structure, carried_as


def least_of(bound: Value, structure: Structure) -> list[Value]:
    """The operands of a minimum: each of them is an upper bound, too, if not the exact one."""
    op = structure.definition.get(bound)
    if not isinstance(op, Apply) or op.fn != "min":
        return []
    return [v for arg in op.args for v in (arg, *least_of(arg, structure))]


class End(NamedTuple):
    """In the loop's body, `value < bound + more`; with several bounds, one of them holds for each iteration."""

    value: Value
    bounds: tuple[Value, ...]
    more: int


def ends_of(loop: While, structure: Structure) -> list[End]:
    """What the condition bounds, of the body's arguments, where it is nothing but that: the loop ends there alone."""
    conditions = [loop.before.results[0]]
    if conditions[0] in loop.before.args:
        index = loop.before.args.index(conditions[0])
        conditions = [loop.inits[index], loop.body.results[index]]
    several = any(map(_is_several, map(structure.definition.get, conditions)))
    return [] if several else bounds_of(loop, structure)


def _is_several(condition: Op | None) -> bool:
    return isinstance(condition, If) or (isinstance(condition, Apply) and condition.fn == "and")


def bounds_of(loop: While, structure: Structure) -> list[End]:
    """What the condition bounds; it may end for other reasons before."""
    condition = loop.before.results[0]
    if condition in loop.before.args:
        return _carried(loop, loop.before.args.index(condition), structure)
    return _tested(loop, structure)


class Later(NamedTuple):
    """In all iterations of a loop but the first: where the one before started, or where they start themselves."""

    end: End
    before: bool


def later_bounds_of(loop: While, structure: Structure) -> list[Later]:
    """What the condition of a rotated loop bounds, of its body's arguments."""
    found = []
    for values, bounds, more in _comparisons(loop.body.results[0], structure):
        for arg, following in zip(loop.body.args, loop.body.results, strict=True):
            if arg in values or following in values:
                found.append(Later(End(arg, bounds, more), following not in values))
    return found


def _carried(loop: While, index: int, structure: Structure) -> list[End]:
    """It is computed before the loop, and again at the end of each iteration."""
    tests = (_comparisons(values[index], structure) for values in (loop.inits, loop.body.results))
    found = []
    for first, again in product(*tests):
        for position, arg in enumerate(loop.body.args if first.more == again.more else ()):
            k = carried_as(loop, position)
            if k is not None and loop.inits[k] in first.values and loop.body.results[k] in again.values:
                found.append(End(arg, first.bounds + again.bounds, first.more))
    return found


def _tested(loop: While, structure: Structure) -> list[End]:
    condition, *forwarded = loop.before.results
    pairs = list(zip(loop.body.args, forwarded, strict=True))
    found = _comparisons(condition, structure)
    return [End(arg, *bounded[1:]) for bounded in found for arg, v in pairs if v in bounded.values]


class _Bounded(NamedTuple):
    """`value < bound + more`, for each of the values."""

    values: tuple[Value, ...]
    bounds: tuple[Value, ...]
    more: int


def _comparisons(cond: Value, structure: Structure) -> list[_Bounded]:
    """All that hold where a condition does."""
    match structure.definition.get(cond):
        case Apply("and", args):
            return [bounded for arg in args for bounded in _comparisons(arg, structure)]
        case If(first, then, orelse) as op if _is_false(orelse.results[op.results.index(cond)], structure):
            return [*_comparisons(first, structure), *_comparisons(then.results[op.results.index(cond)], structure)]
        case Apply("lt" | "le" as fn, (left, right)):
            return _bounded(left, right, int(fn == "le"), structure)
        case Apply("gt" | "ge" as fn, (left, right)):
            return _bounded(right, left, int(fn == "ge"), structure)
    return []


def _is_false(value: Value, structure: Structure) -> bool:
    op = structure.definition.get(value)
    return isinstance(op, Constant) and op.value == 0


def _bounded(value: Value, bound: Value, more: int, structure: Structure) -> list[_Bounded]:
    """A value, and what it is more than by a number: `i + 2 < n`, of signed integers, which do not come round."""
    found = [_Bounded(_converted(value, structure), (bound,), more)]
    op = structure.definition.get(value)
    if isinstance(op, Apply) and op.fn in ("add", "sub") and isinstance(value.type, Scalar) and value.type.is_signed:
        by = structure.definition.get(op.args[1])
        if isinstance(by, Constant) and isinstance(by.value, int):
            less = by.value if op.fn == "add" else -by.value
            found += _bounded(op.args[0], bound, more - less, structure)
    return found


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
