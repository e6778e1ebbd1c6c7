"""Tiles that are copies: shared memory that a block fills once from memory which nobody writes, and then only reads.

    for (int j = threadIdx.x; j < 258; j += 256) s[j] = x[blockIdx.x * 256 + j - 1];
    __syncthreads();
    ... s[threadIdx.x + 2] ...

What a cell holds is what the thread that stores to it computes (`cell_writers`), and the thread that reads it can
compute the same: `x[blockIdx.x * 256 + threadIdx.x + 1]`. Tile and barriers go, and what is known of kernels without
them holds: who reads an element, so that each element may collect its adjoint.

A cell that nobody stores to holds zero, as everything does that is not initialised.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ..analysis import roots, structure, tiles, uniform
from ..analysis.access.affine import Shape, Sums
from ..analysis.access.intervals import Intervals
from ..analysis.ownership import tile_rows
from ..analysis.roots import is_shared
from ..analysis.tiles import Tile
from ..ir.builder import Builder
from ..ir.effects import is_pure
from ..ir.ops import (
    Barrier,
    BarrierReduce,
    Block,
    Fence,
    For,
    Function,
    GlobalRef,
    If,
    Load,
    Module,
    Op,
    Store,
    Value,
    Warp,
    While,
)
from ..ir.traverse import blocks, descend, kinds, uses, walk, with_body, with_ops
from ..ir.types import Scalar
from . import barriers, block_shape, interval_tests, loops, simplify
from .cell_writers import Filling, Kernel, writer_of
from .other_threads import NotACopy
from .tile_layouts import Indices

Dim3 = tuple[int, int, int]
_EXCHANGING = (BarrierReduce, Warp, Fence)
_MEETING = (Barrier, *_EXCHANGING)
_ANY_GRID = (2**31 - 1, 65535, 65535)
_MOST_STORES = 4


def run(function: Function, module: Module, block: Dim3) -> Function | None:
    """The function for blocks of that shape, without shared memory; None where that holds more than copies."""
    if not any(_shared(function)) or not kinds(function.body).isdisjoint(_EXCHANGING):
        return None
    shaped = simplify.run(block_shape.with_extents(function, block), module)
    shaped = simplify.run(loops.run(shaped, module), module)
    try:
        direct = _Reads(shaped, block).replaced()
    except NotACopy:
        return None
    lean = simplify.run(barriers.run(simplify.run(direct, module), module), module)
    decided = interval_tests.run(lean, module, _intervals(lean, block))
    meets = not kinds(decided.body).isdisjoint(_MEETING)
    return None if meets or any(_shared(decided)) else decided


def _intervals(function: Function, block: Dim3) -> Intervals:
    """Of every launch with such blocks."""
    return Intervals(function, _ANY_GRID, block, lambda _: None)


class _Reads:
    """A kernel whose reads of tiles become what the tiles were filled with."""

    def __init__(self, function: Function, block: Dim3):
        self.function, self.block = function, block
        self.memory = roots.analyse(function)
        self.structure = structure.analyse(function, apart=False)
        self.tiles = tiles.find_tiles(self.memory, self.structure)
        self._check()
        parameters = frozenset(p.value for p in function.params)
        self.kernel = Kernel(self._indices(), parameters, block, self._is_read_only)
        self.fillings = {root: tuple(reversed(list(self._fillings(tile)))) for root, tile in self.tiles.items()}
        self.of_load = {number: root for root, tile in self.tiles.items() for number in tile.loads}
        self.stores = frozenset[int]().union(*(tile.stores for tile in self.tiles.values()))
        self.filling = {id(op) for tile in self.tiles.values() for op in tile.fill}
        self.used = uses(function.body)

    def replaced(self) -> Function:
        return with_body(self.function, self._in(self.function.body))

    def _in(self, block: Block) -> Block:
        ops: list[Op] = []
        for op in block.ops:
            root = self.of_load.get(id(op))
            if isinstance(op, Load) and root is not None:
                ops += self._read(op, self.fillings[root])
            elif id(op) not in self.stores:
                inner = descend(op, self._in)
                ops += () if id(op) in self.filling and self._is_done(inner) else (inner,)
        return with_ops(block, ops)

    def _is_done(self, op: Op) -> bool:
        """Whether what filled a tile does nothing else. Its loops come to an end: they count."""
        inside = (nested for block in blocks(op) for nested in walk(block))
        harmless = all(is_pure(one) or isinstance(one, Load | If | For | While) for one in (op, *inside))
        return harmless and not any(self.used.get(result) for result in op.results)

    def _read(self, load: Load, fillings: tuple[Filling, ...]) -> tuple[Op, ...]:
        build = Builder(load.span)
        value = self._held(build, load, fillings)
        *before, last = build.ops
        assert last.results == (value,)
        return (*before, replace(last, results=load.results))

    def _held(self, build: Builder, load: Load, fillings: tuple[Filling, ...]) -> Value:
        """What the cell holds: of several stores, what the last one left that its thread made."""
        if not fillings:
            return build.constant(0, load.result.type)
        writer = writer_of(self.kernel, build, fillings[0], load.ptr)
        with build.region() as then:
            stored = writer.thread.inside().computed(fillings[0].store.value)
        with build.region() as orelse:
            other = self._held(build, load, fillings[1:])
        (held,) = build.if_(writer.stores, then.block(results=(stored,)), orelse.block(results=(other,)))
        return held

    # ---- what must hold

    def _check(self) -> None:
        names = set(_shared(self.function))
        if not names or {tile.variable for tile in self.tiles.values()} != names:
            raise NotACopy
        for root, tile in self.tiles.items():
            self._check_tile(root, tile)

    def _indices(self) -> Indices:
        function = self.function
        ranges = tile_rows.ranges_in_rows(function, self.memory, _intervals(function, self.block))
        if ranges is None:
            raise NotACopy
        sums = Sums(self.structure, Shape(_ANY_GRID, self.block), lambda _: None)
        return Indices(self.structure.definition, frozenset(uniform.uniform_values(function)), sums, ranges)

    def _check_tile(self, root: Value, tile: Tile) -> None:
        if tile.barrier is None or any(place.in_loop for place in tile.place.around()):
            raise NotACopy
        accesses = [op for op in walk(self.function.body) if id(op) in tile.stores | tile.loads]
        types = {op.value.type if isinstance(op, Store) else op.result.type for op in accesses}
        type = tile_rows.cell_type(root)
        if types != {type} or not isinstance(type, Scalar):
            raise NotACopy

    def _fillings(self, tile: Tile) -> Iterator[Filling]:
        """The stores to a tile, in order. They are to one cell in each iteration: of stores to different ones, that of
        an earlier iteration or of another loop may come first or last."""
        around = tuple(self._around(tile))
        found = [filling for op in tile.fill for filling in _stores(op, around, tile.stores)]
        loops_of = {tuple(id(op) for op, _ in filling.loops) for filling in found}
        cells = {self.kernel.cell(filling.store.ptr) for filling in found}
        if len(found) > _MOST_STORES or len(loops_of) > 1 or len(cells) > 1:
            raise NotACopy
        yield from found

    def _around(self, tile: Tile) -> Iterator[tuple[Op, int]]:
        """What the block that fills and reads a tile stands in, from outside in."""
        for place in reversed(list(tile.place.around())):
            if place.owner is not None:
                number = next(k for k, inner in enumerate(blocks(place.owner)) if inner is place.block)
                yield place.owner, number

    def _is_read_only(self, ptr: Value) -> bool:
        """Whether nobody writes that memory while the kernel runs."""
        found, written = self.memory.of(ptr), self.memory.written()
        known = bool(found) and roots.UNKNOWN not in found | written
        return known and found.isdisjoint(written) and found <= self.memory.lasting()


def _stores(op: Op, around: tuple[tuple[Op, int], ...], wanted: frozenset[int]) -> Iterator[Filling]:
    if isinstance(op, Store) and id(op) in wanted:
        yield Filling(op, around)
    for number, inner in enumerate(blocks(op)):
        for nested in inner.ops:
            yield from _stores(nested, (*around, (op, number)), wanted)


def _shared(function: Function) -> Iterator[str]:
    return (op.name for op in walk(function.body) if isinstance(op, GlobalRef) and is_shared(op.result))
