"""Blocks as turns of a loop: of the blocks along an axis of a grid, a launch starts some, and each does the work of
many. The other way round than `turn_blocks`.

    int i = blockIdx.x * 256 + threadIdx.x; if (i < n) y[i] = f(x[i], w[i % 100]);

becomes `for (turn = 0; turn < turns; ++turn) { block = blockIdx.x + turn * gridDim.x; if (block < blocks) ... }`, in
which `i % 100` is the same in all turns if it is told to start a multiple of 25 blocks. Whether that may be, and pays,
is for others to say. How many blocks there are is a parameter of the launcher's.
"""

from __future__ import annotations

from dataclasses import replace

from ..ir.builder import Builder
from ..ir.ops import BLOCKS, Block, Builtin, Function, If, Op, Param, Value
from ..ir.traverse import rebuild
from ..ir.types import I32, I64, U32


def in_turns(function: Function, axis: int) -> Function:
    """`function`: a kernel in which threads do not wait for each other."""
    given, b = Value(I64, BLOCKS), Builder(function.span)
    count, started = b.convert(given, U32), b.builtin("grid_dim", axis)
    more = b.apply("sub", b.apply("add", count, started), b.constant(1, U32))
    turns, turn = b.convert(b.apply("div", more, started), I32), Value(I32, "~turn")
    with b.region() as body:
        passed = b.apply("mul", b.convert(turn, U32), started)
        block = b.apply("add", b.builtin("block_idx", axis), passed, name="~block")
        b.if_(b.apply("lt", block, count), _renumbered(function.body, axis, block, count))
    b.for_(b.constant(0, I32), turns, (), 1, body.block((turn,)))
    params = (*function.params, Param(given, "long long", variable=BLOCKS))
    return replace(function, params=params, body=Block((), tuple(b.ops), ()))


def _renumbered(body: Block, axis: int, block: Value, count: Value) -> Block:
    """With that block's number along the axis, of so many. Who returns early has other turns left."""
    instead = {"block_idx": block, "grid_dim": count}
    replaced: dict[Value, Value] = {}

    def rewritten(inner: Block) -> Block:
        ops: list[Op] = []
        for op in inner.ops:
            if isinstance(op, Builtin) and op.axis == axis and op.name in instead:
                replaced[op.result] = instead[op.name]
            else:
                kept = rebuild(op, lambda v: replaced.get(v, v), rewritten)
                ops.append(replace(kept, exits=False) if isinstance(kept, If) else kept)
        return Block(inner.args, tuple(ops), tuple(replaced.get(v, v) for v in inner.results))

    return rewritten(body)
