"""Gathers: each element of an input collects its adjoint from all threads that read it (rule 9).

Where every read's address is a sum of multiples of coordinates (a thread's indices in the grid, counters of loops), the
address is written in digits, one for each size of step: row and column, say. For each element, given by its digits, and
each read, most coordinates follow from the digits; the rest are summed over. No two threads of the gather update the
same element, so there are no atomics.

It is right whatever digits are chosen: each execution of each read is at exactly one place. That different digits mean
different elements is checked for the launch.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

from ....analysis.access.affine import Affine, Part, Sums
from ....analysis.access.axis_digits import AxisDigits, digits_for, index_along
from ....analysis.access.contribution_counts import totals_for
from ....analysis.access.executions import QUOTIENTS, Executions
from ....analysis.machine import FILLING_THREADS, MOST_ADDITIONS, RESIDENT_THREADS, VECTOR_BYTES
from ....analysis.tuning import Totals
from ....ir.builder import pointee
from ....ir.ops import Apply, For, Function, GlobalRef, If, Load, Member, Offset, PtrCast, Value
from ....ir.traverse import blocks, operands, walk
from ....ir.types import F32, F64, Scalar, Type
from ....transforms.unroll import trips
from .conditions import Conditions, Coordinate
from .exact import Exact
from .placing import Placing, Read
from .plan import GRID_AXES, ROWS, Box, Gather, Index, Site, shape_of
from .updates import Update, updates_of

_MOST_DIGITS = 5  # batch, channel and three of space
_MOST_TILE: dict[Type, int] = {F32: 32, F64: 16}  # sums in the registers of a block's threads
_MOST_ROW = 16  # of them along the first digit: more of one loop are summed up as well in the kernel's own blocks
_FEWEST_TILES = 2 * FILLING_THREADS // 256
_PARTS = 1024  # blocks that share few tiles
_ROWS = (ROWS, 2 * ROWS, 4 * ROWS)  # of threads in such a block
_FEWEST_SHARED = 3  # elements of such a tile: what a thread loads is for several
_LONG_TILE = 4096  # executions for each element that are worth a block
_LONG = 256  # sums that a thread makes while there are few of them
_MANY = 1 << 20  # elements: enough for each thread to have several
_SPAN = 4
_LONG_SPAN = 8
_MOST_TAPS = 64
_FEW_LOADS = 2
_SCATTERED = 8  # elements between those of neighbouring threads: each is a sector of its own
_MOST_WINDOW = 16  # elements: as many that neighbouring threads go through in turn are in a cache
_MOST_WASTE = 3  # executions that are looked at for each that there is


class _Shares(NamedTuple):
    """Of blocks that share a tile: how many there are, and what they divide."""

    parts: int
    divided: Coordinate


class Finder(Placing):
    """Finds gathers for one launch. `function`: the pattern, a gradient in which every update is atomic and nothing is
    written that it reads."""

    def __init__(self, function: Function, sums: Sums, in_blocks: bool = False, in_parts: bool = False):
        """`in_blocks`: blocks of threads may add up an element together. `in_parts`: and several blocks, in any
        order."""
        super().__init__(function, sums)
        self.in_blocks, self.in_parts = in_blocks, in_parts
        self.typical = _Typical(sums.structure, sums.shape, sums.known, sums.promised)
        self.uses: dict[str, int] = {}  # how often a thread reads elements of what was looked for
        self.streamed: dict[str, int] = {}  # bytes that its gather loads for an element and no other loads

    def find(self, name: str, shadow: Value, nbytes: int, owned: bool = False) -> tuple[Gather, Box] | None:
        """`owned`: each element is read by one thread, which could store its adjoint: gathered where these stores would
        go all over memory."""
        updates = updates_of(self.function, shadow)
        for digits in self._written_indices(updates, shadow) if updates else ():
            self.conditions = Conditions(self.sums, digits)
            found = self._find(name, shadow, updates or [], nbytes, owned)
            if found is not None:
                return found
        return None

    def _find(
        self, name: str, shadow: Value, updates: list[Update], nbytes: int, owned: bool
    ) -> tuple[Gather, Box] | None:
        types = {pointee(u.op.ptr) for u in updates}
        reads = [self._read(update, shadow) for update in updates]
        if len(types) != 1 or not types <= {F32, F64} or None in reads:
            return None
        (type,) = types
        assert isinstance(type, Scalar)
        found = [read for read in reads if read is not None and read.happens]
        if not found:
            return None
        self.reached = self._reached(found)
        self.uses[name] = sum(map(_iterations, found))
        self.streamed[name] = self._streamed_bytes(found)
        for steps in dict.fromkeys((self._steps(found), self._steps(found, in_strides=True))):
            if steps and not any(s % type.size or r.const % type.size for s in steps for r in found):
                gather = self._in_steps(name, steps, found, nbytes, type, owned)
                if gather is not None:
                    return gather
        return None

    def _in_steps(
        self, name: str, steps: tuple[int, ...], found: list[Read], nbytes: int, type: Scalar, owned: bool
    ) -> tuple[Gather, Box] | None:
        placed = self._placed(found, steps, nbytes, type.size)
        if placed is None:
            return None
        chosen, box, covers = self._with_rare(found, *placed)
        if owned and not (covers and self._is_scattered(chosen, found, type)):
            return None
        tile = self._tile(chosen, found, box) if self.in_blocks and not owned else None
        if tile is not None:
            gather = replace(self._gather(name, chosen, nbytes, box, covers, tile=tile), totals=Totals(F64))
            return self._divided(gather, found[0], math.prod(box.extents) // math.prod(tile)), box
        if len(steps) > _MOST_DIGITS or not self._pays(chosen, found, box):
            return None
        often = [(site, read) for site, read in zip(chosen, found, strict=True) if not site.rare]
        if not owned and not all(self._is_coalesced(site, read) for site, read in often):
            return None
        gather = self._gather(name, chosen, nbytes, box, covers, span=_span(chosen, box))
        loops = [[self._length(c, r) for c in site.summed] for site, r in zip(chosen, found, strict=True)]
        longest = max((n for lengths in loops for n in lengths), default=1)
        gather = replace(gather, totals=totals_for(sum(map(math.prod, loops)), longest))
        taps = self._taps(chosen, found, box, type)
        return replace(gather, span=VECTOR_BYTES // type.size, contiguous=True, taps=taps) if taps else gather, box

    def _gather(
        self,
        name: str,
        sites: tuple[Site, ...],
        nbytes: int,
        box: Box,
        covers: bool,
        span: int = 1,
        tile: tuple[int, ...] | None = None,
    ) -> Gather:
        narrow, axes = self._is_narrow(nbytes, box), tuple(len(digits.starts) for digits in self.conditions.axes)
        gather = Gather(name, sites, len(box.extents), self._indices(), narrow, span, covers, tile=tile)
        return replace(gather, axes=axes, doubtful=self._doubtful())

    def _written_indices(self, updates: list[Update], shadow: Value) -> list[tuple[AxisDigits, ...]]:
        """The threads' indices in the digits that addresses of updates are made of, and those of loads besides: also in
        those that conditions speak of, so that these bound digits; else without. None where there are none such."""
        places = [place for update in updates for place in self._places(update, shadow)]
        loads = {id(load): load for update in updates for load in self._loads(update)}.values()
        others = [self._address(load) or self._address(load, self.typical) for load in loads]
        tests = [side for update in updates for op, _ in update.path if isinstance(op, If) for side in self._parts(op)]
        addresses, loaded = ([sum_ for sum_ in found if sum_ is not None] for found in (places, others))
        choices = [self._digits([*addresses, *tests], loaded)] if tests else []
        choices.append(self._digits(addresses, loaded))
        return list(dict.fromkeys(choice for choice in choices if choice is not None))

    def _places(self, update: Update, shadow: Value) -> list[Affine | None]:
        """Of an update, and of what is divided in it without a rest."""
        sums = self.sums_at(update)
        address = sums.address(update.op.ptr, shadow)
        return [address, *(part.of for part in sums.quotients)] if isinstance(sums, Exact) else [address]

    def _digits(self, wanted: list[Affine], others: list[Affine]) -> tuple[AxisDigits, ...] | None:
        found = [digits_for(axis, self.sums.shape, wanted, others) for axis in range(3)]
        digits = tuple(axis for axis in found if axis is not None)
        return digits if len(digits) == len(found) else None

    def _parts(self, branch: If) -> list[Affine]:
        """What a condition compares, where quotients and remainders are in it."""
        sides = self.conditions.compared(branch.cond)
        return [side for side in sides if any(isinstance(basis, Part) for basis, _ in side.terms)]

    def _is_narrow(self, nbytes: int, box: Box) -> bool:
        return max(nbytes, *self.threads, *(abs(v) for v in (*box.first, *box.extents, *box.steps))) < 2**30

    def _tile(self, sites: tuple[Site, ...], reads: list[Read], box: Box) -> tuple[int, ...] | None:
        """The elements of a block, where there are few of them and long sums over threads, which read neighbours."""
        if len(sites) != 1 or sites[0].residue or sites[0].derived or math.prod(box.extents) >= FILLING_THREADS:
            return None
        ((site,), (read,)) = sites, reads
        lanes = next((c for c in site.summed if c.kind == "axis"), None)
        executions = math.prod(max(0, high - low + 1) for low, high in read.ranges.values())
        elements, sums = math.prod(box.extents), math.prod(self._length(c, read) for c in site.summed)
        if lanes is None or sums < _LONG_TILE or elements * sums > _MOST_WASTE * executions:
            return None
        if not all(abs(self._step_of(op, lanes, read)) <= op.result.type.size for op in self._loads(read.update)):
            return None
        tile = self._short_digits(site, read, box)
        tiles = elements // math.prod(tile)
        shared = self.in_parts and math.prod(tile) >= _FEWEST_SHARED and self._shares(site, read, tiles).parts > 1
        return tile if tiles >= _FEWEST_TILES or shared else None

    def _shares(self, site: Site, read: Read, tiles: int) -> _Shares:
        """Among how many blocks the sums of each tile are divided, and along which coordinate: the longest one."""
        turns = {c: -(-self._length(c, read) // site.threads.get(c, 1)) for c in site.summed}
        longest = max(turns, key=lambda c: turns[c])
        most = math.prod(self._length(c, read) for c in site.summed) // _LONG_TILE
        parts = min(-(-_PARTS // tiles), most, turns[longest], MOST_ADDITIONS)
        return _Shares(parts if parts * tiles * site.rows >= _FEWEST_TILES * ROWS else 1, longest)

    def _divided(self, gather: Gather, read: Read, tiles: int) -> Gather:
        """Among several blocks for each tile, where there are few; in larger ones, where these are few, too:
        their sums take so many registers that half of the threads are resident."""
        if tiles >= _FEWEST_TILES:
            return gather
        larger = (replace(gather, sites=(replace(gather.sites[0], rows=rows),)) for rows in _ROWS)
        shared = [replace(one, **self._shares(one.sites[0], read, tiles)._asdict()) for one in larger]
        return max(shared, key=lambda one: min(tiles * one.parts * math.prod(shape_of(one)), RESIDENT_THREADS // 2))

    def _short_digits(self, site: Site, read: Read, box: Box) -> tuple[int, ...]:
        """Of the first digits, those that loops of constant length run over: their elements are written out."""
        tile, most = list[int](), _MOST_TILE.get(read.update.op.args[0].type, 0)
        for solved, extent in zip(site.solved, box.extents, strict=True):
            at = solved.coordinate
            loop = read.loops[at.number] if at is not None and at.kind == "loop" else None
            constant = isinstance(loop, For) and trips(loop, self.constants) == extent
            if not constant or math.prod(tile) * extent > (most if tile else min(most, _MOST_ROW)):
                break
            tile.append(extent)
        return tuple(tile)

    def _loads(self, update: Update) -> list[Load]:
        around = {self.function.body, *(block for _, block in update.path)}
        return [op for block in around for op in block.ops if isinstance(op, Load)]

    def _streamed_bytes(self, reads: list[Read]) -> int:
        """Of all that the updates' values come from: what is at another place for every execution of a read, and not
        one that goes along with the element. Several reads of an element share it, as those of a stencil do."""
        found: dict[Value, int] = {}
        for read in reads:
            moving = [c for c, (low, high) in read.ranges.items() if low < high]
            for load in self._needed_loads(read.update):
                root, steps = _root(load.ptr, self.sums), [self._step_of(load, c, read) for c in moving]
                along = steps == [read.factors.get(c, 0) for c in moving]
                if root is not None and not along and not {0, math.inf} & set(steps):
                    found[root] = max(found.get(root, 0), load.result.type.size)
        return sum(found.values())

    def _needed_loads(self, update: Update) -> list[Load]:
        """What its value comes from."""
        found, todo, seen = list[Load](), [update.op.args[0]], set[Value]()
        while todo:
            value = todo.pop()
            op = self.sums.structure.definition.get(value)
            if value in seen or op is None:
                continue
            seen.add(value)
            found += [op] if isinstance(op, Load) else []
            todo += (*operands(op), *(result for inner in blocks(op) for result in inner.results))
        return found

    def _taps(self, sites: tuple[Site, ...], reads: list[Read], box: Box, type: Scalar) -> int:
        """How many executions each element has, if it is few and they lie one behind the other in memory."""
        if len(box.extents) != 1 or box.steps != (1,) or box.extents[0] < _MANY or any(s.residue for s in sites):
            return 0
        if any(site.derived or any(solved.stride > 1 for solved in site.solved) for site in sites):
            return 0
        total = 0
        for site, read in zip(sites, reads, strict=True):
            loops = [read.loops[c.number] for c in site.summed if c.kind == "loop"]
            counts = [trips(loop, self.constants) for loop in loops if isinstance(loop, For)]
            if not counts or len(counts) < len(site.summed) or None in counts:
                return 0
            total += math.prod(count or 0 for count in counts)
        return total if total <= _MOST_TAPS else 0

    def _pays(self, sites: tuple[Site, ...], reads: list[Read], box: Box) -> bool:
        elements = math.prod(box.extents)
        for site, read in zip(sites, reads, strict=True):
            if site.rare:
                if math.prod(self._length(c, read) for c in site.summed) > _LONG:
                    return False
                continue
            lengths = {c: high - low + 1 for c, (low, high) in read.ranges.items()}
            sums = math.prod(self._visited(c, site, read) for c in site.summed)
            if elements * sums > _MOST_WASTE * math.prod(lengths.values()) + FILLING_THREADS:
                return False
            if elements < FILLING_THREADS and sums > _LONG:
                return False
        return True

    def _is_coalesced(self, site: Site, read: Read) -> bool:
        """Whether neighbouring threads of the gather read neighbouring elements, as those of the kernel may."""
        owner = next((c for c in site.summed if (site.strided(c) or (1,))[0] == 0 and c.kind == "axis"), None)
        owner = owner or site.solved[0].coordinate
        if owner is None or owner == next((c for c in read.ranges if c.kind == "axis"), None):
            return True
        needed = {id(load) for load in self._needed_loads(read.update)}
        loads = [load for load in self._loads(read.update) if id(load) in needed]
        return all(self._are_neighbours(load, owner, site, read) for load in loads)

    def _are_neighbours(self, load: Load, owner: Coordinate, site: Site, read: Read) -> bool:
        """Whether they read one element after the other, or windows one after the other of what each goes through."""
        step, size = abs(self._step_of(load, owner, read)), load.result.type.size
        windows = (c for c in site.summed if 0 < abs(self._step_of(load, c, read)) <= size)
        return step <= size * max((min(self._length(c, read), _MOST_WINDOW) for c in windows), default=1)

    def _is_scattered(self, sites: tuple[Site, ...], reads: list[Read], type: Scalar) -> bool:
        """Whether neighbouring threads would store to different parts of memory, and load little. To load from all over
        memory is faster than to store: caches hold what others want of it."""
        lane = next((c for c in reads[0].ranges if c.kind == "axis"), None)
        apart = len(sites) == 1 and not sites[0].summed and lane is not None
        few = len(self._loads(reads[0].update)) <= _FEW_LOADS
        return apart and few and abs(reads[0].factors.get(lane, 0)) >= _SCATTERED * type.size  # type: ignore[arg-type]

    def _step_of(self, load: Load, coordinate: Coordinate, read: Read) -> float:
        """As it is for most threads."""
        address = self._address(load, self.typical)
        found = None if address is None else read.conditions.factors(address, read.loops)
        return math.inf if found is None else found[0].get(coordinate, 0)

    def _address(self, load: Load, sums: Sums | None = None) -> Affine | None:
        root = _root(load.ptr, self.sums)
        return None if root is None else (sums or self.sums).address(load.ptr, root)

    def _length(self, coordinate: Coordinate, read: Read) -> int:
        """How many values the gather goes through."""
        if self._is_told(coordinate, read):
            low, high = read.ranges[coordinate]
            return high - low + 1
        if coordinate.kind == "axis" and not self._is_split(coordinate.number):
            return self.threads[coordinate.number]
        return read.ranges[coordinate][1] + 1

    def _visited(self, coordinate: Coordinate, site: Site, read: Read) -> float:
        """How many of those are tried for an element."""
        strided = site.strided(coordinate)
        return self._length(coordinate, read) / (1 if strided is None else site.solved[strided[0]].stride)

    def _indices(self) -> tuple[Index, ...]:
        """The integers of the pattern that are a thread's index along an axis, or a digit of it."""
        found = []
        for number, op in enumerate(walk(self.function.body)):
            sum_ = self.sums.of(op.result) if len(op.results) == 1 and isinstance(op.result.type, Scalar) else None
            index = None if sum_ is None or sum_.const or not sum_.terms else self._index(number, sum_)
            if index is not None:
                found.append(index)
        return tuple(found)

    def _index(self, number: int, sum_: Affine) -> Index | None:
        """What a sum is of a thread's index."""
        found = self.conditions.factors(sum_, [])
        terms = [] if found is None else [(c, factor) for c, factor in found[0].items() if factor]
        if len(terms) == 1 and terms[0][1] == 1:
            return Index(number, terms[0][0].number, terms[0][0].digit)
        for axis in range(3):
            if sum_.coefficients == index_along(axis, self.sums.shape):
                return Index(number, axis, None)
        inside = self.conditions.inside_digit(sum_)
        return None if inside is None else Index(number, *inside)


class _Typical(Executions):
    """Of threads inside of the domain: a place that is clamped is the one that it was before, and one that is divided
    goes no faster. No proof."""

    def _apply(self, op: Apply, fn: str, args: tuple[Value, ...]) -> Affine | None:
        found = super()._apply(op, fn, args)
        if found is None and fn in QUOTIENTS:
            return self.of(args[0])
        if found is not None or fn not in ("min", "max", "select"):
            return found
        return next((sum_ for sum_ in map(self.of, args[fn == "select" :]) if sum_ is not None and sum_.terms), None)


def _iterations(read: Read) -> int:
    return math.prod(high - low + 1 for c, (low, high) in read.ranges.items() if c.kind == "loop")


def _span(sites: tuple[Site, ...], box: Box) -> int:
    """Neighbours share loads, and the tests around them; what loops load besides, weights, elements in one row too."""
    if math.prod(box.extents) < _MANY or any(solved.stride > 1 for site in sites for solved in site.solved):
        return 1
    if len(box.extents) == 1:
        return _LONG_SPAN if all(site.summed for site in sites) and box.extents[0] >= _LONG_SPAN * _MANY else 1
    wide = len(box.extents) <= GRID_AXES and box.extents[-1] >= 8 * _SPAN
    return _SPAN if wide and not any(site.summed for site in sites) else 1


def _root(ptr: Value, sums: Sums) -> Value | None:
    """The parameter that a pointer comes from, or the variable."""
    op = sums.structure.definition.get(ptr)
    while isinstance(op, Offset | Member | PtrCast):
        ptr = op.ptr
        op = sums.structure.definition.get(ptr)
    return ptr if op is None or isinstance(op, GlobalRef) else None
