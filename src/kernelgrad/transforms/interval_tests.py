"""Comparisons of integers that come out the same wherever the kernel comes to them: numbers in their place."""

from __future__ import annotations

from ..analysis.access.intervals import Intervals
from ..ir.ops import Apply, Block, Constant, For, Function, If, Module, Op, Value, While
from ..ir.traverse import descend, with_body, with_ops
from ..ir.types import Scalar
from . import simplify

_DENIED = {"ge": "lt", "gt": "le", "ne": "eq"}


def run(function: Function, module: Module, intervals: Intervals) -> Function:
    found: dict[int, bool] = {}
    _Tests(intervals, found).visit(function.body)

    def decided(block: Block) -> Block:
        return with_ops(block, [_decided(op, found.get(id(op))) or descend(op, decided) for op in block.ops])

    return simplify.run(with_body(function, decided(function.body)), module) if found else function


def _decided(op: Op, outcome: bool | None) -> Op | None:
    return None if outcome is None else Constant(outcome, results=op.results, span=op.span)


class _Tests:
    def __init__(self, intervals: Intervals, found: dict[int, bool]):
        self.intervals, self.found = intervals, found

    def visit(self, block: Block) -> None:
        for op in block.ops:
            self._op(op)

    def _op(self, op: Op) -> None:
        match op:
            case Apply(fn, (one, other)) if _is_integer(one):
                known = outcome(self.intervals, fn, one, other)
                if known is not None:
                    self.found[id(op)] = known
            case If(cond, then, orelse):
                for side, holds in ((then, True), (orelse, False)):
                    with self.intervals.assuming(cond, holds) as happens:
                        if happens:
                            self.visit(side)
            case For(body=body):
                with self.intervals.counting(op) as happens:
                    if happens:
                        self.visit(body)
            case While(before=before, body=body):
                with self.intervals.repeating(op):
                    self.visit(before)
                    with self.intervals.entering(op) as happens:
                        if happens:
                            self.visit(body)


def outcome(intervals: Intervals, fn: str, one: Value, other: Value) -> bool | None:
    """Of a comparison, where these intervals hold."""
    if fn in _DENIED:
        found = outcome(intervals, _DENIED[fn], one, other)
        return None if found is None else not found
    left, right = intervals.of(one), intervals.of(other)
    match fn:
        case "lt":
            return True if left[1] < right[0] else False if left[0] >= right[1] else None
        case "le":
            return True if left[1] <= right[0] else False if left[0] > right[1] else None
        case "eq":
            is_one = left[0] == left[1] == right[0] == right[1]
            return True if is_one else False if left[1] < right[0] or left[0] > right[1] else None
    return None


def _is_integer(value: Value) -> bool:
    return isinstance(value.type, Scalar) and not value.type.is_float
