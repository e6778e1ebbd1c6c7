"""Divisions that leave nothing, as a condition around a read says.

    int a = r + 1 - u;
    if (a % 2 == 0) ... x[a / 2]

Where x[a] is read, r is 2 * a - 1 + u: the quotient takes the place of one of the thread's coordinates, which follows
from it. So a transposed convolution is a gather over the taps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ....analysis.access.affine import Affine, Part, Sums
from ....analysis.access.executions import DIVISIONS, QUOTIENTS, Executions
from ....ir.ops import Apply, Function, Op, Value
from ....ir.traverse import walk
from .conditions import Conditions, Coordinate, Factors

Guard = tuple[Value, bool]
Pair = tuple[Affine, int]  # what is divided, and by what


class Told(NamedTuple):
    """An operation of the pattern, by number, as multiples of coordinates and a constant."""

    number: int
    factors: tuple[tuple[Coordinate, int], ...]
    const: int


class Exact(Executions):
    """Sums where these divisions leave nothing."""

    def __init__(self, sums: Sums, pairs: frozenset[Pair]):
        super().__init__(sums.structure, sums.shape, sums.known, sums.promised)
        self.pairs = pairs
        self.quotients: set[Part] = set()

    def _apply(self, op: Apply, fn: str, args: tuple[Value, ...]) -> Affine | None:
        pair = divided(self, op)
        if pair is None or pair not in self.pairs:
            return super()._apply(op, fn, args)
        return self.quotient(*pair) if fn in QUOTIENTS else Affine(0)

    def quotient(self, of: Affine, by: int) -> Affine:
        """What is not negative is divided, as everywhere, less what was added for that."""
        more = max(0, -(self.range(of)[0] // by))
        part = Part(of.plus(Affine(by * more)), by, True)
        self.extents[part] = self.range(part.of)[1] // by + 1
        self.quotients.add(part)
        return Affine(-more, ((part, 1),))


def pairs_in(sums: Sums, guards: Iterable[Guard]) -> frozenset[Pair]:
    """The divisions of which conditions say that they leave nothing. Of a multiple of the divisor and a number, that is
    so everywhere or nowhere: nothing follows from it."""
    found = (pair for cond, holds in guards for pair in _pairs(sums, cond, holds))
    return frozenset((of, by) for of, by in found if any(c % by for _, c in of.terms))


def divided(sums: Sums, op: Op | None) -> Pair | None:
    """What an operation divides, and by what, of which a remainder of zero says that it is a multiple."""
    if not isinstance(op, Apply) or op.fn not in DIVISIONS:
        return None
    over, under = map(sums.of, op.args)
    if over is None or under is None or under.terms or any(sums.extents[b] is None for b, _ in over.terms):
        return None
    by = DIVISIONS[op.fn](under.const)
    return (over, by) if by > 0 else None


def _pairs(sums: Sums, cond: Value, holds: bool) -> Iterator[Pair]:
    match sums.condition(cond):
        case Apply("not", (inner,)):
            yield from _pairs(sums, inner, not holds)
        case Apply("and" | "or" as fn, args) if (fn == "and") == holds:
            for arg in args:
                yield from _pairs(sums, arg, holds)
        case Apply("eq" | "ne" as fn, args) if (fn == "eq") == holds:
            for one, other in (args, args[::-1]):
                yield from _equal(sums, one, other)


def _equal(sums: Sums, one: Value, other: Value) -> Iterator[Pair]:
    """`a % 2 == 0`, or `a / 2 * 2 == a`."""
    op, to = sums.structure.definition.get(one), sums.of(other)
    if to is None or not isinstance(op, Apply):
        return
    pair = divided(sums, op)
    if pair is not None and op.fn not in QUOTIENTS and to == Affine(0):
        yield pair
    if op.fn == "mul":
        for quotient, times in (op.args, op.args[::-1]):
            inner = sums.structure.definition.get(quotient)
            pair = divided(sums, inner)
            if pair == (to, _number(sums, times)) and isinstance(inner, Apply) and inner.fn in QUOTIENTS:
                yield pair


def _number(sums: Sums, value: Value) -> int | None:
    found = sums.of(value)
    return None if found is None or found.terms else found.const


def with_quotients(conditions: Conditions, sums: Sums, address: Affine, loops: list[Op]) -> Conditions | None:
    """Conditions in which quotients that an address is made of stand for coordinates; None where none follows."""
    if not isinstance(sums, Exact):
        return conditions
    found = Conditions(sums, conditions.axes)
    for basis, _ in address.terms:
        if isinstance(basis, Part) and basis in sums.quotients:
            inner = found.factors(basis.of, loops)
            chosen = None if inner is None else next((c for c, f in inner[0].items() if _follows(c, f)), None)
            if inner is None or chosen is None:
                return None
            place = Coordinate("quotient", len(found.quotients))
            found.quotients[basis] = place
            found.derived[chosen] = _solved(chosen, inner, place, basis.by)
    circular = any(c in found.derived for factors, _ in found.derived.values() for c in factors)
    return None if circular else found


def _follows(coordinate: Coordinate, factor: int) -> bool:
    return coordinate.kind == "axis" and abs(factor) == 1


def _solved(of: Coordinate, sum_: tuple[Factors, int], quotient: Coordinate, by: int) -> tuple[Factors, int]:
    """A coordinate from `by * quotient = sum`."""
    factors, const = sum_
    sign = factors[of]
    others = {c: -sign * f for c, f in factors.items() if c != of and f}
    return {quotient: sign * by, **others}, -sign * const


def _is_solved(sums: Exact, pair: Pair, conditions: Conditions) -> bool:
    """Whether the quotient stands for a coordinate: then only those are tried that leave nothing."""
    return any(basis in conditions.quotients for basis, _ in sums.quotient(*pair).terms)


def told(function: Function, conditions: Conditions, loops: list[Op]) -> tuple[Told, ...]:
    """The divisions of a function that leave nothing, by coordinates."""
    sums, found = conditions.sums, list[Told]()
    if not isinstance(sums, Exact):
        return ()
    for number, op in enumerate(walk(function.body)):
        pair = divided(sums, op)
        result = sums.of(op.result) if pair is not None and pair in sums.pairs else None
        solved = pair is not None and result is not None and _is_solved(sums, pair, conditions)
        place = conditions.factors(result, loops) if result is not None and solved else None
        if place is not None:
            found.append(Told(number, tuple((c, f) for c, f in place[0].items() if f), place[1]))
    return tuple(found)
