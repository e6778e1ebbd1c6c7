"""What conditions around a read say about where it is: of single coordinates, and of sums of them.

    for (int s = 0; s < 3; ++s)
        if (x + s - 1 >= 0 && x + s - 1 < width) ... row[x + s - 1]

Zero padding bounds neither x nor s, but their sum, which is the digit that the read's address has.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from ....analysis.access.affine import Affine, Part, Sums
from ....analysis.access.axis_digits import AxisDigits, span_of, spans_in
from ....analysis.access.wrapping import signed
from ....ir.ops import Apply, For, Op, Value

Range = tuple[int, int]  # both ends included


class Coordinate(NamedTuple):
    """A digit of a thread's index along an axis of the grid (see `axis_digits`), or the iterations of a loop around the
    read, counted from outside; or a quotient from which one of these follows (see `exact`)."""

    kind: Literal["axis", "loop", "quotient"]
    number: int
    digit: int = 0


Factors = dict[Coordinate, int]


class Limit(NamedTuple):
    """A sum of multiples of coordinates is at most a number."""

    factors: Factors
    most: int


class Conditions:
    """Of one launch. `axes`: the digits of the indices along them. `quotients`: those that stand for coordinates;
    `derived`: the coordinates for which they do, as sums of others."""

    def __init__(self, sums: Sums, axes: tuple[AxisDigits, ...]):
        self.sums, self.axes = sums, axes
        self.quotients: dict[Part, Coordinate] = {}
        self.derived: dict[Coordinate, tuple[Factors, int]] = {}

    def factors(self, sum_: Affine, loops: list[Op]) -> tuple[Factors, int] | None:
        """A sum as multiples of coordinates, and its constant part; None if it is none."""
        factors, const = self._loop_factors(sum_, loops), sum_.const
        if factors is None:
            return None
        rest = Affine(0, tuple(term for term in sum_.terms if term[0] not in self.quotients))
        for axis, digits in enumerate(self.axes):
            for span, times in spans_in(rest, axis, self.sums.shape).items():
                found = digits.factors(span)
                if found is None:
                    return None
                for digit, factor in enumerate(found):
                    place = Coordinate("axis", axis, digit)
                    factors[place] = factors.get(place, 0) + times * factor
        for coordinate in self.derived.keys() & factors.keys():
            each, (others, more) = factors.pop(coordinate), self.derived[coordinate]
            const += each * more
            for place, factor in others.items():
                factors[place] = factors.get(place, 0) + each * factor
        return factors, const

    def inside_digit(self, sum_: Affine) -> tuple[int, int, int, int | None] | None:
        """The axis and the digit of whose value a sum is a digit, and which (see `AxisDigits.inside`)."""
        solved = any(basis in self.quotients for basis, _ in sum_.terms)
        if sum_.const or solved or self._loop_factors(sum_, []) is None:
            return None
        spans = [(axis, *item) for axis in range(3) for item in spans_in(sum_, axis, self.sums.shape).items()]
        if len(spans) != 1 or spans[0][2] != 1:
            return None
        ((axis, span, _),) = spans
        inside = self.axes[axis].inside(span)
        return None if inside is None else (axis, *inside)

    def _loop_factors(self, sum_: Affine, loops: list[Op]) -> Factors | None:
        """None where something is in it besides counters and indices."""
        counters = {loop.body.args[0]: k for k, loop in enumerate(loops) if isinstance(loop, For)}
        factors: Factors = {}
        for basis, factor in sum_.terms:
            if basis in counters:
                factors[Coordinate("loop", counters[basis])] = factor
            elif basis in self.quotients:
                factors[self.quotients[basis]] = factor
            elif span_of(basis, self.sums.shape) is None:
                return None
        return factors

    def narrow(
        self, cond: Value, holds: bool, loops: list[Op], ranges: dict[Coordinate, Range], limits: list[Limit]
    ) -> None:
        """What a condition says about coordinates and sums of them. The rest is left to the gather, which tests it
        again."""
        match self.sums.structure.definition.get(cond):
            case Apply("not", (inner,)):
                self.narrow(inner, not holds, loops, ranges, limits)
            case Apply("and" | "or" as fn, args) if (fn == "and") == holds:
                for arg in args:
                    self.narrow(arg, holds, loops, ranges, limits)
            case Apply(fn, (left, right)) if fn in _NEGATED:
                for limit in self._limits(fn if holds else _NEGATED[fn], left, right, loops):
                    if len(limit.factors) == 1:
                        _narrow_one(limit, ranges)
                    else:
                        limits.append(limit)

    def compared(self, cond: Value) -> Iterator[Affine]:
        """The sums that a condition compares."""
        op = self.sums.structure.definition.get(cond)
        if isinstance(op, Apply) and op.fn in ("not", "and", "or"):
            for arg in op.args:
                yield from self.compared(arg)
        elif isinstance(op, Apply) and op.fn in _NEGATED:
            yield from (side for side in map(self.sums.of, op.args) if side is not None)

    def _limits(self, fn: str, left: Value, right: Value, loops: list[Op]) -> list[Limit]:
        """What a comparison that holds says; of constants, only that it cannot hold."""
        sides = [self.sums.of(v) for v in (left, right)]
        if sides[0] is None or sides[1] is None:
            return self._unsigned_limits(fn, left, right, loops)
        found = []
        if fn in ("lt", "le", "eq"):
            found.append(self._at_most(sides[0].plus(sides[1], -1), -(fn == "lt"), loops))
        if fn in ("gt", "ge", "eq"):
            found.append(self._at_most(sides[1].plus(sides[0], -1), -(fn == "gt"), loops))
        return [limit for limit in found if limit is not None]

    def _unsigned_limits(self, fn: str, left: Value, right: Value, loops: list[Op]) -> list[Limit]:
        """`(unsigned)i < n` or `i - 1u < n`, and the same the other way round: i is not negative, or i - 1, where n is
        not that large."""
        if fn in ("gt", "ge"):
            fn, left, right = _TURNED[fn], right, left
        inner, bound = signed(self.sums, left), self.sums.of(right)
        if fn not in ("lt", "le") or inner is None or bound is None or bound.terms or not 0 <= bound.const < 2**31:
            return []
        found = [
            self._at_most(inner.plus(bound, -1), -(fn == "lt"), loops),
            self._at_most(inner.times(-1), 0, loops),
        ]
        return [limit for limit in found if limit is not None]

    def _at_most(self, sum_: Affine, most: int, loops: list[Op]) -> Limit | None:
        found = self.factors(sum_, loops)
        if found is None:
            return None
        limit = Limit({c: f for c, f in found[0].items() if f}, most - found[1])
        if not limit.factors:
            return limit if limit.most < 0 else None
        return self._of_last_digit(limit)

    def _of_last_digit(self, limit: Limit) -> Limit:
        """`i < n` bounds the last digit of i and none besides, where n is a multiple of that one's step."""
        found = limit.factors
        first, last = min(found), max(found)
        if first.kind != "axis" or first[:2] != last[:2] or first == last:
            return limit
        starts, each = self.axes[first.number].starts, found[first]
        digits = [first._replace(digit=k) for k in range(first.digit, last.digit + 1)]
        step = starts[last.digit] // starts[first.digit]
        if any(found.get(c) != each * (starts[c.digit] // starts[first.digit]) for c in digits):
            return limit
        end = limit.most // abs(each) + (each > 0)  # the sum is less than this, or no less than its opposite
        return limit if end % step else Limit({last: 1 if each > 0 else -1}, end // step - (each > 0))

    def is_bound(
        self, cond: Value, holds: bool, loops: list[Op], summed: tuple[Coordinate, ...], digits: list[Factors]
    ) -> bool:
        """Whether a condition is made of comparisons of one coordinate or digit each, all of which must hold."""
        match self.sums.structure.definition.get(cond):
            case Apply("not", (inner,)):
                return self.is_bound(inner, not holds, loops, summed, digits)
            case Apply("and" | "or" as fn, args):
                return (fn == "and") == holds and all(self.is_bound(arg, holds, loops, summed, digits) for arg in args)
            case Apply(fn, (left, right)) if (fn if holds else _NEGATED.get(fn, "ne")) in (
                "lt",
                "le",
                "gt",
                "ge",
                "eq",
            ):
                limits = self._limits(fn if holds else _NEGATED[fn], left, right, loops)
                return bool(limits) and all(_is_told(limit.factors, summed, digits) for limit in limits)
        return False


def _is_told(factors: Factors, summed: tuple[Coordinate, ...], digits: list[Factors]) -> bool:
    """Whether a sum is one coordinate that follows from a digit, or a digit."""
    if len(factors) == 1:
        return next(iter(factors)) not in summed
    return any(multiple_of(factors, digit) for digit in digits)


def multiple_of(factors: Factors, digit: Factors) -> int:
    """How often a digit is in a sum that is nothing else; 0 if it is."""
    if not digit or factors.keys() != digit.keys():
        return 0
    times = {factors[c] // digit[c] for c in digit if factors[c] % digit[c] == 0}
    exact = all(factors[c] % digit[c] == 0 for c in digit)
    return times.pop() if exact and len(times) == 1 else 0


def narrow_all(limit: Limit, ranges: dict[Coordinate, Range]) -> None:
    """What a limit of a sum leaves of each coordinate, whatever the others are."""
    least = {c: min(f * end for end in ranges.get(c, (0, 0))) for c, f in limit.factors.items()}
    for coordinate, factor in limit.factors.items():
        others = sum(low for c, low in least.items() if c != coordinate)
        _narrow_one(Limit({coordinate: factor}, limit.most - others), ranges)


def _narrow_one(limit: Limit, ranges: dict[Coordinate, Range]) -> None:
    ((coordinate, factor),) = limit.factors.items()
    low, high = ranges.get(coordinate, (0, 0))
    if factor > 0:
        high = min(high, limit.most // factor)
    else:
        low = max(low, -(limit.most // -factor))
    ranges[coordinate] = (low, high)


_TURNED = {"gt": "lt", "ge": "le"}
_NEGATED = {"lt": "ge", "ge": "lt", "gt": "le", "le": "gt", "eq": "ne", "ne": "eq"}
