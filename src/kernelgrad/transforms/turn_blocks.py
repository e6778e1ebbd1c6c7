"""Loops whose turns are blocks of a larger grid: what a thread does in turn k, a thread of its own does.

    for (int i = blockIdx.x * 256 + threadIdx.x; i < n; i += 256 * blocks) y[i] = f(x, i);

becomes `if (i < n) y[i] = f(x, i)` in a grid of all turns' blocks: those of turn k behind those of turn k - 1. Where a
loop's turns lie along another axis, blockIdx counts them there, and the launch's blocks move out of the way. Whether
that may be is for others to say; here it is only written.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ..analysis.induction import Induction, find_step
from ..analysis.structure import Structure, carried_as
from ..ir.builder import Builder
from ..ir.ops import Apply, Block, Builtin, Constant, For, Function, Op, Value, While
from ..ir.traverse import blocks, operands, rebuild, substitute, walk, with_body
from ..ir.types import I64

Loop = For | While


class TurnAxis(NamedTuple):
    """How the turns of a loop lie on the grid. `continues`: the launch's blocks lie along the axis too, and those of
    the next turn behind them. `tested`: some threads take fewer turns than others."""

    axis: int
    continues: bool
    tested: bool


class TurnBlocks(NamedTuple):
    """`loops`: by their numbers among all. `moved`: where the launch's blocks lie, by their axis; None along an axis
    that has one block, and is taken. Two functions with the same are made alike."""

    loops: tuple[tuple[int, TurnAxis], ...]
    moved: tuple[int | None, ...]


class Spread(NamedTuple):
    """`values`: what stands for what the loops carried."""

    function: Function
    values: dict[Value, Value]


def loops_of(function: Function) -> list[Loop]:
    """In the order of their numbers."""
    return [op for op in walk(function.body) if isinstance(op, For | While)]


def steps_of(loop: Loop, structure: Structure) -> dict[Value, Induction] | None:
    """All that a loop carries, of a loop that carries nothing but what each turn adds the same to."""
    if isinstance(loop, For):
        return None if loop.inits or loop.step <= 0 else {}
    found = dict[Value, Induction]()
    carried = set[int]()
    for position, arg in enumerate(loop.body.args):
        step, index = find_step(loop, arg, structure), carried_as(loop, position)
        if step is None or step.fn != "add" or index is None:
            return None
        found[arg] = step
        carried.add(index)
    return found if carried == set(range(len(loop.inits))) else None


def spread(function: Function, structure: Structure, how: TurnBlocks) -> Spread:
    loops = loops_of(function)
    writer = _Writer(structure, how, {id(loops[number]): axis for number, axis in how.loops})
    body = writer.block(function.body)
    return Spread(with_body(function, body), writer.values)


class _Writer:
    def __init__(self, structure: Structure, how: TurnBlocks, axes: Mapping[int, TurnAxis]):
        self.structure, self.how, self.axes = structure, how, axes
        self.values: dict[Value, Value] = {}

    def block(self, block: Block) -> Block:
        ops: list[Op] = []
        for op in block.ops:
            ops += self.written(op)
        return Block(block.args, tuple(ops), block.results)

    def written(self, op: Op) -> list[Op]:
        axis = self.axes.get(id(op))
        if axis is not None:
            assert isinstance(op, For | While)
            return self.turn(op, axis)
        if isinstance(op, Builtin) and op.name in ("block_idx", "grid_dim"):
            return [self.moved(op)]
        return [rebuild(op, lambda v: v, self.block)]

    def moved(self, op: Builtin) -> Op:
        to = self.how.moved[op.axis]
        if to is None:
            return Constant(0 if op.name == "block_idx" else 1, results=op.results, span=op.span)
        return Builtin(op.name, to, results=op.results, span=op.span)

    def turn(self, loop: Loop, axis: TurnAxis) -> list[Op]:
        """The body, once: under the loop's condition where not all threads take the turn."""
        b = Builder(loop.span)
        at = None if axis.continues else b.builtin("block_idx", axis.axis)
        goes, given = self.counted(b, loop, at) if isinstance(loop, For) else self.carried(b, loop, at)
        body = substitute(self.block(Block((), loop.body.ops, ())), given)
        if axis.tested:
            b.if_(goes, body)
            return b.ops
        return [*b.ops, *body.ops]

    def counted(self, b: Builder, loop: For, turn: Value | None) -> tuple[Value, dict[Value, Value]]:
        arg, type, value = loop.body.args[0], loop.lower.type, loop.lower
        if turn is not None:
            far = b.apply("mul", b.convert(turn, type), b.constant(loop.step, type))
            value = b.apply("add", loop.lower, far, name=arg.name)
        self.values[arg] = value
        return b.apply("lt", value, loop.upper), {arg: value}

    def carried(self, b: Builder, loop: While, turn: Value | None) -> tuple[Value, dict[Value, Value]]:
        """The condition is computed of what the loop would carry in this turn."""
        steps, now = steps_of(loop, self.structure), dict[Value, Value]()
        assert steps is not None
        for position, arg in enumerate(loop.body.args):
            index = carried_as(loop, position)
            assert index is not None
            given = {v: v for v in steps[arg].needs}
            start = loop.inits[index]
            value = start if turn is None else steps[arg].at(b, given, b.convert(turn, I64), arg.name)
            now[loop.before.args[index]] = self.values[arg] = value
        tested = substitute(self.block(Block((), loop.before.ops, ())), now)
        b.ops += tested.ops
        goes, *forwarded = (now.get(v, v) for v in loop.before.results)
        return goes, dict(zip(loop.body.args, forwarded, strict=True))


def stays_within(function: Function, axis: int, loop: Loop) -> bool:
    """Whether where the launch's blocks lie along an axis, and how many there are, is used for nothing but where a loop
    starts and how far it steps."""
    told, starts = set[Value](), set(loop.inits if isinstance(loop, While) else (loop.lower,))
    for op in walk(function.body):
        uses = [v for v in operands(op) if v in told]
        if isinstance(op, Builtin) and op.name in ("block_idx", "grid_dim"):
            told.update(op.results if op.axis == axis else ())
        elif uses and isinstance(op, Apply):
            told.update(op.results)
        elif uses and not (op is loop and starts.issuperset(uses)):
            return False
    others = (block for op in walk(function.body) for block in blocks(op) if block is not loop.body)
    return all(told.isdisjoint(block.results) for block in others)
