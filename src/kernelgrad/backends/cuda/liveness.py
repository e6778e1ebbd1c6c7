"""Where each variable of the emitted text still holds a value that will be read.

A live range is a set of *gaps* between statements, kept as the bits of an integer: two values may share a C++ variable
if their bits do not meet. Reads count where the text stands that makes them (see `folding`).
"""

from __future__ import annotations

from collections.abc import Iterable

from ...ir.ops import Block, For, Function, If, Op, Value, While
from ...ir.traverse import blocks, operands
from .folding import Folding


def live_ranges(function: Function, folding: Folding) -> dict[Value, int]:
    analysis = _Liveness(folding)
    live = analysis.block(function.body, set())
    analysis.mark(live | {p.value for p in function.params})
    return analysis.ranges


class _Liveness:
    """Walks backwards. Each method takes what is live after something and returns what is live before it."""

    def __init__(self, folding: Folding):
        self.folding = folding
        self.ranges: dict[Value, int] = {}
        self.gap = 1

    def mark(self, live: set[Value]) -> None:
        for value in live:
            self.ranges[value] = self.ranges.get(value, 0) | self.gap
        self.gap <<= 1

    def reads(self, values: Iterable[Value]) -> set[Value]:
        return {leaf for value in values for leaf in self.folding.leaves(value)}

    def block(self, block: Block, after: set[Value]) -> set[Value]:
        live = after | self.reads(self.folding.results(block))
        self.mark(live)
        for op in reversed(block.ops):
            live = self.op(op, live)
            self.mark(live)
        return live - set(block.args)

    def op(self, op: Op, after: set[Value]) -> set[Value]:
        if not self.folding.is_written(op):
            return after
        # A result that nobody reads is still written: it must not be in a variable that others need here.
        self.mark(after | set(op.results))
        after = after - set(op.results)
        match op:
            case If():
                return self.if_(op, after)
            case For():
                return self.for_(op, after)
            case While():
                return self.while_(op, after)
            case _:
                return after | self.reads(operands(op))

    def if_(self, op: If, after: set[Value]) -> set[Value]:
        return after | self.reads([op.cond]) | self.block(op.then, after) | self.block(op.orelse, after)

    def for_(self, op: For, after: set[Value]) -> set[Value]:
        counter, *carried = op.body.args
        inside = after | self.outer_reads(op.body) | self.reads([op.upper])
        # The counter is read again at the end of every iteration.
        self.mark(inside | {counter, *carried})
        self.block(op.body, inside | {counter})
        self.mark(inside | {counter, *carried})
        return inside | self.reads((op.lower, *op.inits))

    def while_(self, op: While, after: set[Value]) -> set[Value]:
        inside = after | self.outer_reads(op.before) | self.outer_reads(op.body)
        self.mark(inside | set(op.before.args))
        self.block(op.body, inside)
        self.mark(inside | set(op.body.args))
        self.block(op.before, inside)
        self.mark(inside | set(op.before.args))
        return inside | self.reads(op.inits)

    def outer_reads(self, block: Block) -> set[Value]:
        """The variables from outside that the text of a block reads."""
        defined, found = set(block.args), self.reads(self.folding.results(block))
        for op in block.ops:
            defined.update(op.results)
            if self.folding.is_written(op):
                found |= self.reads(operands(op))
            for inner in blocks(op):
                found |= self.outer_reads(inner)
        return found - defined
