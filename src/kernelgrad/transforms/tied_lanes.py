"""Maxima and minima of what lanes of a warp have: where two are equal, both lanes take that of the lower one.

    m = max(m, shfl_xor(m, 16));

Each lane of a pair would take its own, and the adjoints of what is one number in both of them would go to two elements
that they came from: those of a softmax, say, whose parts cancel only where all of them meet. So

    first = lane < (lane ^ 16); m = max(first ? m : other, first ? other : m);
"""

from __future__ import annotations

from dataclasses import replace

from ..ir.builder import Builder
from ..ir.ops import Apply, Block, Function, Module, Op, Value, Warp
from ..ir.traverse import descend, walk, with_body
from ..ir.types import I32, Scalar

_COMPARED = ("lt", "le", "gt", "ge")


def run(function: Function, _: Module) -> Function:
    shuffles = {op.results[0]: op for op in walk(function.body) if isinstance(op, Warp) and _is_exchange(op)}
    return with_body(function, _Pass(function, shuffles).block(function.body)) if shuffles else function


def _is_exchange(op: Warp) -> bool:
    return op.fn in ("shfl_xor", "shfl_idx") and isinstance(op.args[1].type, Scalar) and op.args[1].type.is_float


class _Pass:
    def __init__(self, function: Function, shuffles: dict[Value, Warp]):
        self.shuffles = shuffles
        self.definition = {r: op for op in walk(function.body) for r in op.results}

    def block(self, block: Block) -> Block:
        ops: list[Op] = []
        for op in block.ops:
            ops += self.ordered(op) if isinstance(op, Apply) else [descend(op, self.block)]
        return Block(block.args, tuple(ops), block.results)

    def ordered(self, op: Apply) -> list[Op]:
        match op:
            case Apply("max" | "min", (one, other)) if self.are_exchanged(one, other):
                b = Builder(op.span)
                is_first = self.is_lower(b, one, other)
                first = b.apply("select", is_first, one, other)
                second = b.apply("select", is_first, other, one)
                return [*b.ops, replace(op, args=(first, second))]
            case Apply("select", (cond, one, other)) if self.are_exchanged(one, other) and self.compares(
                cond, one, other
            ):
                b = Builder(op.span)
                tied = b.apply("eq", one, other)
                taken = b.apply("select", tied, self.is_lower(b, one, other), cond)
                return [*b.ops, replace(op, args=(taken, one, other))]
        return [op]

    def are_exchanged(self, one: Value, other: Value) -> bool:
        """Whether one is another lane's of the other."""
        return any(v in self.shuffles and self.shuffles[v].args[1] is w for v, w in ((one, other), (other, one)))

    def compares(self, cond: Value, one: Value, other: Value) -> bool:
        op = self.definition.get(cond)
        return isinstance(op, Apply) and op.fn in _COMPARED and set(op.args) == {one, other}

    def is_lower(self, b: Builder, one: Value, other: Value) -> Value:
        """Whether the first of two is that of the lower lane."""
        own_first = other in self.shuffles and self.shuffles[other].args[1] is one
        shuffle = self.shuffles[other if own_first else one]
        lane, by, width = (b.convert(v, I32) for v in (b.builtin("lane_id"), *shuffle.args[2:]))
        if shuffle.fn == "shfl_xor":
            partner = b.apply("xor", lane, by)
        else:  # counted from the first lane of so many, and around
            within = b.apply("sub", width, b.constant(1, I32))
            outside = b.apply("xor", within, b.constant(-1, I32))
            partner = b.apply("or", b.apply("and", lane, outside), b.apply("and", by, within))
        return b.apply("lt", *((lane, partner) if own_first else (partner, lane)))
