"""Tiles of a large grid: for CUDA, one warp does the work of two warps, in eight neighbouring blocks.

A loop may add to addresses of two kinds, as products of matrices do: to some that the lanes of a warp share, and the
block's next warps (`d_a[row * n + k] += ...` where a block is a row), and to some that the next blocks share
(`d_b[k * n + column] += ...`). A tile adds up both in registers: of sixteen atomics of the second kind two are left, of
sixteen sums over lanes eight.

Note [Tiles of a grid]
It is a jam of more blocks (Note [Jam] in `unroll_and_jam`), with the same conditions, tested by each warp after it has
computed what the loop needs: no thread is guarded off, the loops have the same iterations, and the addresses that
should be the same are. Else the warp goes through the tile by pairs of blocks, as a jam does. Of sixteen blocks the
first does all the work, so that each of its warps has as much to do as the others: half of them do the first eight
blocks, the others the rest.
"""

from __future__ import annotations

import math
from dataclasses import replace

from ...analysis.machine import FILLING_BLOCKS, REGISTERS, WARP
from ...ir.ops import Apply, Atomic, Block, Builtin, Function, Module, Store, Value
from ...ir.traverse import operands, walk, with_body
from ...ir.types import BOOL, F32, F64, U32, Pointer, Scalar, Type
from . import unroll_and_jam
from .tile import TILE, Tile
from .tile_strips import COLUMNS, ROWS
from .unroll_and_jam import BLOCKS, Jam

# By a thread that adds up such numbers; and with how many it is fastest.
_NEEDED: dict[Type, int] = {F32: 64, F64: 128}
_WANTED: dict[Type, int] = {F32: 80, F64: 128}
_LARGE = 512  # threads: there are at most 128 registers for each
_DIFFERENT = frozenset(("add", "sub", "mul", "neg", "convert", "shl"))


def run(function: Function, module: Module) -> Function:
    found = unroll_and_jam.find(function)
    if found is None:
        return function
    return with_body(function, _Grid(found).body() if _is_worth(found) else found.body())


def applies(function: Function) -> bool:
    found = unroll_and_jam.find(function)
    return found is not None and _is_worth(found)


def for_blocks(function: Function, block: tuple[int, int, int]) -> Function:
    """The function for launches with such blocks, which the compiler must know of: with as many registers as work on
    several blocks takes, the largest could not be started."""
    found, threads = unroll_and_jam.find(function), math.prod(block)
    if found is None:
        return function
    told = (threads, *function.launch_bounds[1:])
    fits = block[0] % (WARP * COLUMNS) == 0 and block[1:] == (1, 1)
    if fits and _has_registers(found, told) and _gains(found):
        at_a_time = max(1, REGISTERS // (threads * _most(found, _WANTED)))
        return replace(function, launch_bounds=told if told[1:] else (threads, at_a_time))
    return replace(function, launch_bounds=told) if threads > _LARGE else function


def _is_worth(of: Jam) -> bool:
    bounds = of.function.launch_bounds
    return bool(bounds) and _has_registers(of, bounds) and _gains(of)


def _has_registers(of: Jam, bounds: tuple[int, ...]) -> bool:
    """`bounds`: threads of a block, and how many of them are to run at a time."""
    return math.prod(bounds[:2]) * _most(of, _NEEDED) <= REGISTERS


def _most(of: Jam, registers: dict[Type, int]) -> int:
    return max(registers[s.added.type] for s in of.sums)


def _gains(of: Jam) -> bool:
    """Whether there are sums of both kinds, as far as the arithmetic tells, and nothing else that threads write."""
    updates = {s.update for s in of.sums}
    inside = list(walk(of.loop.body))
    alone = not any(isinstance(op, Store | Atomic) and op not in updates for op in inside)
    comparable = all(isinstance(v.type, Scalar | Pointer) for v in of.live)
    spread = _spread(of.function)
    of_blocks = [s for s, shared in zip(of.sums, of.shared, strict=True) if shared]
    of_lanes = [s for s in of.sums if s not in of_blocks]
    by_lane = all(s.tested for s in of_blocks)
    by_warp = all(s.together and not any(v in spread for v in s.tested) for s in of_lanes)
    return alone and comparable and bool(of_blocks) and by_lane and bool(of_lanes) and by_warp


def _spread(function: Function) -> set[Value]:
    """Values that differ between the lanes of a warp for sure."""
    found: set[Value] = set()
    for op in walk(function.body):
        index = isinstance(op, Builtin) and (op.name, op.axis) == ("thread_idx", 0)
        follows = isinstance(op, Apply) and op.fn in _DIFFERENT and any(v in found for v in operands(op))
        if index or follows:
            found.update(op.results)
    return found


class _Grid:
    """The body of a kernel whose blocks do tiles, or what `unroll_and_jam` makes of them."""

    def __init__(self, pairs: Jam):
        self.pairs, self.b = pairs, pairs.b

    def body(self) -> Block:
        b = self.b
        at, extent, width = b.builtin("block_idx"), b.builtin("grid_dim"), b.builtin("block_dim")
        many = self.pairs.is_many(extent)
        tiled = self.is_tiled(extent, width)
        few = b.apply("select", many, self.number(BLOCKS), self.number(1))
        group = b.apply("select", tiled, self.number(TILE), few)
        first = b.apply("sub", at, b.apply("rem", at, group))
        works = b.apply("eq", first, at)
        with b.region() as region:
            self.work(tiled, first, few, extent, width)
        b.if_(works, region.block(), exits=True)
        return Block((), tuple(b.ops), ())

    def number(self, value: int) -> Value:
        return self.b.constant(value, U32)

    def is_tiled(self, extent: Value, width: Value) -> Value:
        """Whether the grid consists of tiles."""
        b = self.b
        along = b.apply("mul", b.builtin("block_dim", 1), b.builtin("block_dim", 2))
        conditions = (
            self.pairs.has_blocks(extent, FILLING_BLOCKS),
            b.apply("eq", along, self.number(1)),
            b.apply("eq", b.apply("rem", width, self.number(WARP * COLUMNS)), self.number(0)),
            b.apply("eq", b.apply("rem", extent, self.number(TILE)), self.number(0)),
        )
        return self.pairs.every(conditions)

    def work(self, tiled: Value, first: Value, few: Value, extent: Value, width: Value) -> None:
        b, thread = self.b, self.b.builtin("thread_idx")
        groups = b.apply("div", width, self.number(WARP * COLUMNS))
        warp = b.apply("div", thread, self.number(WARP))
        down = b.apply("mul", b.apply("div", warp, groups), self.number(ROWS))
        across = b.apply("mul", b.apply("rem", warp, groups), self.number(WARP * COLUMNS))
        with b.region() as region:
            block = b.apply("add", first, down)
            start = b.apply("add", across, b.apply("rem", thread, self.number(WARP)))
            done = Tile(self.pairs, block, start).done()
        block, start, done = b.if_(
            tiled,
            region.block(results=(block, start, done)),
            self.otherwise(first, thread),
        )
        with b.region() as rest:
            self.by_pairs(tiled, block, start, few, extent)
        b.if_(b.apply("not", done), rest.block())

    def otherwise(self, first: Value, thread: Value) -> Block:
        with self.b.region() as region:
            none = self.b.constant(False, BOOL)
        return region.block(results=(first, thread, none))

    def by_pairs(self, tiled: Value, block: Value, thread: Value, few: Value, extent: Value) -> None:
        """A tile by pairs of blocks. Where there are none, this block and the next one, or this one alone."""
        b, number = self.b, Value(U32, "~pair")
        count = b.apply("select", tiled, self.number(TILE // BLOCKS), self.number(1))
        with b.region() as region:
            column = b.apply("rem", number, self.number(COLUMNS))
            down = b.apply("mul", b.apply("div", number, self.number(COLUMNS)), self.number(BLOCKS))
            first = b.apply("add", block, down)
            self.pairs.thread = b.apply("add", thread, b.apply("mul", column, self.number(WARP)))
            self.pairs.some(first, b.apply("min", b.apply("sub", extent, first), few))
        b.for_(self.number(0), count, (), 1, region.block((number,), ()), unroll=1)
