"""Loops that the lanes of a warp leave at different times and in which they exchange values run to the warp's last.

    while (go) { .. __shfl_sync(mask, v, ..) .. }      becomes
    while ((present = __ballot_sync(all, go)) != 0) { if (go) { .. __shfl_sync(mask & present, v, ..) .. } }

The reverse sweep goes backwards over the iterations, and lanes that begin it with different ones would exchange
adjoints of different iterations. In the new loop, the k-th of one lane is the k-th of all others, forward and backward.
It also keeps lanes that are done from going on to exchanges of the reverse sweep while others still wait for them.

`all` is what a mask names that is the same in all iterations: those lanes must come to the first. A mask that changes
is the kernel's own account of who is there, and stays what it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ..analysis.machine import FULL_WARP
from ..analysis.uniform import warp_uniform_values
from ..ir.builder import Builder
from ..ir.ops import Barrier, Block, Constant, For, Function, Module, Op, Value, Warp, While
from ..ir.traverse import blocks, descend, free_values, walk, with_body
from ..ir.types import U32, Scalar
from . import rotate
from .predicate import as_while


def run(function: Function, module: Module, whole_rows: bool) -> Function:
    """The rotated function with such loops rotated again. `whole_rows`: the rows of its blocks are whole warps."""
    if not is_needed(function, whole_rows):
        return function
    uniform = warp_uniform_values(function, whole_rows)
    counting = rotate.run(with_body(function, _without_for(function.body, uniform)), module)
    work = _Converged(counting, warp_uniform_values(counting, whole_rows))
    return rotate.run(with_body(counting, work.block(counting.body)), module)


def is_needed(function: Function, whole_rows: bool) -> bool:
    candidates = [op for op in walk(function.body) if isinstance(op, For | While) and any(_exchanges(op))]
    if not candidates:
        return False
    uniform = warp_uniform_values(function, whole_rows)
    return any(_parts(loop, uniform) for loop in candidates)


def _exchanges(loop: For | While) -> Iterator[Warp | Barrier]:
    """What lanes do together in a loop, by a mask."""
    for block in blocks(loop):
        for op in walk(block):
            if isinstance(op, Warp | Barrier) and op.args:
                yield op


def _parts(op: Op, uniform: set[Value]) -> bool:
    """Whether it is a loop that lanes may leave at different times."""
    match op:
        case For(lower, upper):
            return lower not in uniform or upper not in uniform
        case While(_, before):
            return before.results[0] not in uniform
    return False


def _without_for(block: Block, uniform: set[Value]) -> Block:
    def converted(op: Op) -> Op:
        op = descend(op, lambda b: _without_for(b, uniform))
        return as_while(op) if isinstance(op, For) and _parts(op, uniform) and any(_exchanges(op)) else op

    return Block(block.args, tuple(map(converted, block.ops)), block.results)


class _Converged:
    def __init__(self, function: Function, uniform: set[Value]):
        self.uniform = uniform
        self.constants = {op.result: int(op.value) for op in walk(function.body) if isinstance(op, Constant)}

    def block(self, block: Block) -> Block:
        ops: list[Op] = []
        for op in block.ops:
            if isinstance(op, While) and _parts(op, self.uniform) and self.matters(op):
                ops += self.together(op)
            else:
                ops.append(descend(op, self.block))
        return Block(block.args, tuple(ops), block.results)

    def matters(self, loop: While) -> bool:
        """Whether its reverse has lanes exchange, or forward a mask names lanes that may have gone on."""
        return bool(self.lasting(loop)) or any(map(_has_reverse, _exchanges(loop)))

    def lasting(self, loop: While) -> dict[Value, None]:
        """The masks that are the same in all iterations, in order."""
        outside = set(free_values(loop.body))
        masks = (op.args[0] for op in _exchanges(loop))
        return dict.fromkeys(v for v in masks if v in outside or v in self.constants)

    def together(self, loop: While) -> list[Op]:
        b = Builder(loop.span)
        everyone = self.everyone(b, loop)
        go, *carried = loop.before.args
        test = Builder(loop.span)
        present = test.emit(Warp, "vote_ballot", (everyone, go), type=U32, name="~present")
        some = test.apply("ne", present, test.constant(0, U32))
        before = Block(loop.before.args, tuple(test.ops), (some, present, go, *carried))
        results = (Value(U32, "~present"), *loop.results)
        return [*b.ops, replace(loop, before=before, body=self.iteration(loop, everyone), results=results)]

    def everyone(self, b: Builder, loop: While) -> Value:
        """The lanes that enter the loop: all, or those that an exchange names which every iteration makes."""
        masks = self.lasting(loop)
        if any(self.constants.get(v) == FULL_WARP for v in masks):
            return b.constant(FULL_WARP, U32)
        for op in _in_every(loop.body):
            if op.args[0] in masks and op.args[0] not in self.constants:
                return op.args[0]
        return b.emit(Warp, "activemask", (), type=U32, name="~everyone")

    def iteration(self, loop: While, everyone: Value) -> Block:
        """One iteration, for the lanes that want it."""
        b, present = Builder(loop.span), Value(U32, "~present")
        among: dict[Value, Value] = {}
        for mask in self.lasting(loop):
            alone = mask is everyone or self.constants.get(mask) == FULL_WARP
            among[mask] = present if alone else b.apply("and", self.outside(b, mask), present)
        work = _among(loop.body, among)
        then = self.block(Block((), work.ops, work.results))
        results = b.if_(loop.body.args[0], then, Block((), (), loop.body.args))
        return Block((present, *loop.body.args), tuple(b.ops), results)

    def outside(self, b: Builder, mask: Value) -> Value:
        """A constant may be defined in the loop."""
        return b.constant(self.constants[mask], U32) if mask in self.constants else mask


def _in_every(block: Block) -> Iterator[Warp | Barrier]:
    """The exchanges of the block that no branch guards."""
    for op in block.ops:
        if isinstance(op, Warp | Barrier) and op.args:
            yield op
        elif isinstance(op, For):
            yield from _in_every(op.body)


def _among(block: Block, masks: dict[Value, Value]) -> Block:
    """Exchanges among the lanes that are still there."""

    def narrowed(op: Op) -> Op:
        op = descend(op, lambda b: _among(b, masks))
        if isinstance(op, Warp | Barrier) and op.args and op.args[0] in masks:
            return replace(op, args=(masks[op.args[0]], *op.args[1:]))
        return op

    return Block(block.args, tuple(map(narrowed, block.ops)), block.results)


def _has_reverse(op: Warp | Barrier) -> bool:
    """Votes and integers have none."""
    return isinstance(op, Barrier) or any(not _is_integer(v) for v in op.results)


def _is_integer(value: Value) -> bool:
    return isinstance(value.type, Scalar) and not value.type.is_float
