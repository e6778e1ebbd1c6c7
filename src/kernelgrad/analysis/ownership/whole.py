"""Buffers that are read from end to end, each byte once: their adjoints can be written instead of added to.

Over all executions of a load, in loops too: its address is a number of which threads, blocks and counters are the
digits, each step as long as all that lies below it, and guards cut off ends. `i / C` and `i % C` are digits of i.

Where a buffer is read several times, by the thread that owns the element, it is enough that the last reads are such:
the reverse comes to them first.
"""

from __future__ import annotations

from fractions import Fraction
from math import ceil, inf
from typing import NamedTuple

from ...ir.ops import Block, For, If, Load, Value, While
from ...ir.traverse import blocks, walk
from ...ir.types import I64
from ..access.affine import Access, Affine, Basis, Guard, Part, Sums, remainder
from ..access.executions import Executions, executions, spread
from ..roots import Memory
from ..structure import Place
from .digit_guards import in_digits, of_upper, without_implied
from .private import parts_of_memory, thread_digits


def bytes_read_once(root: Value, memory: Memory, places: dict[int, Place], sums: Sums) -> int | None:
    """How many bytes from the buffer's start are read, each of them once; None if that is not what happens."""
    loads = _loads(root, memory)
    return None if loads is None else _covered(loads, root, places, sums)


def bytes_read_last(root: Value, memory: Memory, places: dict[int, Place], sums: Sums) -> int | None:
    """The same by the loads after all others of the buffer."""
    loads = last_loads(root, memory, sums.structure.top.block)
    return _covered(loads, root, places, sums) if loads else None


def last_loads(root: Value, memory: Memory, body: Block) -> list[Load]:
    """The loads of a buffer that come after all the others in every thread; none where order does not tell."""
    loads = {id(op) for op in _loads(root, memory) or ()}
    return _last(body, loads)


def _loads(root: Value, memory: Memory) -> list[Load] | None:
    """Those of a buffer that is only read, by them alone."""
    loads = [op for op in memory.loads if root in memory.of(op.ptr)]
    stores = [op for op in memory.stores if root in memory.of(op.ptr)]  # type: ignore[attr-defined]
    return None if stores or any(memory.of(op.ptr) != {root} for op in loads) else loads


def _last(block: Block, loads: set[int]) -> list[Load]:
    for op in reversed(block.ops):
        if id(op) in loads:
            assert isinstance(op, Load)
            return [op]
        found = [[o for o in walk(inner) if isinstance(o, Load) and id(o) in loads] for inner in blocks(op)]
        sides = [inner for inner, own in zip(blocks(op), found, strict=True) if own]
        if isinstance(op, If) and sides:
            return _last(sides[0], loads) if len(sides) == 1 else []
        if sides:
            return [o for own in found for o in own]
    return []


def _covered(loads: list[Load], root: Value, places: dict[int, Place], given: Sums) -> int | None:
    """By loads that are a constant apart, in all their executions: x[t], x[t + 256], x[t + 512]."""
    sums, around = executions(given), _loops(places[id(loads[0])]) if loads else []
    reads = [_read(op, root, places[id(op)], sums) for op in loads]
    found = [read for read in reads if read is not None]
    if None in reads or any(_loops(places[id(op)]) != around for op in loads):
        return None
    covered = _counted(found, around, sums)
    return _counted_in_parts(found, around, sums) if covered is None else covered


def _counted_in_parts(reads: list[Access], around: list[For | While], sums: Executions) -> int | None:
    """Of parts of the buffer that lie one behind the other: planes that are read in different ways."""
    parts, end = parts_of_memory(reads, sums), 0
    for part in parts:
        own = [reads[k]._replace(address=reads[k].address.plus(Affine(-end))) for k in part]
        covered = _counted(own, around, sums)
        if covered is None:
            return None
        end += covered
    return end if len(parts) > 1 else None


def _counted(reads: list[Access], around: list[For | While], sums: Executions) -> int | None:
    together = _together(reads)
    if together is None:
        return None
    covering = _Covering(together.guards, sums, together.extents)
    covered = covering.count(together.address, together.size)
    loops = [sums.loops[b] for b in covering.digits if b in sums.loops]
    if covering.unused or set(loops) != set(around) or len(loops) != len(around):
        return None
    threads = {b for b in covering.digits if isinstance(b, tuple)}
    return covered if threads == thread_digits(sums, own_block=False) else None


def _read(load: Load, root: Value, place: Place, sums: Executions) -> Access | None:
    address, guards = sums.address(load.ptr, root), sums.exact_guards(place)
    return None if address is None or guards is None else Access(address, load.result.type.size, guards)


class _Reads(NamedTuple):
    """Several reads as one. `extents`: of the digits that tell them from each other."""

    address: Affine
    size: int
    guards: set[Guard]
    extents: dict[Basis, int]


def _together(reads: list[Access]) -> _Reads | None:
    """With a digit for each step between them; guards are the same for all, or move as the addresses do."""
    found = sorted(reads, key=lambda read: read.address.const)
    if not found or len({read.size for read in found}) > 1:
        return None
    first, terms = found[0], found[0].address.coefficients
    starts = [read.address.const - first.address.const for read in found]
    steps = spread(starts)
    if steps is None or len(set(starts)) < len(starts) or any(r.address.coefficients != terms for r in found):
        return None
    digits: dict[Basis, int] = {Value(I64): step for step, _ in steps}
    guards = [_moved(guard, found, starts, digits) for guard in first.guards]
    if None in guards or any(len(read.guards) != len(guards) for read in found):
        return None
    extents = dict(zip(digits, (count for _, count in steps), strict=True))
    address = first.address.plus(Affine(0, tuple(digits.items())))
    return _Reads(address, first.size, {guard for guard in guards if guard is not None}, extents)


def _moved(guard: Guard, reads: list[Access], starts: list[int], digits: dict[Basis, int]) -> Guard | None:
    """A guard of the first read, as one of all."""
    own = reads[0].address.coefficients
    ratios = {Fraction(c, own[b]) for b, c in guard.sum.terms if b in own}
    for ratio in (Fraction(0), *ratios):
        consts = [guard.sum.const + ratio * start for start in starts]
        same = zip(consts, reads, strict=True)
        if all(c.denominator == 1 and _at(guard, int(c)) in read.guards for c, read in same):
            steps = {basis: step * ratio for basis, step in digits.items()}
            if all(step.denominator == 1 for step in steps.values()):
                return Guard(guard.sum.plus(Affine(0, tuple((b, int(c)) for b, c in steps.items()))), guard.bound)
    return None


def _at(guard: Guard, const: int) -> Guard:
    return Guard(Affine(const, guard.sum.terms), guard.bound)


class _Covering:
    """Counts values that a sum takes. `digits`: all that they are told by; `unused`: guards of which nothing was
    made."""

    def __init__(self, guards: set[Guard], sums: Sums, extents: dict[Basis, int]):
        self.guards, self.sums = guards, sums
        self.extents: dict[Basis, int | None] = {**sums.extents, **extents}
        self.unused = without_implied({g for g in guards if not self._holds(g)})
        self.digits: set[Basis] = set()

    def _holds(self, guard: Guard) -> bool:
        """Whether a guard cuts nothing off."""
        reach = [(c, self.extents[b]) for b, c in guard.sum.terms]
        ends = [c * (extent - 1) for c, extent in reach if extent is not None and c > 0]
        return len(ends) == len(reach) and guard.sum.const + sum(ends) < guard.bound

    def count(self, sum_: Affine, unit: int) -> int | None:
        """Where the first lies after the last, if the sum takes all multiples of a unit from 0 on, each once."""
        sum_ = self._upwards(sum_)
        steps = self._steps(sum_)
        if sum_.const or steps is None:
            return None
        covered: float = unit
        starts: list[_Step] = []
        for step in sorted(steps, key=lambda step: step.coefficient):
            if step.coefficient != covered:
                return None
            starts.append(step)
            covered = self._cut(step.coefficient * step.extent, starts, sum_)
        return None if covered == inf else int(covered)

    def _upwards(self, sum_: Affine) -> Affine:
        """What is counted down, counted up from the other end, where no guard cuts it off."""
        guarded = {basis for guard in self.unused for basis in guard.sum.coefficients}
        for basis, step in sum_.terms:
            extent = self.extents[basis]
            if step < 0 and extent is not None and basis not in guarded and not isinstance(basis, Part):
                sum_ = sum_.plus(Affine((extent - 1) * step, ((basis, -2 * step),)))
        return sum_

    def _cut(self, covered: float, starts: list[_Step], sum_: Affine) -> float:
        """By guards of the upper digits."""
        guards = [(guard, in_digits(guard, sum_)) for guard in self.guards]
        for first, (_, start, _) in enumerate(starts):
            upper = {step.basis for step in starts[first:]}
            lower = {step.basis: int(step.extent) - 1 for step in starts[:first] if step.extent != inf}
            for guard, own in ((guard, of_upper(found, upper, lower)) for guard, found in guards):
                factors = set() if own is None else {Fraction(sum_.coefficients[b], c) for b, c in own.sum.terms}
                if own is not None and len(factors) == 1 and min(factors) > 0:
                    self.unused.discard(guard)
                    covered = min(covered, start * max(0, ceil(own.bound * min(factors) / start)))
        return covered

    def _steps(self, sum_: Affine) -> list[_Step] | None:
        found = []
        for basis, coefficient in sum_.terms:
            if isinstance(basis, Part):
                continue
            if not isinstance(basis, tuple | Value) or basis in self.digits or basis in self.sums.wrapping:
                return None
            self.digits.add(basis)
            extent = self.extents[basis]
            found.append(_Step(basis, coefficient, inf if extent is None else extent))
        for over, own in _divisions([(b, c) for b, c in sum_.terms if isinstance(b, Part)]).items():
            digits = self._digits(over, own)
            if digits is None:
                return None
            found += digits
        return found

    def _digits(self, over: Affine, parts: list[tuple[Part, int]]) -> list[_Step] | None:
        """All digits of what was divided, in any order; it takes all values from 0 on, each once. Or it takes as many
        values, one behind the other, as a remainder has: `(i + 1) % n`."""
        if over.const and len(parts) == 1 and _span(parts[0][0]) == (1, parts[0][0].by):
            ((part, coefficient),) = parts
            return (
                [_Step(part, coefficient, part.by)]
                if self.count(over.plus(Affine(-over.const)), 1) == part.by
                else None
            )
        total = self.count(over, 1)
        spans = sorted(((_span(part), part, coefficient) for part, coefficient in parts), key=lambda span: span[0])
        found, reached = [], 1
        for (low, high), part, coefficient in spans:
            if low != reached or total is None:
                return None
            reached = high or total
            if reached % low:
                return None
            found.append(_Step(part, coefficient, reached // low))
        return found if reached == total else None


class _Step(NamedTuple):
    basis: Basis
    coefficient: int
    extent: float


def _divisions(parts: list[tuple[Part, int]]) -> dict[Affine, list[tuple[Part, int]]]:
    """Parts by what was divided. Remainders do not tell whether multiples were left out (see `remainder`)."""
    upper = {part: _divided(part) for part, _ in parts if _span(part)[0] > 1}
    found: dict[Affine, list[tuple[Part, int]]] = {}
    for part, coefficient in parts:
        wholes = [over for over in upper.values() if part not in upper and remainder(over, part.by) == part]
        found.setdefault(upper.get(part, wholes[0] if wholes else part.of), []).append((part, coefficient))
    return found


def _divided(part: Part) -> Affine:
    inner = part.of.only
    return inner.of if isinstance(inner, Part) and not part.is_quotient and inner.is_quotient else part.of


def _span(part: Part) -> tuple[int, int]:
    """From which multiple of a number to which it counts; to 0 if to the end."""
    inner = part.of.only
    if part.is_quotient:
        return part.by, 0
    low = inner.by if isinstance(inner, Part) and inner.is_quotient else 1
    return low, low * part.by


def _loops(place: Place | None) -> list[For | While]:
    found = []
    while place is not None:
        if isinstance(place.owner, For | While):
            found.append(place.owner)
        place = place.parent
    return found
