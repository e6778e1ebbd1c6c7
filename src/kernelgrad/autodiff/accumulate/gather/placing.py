"""Where the reads of an input are: as multiples of coordinates, in digits of addresses, in the box of a launch."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

from ....analysis.access.affine import Sums
from ....analysis.access.axis_digits import AxisDigits
from ....ir.ops import For, Function, If, Op, Value
from ....transforms.unroll import constants_of
from .conditions import Conditions, Coordinate, Limit, Range, multiple_of, narrow_all
from .digits import digits_of, moved_by, own_part, within
from .exact import Exact, pairs_in, told, with_quotients
from .plan import Box, Site, Solved, by_axes, range_names
from .updates import Update

_MOST_THREADS = (2**31 - 1, 65535, 65535)
_RARE = 8  # times as many elements as executions


class Read(NamedTuple):
    update: Update
    factors: dict[Coordinate, int]  # in bytes
    const: int
    whole: dict[Coordinate, Range]
    ranges: dict[Coordinate, Range]  # the part of it where the read happens
    limits: list[Limit]  # and what holds of sums of coordinates there
    conditions: Conditions

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


class Placing:
    """Of one launch. `function`: the pattern."""

    def __init__(self, function: Function, sums: Sums):
        self.function, self.sums, self.constants = function, sums, constants_of(function)
        shape = sums.shape
        self.threads = tuple(g * b for g, b in zip(shape.grid, shape.block, strict=True))
        self.conditions = Conditions(sums, tuple(map(AxisDigits, self.threads)))
        self.reached: dict[Coordinate, Range] = {}

    # ---- coordinates

    def _read(self, update: Update, shadow: Value) -> Read | None:
        loops = [op for op, _ in update.path if not isinstance(op, If)]
        if not all(isinstance(loop, For) and self._is_fixed(loop) for loop in loops):
            return None
        sums = self.sums_at(update)
        address = sums.address(update.op.ptr, shadow)
        conditions = self.conditions if address is None else with_quotients(self.conditions, sums, address, loops)
        found = None if address is None or conditions is None else conditions.factors(address, loops)
        if found is None or conditions is None:
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
        for part, place in conditions.quotients.items():
            ranges[place] = (0, (conditions.sums.extents[part] or 1) - 1)
        own = {c: ends for c, ends in ranges.items() if c not in conditions.derived}
        read = Read(update, {c: f for c, f in factors.items() if f}, const, ranges, own, [], conditions)
        for cond, holds in read.guards:
            conditions.narrow(cond, holds, loops, read.ranges, read.limits)
        for limit in read.limits:
            narrow_all(limit, read.ranges)
        return read

    def sums_at(self, update: Update) -> Sums:
        """By divisions, too, that leave nothing where an update is made."""
        guards = [(op.cond, side is op.then) for op, side in update.path if isinstance(op, If)]
        pairs = pairs_in(self.sums, guards)
        return Exact(self.sums, pairs) if pairs else self.sums

    def _reached(self, reads: list[Read]) -> dict[Coordinate, Range]:
        """Of indices that have several digits, what these are where something is read."""
        split = [c for c in reads[0].whole if c.kind == "axis" and self._is_split(c.number)]
        ranges = {c: [read.ranges.get(c, read.whole[c]) for read in reads] for c in split}
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

    def _bounds(self, read: Read, digits: tuple[Solved, ...], summed: tuple[Coordinate, ...]) -> int:
        """So many conditions, from outside, only bound digits, or coordinates that follow from them; or what the sums
        run over anyway."""
        guards, factors = read.guards, [solved.factors for solved in digits]
        summed = tuple(c for c in summed if c not in self.reached or (0, self.reached[c][1]) != read.ranges[c])
        return next(
            (k for k, g in enumerate(guards) if not read.conditions.is_bound(*g, read.loops, summed, factors)),
            len(guards),
        )

    def _inner_ranges(self, site: Site, read: Read) -> tuple[dict[Coordinate, Range], list[Limit]]:
        ranges, limits = dict(read.whole), list[Limit]()
        for c, digits in self._last_digits().items():
            if c not in site.summed:
                ranges[c] = (0, digits.complete - 1)
        for cond, holds in read.guards[: site.bounds]:
            read.conditions.narrow(cond, holds, read.loops, ranges, limits)
        return ranges, limits

    def _is_told(self, coordinate: Coordinate, read: Read) -> bool:
        """Of an index of threads, or a digit of it, of which a read takes some."""
        return coordinate.kind == "axis" and read.ranges[coordinate] != read.whole[coordinate]

    def _is_single(self, coordinate: Coordinate, site: Site, read: Read) -> bool:
        found, (low, high) = site.strided(coordinate), read.ranges[coordinate]
        return found is not None and coordinate.kind == "axis" and high - low + 1 == site.solved[found[0]].stride

    def _is_split(self, axis: int) -> bool:
        return len(self.conditions.axes[axis].starts) > 1

    # ---- digits

    def _steps(self, reads: list[Read], in_strides: bool = False) -> tuple[int, ...]:
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

    def _site(self, read: Read, steps: tuple[int, ...], from_lowest: bool = False) -> Site | None:
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
        summed = _longest_last(tuple(c for c in read.ranges if c not in owners), solved, read.ranges)
        bounds, narrow = self._bounds(read, solved, summed), tuple(c for c in summed if self._is_told(c, read))
        site = Site(read.update.number, solved, summed, residue, bounds, narrow)
        site = replace(site, single=tuple(c for c in summed if self._is_single(c, site, read)))
        if not read.conditions.derived:
            return site
        follow = tuple((c, tuple(f.items()), const) for c, (f, const) in read.conditions.derived.items())
        both = told(self.function, read.conditions, read.loops)
        return (
            replace(site, derived=follow, told=both) if set(read.conditions.quotients.values()) <= set(owners) else None
        )

    def _owners(self, read: Read, steps: tuple[int, ...]) -> list[Coordinate | None]:
        """Of the coordinates that move a digit, the one that follows from it: an axis before a loop, that which leaves
        the fewest values of others to try; and one that moves by a single step before those in strides."""
        found: list[list[Coordinate]] = [[] for _ in steps]
        for coordinate, factor in read.factors.items():
            digit = _digit_of(factor, steps)
            if digit is not None:
                found[digit].append(coordinate)
        owners: list[Coordinate | None] = []
        for own, step in zip(found, steps, strict=True):
            axes = [c for c in own if c.kind == "axis"]
            tried = {c: _tried(c, axes, read, step) for c in axes}
            tried |= {c: 0 for c in own if c.kind == "quotient"}
            key = {c: (tried.get(c, math.inf), abs(read.factors[c]), -read.ranges[c][1], c) for c in own}
            owners.append(min(own, key=key.__getitem__, default=None))
        return owners

    def _placed(
        self, reads: list[Read], steps: tuple[int, ...], nbytes: int, size: int
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

    def _is_within(self, site: Site | None, read: Read, extents: list[int]) -> bool:
        assert site is not None
        hulls = (self._hull((site,), [read], digit) for digit in range(len(extents)))
        return all(low >= 0 and high < n for (low, high), n in zip(hulls, extents, strict=True))

    # ---- the launch

    def _box(
        self, sites: tuple[Site, ...], reads: list[Read], steps: tuple[int, ...], nbytes: int, size: int
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

    def _with_rare(
        self, reads: list[Read], sites: tuple[Site, ...], box: Box, covers: bool
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

    def _axes(self) -> tuple[tuple[tuple[int, int], ...], ...]:
        return tuple(
            tuple(
                (start, self.reached.get(Coordinate("axis", axis, k), (0, 0))[1] + 1)
                for k, start in enumerate(d.starts)
            )
            for axis, d in enumerate(self.conditions.axes)
        )

    def _hull(self, sites: tuple[Site, ...], reads: list[Read], digit: int) -> Range:
        """Where a digit is whenever anything is read."""
        found = []
        for site, read in zip(sites, reads, strict=True):
            low, high = moved_by(site.solved[digit], read.ranges)
            first, last = own_part(site.solved[digit], read.ranges)
            found.append(within(site.solved[digit], read.limits, (low + first, high + last)))
        return min(low for low, _ in found), max(high for _, high in found)

    def _inner(self, sites: tuple[Site, ...], reads: list[Read], digit: int) -> Range:
        """Where a digit must be for everything to be read, however the rest moves. Nowhere, where threads follow from
        quotients."""
        found = [(1, 0)] if any(site.derived for site in sites) else []
        for site, read in zip(sites, reads, strict=True):
            ranges, limits = self._inner_ranges(site, read)
            low, high = moved_by(site.solved[digit], ranges)
            first, last = own_part(site.solved[digit], ranges)
            found.append(within(site.solved[digit], limits, (high + first, low + last)))
        return max(low for low, _ in found), min(high for _, high in found)


def _tried(owner: Coordinate, axes: list[Coordinate], read: Read, step: int) -> float:
    """How many values of the others are tried for an element, of those along which one index moves a digit by single
    steps and another in strides, as where blocks overlap: `126 * blockIdx.x + threadIdx.x`."""
    others = [c for c in axes if c != owner]
    single = any(abs(read.factors[c]) == step for c in others)
    values = math.prod(read.ranges[c][1] - read.ranges[c][0] + 1 for c in others)
    return values / (abs(read.factors[owner]) // step if single else 1)


def _told(number: int, site: Site, read: Read) -> list[tuple[str, int]]:
    return [pair for c in site.narrow for pair in zip(range_names(number, c), read.ranges[c], strict=True)]


def _without(inner: list[Range], hull: list[Range]) -> list[Range]:
    """What is left of a box that has nothing of another: it ends before that along one digit, or begins behind it."""
    ways = list[list[Range]]()
    for k, ((low, high), (first, last)) in enumerate(zip(inner, hull, strict=True)):
        for cut in ((low, min(high, first - 1)), (max(low, last + 1), high)):
            ways.append([*inner[:k], cut, *inner[k + 1 :]])
    return max(ways, key=lambda way: math.prod(max(0, high - low + 1) for low, high in way))


def _extent(read: Read, step: int, moved: set[int]) -> int | None:
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


def _longest_last(
    summed: tuple[Coordinate, ...], solved: tuple[Solved, ...], ranges: dict[Coordinate, Range]
) -> tuple[Coordinate, ...]:
    """Of those that move a digit in strides, the last goes on in strides (see `Site.strided`): threads of a block that
    overlaps others, rather than the taps of a window."""
    competing = set[Coordinate]()
    for part in solved:
        own = {c for c, factor in part.moves if abs(factor) == 1 and c in summed}
        if part.stride > 1 and {c.kind for c in own} == {"axis", "loop"}:
            competing |= own
    return tuple(sorted(summed, key=lambda c: ranges[c][1] - ranges[c][0] + 1 if c in competing else 0))
