"""The loop of a tile of blocks and warps (`tile`), strip-mined by four: with eight blocks, that makes 32 sums,
of which each lane gets one and adds it.

What a lane adds to, it also loads. Where all lanes would load the elements of all blocks and iterations, each of them
loads one, and they pass them on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...analysis.machine import FULL_WARP, WARP
from ...ir.builder import Builder
from ...ir.ops import Block, For, Load, Op, Value, Warp
from ...ir.traverse import clone, descend, free_values, walk
from ...ir.types import F32, F64, I32, U32, Array
from ...locks import cached_property
from ..sum_over.lane_strips import Kept, Strips
from ..sum_over.lane_sums import Address, fixed_loads
from .unroll_and_jam import Copy

if TYPE_CHECKING:
    from .tile import Tile

ROWS = 8  # blocks
COLUMNS = 2  # warps
DEPTH = WARP // ROWS  # iterations
Values = tuple[Value, ...]


@dataclass(frozen=True)
class Place:
    """In a tile: the number of the block and of the warp."""

    row: Value
    column: Value


def count(b: Builder, extent: int, carried: Values, work: Callable[[Value, Values], Values], unroll: int) -> Values:
    number = Value(I32, "~r")
    args = tuple(Value(v.type, v.name) for v in carried)
    with b.region() as region:
        following = work(number, args)
    lower, upper = b.constant(0, I32), b.constant(extent, I32)
    return b.for_(lower, upper, carried, 1, region.block((number, *args), following), unroll=unroll)


@dataclass(frozen=True)
class _Strip:
    """`depth` iterations. `lane`: the loop of the block whose sum this lane adds; `counter`: that of its iteration."""

    first: Value
    depth: int
    lane: Copy
    counter: Value


class TileLoop:
    def __init__(self, tile: Tile, kept: dict[Value, Value]):
        self.tile, self.kept, self.b, self.loop = tile, kept, tile.b, tile.pairs.loop
        self.zero = self.b.constant(0, I32)
        self.own = self.in_registers()

    def in_registers(self) -> dict[Value, Value]:
        """The same again: an array that is indexed by what no compiler knows lies in memory."""
        b, own = self.b, self.tile.cells()

        def move(number: Value, values: list[Value]) -> None:
            for v in values:
                source, target = (b.offset(b.decay(cells[v]), number) for cells in (self.kept, own))
                b.store(target, b.load(source))

        for extent in sorted({self.tile.extent(v) for v in own}):
            values = [v for v in own if self.tile.extent(v) == extent]
            self.each(extent, lambda number: move(number, values))  # noqa: B023
        return own

    def each(self, extent: int, work: Callable[[Value], None]) -> None:
        """To be unrolled, so that arrays are registers."""

        def one(number: Value, _: Values) -> Values:
            work(number)
            return ()

        count(self.b, extent, (), one, unroll=0)

    # ---- strips

    def emit(self) -> None:
        b, strips = self.b, self.tile.pairs.strips(self.tile.copy(self.own, Place(self.zero, self.zero)))
        lower, upper = (b.convert(v, strips.type) for v in (strips.loop.lower, strips.loop.upper))
        trips = strips.trips()
        whole = b.apply("sub", trips, b.apply("rem", trips, b.constant(DEPTH, trips.type)))
        rest = strips.iteration(lower, b.convert(whole, strips.type))
        self.strips(strips, lower, rest, DEPTH)
        self.strips(strips, rest, upper, 1)

    def strips(self, strips: Strips, start: Value, end: Value, depth: int) -> None:
        b, first = self.b, Value(strips.type, self.loop.body.args[0].name)
        lane, size = b.builtin("lane_id"), b.constant(depth, U32)
        row = b.apply("rem", lane, b.constant(ROWS, U32)) if depth == 1 else b.apply("div", lane, size)
        mine = self.tile.copy(self.kept, Place(b.convert(row, I32), self.zero))
        with b.region() as region:
            counter = first
            if depth > 1:
                counter = strips.iteration(first, b.convert(b.apply("rem", lane, size), strips.type))
            self.strip(_Strip(first, depth, mine, counter))
        body = region.block((first,), ())
        b.add(For(start, end, (), self.loop.step * depth, body, 1, span=self.loop.span))

    def strip(self, strip: _Strip) -> None:
        sums = list(enumerate(self.tile.along_columns))
        held = self.held(strip)
        wide = {number: self.cells(number, ROWS * strip.depth) for number, is_wide in sums if is_wide}
        if strip.depth == 1:
            self.iteration(strip, None, held, wide)
        else:
            self.each(strip.depth, lambda ahead: self.iteration(strip, ahead, held, wide))
        for number, cells in wide.items():
            self.add_sums(strip, number, cells)

    def iteration(self, strip: _Strip, ahead: Value | None, held: dict[Load, Value], wide: dict[int, Value]) -> None:
        """The one `ahead` of the first, for all places; `wide`: where sums go that all lanes share."""
        b, sums = self.b, list(enumerate(self.tile.along_columns))
        narrow = {number: self.cells(number, COLUMNS) for number, is_wide in sums if not is_wide}

        def row_of(row: Value) -> None:
            number = row
            if ahead is not None:
                number = b.apply("add", b.apply("mul", row, b.constant(strip.depth, I32)), ahead)
            passed = {load: self.passed(value, number) for load, value in held.items()}
            totals = {k: b.offset(b.decay(cells), number) for k, cells in wide.items()}
            self.each(COLUMNS, lambda column: one(Place(row, column), passed, totals))

        def one(at: Place, passed: dict[Load, Value], totals: dict[int, Value]) -> None:
            own = {k: b.offset(b.decay(cells), at.column) for k, cells in narrow.items()}
            self.iterate(at, self.after(strip, ahead), passed, totals | own)

        self.each(ROWS, row_of)
        for number, cells in narrow.items():
            self.add_own(strip, ahead, number, cells)

    def after(self, strip: _Strip, ahead: Value | None) -> Value:
        """The counter."""
        if ahead is None:
            return strip.first
        strips = self.tile.pairs.strips(strip.lane)
        return strips.iteration(strip.first, self.b.convert(ahead, strips.type))

    def iterate(self, at: Place, counter: Value, passed: dict[Load, Value], totals: dict[int, Value]) -> None:
        """The loop's body, with its updates added up."""
        b, copy = self.b, self.tile.copy(self.own, at)
        strips = self.tile.pairs.strips(copy)
        sums = {of.op: (totals[number], of) for number, of in enumerate(copy.sums)}
        given = strips.counting(counter)
        given |= {self.in_copy(copy)[load].result: value for load, value in passed.items()}
        known = {op for op in walk(copy.loop.body) if any(r in given for r in op.results)}

        def adding(block: Block) -> Block:
            with b.region() as region:
                for op in block.ops:
                    if op in sums:
                        cell, of = sums[op]
                        b.store(cell, b.apply("add", b.load(cell), of.added))
                    elif op not in known:
                        b.add(descend(op, adding))
            return region.block(block.args, block.results)

        b.ops += clone(Block((), adding(copy.loop.body).ops, ()), given).ops

    def in_copy(self, copy: Copy) -> dict[Op, Op]:
        return dict(zip(walk(self.loop.body), walk(copy.loop.body), strict=True))

    # ---- loads

    @cached_property
    def loads(self) -> dict[Load, Address]:
        """Those that are the same for all lanes, and differ between blocks."""
        pairs = self.tile.pairs
        alike = pairs.uniform | {v for of in self.tile.wide(pairs.sums) for v in of.tested}
        return {
            op: address
            for op, address in fixed_loads(pairs.function, self.loop).items()
            if op.result.type in (F32, F64)
            and all(v in alike for v in address.given)
            and not set(free_values(Block((), address.ops, (op.ptr,)))) <= self.tile.same_rows
        }

    def held(self, strip: _Strip) -> dict[Load, Value]:
        """What a lane loads for all."""
        found, copied = {}, self.in_copy(strip.lane)
        strips = self.tile.pairs.strips(strip.lane)
        for op, address in self.loads.items():
            load = copied[op]
            assert isinstance(load, Load)
            ops = tuple(copied[a] for a in address.ops)
            ptr = strips.repeated(ops, strips.counting(strip.counter), load.ptr)
            found[op] = self.b.emit(Load, ptr, type=op.result.type, name=op.result.name)
        return found

    def passed(self, value: Value, lane: Value) -> Value:
        b = self.b
        everyone, width = b.constant(FULL_WARP, U32), b.constant(WARP, I32)
        return b.emit(Warp, "shfl_idx", (everyone, value, lane, width), type=value.type, name=value.name)

    # ---- updates

    def cells(self, number: int, extent: int) -> Value:
        """Of a sum, zero at first."""
        b, of = self.b, self.tile.pairs.sums[number]
        type = of.added.type
        cells = b.alloca(Array(type, extent), f"{of.name}_parts")
        self.each(extent, lambda n: b.store(b.offset(b.decay(cells), n), b.constant(0.0, type)))
        return cells

    def add_sums(self, strip: _Strip, number: int, cells: Value) -> None:
        """Of each block and iteration, by the lane that has the sum."""
        b, of, strips = self.b, strip.lane.sums[number], self.tile.pairs.strips(strip.lane)
        eight = () if strip.depth > 1 else (b.constant(WARP, U32),)
        name = "lane_sums" if eight else "warp_sums"
        arguments = (strips.everyone, b.decay(cells), *eight)
        total = b.emit(Warp, name, arguments, type=of.added.type, name="~total")
        adds = strips.is_some(total)
        if eight:
            adds = b.apply("and", b.apply("lt", b.builtin("lane_id"), b.constant(ROWS, U32)), adds)
        with b.region() as region:
            strips.add(Kept(of, cells, None), strip.counter, total)
        b.if_(adds, region.block())

    def add_own(self, strip: _Strip, ahead: Value | None, number: int, cells: Value) -> None:
        """Of each warp of a block, by each lane."""
        b, tile = self.b, self.tile

        def add(column: Value) -> None:
            copy = tile.copy(self.own, Place(self.zero, column))
            strips = tile.pairs.strips(copy)
            value = b.load(b.offset(b.decay(cells), column))
            with b.region() as region:
                strips.add(Kept(copy.sums[number], cells, None), self.after(strip, ahead), value)
            b.if_(strips.is_some(value), region.block())

        self.each(COLUMNS, add)
