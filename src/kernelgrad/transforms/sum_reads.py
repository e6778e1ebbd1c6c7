"""Sums of adjoints that are read while they grow: what is read is all that was added up so far.

    for (...) { if (c) _d_w += sum; sum += v; }      in pieces, reads      (float)(total + (double)sum)

where `total` is the sum of the pieces before (`sum_pieces`). The conversions stand where the sum is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..ir.builder import Builder
from ..ir.ops import Apply, Block, If, Op, Value
from ..ir.traverse import rebuild
from ..ir.types import F32, F64


def chain(start: Value, end: Value, reached: set[Value], definition: Mapping[Value, Op]) -> set[Value]:
    """What a sum is, from the start of an iteration to its end. `reached`: all that the start is part of."""
    found, todo = {start}, [end]
    while todo:
        value = todo.pop()
        if value not in found and value in reached:
            found.add(value)
            todo += _parts(definition[value], value)
    return found


def _parts(op: Op, value: Value) -> tuple[Value, ...]:
    match op:
        case If(_, then, orelse):
            k = op.results.index(value)
            return then.results[k], orelse.results[k]
        case Apply(_, args):
            return args
    return ()


@dataclass(frozen=True)
class Reads:
    """Of the values of one sum, in a loop; `total`: of the pieces before."""

    sum: set[Value]
    total: Value

    def block(self, block: Block, own: frozenset[int]) -> Block:
        """`own`: which of the block's results are the sum again."""
        ops: list[Op] = []
        for op in block.ops:
            ops += self.op(op)
        b = Builder()
        results = tuple(v if k in own else self.value(b, v) for k, v in enumerate(block.results))
        return Block(block.args, (*ops, *b.ops), results)

    def op(self, op: Op) -> list[Op]:
        b = Builder(op.span)
        if isinstance(op, Apply) and (op.result in self.sum or is_nan_test(op)):
            return [op]
        again = frozenset(k for k, result in enumerate(op.results) if result in self.sum)
        new = rebuild(op, lambda v: self.value(b, v), lambda inner: self.block(inner, again))
        return [*b.ops, new]

    def value(self, b: Builder, value: Value) -> Value:
        if value not in self.sum:
            return value
        if self.total.type == F32:
            return b.apply("add", self.total, value)
        return b.convert(b.apply("add", self.total, b.convert(value, F64)), F32)


def is_nan_test(op: Op | None) -> bool:
    return isinstance(op, Apply) and op.fn == "ne" and op.args[0] is op.args[1]
