"""Which adjoints of a launch each block adds up in shared memory (see autodiff/accumulate/block_cells.py).

What decides is how many additions there are in memory that all blocks share. Without cells, that is each of them, or
one for a warp whose lanes agree; with cells, as many as there are cells, for each block that is started. Additions in
shared memory are cheap beside those, but they are compare-and-swap loops in either precision, so that lanes of a warp
that may be at the same cell add up first. Where most additions would go elsewhere all the same, the launch keeps the
form in which threads do several rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from ...analysis.access.affine import Affine, Part, Shape, Sums
from ...analysis.access.contribution_counts import LoopLengths
from ...analysis.access.executions import Executions, executions, greatest
from ...analysis.access.outcomes import Outcome, outcomes
from ...analysis.access.thread_columns import Column, remainders_in, thread_columns
from ...analysis.machine import RESIDENT_THREADS, WARP
from ...analysis.ownership.private import places_of
from ...analysis.structure import analyse
from ...autodiff.accumulate.block_cells import InBlock, can_take_turns, capacity
from ...autodiff.accumulate.choice import Facts
from ...autodiff.accumulate.fewer_blocks import blocks_for, pays
from ...autodiff.calculus.flat_numbers import flat, floats_in, numbers_in
from ...autodiff.calculus.shadows import adjoint_type
from ...autodiff.prepare.contributions import Contributions, Count
from ...autodiff.prepare.double_cells import settled
from ...autodiff.prepare.prepared import Prepared
from ...ir.builder import pointee
from ...ir.ops import Barrier, Function, If, Load, Value, Warp
from ...ir.traverse import holds, walk
from ...ir.types import F32, Pointer, Scalar, Type, innermost
from ...locks import cached_property
from ...runtime.integers import KnownLaunch

ENABLED = True
COLUMNS = True  # remainders that a thread has all the time are computed once
MOST_BYTES = 1 << 14  # of all cells of a block: many blocks fit a multiprocessor
FLOATS = 256  # equal ones, after the addition of which a sum of floats is off by 5e-6 at most
_TURNS = 4  # for each block that is started, at least
_ADDITIONS = 4  # to a cell by each block that is started, on average at least
_MOST_STARTED = 1 << 14  # blocks: so many would wait for each other at the same addresses
_SUMMED_TURNS = 1  # at most, where a warp adds to memory once: doing more blocks' work costs more than that
_FEW_ADDITIONS = 1 << 16  # that are not worth clearing cells for
_ELSEWHERE = 1 << 14  # bytes of shared memory that a gradient has without cells


class Turns(NamedTuple):
    """How many blocks are started, and the work of how many of the launch each does at most."""

    blocks: int
    each: int


def turns(prepared: Prepared, launch: KnownLaunch) -> Turns:
    blocks = math.prod(launch.grid)
    if not _takes_turns(prepared) or not pays(launch.grid, launch.block, RESIDENT_THREADS, _TURNS):
        return Turns(blocks, 1)
    started = blocks_for(launch.block, RESIDENT_THREADS)
    return Turns(started, -(-blocks // started))


def _takes_turns(prepared: Prepared) -> bool:
    """Whether its gradient may do so, which is made of what it does and of additions."""
    alone = not prepared.sites and not any(prepared.plan.taped.values())
    return alone and can_take_turns(prepared.function.body.ops)


class Candidates:
    """Small inputs in one launch. `source`: the kernel as it is before it is made ready for reversal: what is found
    there of a place in the source holds for all that is made of it."""

    def __init__(self, prepared: Prepared, source: Function, launch: KnownLaunch, sums: Sums, private: frozenset[str]):
        self.prepared, self.source, self.launch, self.private = prepared, source, launch, private
        self.sums = executions(sums)
        self.turns = turns(prepared, launch)
        self.places = places_of(prepared.structure)
        self.roots = {p.name: p.value for p in prepared.function.params}

    @cached_property
    def lengths(self) -> LoopLengths:
        shape = Shape(self.launch.grid, self.launch.block)
        return LoopLengths(self.prepared.function, self.prepared.structure, shape, self.sums.known)

    def chosen(self, sizes: Mapping[str, int], others: Iterable[str]) -> frozenset[InBlock]:
        """Those that are added to so often that cells of each block pay, smallest first as long as they fit. `others`:
        what is added to in memory all the same."""
        if not ENABLED or not sizes or _shared_bytes(self.prepared, self.launch) > _ELSEWHERE:
            return frozenset()
        counted = Contributions(self.prepared, self.sums, self.lengths, self.private, WARP)
        counts = {name: counted.to(self.roots[name]) for name in {*sizes, *others}}
        found, left = dict[str, InBlock](), MOST_BYTES
        for name, nbytes in sorted(sizes.items(), key=lambda item: (item[1], item[0])):
            own = self._cells(name, nbytes // innermost(pointee(self.roots[name])).size, counts[name])
            needed = 0 if own is None else own.capacity * (8 if own.wide else self._number(name).size)
            if own is not None and needed <= left:
                found[name] = own
                left -= needed
        inside = sum(counts[name].total for name in found)
        outside = sum(count.total for name, count in counts.items() if name not in found)
        return frozenset(found.values()) if inside >= 2 * outside else frozenset()

    def columns(self, names: Iterable[str], of_block: bool) -> frozenset[Column]:
        """Of addresses in these. `of_block`: a thread does the work of one block."""
        counted = Contributions(self.prepared, self.sums, self.lengths, self.private)
        pointers = [load.ptr for name in names for load in counted.loads(self.roots[name])]
        wanted = remainders_in(pointers, self.sums, of_block) if COLUMNS else set()
        return thread_columns(self.source, wanted, self.of_source, of_block) if wanted else frozenset()

    def passed(self) -> frozenset[Outcome]:
        """Early returns that nobody makes, or all: who waits for the others at the end does not talk to them before."""
        exits = (op for op in walk(self.source.body) if isinstance(op, If) and op.exits and holds(op, Warp, Barrier))
        return outcomes(self.source, tuple(exits), self.of_source)

    @cached_property
    def of_source(self) -> Executions:
        shape = Shape(self.launch.grid, self.launch.block)
        return Executions(analyse(self.source, apart=False), shape, self.sums.known)

    def _are_summed(self, counted: Contributions, loads: Iterable[Load], root: Value) -> bool:
        """Whether the lanes of a warp agree on all addresses, so that it adds to memory once."""
        found = [(load, self.sums.address(load.ptr, root)) for load in loads]
        return all(a is not None and counted.lanes_alike(load, a, self.places[id(load)]) == WARP for load, a in found)

    def _number(self, name: str) -> Scalar:
        number = flat(pointee(self.prepared.planned.given.adjoints[name].value))
        assert number is not None
        return number

    def _cells(self, name: str, elements: int, additions: Count) -> InBlock | None:
        root, number = self.roots[name], self._number(name)
        element = innermost(pointee(root))
        count, floats = elements * numbers_in(adjoint_type(element)), elements * floats_in(element)
        if not count or not self._pays(additions, floats) or not self._is_alone(root):
            return None
        of_block = Contributions(self.prepared, self.sums, self.lengths, self.private, WARP, of_block=True)
        narrow = number == F32
        wide = narrow and of_block.most(root) * self.turns.each > FLOATS
        wide_total = narrow and (wide or self.turns.blocks > FLOATS)
        if wide_total and not self._can_be_wide(root):
            return None
        loads = of_block.loads(root)
        inside = all(self._is_inside(load, root, elements) for load in loads)
        apart = all(self._are_apart(load, root) for load in loads)
        if self.turns.each > _SUMMED_TURNS and self._are_summed(of_block, loads, root):
            return None
        return InBlock(name, capacity(count), wide, wide_total, inside, apart)

    def _pays(self, count: Count, cells: int) -> bool:
        each, blocks = min(count.most, count.total / cells), self.turns.blocks
        return count.total >= _FEW_ADDITIONS and each >= _ADDITIONS * blocks and blocks < _MOST_STARTED

    def _can_be_wide(self, root: Value) -> bool:
        prepared = self.prepared
        return root in settled({root}, prepared.function, prepared.memory, prepared.activity.roots)

    def _is_alone(self, root: Value) -> bool:
        """Whether no pointer may point to it or to something else."""
        of = self.prepared.memory.of
        values = (v for op in walk(self.prepared.function.body) for v in op.results if isinstance(v.type, Pointer))
        return all(of(v) == {root} for v in values if root in of(v))

    def _is_inside(self, load: Load, root: Value, elements: int) -> bool:
        address = self.sums.address(load.ptr, root)
        if address is None:
            return False
        end, guards = elements * innermost(pointee(root)).size, self.sums.guards(self.places[id(load)])
        for step in _steps(address, root, load.result.type):
            rest = address.const % step
            index = Affine(address.const // step, tuple((b, c // step) for b, c in address.terms))
            most = greatest(index, self.sums, guards)
            if most is not None and most * step + rest + load.result.type.size <= end:
                return True
        return False

    def _are_apart(self, load: Load, root: Value) -> bool:
        address = self.sums.address(load.ptr, root)
        return address is not None and _parts_lanes(address)


def _steps(address: Affine, root: Value, read: Type) -> list[int]:
    """In which an index may count that guards speak of: numbers, what is read, elements, or more."""
    most = math.gcd(*(c for _, c in address.terms))
    number = flat(pointee(root))
    sizes = (() if number is None else (number.size,), (read.size, innermost(pointee(root)).size, most))
    return sorted({size for some in sizes for size in some if size and most % size == 0})


def _parts_lanes(address: Affine) -> bool:
    """Whether neighbouring lanes are at different places: `t` and `t % 64`, but not `t / 100 % 64`."""
    return any(
        basis == ("thread_idx", 0) or (isinstance(basis, Part) and not basis.is_quotient and _parts_lanes(basis.of))
        for basis, _ in address.terms
    )


def _shared_bytes(prepared: Prepared, launch: KnownLaunch) -> int:
    """With those of shadows."""
    roots = prepared.memory.global_names.values()
    shared = [r.type for r in roots if isinstance(r.type, Pointer) and r.type.space == "shared"]
    dynamic = launch.shared_bytes * (1 + prepared.planned.shared.widening)
    return dynamic + sum(type.pointee.size for type in shared)


def for_launch(facts: Facts, prepared: Prepared, launch: KnownLaunch) -> Facts:
    """With as many blocks as are worth starting; those do one thing after the other."""
    few = turns(prepared, launch).each > 1
    axes = (1 if launch.grid[1:] == (1, 1) else 3) if few else 0
    names = {own.name for own in facts.cells}
    wide = facts.wide - names | {own.name for own in facts.cells if own.wide_total}
    tuning = replace(facts.tuning, each=1)
    return replace(facts, coarse=axes, copied=facts.copied - names, wide=wide, tuning=tuning)
