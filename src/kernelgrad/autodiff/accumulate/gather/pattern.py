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
from ....analysis.machine import FILLING_THREADS, VECTOR_BYTES
from ....analysis.tuning import Totals
from ....ir.builder import pointee
from ....ir.ops import For, Function, If, Load, Member, Offset, Op, PtrCast, Value
from ....ir.traverse import walk
from ....ir.types import F32, F64, Scalar
from ....transforms.unroll import constants_of, trips
from .conditions import Conditions, Coordinate, Limit, Range, multiple_of, narrow_all
from .digits import digits_of, moved_by, own_part, within
from .plan import GRID_AXES, Box, Gather, Index, Site, Solved, by_axes, range_names
from .updates import Update, updates_of

_MOST_DIGITS = 5  # batch, channel and three of space
_MOST_TILE = 16  # sums in the registers of a block's threads
_FEWEST_TILES = 2 * FILLING_THREADS // 256
_LONG_TILE = 4096  # executions for each element that are worth a block
_MOST_THREADS = (2**31 - 1, 65535, 65535)
_LONG = 256  # sums that a thread makes while there are few of them
_MANY = 1 << 20  # elements: enough for each thread to have several
_SPAN = 4
_LONG_SPAN = 8
_MOST_TAPS = 64
_FEW_LOADS = 2
_SCATTERED = 8  # elements between those of neighbouring threads: each is a sector of its own
_RARE = 8  # times as many elements as executions
_MOST_WASTE = 3  # executions that are looked at for each that there is


class _Read(NamedTuple):
    update: Update
    factors: dict[Coordinate, int]  # in bytes
    const: int
    whole: dict[Coordinate, Range]
    ranges: dict[Coordinate, Range]  # the part of it where the read happens
    limits: list[Limit]  # and what holds of sums of coordinates there

    @property
    def happens(self) -> bool:
        """Whether it may, in any thread."""
        possible = all(limit.factors or limit.most >= 0 for limit in self.limits)
        return possible and all(low <= high for low, high in self.ranges.values())

    @property
    def guards(self) -> list[tuple[Value, bool]]:
        return [(op.cond, side is op.then) for op, side in self.update.path if isinstance(op, If)]

    @property
    def loops(self) -> list[Op]:
        return [op for op, _ in self.update.path if not isinstance(op, If)]


class Finder:
    """Finds gathers for one launch. `function`: the pattern, a gradient in which every update is atomic and nothing is
    written that it reads."""

    def __init__(self, function: Function, sums: Sums, in_blocks: bool = False):
        """`in_blocks`: blocks of threads may add up an element together."""
        self.function, self.sums, self.constants = function, sums, constants_of(function)
        self.in_blocks, shape = in_blocks, sums.shape
        self.threads = tuple(g * b for g, b in zip(shape.grid, shape.block, strict=True))
        self.conditions = Conditions(sums, tuple(map(AxisDigits, self.threads)))
        self.reached: dict[Coordinate, Range] = {}
        self.uses: dict[str, int] = {}  # how often a thread reads elements of what was looked for

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
        for steps in dict.fromkeys((self._steps(found), self._steps(found, in_strides=True))):
            if steps and not any(s % type.size or r.const % type.size for s in steps for r in found):
                gather = self._in_steps(name, steps, found, nbytes, type, owned)
                if gather is not None:
                    return gather
        return None

    def _in_steps(
        self, name: str, steps: tuple[int, ...], found: list[_Read], nbytes: int, type: Scalar, owned: bool
    ) -> tuple[Gather, Box] | None:
        placed = self._placed(found, steps, nbytes, type.size)
        if placed is None:
            return None
        chosen, box, covers = self._with_rare(found, *placed)
        if owned and not (covers and self._is_scattered(chosen, found, type)):
            return None
        tile = self._tile(chosen, found, box) if self.in_blocks and not owned else None
        if tile is not None:
            return replace(self._gather(name, chosen, nbytes, box, covers, tile=tile), totals=Totals(F64)), box
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
        places = [self.sums.address(update.op.ptr, shadow) for update in updates]
        loads = {id(load): load for update in updates for load in self._loads(update)}.values()
        others = [self._address(load) for load in loads]
        tests = [side for update in updates for op, _ in update.path if isinstance(op, If) for side in self._parts(op)]
        addresses, loaded = ([sum_ for sum_ in found if sum_ is not None] for found in (places, others))
        choices = [self._digits([*addresses, *tests], loaded)] if tests else []
        choices.append(self._digits(addresses, loaded))
        return list(dict.fromkeys(choice for choice in choices if choice is not None))

    def _digits(self, wanted: list[Affine], others: list[Affine]) -> tuple[AxisDigits, ...] | None:
        found = [digits_for(axis, self.sums.shape, wanted, others) for axis in range(3)]
        digits = tuple(axis for axis in found if axis is not None)
        return digits if len(digits) == len(found) else None

    def _parts(self, branch: If) -> list[Affine]:
        """What a condition compares, where quotients and remainders are in it."""
        sides = self.conditions.compared(branch.cond)
        return [side for side in sides if any(isinstance(basis, Part) for basis, _ in side.terms)]

    def _placed(
        self, reads: list[_Read], steps: tuple[int, ...], nbytes: int, size: int
    ) -> tuple[tuple[Site, ...], Box, bool] | None:
        """Digits by the nearest multiples of the steps, as neighbours on both sides have them; or counted from the
        lowest element, if so they are those of the whole buffer; or each read by that of both ways by which it is in
        the buffer."""
        ways = [[self._site(read, steps, from_lowest) for read in reads] for from_lowest in (False, True)]
        if any(site is None for sites in ways for site in sites):
            return None
        extents = [up // step for step, up in zip(steps, (*steps[1:], nbytes), strict=True)]
        both = zip(*ways, reads, strict=True)
        ways.append([one if self._is_within(one, read, extents) else other for one, other, read in both])
        best = None
        for sites in ways:
            chosen = tuple(site for site in sites if site is not None)
            box, covers = self._box(chosen, reads, steps, nbytes, size)
            if box is not None and (best is None or covers):
                best = chosen, box, covers
            if covers:
                break
        return best

    def _is_within(self, site: Site | None, read: _Read, extents: list[int]) -> bool:
        assert site is not None
        hulls = (self._hull((site,), [read], digit) for digit in range(len(extents)))
        return all(low >= 0 and high < n for (low, high), n in zip(hulls, extents, strict=True))

    def _with_rare(
        self, reads: list[_Read], sites: tuple[Site, ...], box: Box, covers: bool
    ) -> tuple[tuple[Site, ...], Box, bool]:
        """With those told apart that few elements have, as at the ends of rows; inside of the domain there are none."""
        few = math.prod(box.extents) // _RARE
        rare = [math.prod(high - low + 1 for low, high in read.ranges.values()) < few for read in reads]
        told = tuple(pair for k, site in enumerate(sites) for pair in _told(k, site, reads[k]))
        box = replace(box, told=told)
        if not any(rare) or all(rare):
            return sites, box, covers
        often = [k for k, is_rare in enumerate(rare) if not is_rare]
        own, their = tuple(sites[k] for k in often), [reads[k] for k in often]
        whole = [(start, start + n - 1) for start, n in zip(box.first, box.extents, strict=True)]
        inner = [self._inner(own, their, k) for k in range(len(whole))]
        inner = [(max(a, c), min(b, d)) for (a, b), (c, d) in zip(inner, whole, strict=True)]
        for k, is_rare in enumerate(rare):
            if is_rare:
                hull = [self._hull((sites[k],), [reads[k]], digit) for digit in range(len(whole))]
                inner = _without(inner, hull)
        found = tuple(replace(site, rare=is_rare) for site, is_rare in zip(sites, rare, strict=True))
        return found, replace(box, inner=tuple(inner)), covers

    def _is_narrow(self, nbytes: int, box: Box) -> bool:
        return max(nbytes, *self.threads, *(abs(v) for v in (*box.first, *box.extents, *box.steps))) < 2**30

    def _tile(self, sites: tuple[Site, ...], reads: list[_Read], box: Box) -> tuple[int, ...] | None:
        """The elements of a block, where there are few of them and long sums over threads, which read neighbours."""
        if len(sites) != 1 or sites[0].residue or math.prod(box.extents) >= FILLING_THREADS:
            return None
        ((site,), (read,)) = sites, reads
        lanes = next((c for c in site.summed if c.kind == "axis"), None)
        executions = math.prod(max(0, high - low + 1) for low, high in read.ranges.values())
        elements, sums = math.prod(box.extents), math.prod(self._length(c, read) for c in site.summed)
        if lanes is None or sums < _LONG_TILE or elements * sums > _MOST_WASTE * executions:
            return None
        if not all(abs(self._step_of(op, lanes, read.loops)) <= op.result.type.size for op in self._loads(read.update)):
            return None
        tile = self._short_digits(site, read, box)
        return tile if elements // math.prod(tile) >= _FEWEST_TILES else None

    def _short_digits(self, site: Site, read: _Read, box: Box) -> tuple[int, ...]:
        """Of the first digits, those that loops of constant length run over: their elements are written out."""
        tile = list[int]()
        for solved, extent in zip(site.solved, box.extents, strict=True):
            at = solved.coordinate
            loop = read.loops[at.number] if at is not None and at.kind == "loop" else None
            constant = isinstance(loop, For) and trips(loop, self.constants) == extent
            if not constant or math.prod(tile) * extent > _MOST_TILE:
                break
            tile.append(extent)
        return tuple(tile)

    def _loads(self, update: Update) -> list[Load]:
        around = {self.function.body, *(block for _, block in update.path)}
        return [op for block in around for op in block.ops if isinstance(op, Load)]

    def _taps(self, sites: tuple[Site, ...], reads: list[_Read], box: Box, type: Scalar) -> int:
        """How many executions each element has, if it is few and they lie one behind the other in memory."""
        if len(box.extents) != 1 or box.steps != (1,) or box.extents[0] < _MANY or any(s.residue for s in sites):
            return 0
        if any(solved.stride > 1 for site in sites for solved in site.solved):
            return 0
        total = 0
        for site, read in zip(sites, reads, strict=True):
            loops = [read.loops[c.number] for c in site.summed if c.kind == "loop"]
            counts = [trips(loop, self.constants) for loop in loops if isinstance(loop, For)]
            if not counts or len(counts) < len(site.summed) or None in counts:
                return 0
            total += math.prod(count or 0 for count in counts)
        return total if total <= _MOST_TAPS else 0

    # ---- coordinates

    def _read(self, update: Update, shadow: Value) -> _Read | None:
        loops = [op for op, _ in update.path if not isinstance(op, If)]
        if not all(isinstance(loop, For) and self._is_fixed(loop) for loop in loops):
            return None
        address = self.sums.address(update.op.ptr, shadow)
        found = None if address is None else self.conditions.factors(address, loops)
        if found is None:
            return None
        factors, const = found
        ranges = {
            Coordinate("axis", axis, k): (0, extent - 1)
            for axis, digits in enumerate(self.conditions.axes)
            if digits.threads > 1
            for k, extent in enumerate(digits.extents)
        }
        for k, loop in enumerate(loops):
            assert isinstance(loop, For)
            ranges[Coordinate("loop", k)] = (0, (self.sums.extents[loop.body.args[0]] or 1) - 1)
        read = _Read(update, {c: f for c, f in factors.items() if f}, const, ranges, dict(ranges), [])
        for cond, holds in read.guards:
            self.conditions.narrow(cond, holds, loops, read.ranges, read.limits)
        for limit in read.limits:
            narrow_all(limit, read.ranges)
        return read

    def _reached(self, reads: list[_Read]) -> dict[Coordinate, Range]:
        """Of indices that have several digits, what these are where something is read."""
        split = [c for c in reads[0].ranges if c.kind == "axis" and self._is_split(c.number)]
        ranges = {c: [read.ranges[c] for read in reads] for c in split}
        return {c: (min(low for low, _ in found), max(high for _, high in found)) for c, found in ranges.items()}

    def _last_digits(self) -> dict[Coordinate, AxisDigits]:
        axes = enumerate(self.conditions.axes)
        found = {Coordinate("axis", axis, len(digits.starts) - 1): digits for axis, digits in axes}
        return {c: digits for c, digits in found.items() if c in self.reached}

    def _doubtful(self) -> tuple[int, ...]:
        last = self._last_digits().items()
        return tuple(c.number for c, digits in last if self.reached[c][1] >= digits.complete)

    def _is_fixed(self, loop: For) -> bool:
        """Whether all threads of the launch run it equally often, at least once: else no execution exists anywhere."""
        counter, lower, upper = (self.sums.of(v) for v in (loop.body.args[0], loop.lower, loop.upper))
        if counter is None or lower is None or upper is None or lower.terms or upper.terms:
            return False
        return (upper.const - lower.const) * loop.step > 0

    def _bounds(self, read: _Read, digits: tuple[Solved, ...], summed: tuple[Coordinate, ...]) -> int:
        """So many conditions, from outside, only bound digits, or coordinates that follow from them; or what the sums
        run over anyway."""
        guards, factors = read.guards, [solved.factors for solved in digits]
        summed = tuple(c for c in summed if c not in self.reached or (0, self.reached[c][1]) != read.ranges[c])
        return next(
            (k for k, g in enumerate(guards) if not self.conditions.is_bound(*g, read.loops, summed, factors)),
            len(guards),
        )

    def _inner_ranges(self, site: Site, read: _Read) -> tuple[dict[Coordinate, Range], list[Limit]]:
        ranges, limits = dict(read.whole), list[Limit]()
        for c, digits in self._last_digits().items():
            if c not in site.summed:
                ranges[c] = (0, digits.complete - 1)
        for cond, holds in read.guards[: site.bounds]:
            self.conditions.narrow(cond, holds, read.loops, ranges, limits)
        return ranges, limits

    # ---- digits

    def _steps(self, reads: list[_Read], in_strides: bool = False) -> tuple[int, ...]:
        """The digits' steps in bytes, from the smallest. What is less than a digit's reach moves within the digit, and
        reaches further. `in_strides`: as windows in strides have them, which end with a row."""
        lengths: dict[int, int] = {}
        for read in reads:
            for coordinate, factor in read.factors.items():
                low, high = read.ranges[coordinate]
                lengths[abs(factor)] = max(lengths.get(abs(factor), 1), high - low + 1)
        steps, reach, own = list[int](), 0, set[int]()
        for step, length in sorted(lengths.items()):
            tied = in_strides and bool(steps) and any(_extent(read, steps[-1], own | {step}) for read in reads)
            if not steps or (step >= reach and step % steps[-1] == 0 and not tied):
                steps.append(step)
                reach, own = step * length, {step}
            elif step % steps[-1] == 0:
                own.add(step)
                reach = reach + step * (length - 1)
                if in_strides:
                    reach = steps[-1] * max(_extent(read, steps[-1], own) or reach // steps[-1] for read in reads)
            else:
                return ()
        return tuple(steps)

    def _site(self, read: _Read, steps: tuple[int, ...], from_lowest: bool = False) -> Site | None:
        owners = self._owners(read, steps)
        moves: list[list[tuple[Coordinate, int]]] = [[] for _ in steps]
        for coordinate, factor in read.factors.items():
            digit = _digit_of(factor, steps)
            if digit is None:
                return None
            if coordinate not in owners:
                moves[digit].append((coordinate, factor // steps[digit]))
        factors = [0 if o is None else read.factors[o] // step for o, step in zip(owners, steps, strict=True)]
        parts = list(zip(owners, factors, map(tuple, moves), strict=True))
        lowest = [0] * len(steps)
        if from_lowest:
            own = [Solved(owner, factor, 0, moved) for owner, factor, moved in parts]
            lowest = [own_part(solved, read.ranges)[0] + moved_by(solved, read.ranges)[0] for solved in own]
        const = read.const + sum(low * step for low, step in zip(lowest, steps, strict=True))
        shifts, residue = digits_of(const, steps, nearest=not from_lowest)
        shifts = [shift - low for shift, low in zip(shifts, lowest, strict=True)]
        solved = tuple(
            Solved(owner, factor, shift, moved) for (owner, factor, moved), shift in zip(parts, shifts, strict=True)
        )
        summed = tuple(c for c in read.ranges if c not in owners)
        bounds, narrow = self._bounds(read, solved, summed), tuple(c for c in summed if self._is_told(c, read))
        return Site(read.update.number, solved, summed, residue, bounds, narrow)

    def _is_told(self, coordinate: Coordinate, read: _Read) -> bool:
        """Of an index of threads, or a digit of it, of which a read takes some."""
        return coordinate.kind == "axis" and read.ranges[coordinate] != read.whole[coordinate]

    def _owners(self, read: _Read, steps: tuple[int, ...]) -> list[Coordinate | None]:
        """Of the coordinates that move a digit, the one that follows from it: an axis before a loop, and one that moves
        by a single step before those in strides."""
        found: list[list[Coordinate]] = [[] for _ in steps]
        for coordinate, factor in read.factors.items():
            digit = _digit_of(factor, steps)
            if digit is not None:
                found[digit].append(coordinate)
        return [
            min(own, key=lambda c: (c.kind == "loop", abs(read.factors[c]), -read.ranges[c][1], c), default=None)
            for own in found
        ]

    # ---- the launch

    def _box(
        self, sites: tuple[Site, ...], reads: list[_Read], steps: tuple[int, ...], nbytes: int, size: int
    ) -> tuple[Box | None, bool]:
        """The digits to run over: the whole buffer, else those at which something is read."""
        hull = [self._hull(sites, reads, k) for k in range(len(steps))]
        if any(low > high for low, high in hull):
            return None, False
        inner = [self._inner(sites, reads, k) for k in range(len(steps))]
        above = [*steps[1:], nbytes]
        whole = all(up % step == 0 for step, up in zip(steps, above, strict=True)) and nbytes > 0
        whole = whole and {site.residue for site in sites} == set(range(0, steps[0], size))
        extents = tuple(up // step for step, up in zip(steps, above, strict=True))
        if whole and all(low >= 0 and high < n for (low, high), n in zip(hull, extents, strict=True)):
            first = (0,) * len(steps)
        else:
            whole = False
            extents = tuple(high - low + 1 for low, high in hull)
            reach = steps[0]
            for step, n, up in zip(steps, extents, [*steps[1:], math.inf], strict=True):
                reach += step * (n - 1)
                if up < reach:
                    return None, False
            first = tuple(low for low, _ in hull)
        if any(n > most for n, most in zip(by_axes(extents), _MOST_THREADS, strict=False)):
            return None, False
        # Conditions that are tested later may end the box before the bounds do.
        inner = [
            (max(low, start), min(high, start + n - 1))
            for (low, high), start, n in zip(inner, first, extents, strict=True)
        ]
        return Box(first, extents, tuple(step // size for step in steps), tuple(inner), self._axes()), whole

    def _axes(self) -> tuple[tuple[tuple[int, int], ...], ...]:
        return tuple(
            tuple(
                (start, self.reached.get(Coordinate("axis", axis, k), (0, 0))[1] + 1)
                for k, start in enumerate(d.starts)
            )
            for axis, d in enumerate(self.conditions.axes)
        )

    def _hull(self, sites: tuple[Site, ...], reads: list[_Read], digit: int) -> Range:
        """Where a digit is whenever anything is read."""
        found = []
        for site, read in zip(sites, reads, strict=True):
            low, high = moved_by(site.solved[digit], read.ranges)
            first, last = own_part(site.solved[digit], read.ranges)
            found.append(within(site.solved[digit], read.limits, (low + first, high + last)))
        return min(low for low, _ in found), max(high for _, high in found)

    def _inner(self, sites: tuple[Site, ...], reads: list[_Read], digit: int) -> Range:
        """Where a digit must be for everything to be read, however the rest moves."""
        found = []
        for site, read in zip(sites, reads, strict=True):
            ranges, limits = self._inner_ranges(site, read)
            low, high = moved_by(site.solved[digit], ranges)
            first, last = own_part(site.solved[digit], ranges)
            found.append(within(site.solved[digit], limits, (high + first, low + last)))
        return max(low for low, _ in found), min(high for _, high in found)

    def _pays(self, sites: tuple[Site, ...], reads: list[_Read], box: Box) -> bool:
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

    def _is_coalesced(self, site: Site, read: _Read) -> bool:
        """Whether neighbouring threads of the gather read neighbouring elements, as those of the kernel may."""
        owner = site.solved[0].coordinate
        if owner is None or owner == next((c for c in read.ranges if c.kind == "axis"), None):
            return True
        loads = self._loads(read.update)
        return all(abs(self._step_of(load, owner, read.loops)) <= load.result.type.size for load in loads)

    def _is_scattered(self, sites: tuple[Site, ...], reads: list[_Read], type: Scalar) -> bool:
        """Whether neighbouring threads would store to different parts of memory, and load little. To load from all over
        memory is faster than to store: caches hold what others want of it."""
        lane = next((c for c in reads[0].ranges if c.kind == "axis"), None)
        apart = len(sites) == 1 and not sites[0].summed and lane is not None
        few = len(self._loads(reads[0].update)) <= _FEW_LOADS
        return apart and few and abs(reads[0].factors.get(lane, 0)) >= _SCATTERED * type.size  # type: ignore[arg-type]

    def _step_of(self, load: Load, coordinate: Coordinate, loops: list[Op]) -> float:
        address = self._address(load)
        found = None if address is None else self.conditions.factors(address, loops)
        return math.inf if found is None else found[0].get(coordinate, 0)

    def _address(self, load: Load) -> Affine | None:
        root = _root(load.ptr, self.sums)
        return None if root is None else self.sums.address(load.ptr, root)

    def _length(self, coordinate: Coordinate, read: _Read) -> int:
        """How many values the gather goes through."""
        if self._is_told(coordinate, read):
            low, high = read.ranges[coordinate]
            return high - low + 1
        if coordinate.kind == "axis" and not self._is_split(coordinate.number):
            return self.threads[coordinate.number]
        return read.ranges[coordinate][1] + 1

    def _visited(self, coordinate: Coordinate, site: Site, read: _Read) -> float:
        """How many of those are tried for an element."""
        strided = site.strided(coordinate)
        return self._length(coordinate, read) / (1 if strided is None else site.solved[strided[0]].stride)

    def _is_split(self, axis: int) -> bool:
        return len(self.conditions.axes[axis].starts) > 1

    def _indices(self) -> tuple[Index, ...]:
        """The integers of the pattern that are a thread's index along an axis, or a digit of it."""
        found = []
        for number, op in enumerate(walk(self.function.body)):
            sum_ = self.sums.of(op.result) if len(op.results) == 1 and isinstance(op.result.type, Scalar) else None
            index = None if sum_ is None or sum_.const or not sum_.terms else self._index(sum_)
            if index is not None:
                found.append(Index(number, *index))
        return tuple(found)

    def _index(self, sum_: Affine) -> tuple[int, int | None] | None:
        """The axis, and the digit if it is one."""
        found = self.conditions.factors(sum_, [])
        terms = [] if found is None else [(c, factor) for c, factor in found[0].items() if factor]
        if len(terms) == 1 and terms[0][1] == 1:
            return terms[0][0].number, terms[0][0].digit
        whole = (axis for axis in range(3) if sum_.coefficients == index_along(axis, self.sums.shape))
        return next(((axis, None) for axis in whole), None)


def _told(number: int, site: Site, read: _Read) -> list[tuple[str, int]]:
    return [pair for c in site.narrow for pair in zip(range_names(number, c), read.ranges[c], strict=True)]


def _without(inner: list[Range], hull: list[Range]) -> list[Range]:
    """What is left of a box that has nothing of another: it ends before that along one digit, or begins behind it."""
    ways = list[list[Range]]()
    for k, ((low, high), (first, last)) in enumerate(zip(inner, hull, strict=True)):
        for cut in ((low, min(high, first - 1)), (max(low, last + 1), high)):
            ways.append([*inner[:k], cut, *inner[k + 1 :]])
    return max(ways, key=lambda way: math.prod(max(0, high - low + 1) for low, high in way))


def _iterations(read: _Read) -> int:
    return math.prod(high - low + 1 for c, (low, high) in read.ranges.items() if c.kind == "loop")


def _extent(read: _Read, step: int, moved: set[int]) -> int | None:
    """How many values conditions leave a digit that coordinates move by these factors; None where they say nothing."""
    digit = {c: factor // step for c, factor in read.factors.items() if abs(factor) in moved and factor % step == 0}
    ends: dict[bool, list[int]] = {True: [], False: []}
    for limit in read.limits:
        times = multiple_of(limit.factors, digit)
        if times:
            ends[times > 0].append(limit.most // abs(times))
    return min(ends[True]) + min(ends[False]) + 1 if ends[True] and ends[False] else None


def _digit_of(factor: int, steps: tuple[int, ...]) -> int | None:
    """The digit that a coordinate moves."""
    fitting = [k for k, step in enumerate(steps) if factor % step == 0 and step <= abs(factor)]
    return fitting[-1] if fitting else None


def _span(sites: tuple[Site, ...], box: Box) -> int:
    """Neighbours share loads, and the tests around them; what loops load besides, weights, elements in one row too."""
    if math.prod(box.extents) < _MANY or any(solved.stride > 1 for site in sites for solved in site.solved):
        return 1
    if len(box.extents) == 1:
        return _LONG_SPAN if all(site.summed for site in sites) and box.extents[0] >= _LONG_SPAN * _MANY else 1
    wide = len(box.extents) <= GRID_AXES and box.extents[-1] >= 8 * _SPAN
    return _SPAN if wide and not any(site.summed for site in sites) else 1


def _root(ptr: Value, sums: Sums) -> Value | None:
    """The parameter that a pointer comes from."""
    op = sums.structure.definition.get(ptr)
    while isinstance(op, Offset | Member | PtrCast):
        ptr = op.ptr
        op = sums.structure.definition.get(ptr)
    return ptr if op is None else None
