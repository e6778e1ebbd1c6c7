"""Loops as turns: in a launch, turn k of a loop runs if and only if `k * step < distance`.

A row's loops are written in many ways, and reversed they count down from a number of trips that another loop, or a
division, has found. Turn k of the reverse is what turn k of the forward was, so that all are compared as one.
"""

from __future__ import annotations

from typing import NamedTuple

from ...analysis.access.affine import Affine, Basis
from ...analysis.access.executions import Executions
from ...analysis.access.loop_bounds import ends_of
from ...analysis.induction import find_step
from ...analysis.structure import Structure, carried_as
from ...ir.builder import Builder
from ...ir.ops import Apply, Constant, For, Value, While
from ...ir.types import I64, Scalar, limits

_MOST = 1 << 40  # of what 64 bits compare without coming round


class Count(NamedTuple):
    """How often a loop goes round: `distance` in coefficients, which has no order."""

    const: int
    coefficients: frozenset[tuple[Basis, int]]
    step: int

    @property
    def distance(self) -> Affine:
        return Affine(self.const, tuple(self.coefficients))


class Test(NamedTuple):
    """What a loop that counts up tests before each turn: `start + k * step < bound + more`; from zero, if there is no
    start. The step is a value, or a number."""

    start: Value | None
    bound: Value
    more: int
    step: Value | int


def test_of(loop: For | While, structure: Structure) -> Test | None:
    """Of values that are known before the loop."""
    if isinstance(loop, For):
        return Test(loop.lower, loop.upper, 0, loop.step) if loop.step > 0 else None
    for end in ends_of(loop, structure):
        step = find_step(loop, end.value, structure)
        if step is None or step.fn != "add" or step.start is None or structure.is_inside(end.bounds[0], loop):
            continue
        return Test(step.start, end.bounds[0], end.more, step.amount if step.by is None else step.by)
    return None


def holds(b: Builder, test: Test, turn: Value) -> Value:
    """Whether a turn is taken."""
    step = b.constant(test.step, I64) if isinstance(test.step, int) else b.convert(test.step, I64)
    at = b.apply("mul", b.convert(turn, I64), step)
    bound = b.convert(test.bound, I64)
    if test.start is not None:
        at = b.apply("add", b.convert(test.start, I64), at)
    if test.more:
        bound = b.apply("add", bound, b.constant(test.more, I64))
    return b.apply("lt", at, bound)


def counter(b: Builder, loop: For, turn: Value, start: Value | None = None) -> Value:
    """What a loop counts, in a turn. `start`: what stands for its lower bound."""
    type, name = loop.lower.type, loop.body.args[0].name
    if loop.step < 0:
        return b.convert(turn, type, name=name)
    counted = b.apply("mul", b.convert(turn, type), b.constant(loop.step, type))
    return b.apply("add", start or loop.lower, counted, name=name)


class TurnSums(Executions):
    """Sums in which the counter of a loop that counts down is the number of its turn. `most`: of those turns."""

    def count(self, loop: For | While) -> Count | None:
        if isinstance(loop, For):
            return self._counted(loop) if loop.step > 0 else self._of_trips(loop)
        for end in ends_of(loop, self.structure):
            start, bound = self.of(end.value), self.common(end.bounds)
            step = 0 if start is None else start.slope(end.value)
            if (
                start is not None
                and bound is not None
                and step > 0
                and self._is_monotone(end.value, start, bound, step)
            ):
                distance = bound.plus(start, -1).plus(Affine(end.more))
                return self._count(Affine(distance.const, tuple(distance.rest(end.value).items())), step)
        return None

    def turns(self, count: Count) -> tuple[int, int]:
        """At least and at most how many, of all threads."""
        low, high = self.range(count.distance)
        return max(0, -(-low // count.step)), max(0, -(-high // count.step))

    def per_turn(self, sum_: Affine, loop: For | While) -> tuple[Affine, int]:
        """What stays the same in all turns of a loop, and what each adds."""
        own = [(basis, c) for basis, c in sum_.terms if self.loops.get(basis) is loop]
        return Affine(sum_.const, tuple(sum_.rest(*(basis for basis, _ in own)).items())), sum(c for _, c in own)

    def _count(self, distance: Affine, step: int) -> Count | None:
        """None where it depends on what is not one number for a thread."""
        if any(self.extents[basis] is None or basis in self.wrapping for basis, _ in distance.terms):
            return None
        if not all(abs(end) < _MOST for end in self.range(distance)):
            return None
        return Count(distance.const, frozenset(distance.terms), step)

    def _counted(self, loop: For) -> Count | None:
        lower, upper = self.of(loop.lower), self.of(loop.upper)
        return None if lower is None or upper is None else self._count(upper.plus(lower, -1), loop.step)

    def _is_monotone(self, value: Value, start: Affine, bound: Affine, step: int) -> bool:
        """Whether what is tested never comes round, and is not negative where that would be a large number."""
        if not isinstance(value.type, Scalar):
            return False
        first = Affine(start.const, tuple(start.rest(value).items()))
        most = limits(value.type)[1]
        return self.range(first)[0] >= 0 and max(self.range(first)[1], self.range(bound)[1] + 1) + step <= most

    # ---- loops that count down

    def _of_trips(self, loop: For) -> Count | None:
        if not self._is_countdown(loop):
            return None
        last, trips = self.of(loop.lower), self._trips_of(loop)
        if last is not None:
            return self._count(last.plus(Affine(1)), 1)
        match None if trips is None else self.structure.definition.get(trips):
            case While() as counting if trips is not None and _counts(counting, trips, self.structure):
                return self.count(counting)
            case Apply("div", (rounded, by)):
                return self._rounded_up(rounded, self.of(by))
        return None

    def _is_countdown(self, loop: For | While) -> bool:
        """To zero, in steps of one."""
        end = self.structure.definition.get(loop.upper) if isinstance(loop, For) and loop.step == -1 else None
        return isinstance(end, Constant) and end.value == -1

    def _trips_of(self, loop: For) -> Value | None:
        """`for (trip = trips - 1; trip > -1; --trip)`"""
        start = self.structure.definition.get(loop.lower)
        if isinstance(start, Apply) and start.fn == "sub" and self.of(start.args[1]) == Affine(1):
            return start.args[0]
        return None

    def _rounded_up(self, rounded: Value, by: Affine | None) -> Count | None:
        """`max(distance + step - 1, 0) / step`"""
        found = self.of(_positive(rounded, self.structure) or rounded)
        if found is None or by is None or by.terms or by.const <= 0:
            return None
        return self._count(found.plus(Affine(1 - by.const)), by.const)

    def _counter(self, loop: For, value: Value) -> Affine | None:
        count = self._of_trips(loop) if loop.step == -1 else None
        if count is None:
            return super()._counter(loop, value)
        self.extents[value], self.loops[value] = max(1, self.turns(count)[1]), loop
        return Affine(0, ((value, 1),))

    def test(self, loop: For | While) -> Test | None:
        """Also of a loop that counts down: what the loop tested that it is the reverse of."""
        if not isinstance(loop, For) or not self._is_countdown(loop):
            return test_of(loop, self.structure)
        trips = self._trips_of(loop)
        match None if trips is None else self.structure.definition.get(trips):
            case While() as counting:
                return test_of(counting, self.structure)
            case Apply("div", (rounded, by)) if (step := self.of(by)) is not None and not step.terms:
                distance = _positive(rounded, self.structure)
                return None if distance is None else Test(None, distance, 1 - step.const, step.const)
        return Test(None, loop.lower, 1, 1)


def _positive(value: Value, structure: Structure) -> Value | None:
    """What the greater of it and zero is taken of."""
    op = structure.definition.get(value)
    zero = structure.definition.get(op.args[1]) if isinstance(op, Apply) and op.fn == "max" else None
    return op.args[0] if isinstance(op, Apply) and isinstance(zero, Constant) and zero.value == 0 else None


def _counts(loop: While, result: Value, structure: Structure) -> bool:
    """Whether a result is the number of turns: it is there once more than it is tested, if `before` does nothing."""
    index = carried_as(loop, loop.results.index(result))
    if index is None:
        return False
    start, following = (structure.definition.get(v) for v in (loop.inits[index], loop.body.results[index]))
    if not (
        isinstance(start, Constant) and start.value == 0 and isinstance(following, Apply) and following.fn == "add"
    ):
        return False
    arg = loop.body.args[loop.results.index(result)]
    others = [structure.definition.get(v) for v in following.args if v is not arg]
    return len(others) == 1 and isinstance(others[0], Constant) and others[0].value == 1
