"""Loop-invariant code motion: integer arithmetic that is the same in every iteration moves in front of its loop."""

from __future__ import annotations

from dataclasses import replace

from ..ir.ops import Apply, Block, Builtin, Constant, For, Function, Module, Op, Value, While
from ..ir.traverse import descend, free_values, operands, with_body
from .identities import is_cheap


def run(function: Function, module: Module) -> Function:
    return with_body(function, _block(function.body))


def _block(block: Block) -> Block:
    ops: list[Op] = []
    for op in block.ops:
        op = descend(op, _block)
        if isinstance(op, For | While):
            moved, body = _split(op.body)
            ops += moved
            op = replace(op, body=body) if moved else op
        ops.append(op)
    return Block(block.args, tuple(ops), block.results) if ops != list(block.ops) else block


def _split(body: Block) -> tuple[list[Op], Block]:
    """What can move out of a loop's body, and the rest."""
    outside = set(free_values(body))
    moved: list[Op] = []
    kept: list[Op] = []
    known: set[Value] = set(outside)
    for op in body.ops:
        if is_movable(op) and all(v in known for v in operands(op)):
            moved.append(op)
            known.update(op.results)
        else:
            kept.append(op)
    return moved, Block(body.args, tuple(kept), body.results)


def is_movable(op: Op) -> bool:
    if isinstance(op, Builtin):
        return "clock" not in op.name and "timer" not in op.name
    return isinstance(op, Constant) or (isinstance(op, Apply) and is_cheap(op))
