"""Additions whose place stays for some turns of a loop: what a thread adds there is added up first.

    for (int i = threadIdx.x; i < channels * 1024; i += 256) atomicAdd(&_d_w[i / 1024], v);

    for (...) {
        if (i / 1024 != place) { atomicAdd(&_d_w[place], sum); place = i / 1024; sum = 0; }
        sum += v;
    }
    atomicAdd(&_d_w[place], sum);

Nothing need be known of when the place changes; but nobody may look at what is there before it is added: threads do not
meet in the loop, and nothing in it reads, stores or takes what may be the same memory. It is worth it where the loop's
number is in the place as part of a quotient alone.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from ...analysis.aliases import Aliases
from ...autodiff.calculus.shadows import ZERO
from ...ir.builder import Builder
from ...ir.effects import MEETINGS
from ...ir.ops import Apply, Atomic, Block, For, Function, Load, Module, Offset, Op, Store, Value
from ...ir.traverse import descend, free_values, operands, uses, walk, with_body, with_ops
from ...ir.types import F32, F64


class _Sum(NamedTuple):
    """An addition of every turn to an element of what begins outside of the loop."""

    op: Atomic
    base: Value
    at: Value


def run(function: Function, module: Module) -> Function:
    return _Pass(function).run()


def applies_to(function: Function) -> bool:
    found = _Pass(function)
    return any(found.sums(op) for op in walk(function.body) if isinstance(op, For))


class _Pass:
    def __init__(self, function: Function):
        self.function = function
        self.definition = {v: op for op in walk(function.body) for v in op.results}
        self.used, self.aliases = uses(function.body), Aliases(function)

    def run(self) -> Function:
        return with_body(self.function, self.block(self.function.body))

    def block(self, block: Block) -> Block:
        ops: list[Op] = []
        for op in block.ops:
            sums = self.sums(op) if isinstance(op, For) else []
            op = descend(op, self.block)
            ops += self.added_up(op, sums) if isinstance(op, For) and sums else [op]
        return with_ops(block, ops)

    def sums(self, loop: For) -> list[_Sum]:
        outside = set(free_values(loop.body))
        found = []
        for op in loop.body.ops:
            if isinstance(op, Atomic) and op.kind == "add" and op.together and not self.used.get(op.result):
                place = self.definition.get(op.ptr)
                unseen = isinstance(place, Offset) and not any(self.may_see(other, place) for other in walk(loop.body))
                if unseen and isinstance(place, Offset) and place.ptr in outside and op.args[0].type in (F32, F64):
                    slow = self.is_slow(place.index, loop.body.args[0])
                    found += [_Sum(op, place.ptr, place.index)] if slow else []
        return found

    def may_see(self, op: Op, place: Offset) -> bool:
        """Whether an operation, or another thread that waits for it, may look at what is there."""
        if isinstance(op, Load | Store) or (isinstance(op, Atomic) and (op.kind != "add" or self.used.get(op.result))):
            return self.aliases.may_share(self.aliases.root(op.ptr), self.aliases.root(place.result))
        return isinstance(op, MEETINGS)

    def is_slow(self, index: Value, counter: Value) -> bool:
        """Whether the counter is in it, and there in what is divided alone."""
        return self.moves(index, counter, True) and not self.moves(index, counter, False)

    def moves(self, value: Value, counter: Value, through: bool) -> bool:
        """`through`: also what is divided."""
        if value is counter:
            return True
        op = self.definition.get(value)
        if not isinstance(op, Apply) or (op.fn == "div" and not through):
            return False
        return any(self.moves(v, counter, through) for v in operands(op))

    def added_up(self, loop: For, sums: list[_Sum]) -> list[Op]:
        b, by_op = Builder(loop.span), {id(own.op): own for own in sums}
        carried = [(Value(own.at.type, "place"), Value(own.op.args[0].type, "sum")) for own in sums]
        inits = [v for place, sum_ in carried for v in (b.constant(0, place.type), b.constant(ZERO, sum_.type))]
        args = [v for pair in carried for v in pair]
        ops, results = list[Op](), list[Value]()
        for op in loop.body.ops:
            own = by_op.get(id(op))
            if own is None:
                ops.append(op)
            else:
                turn, sum_ = self.turn(own.op, own, *carried[sums.index(own)])
                ops += turn
                results += [own.at, sum_]
        body = Block((*loop.body.args, *args), tuple(ops), (*loop.body.results, *results))
        last = [Value(arg.type, arg.name) for arg in args]
        b.add(replace(loop, inits=(*loop.inits, *inits), body=body, results=(*loop.results, *last)))
        for k, own in enumerate(sums):
            self.add(b, own, last[2 * k], last[2 * k + 1])
        return b.ops

    def turn(self, op: Atomic, own: _Sum, place: Value, sum_: Value) -> tuple[list[Op], Value]:
        """The operations, and what there is to be added afterwards."""
        b = Builder(op.span)
        with b.region() as left:
            self.add(b, own, place, sum_)
            nothing = b.constant(ZERO, sum_.type)
        stays = b.apply("eq", own.at, place)
        (before,) = b.if_(stays, Block((), (), (sum_,)), left.block((), (nothing,)))
        return b.ops, b.apply("add", before, op.args[0], name=sum_.name)

    def add(self, b: Builder, own: _Sum, place: Value, sum_: Value) -> None:
        """Before the first turn there is no place yet, and nothing to add."""
        with b.region() as region:
            ptr = b.offset(own.base, place)
            b.add(replace(own.op, ptr=ptr, args=(sum_,), results=(Value(own.op.result.type),)))
        b.if_(b.apply("ne", sum_, b.constant(0.0, sum_.type)), region.block())
