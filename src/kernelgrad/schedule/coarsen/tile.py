"""A tile of blocks and warps, done by one warp: what the loop needs for each, and whether it can be done at once (Note
[Tiles of a grid] in `block_tiles`)."""

from __future__ import annotations

from collections.abc import Iterable

from ...analysis.machine import WARP
from ...ir.ops import Constant, Value
from ...ir.types import BOOL, I32, U32, Array
from ...transforms.unmask import guards_in
from ..sum_over.lane_strips import Sum
from .tile_strips import COLUMNS, ROWS, Place, TileLoop, Values, count
from .unroll_and_jam import Copy, Jam, sources

TILE = ROWS * COLUMNS


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
        # What is tested once, not in the loop: with a zero there, the tile is not done at once.
        self.nonzero = guards_in(pairs.loop.body).intersection(self.live)

    def wide(self, sums: Iterable[Sum]) -> list[Sum]:
        """Those that lanes share, and the warps of a block."""
        return [s for s, wide in zip(sums, self.along_columns, strict=True) if wide]

    # ---- what the loop needs

    def done(self) -> Value:
        """Does the work and gives true; or does nothing, if it cannot."""
        b = self.b
        kept = self.cells()

        def prepare(number: Value, carried: Values) -> Values:
            columns = b.constant(COLUMNS, I32)
            at = Place(b.apply("div", number, columns), b.apply("rem", number, columns))
            return (b.apply("and", carried[0], self.prepare(kept, at)),)

        (ready,) = count(b, TILE, (b.emit(Constant, True, type=BOOL, name="~ready"),), prepare, unroll=1)
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
        match self.kind(value):
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
        found = dict(zip(self.live, live, strict=True))
        some = (b.apply("ne", found[v], b.constant(0.0, v.type)) for v in self.live if v in self.nonzero)
        fine = self.pairs.every((fine, *some))
        for kind in dict.fromkeys(map(self.kind, self.live)):
            alike = [v for v in self.live if self.kind(v) == kind]
            with b.region() as keep:
                for v in alike:
                    b.store(self.cell(kept, v, at), found[v])
            indices = [index for index, same in zip((at.row, at.column), kind, strict=True) if same]
            if not indices:
                b.ops += keep.ops
                continue
            first = [b.apply("eq", index, b.constant(0, I32)) for index in indices]
            b.if_(self.pairs.every(first), keep.block())
            same = [b.apply("eq", b.load(self.cell(kept, v, at)), found[v]) for v in alike]
            fine = self.pairs.every((fine, *same))
        return fine

    def kind(self, value: Value) -> tuple[bool, bool]:
        """Whether it must be the same for all blocks, and for all warps of a block: the first keeps it then."""
        return value in self.same_rows, value in self.same_columns

    def copy(self, cells: dict[Value, Value], at: Place) -> Copy:
        """The loop, with what it needs in one place."""
        values = {v: self.b.load(self.cell(cells, v, at)) for v in self.live}
        return self.pairs.with_values(values, self.nonzero)

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

        def compare(row: Value, carried: Values) -> Values:
            copy = self.copy(kept, Place(row, zero))
            lanes = (self.pairs.strips(copy).lanes_of(s) for s in self.wide(copy.sums))
            return (self.pairs.every((carried[0], *self.all_are(lanes, WARP))),)

        true = b.emit(Constant, True, type=BOOL, name="~shared")
        conditions += count(b, ROWS, (true,), compare, unroll=1)
        with b.region() as region:
            TileLoop(self, kept).emit()
            done = b.constant(True, BOOL)
        fine = self.pairs.all(self.pairs.every(conditions))
        (done,) = b.if_(fine, region.block(results=(done,)), self.pairs.no())
        return done

    def all_are(self, lanes: Iterable[Value | None], count: int) -> list[Value]:
        return [self.b.apply("eq", n, self.b.constant(count, U32)) for n in lanes if n is not None]
