"""Loop-invariant code motion: integer arithmetic that is the same in every iteration moves in front of its loop, and
addresses do, where a pass asks for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ..ir.effects import is_addressing
from ..ir.ops import Apply, Block, Builtin, Constant, For, Function, Module, Op, Value, While
from ..ir.traverse import descend, free_values, operands, with_body
from .identities import is_cheap


def run(function: Function, module: Module) -> Function:
    return with_body(function, _Motion(is_movable).block(function.body))


def with_addresses(function: Function, module: Module) -> Function:
    """The same, and of addresses: they are computed, and nothing behind them is touched. Also of what a loop tests."""
    return with_body(function, _Motion(_is_movable_address, also_tests=True).block(function.body))


class _Motion:
    """`also_tests`: of loops, besides their bodies."""

    def __init__(self, moves: Callable[[Op], bool], also_tests: bool = False):
        self.moves, self.also_tests = moves, also_tests

    def block(self, block: Block) -> Block:
        ops: list[Op] = []
        for op in block.ops:
            op = descend(op, self.block)
            if isinstance(op, While) and self.also_tests:
                moved, before = self.split(op.before)
                ops += moved
                op = replace(op, before=before) if moved else op
            if isinstance(op, For | While):
                moved, body = self.split(op.body)
                ops += moved
                op = replace(op, body=body) if moved else op
            ops.append(op)
        return Block(block.args, tuple(ops), block.results) if ops != list(block.ops) else block

    def split(self, body: Block) -> tuple[list[Op], Block]:
        """What can move out of a loop's body, and the rest."""
        outside = set(free_values(body))
        moved: list[Op] = []
        kept: list[Op] = []
        known: set[Value] = set(outside)
        for op in body.ops:
            if self.moves(op) and all(v in known for v in operands(op)):
                moved.append(op)
                known.update(op.results)
            else:
                kept.append(op)
        return moved, Block(body.args, tuple(kept), body.results)


def is_movable(op: Op) -> bool:
    if isinstance(op, Builtin):
        return "clock" not in op.name and "timer" not in op.name
    return isinstance(op, Constant) or (isinstance(op, Apply) and is_cheap(op))


def _is_movable_address(op: Op) -> bool:
    return is_movable(op) if isinstance(op, Apply) else is_addressing(op)
