"""Loops that halve or double a number until it reaches an end: they make few trips."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ...ir.ops import Apply, Constant, Op, Value, While
from ...ir.types import Scalar

_Definitions = Mapping[Value, Op]


def most_trips(loop: While, counted: Value, definition: _Definitions) -> int | None:
    """How often a loop can have run when it ends, where `counted`, a result of it, counts its trips."""
    known = dict(zip(loop.before.results[1:], zip(loop.body.args, loop.results, strict=True), strict=True))
    numbers = {arg: k for k, arg in enumerate(loop.before.args)}
    counter = next((v for v, (_, result) in known.items() if result is counted), None)
    if counter is None or not _counts(loop, numbers[counter], known[counter][0], definition):
        return None
    for larger, smaller in _comparisons(loop.before.results[0], definition):
        for tested in {larger, smaller} & numbers.keys() & known.keys():
            end = smaller if tested is larger else None
            if end is None and not _is_all(loop, larger, definition):
                continue
            bits = _shifted(loop, numbers[tested], known[tested][0], end, definition)
            if bits and isinstance(tested.type, Scalar):
                return -(-tested.type.bits // bits)
    return None


def _counts(loop: While, index: int, arg: Value, definition: _Definitions) -> bool:
    following = definition.get(loop.body.results[index])
    if not isinstance(following, Apply) or following.fn != "add" or following.args[0] is not arg:
        return False
    return _number(loop.inits[index], definition) == 0 and _number(following.args[1], definition) == 1


def _comparisons(test: Value, definition: _Definitions) -> Iterator[tuple[Value, Value]]:
    """(larger, smaller) of the comparisons that all hold while a loop goes on."""
    match definition.get(test):
        case Apply("and", (one, other)):
            yield from _comparisons(one, definition)
            yield from _comparisons(other, definition)
        case Apply("gt", (larger, smaller)) | Apply("lt", (smaller, larger)):
            yield larger, smaller
        case _:
            pass


def _is_all(loop: While, limit: Value, definition: _Definitions) -> bool:
    """Whether a loop has one comparison for its test, with a limit that it does not change: then it goes on for good
    with a number that is below the limit and stays what it is. With more, something else may end it, at any time."""
    test = definition.get(loop.before.results[0])
    made = definition.get(limit)
    inside = limit in loop.before.args or (made in loop.before.ops and not isinstance(made, Constant))
    return isinstance(test, Apply) and test.fn != "and" and not inside


def _shifted(loop: While, index: int, arg: Value, end: Value | None, definition: _Definitions) -> int:
    """By how many bits a trip makes a number smaller that is above zero (above `end`), or, without `end`, makes one
    larger that begins above zero and is below something: what is shifted out ends at zero, and there it stays."""
    step = definition.get(loop.body.results[index])
    if not isinstance(step, Apply) or len(step.args) != 2 or step.args[0] is not arg:
        return 0
    by = _number(step.args[1], definition) or 0
    if end is not None:
        above_zero = (_number(end, definition) or 0) >= 0 and _number(end, definition) is not None
        return {"shr": by, "div": by.bit_length() - 1}.get(step.fn, 0) if above_zero and by > 0 else 0
    start = _number(loop.inits[index], definition)
    doubled = {"shl": by, "mul": by.bit_length() - 1 if by & (by - 1) == 0 else 0}.get(step.fn, 0)
    return doubled if by > 0 and start is not None and start > 0 else 0


def _number(value: Value, definition: _Definitions) -> int | None:
    op = definition.get(value)
    return int(op.value) if isinstance(op, Constant) else None
