"""Dead fills: a loop that fills tiles which nobody reads before they are filled again.

A reverse alone runs the kernel's loops forward only for what it needs of them. Tiles that it fills again (`tiles`) are
read in a copy of their loop alone, behind that copy's own fill, which covers what is read (rule 8). So a copy that
reads nothing of a tile need not fill it; and a loop in which threads do nothing but meet is one barrier.
"""

from __future__ import annotations

from ..analysis.aliases import Aliases
from ..ir.effects import PURE, has_barrier
from ..ir.ops import Atomic, Barrier, Block, For, Function, GlobalRef, If, Load, Op, Store, Value, While
from ..ir.traverse import descend, uses, walk, with_body
from ..ir.types import Pointer
from ..transforms import dce


def run(function: Function, refilled: frozenset[str]) -> Function:
    """`refilled`: the names of the tiles."""
    if not refilled:
        return function
    fills = _Fills(function, refilled)
    body = fills.block(function.body)
    return with_body(function, _barriers_alone(dce.eliminate(body))) if fills.found else function


class _Fills:
    def __init__(self, function: Function, refilled: frozenset[str]):
        self.aliases = Aliases(function)
        self.names = {op.result: op.name for op in walk(function.body) if isinstance(op, GlobalRef)}
        self.refilled = refilled
        self.found = False

    def block(self, block: Block) -> Block:
        return Block(block.args, tuple(map(self.op, block.ops)), block.results)

    def op(self, op: Op) -> Op:
        # A tile's loop has the barrier between fill and reads; loops inside the fill have none.
        if isinstance(op, For | While) and has_barrier(op):
            unread = self.unread(op)
            if unread:
                self.found = True
                op = descend(op, lambda b: self.without(b, unread))
        return descend(op, self.block)

    def unread(self, loop: For | While) -> frozenset[str]:
        """The tiles that the loop stores to and that nothing in it may read."""
        inside = list(walk(Block((), (loop,), ())))
        stored = {self.name(op.ptr) for op in inside if isinstance(op, Store)} & self.refilled
        read = [op.ptr for op in inside if isinstance(op, Load | Atomic) and _may_be_shared(op.ptr)]
        names = {self.name(ptr) for ptr in read}
        return frozenset() if None in names else frozenset(n for n in stored if n is not None) - names

    def name(self, ptr: Value) -> str | None:
        return self.names.get(self.aliases.root(ptr))

    def without(self, block: Block, unread: frozenset[str]) -> Block:
        kept = [op for op in block.ops if not (isinstance(op, Store) and self.name(op.ptr) in unread)]
        return Block(block.args, tuple(descend(op, lambda b: self.without(b, unread)) for op in kept), block.results)


def _may_be_shared(ptr: Value) -> bool:
    return isinstance(ptr.type, Pointer) and ptr.type.space in ("shared", "generic")


def _barriers_alone(body: Block) -> Block:
    """The body with loops that only meet replaced by a barrier."""
    used = uses(body)

    def block(b: Block) -> Block:
        return Block(b.args, tuple(map(one, b.ops)), b.results)

    def one(op: Op) -> Op:
        if isinstance(op, For) and has_barrier(op) and _only_meets(op) and not any(used.get(r) for r in op.results):
            return Barrier("block", span=op.span)
        return descend(op, block)

    return block(body)


def _only_meets(loop: For) -> bool:
    """A loop inside that changes nothing ends, as C++ has it."""
    inside = (op for op in walk(loop.body) if not (isinstance(op, Barrier) and op.scope == "block"))
    return all(isinstance(op, (*PURE, Load, For, If, While)) and not getattr(op, "volatile", False) for op in inside)
