"""Drops the marks of early returns that no barrier can notice (Note [Exit] in `ir.ops`).

Before: calls are inlined, so that every barrier is in sight. After: a `Leave` stands only where a barrier of the block
may follow it, in the next iteration of a loop around it or behind it, other than under an If that `exits` by itself,
or where that If's sides both do something.
"""

from __future__ import annotations

from ..ir.effects import has_barrier
from ..ir.ops import Block, For, Function, If, Leave, Module, Op, While
from ..ir.traverse import descend, walk, with_body


def run(function: Function, module: Module) -> Function:
    if not any(isinstance(op, Leave) for op in walk(function.body)):
        return function
    return with_body(function, _block(function.body, False))


def _block(block: Block, noticed: bool) -> Block:
    """`noticed`: whether a barrier may follow the block."""
    ops: list[Op] = []
    for op in reversed(block.ops):
        if not isinstance(op, Leave):
            ops.append(_op(op, noticed))
        elif noticed:
            ops.append(op)
        noticed = noticed or _counts_all(op)
    return Block(block.args, tuple(reversed(ops)), block.results)


def _op(op: Op, noticed: bool) -> Op:
    again = isinstance(op, For | While) and has_barrier(op)
    # Where the other side has barriers and this one does something, only the `Leave` tells which of them leaves.
    between = isinstance(op, If) and op.exits and has_barrier(op)
    return descend(op, lambda inner: _block(inner, noticed or again or (between and len(inner.ops) > 1)))


def _counts_all(op: Op) -> bool:
    """Whether it holds a barrier that every thread must reach which has not left. An If that `exits` and follows a
    `Leave` is skipped by the threads that left there, and says so itself."""
    return has_barrier(op) and not (isinstance(op, If) and op.exits)
