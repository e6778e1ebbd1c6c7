"""The loop of a warp that does a tile of blocks and warps (Note [Tiles of a grid] in `block_tiles`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ..ir.ops import Block, Constant, For, Value, Warp
from ..ir.traverse import clone, rebuild
from ..ir.types import BOOL, I32, U32, Array
from .jam import Copy, Jam, sources
from .lane_strips import STRIP, Kept, Sum

ROWS = STRIP  # blocks: as many as there are sums that lanes add up at once
COLUMNS = 2  # warps
TILE = ROWS * COLUMNS
WARP = 32
_UNROLLED = 2  # iterations: so that loads of one wait together with those of the next
_Values = tuple[Value, ...]


@dataclass(frozen=True)
class Place:
    """In a tile: the number of the block and of the warp."""

    row: Value
    column: Value


class Tile:
    """The work of a warp. `block`: the first of the tile; `thread`: this one's index, were it the tile's first warp."""

    def __init__(self, pairs: Jam, block: Value, thread: Value):
        self.pairs, self.block, self.thread, self.b = pairs, block, thread, pairs.b
        self.live = pairs.live
        bounds = {pairs.loop.lower, pairs.loop.upper}
        self.along_columns = [not shared for shared in pairs.shared]  # the warps of a block share the addresses
        # What must be the same for all blocks, and for all warps of a block.
        self.same_rows = pairs.alike
        self.same_columns = bounds | {v for v in self.live if v in pairs.uniform}
        self.same_columns |= {v for s in self.wide(pairs.sums) for v in sources(s)}

    def wide(self, sums: Iterable[Sum]) -> list[Sum]:
        """Those that lanes share, and the warps of a block."""
        return [s for s, wide in zip(sums, self.along_columns, strict=True) if wide]

    # ---- what the loop needs

    def done(self) -> Value:
        """Does the work and gives true; or does nothing, if it cannot."""
        b = self.b
        kept = self.cells()

        def prepare(number: Value, carried: _Values) -> _Values:
            columns = b.constant(COLUMNS, I32)
            at = Place(b.apply("div", number, columns), b.apply("rem", number, columns))
            return (b.apply("and", carried[0], self.prepare(kept, at)),)

        (ready,) = self.count(TILE, (b.emit(Constant, True, type=BOOL, name="ready"),), prepare, unroll=1)
        with b.region() as region:
            done = self.tested(kept)
        (done,) = b.if_(self.pairs.all(ready), region.block(results=(done,)), self.pairs.no())
        return done

    def cells(self) -> dict[Value, Value]:
        return {v: self.b.alloca(Array(v.type, self.extent(v)), v.name) for v in self.live}

    def extent(self, value: Value) -> int:
        return (1 if value in self.same_rows else ROWS) * (1 if value in self.same_columns else COLUMNS)

    def cell(self, cells: dict[Value, Value], value: Value, at: Place) -> Value:
        b = self.b
        match value in self.same_rows, value in self.same_columns:
            case True, True:
                index = b.constant(0, I32)
            case True, False:
                index = at.column
            case False, True:
                index = at.row
            case _:
                index = b.apply("add", b.apply("mul", at.row, b.constant(COLUMNS, I32)), at.column)
        return b.offset(b.decay(cells[value]), index)

    def prepare(self, kept: dict[Value, Value], at: Place) -> Value:
        """Keeps what one block needs for one warp; gives whether it comes to the loop, and is like the others."""
        b = self.b
        block = b.apply("add", self.block, b.convert(at.row, U32))
        lane = b.apply("mul", b.convert(at.column, U32), b.constant(WARP, U32))
        self.pairs.thread = b.apply("add", self.thread, lane)
        copy, values = self.pairs.copied(block)
        fine, *live = self.pairs.before_loop(copy, values)
        for value, found in zip(self.live, live, strict=True):
            cell, first = self.cell(kept, value, at), self.first(value, at)
            if first is None:
                b.store(cell, found)
                continue
            with b.region() as keep:
                b.store(cell, found)
            b.if_(first, keep.block())
            fine = b.apply("and", fine, b.apply("eq", b.load(cell), found))
        return fine

    def first(self, value: Value, at: Place) -> Value | None:
        """Whether others must have the same value as this one; None if each has its own."""
        b, zero = self.b, self.b.constant(0, I32)
        rows = [at.row] if value in self.same_rows else []
        columns = [at.column] if value in self.same_columns else []
        conditions = [b.apply("eq", index, zero) for index in rows + columns]
        return self.pairs.every(conditions) if conditions else None

    def copy(self, cells: dict[Value, Value], at: Place) -> Copy:
        """The loop, with what it needs in one place."""
        return self.pairs.with_values({v: self.b.load(self.cell(cells, v, at)) for v in self.live})

    # ---- conditions

    def tested(self, kept: dict[Value, Value]) -> Value:
        b = self.b
        zero = b.constant(0, I32)
        start = self.copy(kept, Place(zero, zero))
        strips = self.pairs.strips(start)
        bounds = [self.pairs.lanes(v) for v in dict.fromkeys((start.loop.lower, start.loop.upper))]
        conditions = [*self.all_are(bounds, WARP), *strips.fitting()]
        narrow = [s for s, wide in zip(start.sums, self.along_columns, strict=True) if not wide]
        conditions += self.all_are((strips.lanes_of(s) for s in narrow), 1)

        def compare(row: Value, carried: _Values) -> _Values:
            copy = self.copy(kept, Place(row, zero))
            lanes = (self.pairs.strips(copy).lanes_of(s) for s in self.wide(copy.sums))
            return (self.pairs.every((carried[0], *self.all_are(lanes, WARP))),)

        true = b.emit(Constant, True, type=BOOL, name="shared")
        conditions += self.count(ROWS, (true,), compare, unroll=1)
        with b.region() as region:
            self.work(kept)
            done = b.constant(True, BOOL)
        fine = self.pairs.all(self.pairs.every(conditions))
        (done,) = b.if_(fine, region.block(results=(done,)), self.pairs.no())
        return done

    def all_are(self, lanes: Iterable[Value | None], count: int) -> list[Value]:
        return [self.b.apply("eq", n, self.b.constant(count, U32)) for n in lanes if n is not None]

    # ---- the loop

    def work(self, kept: dict[Value, Value]) -> None:
        b = self.b
        own, zero = self.in_registers(kept), b.constant(0, I32)
        start = self.copy(own, Place(zero, zero))
        lane = b.convert(b.apply("rem", b.builtin("lane_id"), b.constant(STRIP, U32)), I32)
        mine = self.copy(kept, Place(lane, zero))
        strips = self.pairs.strips(start)
        lower, upper = (b.convert(v, strips.type) for v in (start.loop.lower, start.loop.upper))
        counter = Value(strips.type, self.pairs.loop.body.args[0].name)
        with b.region() as region:
            parts = [
                b.alloca(Array(s.update.result.type, ROWS if wide else COLUMNS), f"{s.name}_parts")
                for s, wide in zip(self.pairs.sums, self.along_columns, strict=True)
            ]
            for cells, wide in zip(parts, self.along_columns, strict=True):
                self.clear(cells, ROWS if wide else COLUMNS)
            self.each(lambda at: self.iterate(self.copy(own, at), at, counter, parts))
            for k, wide in enumerate(self.along_columns):
                if wide:
                    self.add_sums(mine, k, parts[k], counter)
                else:
                    self.add_own(own, k, parts[k], counter)
        body = region.block((counter,), ())
        b.add(For(lower, upper, (), self.pairs.loop.step, body, _UNROLLED, span=self.pairs.loop.span))

    def in_registers(self, kept: dict[Value, Value]) -> dict[Value, Value]:
        """The same again: an array that is indexed by what no compiler knows lies in memory."""
        b, own = self.b, self.cells()

        def move(number: Value, values: list[Value]) -> _Values:
            for v in values:
                source, target = (b.offset(b.decay(cells[v]), number) for cells in (kept, own))
                b.store(target, b.load(source))
            return ()

        for extent in sorted({self.extent(v) for v in self.live}):
            values = [v for v in self.live if self.extent(v) == extent]
            self.count(extent, (), lambda number, _: move(number, values))  # noqa: B023
        return own

    def clear(self, cells: Value, extent: int) -> None:
        b = self.b

        def zero(number: Value, _: _Values) -> _Values:
            cell = b.offset(b.decay(cells), number)
            b.store(cell, b.constant(0.0, b.load(cell).type))
            return ()

        self.count(extent, (), zero)

    def each(self, work: Callable[[Place], None]) -> None:
        """For each place of the tile."""

        def along(row: Value, _: _Values) -> _Values:
            def one(column: Value, _: _Values) -> _Values:
                work(Place(row, column))
                return ()

            return self.count(COLUMNS, (), one)

        self.count(ROWS, (), along)

    def iterate(self, copy: Copy, at: Place, counter: Value, parts: list[Value]) -> None:
        """The loop's body, with its updates added up."""
        b, strips = self.b, self.pairs.strips(copy)
        cells = {
            s.op: (b.offset(b.decay(cells), at.row if wide else at.column), s)
            for s, cells, wide in zip(copy.sums, parts, self.along_columns, strict=True)
        }

        def adding(block: Block) -> Block:
            with b.region() as region:
                for op in block.ops:
                    if op in cells:
                        cell, of = cells[op]
                        b.store(cell, b.apply("add", b.load(cell), of.update.args[0]))
                    elif op not in strips.narrowed:
                        b.add(rebuild(op, lambda v: v, adding))
            return region.block(block.args, block.results)

        b.ops += clone(Block((), adding(copy.loop.body).ops, ()), strips.counting(counter)).ops

    def add_sums(self, mine: Copy, number: int, cells: Value, counter: Value) -> None:
        """Of each block, by one of the first lanes."""
        b, of, strips = self.b, mine.sums[number], self.pairs.strips(mine)
        arguments = (strips.everyone, b.decay(cells), b.constant(WARP, U32))
        total = b.emit(Warp, "lane_sums", arguments, type=of.update.result.type, name="total")
        among = b.apply("lt", b.builtin("lane_id"), b.constant(STRIP, U32))
        with b.region() as region:
            strips.add(Kept(of, cells, None), counter, total)
        b.if_(b.apply("and", among, strips.is_some(total)), region.block())

    def add_own(self, own: dict[Value, Value], number: int, cells: Value, counter: Value) -> None:
        """Of each warp of a block, by each lane."""
        b = self.b

        def add(column: Value, _: _Values) -> _Values:
            copy = self.copy(own, Place(b.constant(0, I32), column))
            strips = self.pairs.strips(copy)
            value = b.load(b.offset(b.decay(cells), column))
            with b.region() as region:
                strips.add(Kept(copy.sums[number], cells, None), counter, value)
            b.if_(strips.is_some(value), region.block())
            return ()

        self.count(COLUMNS, (), add)

    def count(
        self, extent: int, carried: _Values, work: Callable[[Value, _Values], _Values], unroll: int = 0
    ) -> _Values:
        """A loop, to be unrolled where what it needs is to be in registers."""
        b, number = self.b, Value(I32, "r")
        args = tuple(Value(v.type, v.name) for v in carried)
        with b.region() as region:
            following = work(number, args)
        lower, upper = b.constant(0, I32), b.constant(extent, I32)
        return b.for_(lower, upper, carried, 1, region.block((number, *args), following), unroll=unroll)
