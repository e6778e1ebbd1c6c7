"""Barriers that part nothing: what the threads of a block touch on one side of them does not concern what they touch
on the other. Gradients are full of them: the barriers of the kernel, mirrored, and one after the shadows are cleared.
Loops that nothing else is left of are among them.

Within one block of operations; what comes before and after a nested one may touch anything.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..analysis.aliases import Aliases
from ..ir.effects import NESTING, PURE
from ..ir.ops import Alloca, Atomic, Barrier, BarrierReduce, Block, For, Function, Load, Module, Op, Store, Value, While
from ..ir.traverse import blocks, descend, holds, walk, with_body, with_ops

_HARMLESS = (*PURE, Alloca, *NESTING)


def run(function: Function, module: Module) -> Function:
    return with_body(function, _Barriers(function).block(function.body, nested=False))


@dataclass(frozen=True)
class _Phase:
    """The memory that threads read and write between two barriers, by what its pointers are derived from."""

    read: frozenset[Value] = frozenset()
    written: frozenset[Value] = frozenset()
    anything: bool = False

    def __bool__(self) -> bool:
        return self.anything or bool(self.read) or bool(self.written)

    def plus(self, other: _Phase) -> _Phase:
        return _Phase(self.read | other.read, self.written | other.written, self.anything or other.anything)


_ANYTHING = _Phase(anything=True)


class _Barriers:
    def __init__(self, function: Function):
        self.aliases = Aliases(function)

    def block(self, block: Block, nested: bool = True) -> Block:
        ops = [one for op in block.ops for one in _meeting(descend(op, self.block))]
        kept: list[Op] = []
        before = _ANYTHING if nested else _Phase()
        if not any(map(_is_barrier, ops)):
            return with_ops(block, ops)
        for k, op in enumerate(ops):
            if _is_barrier(op) and not self.concern(before, self.following(ops[k + 1 :], nested)):
                continue
            kept.append(op)
            meets = _is_barrier(op) or isinstance(op, BarrierReduce)
            before = _Phase() if meets else before.plus(self.touched(op))
        return with_ops(block, kept)

    def following(self, ops: list[Op], nested: bool) -> _Phase:
        """What is touched until the next barrier."""
        found = _Phase()
        for op in ops:
            if _is_barrier(op) or isinstance(op, BarrierReduce):
                return found
            found = found.plus(self.touched(op))
            if found.anything:
                return found
        return _ANYTHING if nested else found

    def touched(self, op: Op) -> _Phase:
        found = _Phase()
        for one in (op, *(inner for b in blocks(op) for inner in walk(b))):
            match one:
                case Load(ptr, volatile) | Store(ptr, _, volatile) if not volatile:
                    roots = frozenset((self.aliases.root(ptr),)) - self.aliases.local
                    found = found.plus(_Phase(read=roots) if isinstance(one, Load) else _Phase(written=roots))
                case Atomic(_, ptr, _):
                    found = found.plus(_Phase(written=frozenset((self.aliases.root(ptr),))))
                case _ if not isinstance(one, _HARMLESS):
                    return _ANYTHING
        return found

    def concern(self, before: _Phase, after: _Phase) -> bool:
        """Whether a thread may touch on one side what another writes on the other."""
        if not before or not after:
            return False
        if before.anything or after.anything:
            return True
        pairs = [(a, b) for a in before.written for b in after.read | after.written]
        pairs += [(a, b) for a in before.read for b in after.written]
        return any(self.aliases.may_share(a, b) for a, b in pairs)


def _meeting(op: Op) -> tuple[Op, ...]:
    """A loop in which threads meet and touch nothing: they meet once, in front of it."""
    if not (isinstance(op, For | While) and holds(op, Barrier)):
        return (op,)
    inside = [inner for b in blocks(op) for inner in walk(b)]
    if not any(map(_is_barrier, inside)) or not all(_is_barrier(i) or isinstance(i, _HARMLESS) for i in inside):
        return (op,)
    return Barrier("block", span=op.span), descend(op, _without_barriers)


def _without_barriers(block: Block) -> Block:
    kept = (op for op in block.ops if not _is_barrier(op))
    return Block(block.args, tuple(descend(op, _without_barriers) for op in kept), block.results)


def _is_barrier(op: Op) -> bool:
    return isinstance(op, Barrier) and op.scope == "block"
