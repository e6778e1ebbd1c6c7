"""Affine sums with quotients and remainders (delinearisation), and guards by the ends of loops: what tells the owner of
an element over all executions of a place.

A quotient and the remainder that belongs to it say together what was divided, as two digits do: who knows both knows
the sum, and, if no two threads have the same, the thread. `C * (i / C) + i % C` is i again. Only what is not negative
is divided, so that C++'s rounding towards zero is rounding down. And `for (c = t; c < n; c += 256)` bounds c as an `if`
does, though each thread has its own number of iterations.

Digits are as those of written numbers: each one's step leaps over all that the smaller ones reach.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from math import gcd, inf
from types import MappingProxyType
from typing import NamedTuple

from ...ir.ops import Apply, For, If, Value, While
from ...ir.types import limits
from ..structure import Place
from .affine import Affine, Basis, Guard, Looked, Part, Sums, remainder

_ANY: Mapping[Basis | None, int] = MappingProxyType({})


class Digit(NamedTuple):
    basis: Basis | None
    coefficient: int
    extent: int | None


def leaps(digits: list[Digit], width: int, coefficients: Mapping[Basis, int], guards: set[Guard]) -> bool:
    """Whether each digit's step leaps over all that the smaller digits and the window of one thread reach.
    `coefficients`: of what guards may speak of."""
    below: dict[object, float] = {}  # how far each reaches
    varying = [_within(digit, _single(digits), guards) for digit in digits if digit.extent != 1]
    first: dict[Basis | None, int] = {d.basis: _least(d.basis, guards) for d in varying if d.basis is not None}
    for digit in sorted(varying, key=lambda d: d.coefficient):
        if digit.coefficient < _reach(below, coefficients, guards, first) + width:
            return False
        last = inf if digit.extent is None else digit.extent - 1
        reach = digit.coefficient * max(0, last - first.get(digit.basis, 0))
        below[object() if digit.basis is None else digit.basis] = reach
    return True


def _least(basis: Basis, guards: set[Guard]) -> int:
    """The least value that they leave what is never negative."""
    own = (g for g in guards if len(g.sum.terms) == 1 and g.sum.terms[0][0] == basis and g.sum.terms[0][1] < 0)
    return max((-((g.bound - 1 - g.sum.const) // -g.sum.terms[0][1]) for g in own), default=0)


def _single(digits: list[Digit]) -> set[Basis]:
    """What has one value."""
    return {digit.basis for digit in digits if digit.extent == 1 and digit.basis is not None}


def _within(digit: Digit, single: set[Basis], guards: set[Guard]) -> Digit:
    """A quotient of what a guard bounds is less, too: `t / 64` where `t < n`."""
    part = digit.basis
    if not isinstance(part, Part) or not part.is_quotient or len(part.of.terms) != 1:
        return digit
    ((basis, multiple),) = part.of.terms
    for guard in guards:
        rest = [(b, c) for b, c in guard.sum.terms if b not in single]
        if rest == [(basis, 1)] and multiple > 0:
            most = max(0, guard.bound - 1 - guard.sum.const)
            extent = (part.of.const + multiple * most) // part.by + 1
            digit = digit._replace(extent=extent if digit.extent is None else min(digit.extent, extent))
    return digit


def _reach(
    below: dict[object, float], coefficients: Mapping[Basis, int], guards: set[Guard], first: Mapping[Basis | None, int]
) -> float:
    """How far some digits together can reach: guards bound groups of them, `row < n` and `col < m`. `first`: the least
    value that each has."""
    free, total = dict(below), 0
    found = [(set(guard.sum.coefficients), bound) for guard in guards for bound in bounds(guard, coefficients, first)]
    for group, bound in sorted(found, key=lambda pair: (-len(pair[0]), pair[1])):
        if group <= free.keys() and bound < sum(free[basis] for basis in group):
            total += bound
            free = {basis: reach for basis, reach in free.items() if basis not in group}
    return total + sum(free.values())


def bounds(guard: Guard, shared: Mapping[Basis, int], first: Mapping[Basis | None, int] = _ANY) -> list[int]:
    """How far the digits of which a guard speaks can reach together, from the `first` value of each."""
    terms = guard.sum.coefficients
    if any(c <= 0 or b not in shared or shared[b] % c for b, c in terms.items()):
        return []
    factors = {shared[b] // c for b, c in terms.items()}
    if len(factors) != 1 or min(factors) <= 0:
        return []
    start = guard.sum.const + sum(c * first.get(b, 0) for b, c in terms.items())
    return [min(factors) * max(0, guard.bound - 1 - start)]


def spread(starts: Iterable[int]) -> list[tuple[int, int]] | None:
    """Numbers as sums of steps, each taken up to so many times: 0, 1, 8, 9 are 1 and 8, each at most once. None where
    they are no such sums."""
    places = sorted(set(starts))
    digits = []
    while len(places) > 1:
        step = places[1] - places[0]
        count = next(k for k in range(2, len(places) + 1) if k == len(places) or places[k] != places[0] + k * step)
        groups = [places[k : k + count] for k in range(0, len(places), count)]
        if any([p - group[0] for p in group] != [k * step for k in range(count)] for group in groups):
            return None
        digits.append((step, count))
        places = [group[0] for group in groups]
    return digits


# ---- executions -----------------------------------------------------------------------------------------------------


def executions(sums: Sums) -> Executions:
    """The same launch's, made once."""
    if not isinstance(sums.executions, Executions):
        sums.executions = Executions(sums.structure, sums.shape, sums.known, sums.promised)
    return sums.executions


class Executions(Sums):
    """Sums in which quotients and remainders may stand, and guards by the ends of loops."""

    def _apply(self, op: Apply, fn: str, args: tuple[Value, ...]) -> Affine | None:
        found = super()._apply(op, fn, args)
        if found is None and fn in DIVISIONS:
            over, under = map(self.of, args)
            if over is not None and under is not None and not under.terms:
                found = self._divided(over, DIVISIONS[fn](under.const), fn in QUOTIENTS)
        return None if found is None else self._whole(found)

    def _divided(self, over: Affine, by: int, is_quotient: bool) -> Affine | None:
        """What is a multiple of the divisor is told apart at once from the rest, and that from what is less than a step
        of it: so that quotients and remainders of the same are made of the same."""
        if by <= 0 or not all(map(self._is_bounded, over.coefficients)) or self.range(over, _LONGEST)[0] < 0:
            return None
        multiples = tuple((b, c // by) for b, c in over.terms if c % by == 0)
        rest = Affine(over.const % by, tuple((b, c) for b, c in over.terms if c % by))
        low, high = self.range(rest, _LONGEST)
        if low >= 0 and high < by:
            return Affine(over.const // by, multiples) if is_quotient else rest
        if low >= 0 and rest != over:
            found = self._divided(rest, by, is_quotient)
            return found if found is None or not is_quotient else found.plus(Affine(over.const // by, multiples))
        coarser = self._coarser(over, by)
        if coarser is not None:
            step, upper, lower = coarser
            found = self._divided(upper, by // step, is_quotient)
            return found if found is None or is_quotient else found.times(step).plus(lower)
        part = _part(over, by, is_quotient)
        inner = part.of.only
        if not part.is_quotient and isinstance(inner, Part) and inner.is_quotient:
            # A digit in the middle is the upper one of what is left without the digits above it.
            left, end = remainder(inner.of, inner.by * part.by).of, inner.by * part.by
            if self.range(left, _LONGEST)[0] >= 0 and self.range(left, _LONGEST)[1] < end:
                return self._divided(left, inner.by, True)
        return self._digit(part)

    def _coarser(self, over: Affine, by: int) -> tuple[int, Affine, Affine] | None:
        """What is divided as multiples of a step that goes into the divisor, and what is less than a step besides,
        which quotients do not see: `(256 * b + t) / 1024` is `b / 4`, and the remainder `256 * (b % 4) + t`."""
        for step in sorted({gcd(c, by) for _, c in over.terms} - {1, by}, reverse=True):
            lower = Affine(over.const % step, tuple((b, c) for b, c in over.terms if c % step))
            low, high = self.range(lower, _LONGEST)
            if low >= 0 and high < step:
                upper = tuple((b, c // step) for b, c in over.terms if c % step == 0)
                return step, Affine(over.const // step, upper), lower
        return None

    def _digit(self, part: Part) -> Affine:
        inner = part.of.only
        if isinstance(inner, Part):
            self._digit(inner)
        self.extents[part] = self.range(part.of, _LONGEST)[1] // part.by + 1 if part.is_quotient else part.by
        return Affine(0, ((part, 1),))

    def _is_bounded(self, basis: Basis) -> bool:
        """Loops whose length is each thread's own are, where it is known when they end: grid strides."""
        return self.extents[basis] is not None or (basis in self.most and basis not in self.wrapping)

    # ---- loops

    def _most(
        self, value: Value, start: Affine, end: Affine | None, step: int, more: int = 0, exact: bool = True
    ) -> None:
        """Also where threads start at different places, all may go round equally often: that many times, then."""
        super()._most(value, start, end, step, more, exact)
        if self.extents[value] is not None or end is None or step <= 0 or not exact:
            return
        distance = end.plus(start, -1)
        if any(self.extents[b] is None for b, _ in distance.terms):
            return
        trips = {-(-(far + more) // step) for far in self.range(distance)}
        after = self.range(end)[1] + more + step  # what it carries must not come round when it leaves
        if len(trips) == 1 and min(trips) > 0 and after <= limits(value.type)[1]:  # type: ignore[arg-type]
            self.extents[value] = min(trips)

    # ---- addresses

    def address(self, ptr: Value, root: Value) -> Affine | None:
        found = super().address(ptr, root)
        return None if found is None else self._whole(found)

    def _whole(self, sum_: Affine) -> Affine:
        """With quotients and remainders that make up what was divided as that: `C * (i / C) + i % C` is i, and
        `C * (i / C % B) + i % C` is `i % (B * C)`. And `i - C * (i / C)` is `i % C`."""
        terms = sum_.coefficients
        for basis, coefficient in sum_.terms:
            if isinstance(basis, Part) and _is_taken_away(basis, terms):
                each = -coefficient // basis.by
                left = self._divided(basis.of, basis.by, False)
                if left is not None:
                    less = Affine(0, ((basis, coefficient),)).plus(basis.of, each)
                    return self._whole(sum_.plus(less, -1).plus(left, each))
            for lower, total, by in _completed(basis):
                each = coefficient // by
                if coefficient % by == 0 and terms.get(lower) == each:
                    parts = Affine(0, ((basis, coefficient), (lower, each)))
                    more = self._digit(total) if isinstance(total, Part) else total
                    return self._whole(sum_.plus(parts, -1).plus(more, each))
        return sum_

    # ---- guards

    def guards(self, place: Place | None) -> set[Guard]:
        """Also of what loops count: it stays below where they end."""
        found, inner = super().guards(place), place
        while inner is not None:
            if isinstance(inner.owner, For | While) and inner.block is inner.owner.body:
                found |= self._of_loop(inner.owner)
            inner = inner.parent
        return found

    def exact_guards(self, place: Place | None) -> set[Guard] | None:
        """The guards by which a block runs, once for each iteration around it, and by nothing else; None where
        something else decides too."""
        found: set[Guard] = set()
        while place is not None:
            if isinstance(place.owner, If):
                if not self._is_guard(place.owner.cond, place.block is place.owner.then):
                    return None
                self._from_condition(place.owner.cond, place.block is place.owner.then, found)
            elif isinstance(place.owner, For | While):
                ends = self._of_loop(place.owner, exact=True) if place.block is place.owner.body else set()
                if not ends or any(self.range(end.sum)[0] < 0 for end in ends):
                    return None
                found |= ends
            place = place.parent
        return found

    def _of_loop(self, loop: For | While, exact: bool = False) -> set[Guard]:
        """`exact`: those by which it ends, and by nothing else."""
        from .loop_bounds import End, bounds_of, ends_of

        if isinstance(loop, For) and loop.step < 0:
            return self._of_countdown(loop)
        of = ends_of if exact else bounds_of
        ends = [End(loop.body.args[0], (loop.upper,), 0)] if isinstance(loop, For) else of(loop, self.structure)
        found = set()
        for value, bounds, more in ends:
            small, large = self.of(value), self.common(bounds)
            if small is not None and large is not None and small.terms:
                # `d < n - t`, of pointers that walk to an end, is `d + t < n`.
                found.add(Guard(small.plus(Affine(0, large.terms), -1), large.const + more))
        return found

    def _of_countdown(self, loop: For) -> set[Guard]:
        """By how far it goes down, where that is the same for all threads."""
        counter, high, low = loop.body.args[0], self.of(loop.lower), self.of(loop.upper)
        far = None if high is None or low is None or self.of(counter) is None else high.plus(low, -1)
        if far is None or far.terms:
            return set()
        return {Guard(Affine(0, ((counter, -loop.step),)), far.const)}


_LONGEST = 1 << 62  # iterations, of loops that have a bound

# The divisor, by its operand: what is divided is not negative, so that bits are digits.
DIVISIONS: dict[str, Callable[[int], int]] = {
    "div": lambda by: by,
    "rem": lambda by: by,
    "shr": lambda bits: 1 << bits if 0 <= bits < 63 else 0,
    "and": lambda mask: mask + 1 if mask > 0 and mask & (mask + 1) == 0 else 0,
}
QUOTIENTS = ("div", "shr")


def _part(of: Affine, by: int, is_quotient: bool) -> Part:
    """Parts of parts in one way: quotients of the whole, and remainders of these."""
    of = of if is_quotient else remainder(of, by).of
    inner = of.only
    if not isinstance(inner, Part):
        return Part(of, by, is_quotient)
    if inner.is_quotient and is_quotient:
        return _part(inner.of, inner.by * by, True)
    if not inner.is_quotient and inner.by % by == 0:
        if not is_quotient:
            return _part(inner.of, by, False)
        return Part(Affine(0, ((_part(inner.of, by, True), 1),)), inner.by // by, False)
    return Part(of, by, is_quotient)


def _completed(basis: Basis) -> Iterator[tuple[Part, Affine | Part, int]]:
    """What makes up more, together with a basis: the lower digits, all of them, and the basis' step among those."""
    if isinstance(basis, Part) and basis.is_quotient:
        yield remainder(basis.of, basis.by), basis.of, basis.by
    inner = basis.of.only if isinstance(basis, Part) and not basis.is_quotient else None
    if isinstance(basis, Part) and isinstance(inner, Part) and inner.is_quotient:
        yield remainder(inner.of, inner.by), remainder(inner.of, inner.by * basis.by), inner.by


def _is_taken_away(basis: Part, terms: Mapping[Basis, int]) -> bool:
    """Whether what was divided is there too, as often as the quotient leaves its remainder of it."""
    each, uneven = divmod(-terms[basis], basis.by)
    there = all(terms.get(b) == each * factor for b, factor in basis.of.terms)
    return basis.is_quotient and not uneven and each != 0 and there


def extent(basis: Basis, sums: Sums, guards: Iterable[Guard]) -> int | None:
    """How many values a basis has where guards hold, which may bound what it is a part of."""
    if not isinstance(basis, Part):
        return sums.extents[basis]
    if any(b in sums.wrapping for b in basis.of.coefficients):
        return None
    most = int(_most(basis.of, sums, guards))  # what is divided is bounded
    return most // basis.by + 1 if basis.is_quotient else min(basis.by, most + 1)


def _length(basis: Basis, sums: Sums, guards: Iterable[Guard]) -> float:
    """At most how many values a basis has."""
    found = extent(basis, sums, guards) or sums.most.get(basis)
    return inf if found is None else found


def _most(sum_: Affine, sums: Sums, guards: Iterable[Guard]) -> float:
    """The greatest value of a sum that is never negative."""
    most = sum_.const + sum(max(0, c * (_length(b, sums, guards) - 1)) for b, c in sum_.terms)
    for guard in guards:
        times = _multiple(sum_, guard.sum, sums)
        if times:
            most = min(most, (guard.bound - 1 - guard.sum.const) // times + sum_.const)
    return max(0, most)


def _multiple(sum_: Affine, total: Affine, sums: Sums) -> int:
    """How often a sum is in another that has nothing negative besides, as memory may hold, and nothing that comes
    round; 0 where it is not."""
    terms, own = total.coefficients, sum_.coefficients
    times = {terms.get(basis, 0) // c if terms.get(basis, 0) % c == 0 else 0 for basis, c in own.items()}
    others = {basis: c for basis, c in terms.items() if basis not in own}
    alone = all(c > 0 and not isinstance(b, Looked) and b not in sums.wrapping for b, c in others.items())
    return max(0, times.pop()) if alone and len(times) == 1 else 0


def greatest(sum_: Affine, sums: Sums, guards: Iterable[Guard]) -> int | None:
    """The greatest value of a sum that is never negative; None where that, or its end, is not known."""
    parts = (b.of for b, _ in sum_.terms if isinstance(b, Part))
    if any(greatest(of, sums, guards) is None for of in parts) or sums.range(sum_, _LONGEST)[0] < 0:
        return None
    bounded = any(guard.sum.coefficients == sum_.coefficients for guard in guards)
    wraps = any(b in sums.wrapping for b, _ in sum_.terms)
    most = inf if wraps and not bounded else _most(sum_, sums, guards)
    return None if most == inf else int(most)


def hull(sum_: Affine, sums: Sums, guards: Iterable[Guard]) -> tuple[int, int] | None:
    """The least and greatest value of a sum that is never negative; None where they are not known."""
    if any(b in sums.wrapping or isinstance(b, Looked) for b, _ in sum_.terms):
        return None
    last = greatest(sum_, sums, guards)
    return None if last is None else (sums.range(sum_, _LONGEST)[0], last)


def determined(bases: Iterable[Basis], sums: Sums, guards: set[Guard]) -> set[Basis]:
    """All that follows from these: a quotient and a remainder tell what was divided, and that its own digits."""
    found, more = set[Basis](), set(bases)
    while not more <= found:
        found |= more
        parts = [b for b in found if isinstance(b, Part)]
        known = (b for b in parts if b.other in found or extent(b.other, sums, guards) == 1 or _turns(b, sums, guards))
        more = {digit for b in known for digit in tells(b.of, sums, guards)}
    return found


def _turns(part: Part, sums: Sums, guards: Iterable[Guard]) -> bool:
    """Whether a remainder has no value twice, though what is divided may exceed the divisor: `(i + 1) % n`, i < n."""
    if part.is_quotient or any(c < 0 or isinstance(b, Looked) for b, c in part.of.terms):
        return False
    return _most(part.of, sums, guards) - part.of.const < part.by


def tells(sum_: Affine, sums: Sums, guards: set[Guard]) -> list[Basis]:
    """What a sum is made of, where it has no value twice."""
    if any(b in sums.wrapping for b, _ in sum_.terms):
        return []
    digits = [Digit(b, abs(c), extent(b, sums, guards)) for b, c in sum_.terms]
    return [b for b, _ in sum_.terms] if leaps(digits, 1, sum_.coefficients, guards) else []
