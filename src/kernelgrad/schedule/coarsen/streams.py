"""Loops that stream through memory, unrolled: each thread has several loads under way then.

A compiler does so by itself with loops that are short enough in its eyes; one with an exponential in it is not, and a
GPU waits for every element in turn. Only loops with nothing but arithmetic, loads and stores in them, at addresses that
move with the counter.
"""

from __future__ import annotations

from dataclasses import replace

from ...ir.effects import is_pure
from ...ir.ops import Block, For, Function, Load, Module, Op, Store, Value
from ...ir.traverse import descend, operands, walk, with_body, with_ops
from ...ir.types import Pointer

FACTOR = 4
_MOST_OPS, _MOST_LOADS = 80, 4


def run(function: Function, _: Module) -> Function:
    """Of a derivative: the loops of others are as the user wrote them."""
    derived = any(op.span.reverse for op in walk(function.body))
    return with_body(function, _block(function.body)) if derived else function


def _block(block: Block) -> Block:
    return with_ops(block, (_loop(op) if isinstance(op, For) else descend(op, _block) for op in block.ops))


def _loop(loop: For) -> Op:
    if loop.unroll is None and _streams(loop.body):
        return replace(loop, unroll=FACTOR)
    return descend(loop, _block)


def _streams(body: Block) -> bool:
    if len(body.ops) > _MOST_OPS or not all(is_pure(op) or _is_access(op) for op in body.ops):
        return False
    moving: set[Value] = {body.args[0]}
    for op in body.ops:
        if is_pure(op) and not moving.isdisjoint(operands(op)):
            moving.update(op.results)
    loads = [op for op in body.ops if isinstance(op, Load) and op.ptr in moving and _is_global(op.ptr)]
    return 0 < len(loads) <= _MOST_LOADS


def _is_access(op: Op) -> bool:
    return isinstance(op, Load | Store) and not op.volatile and _is_global(op.ptr)


def _is_global(ptr: Value) -> bool:
    return isinstance(ptr.type, Pointer) and ptr.type.space == "global"
