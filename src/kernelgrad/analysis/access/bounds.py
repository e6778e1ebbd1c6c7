"""The range of an integer where it is used, in every launch, and the linear sum that it is: from types, CUDA's limits,
loops, and the conditions that hold there. (`ranges` knows one launch, and no conditions.)

A sum is of mathematical integers: it is the value modulo 2 ** bits, since that is how integers wrap, and equal to it
where the sum's whole range fits into the type.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from ...ir.ops import Apply, Builtin, Constant, For, Op, Value
from ...ir.types import Scalar, Type
from .ranges import COMBINED, Range

_MAX_DEPTH = 12  # of operations behind an integer that are looked at
_MOST_TERMS = 8
_MOST_THREADS = 1024
_MOST_BLOCKS = 2**31 - 1
_BUILTINS: dict[str, Range] = {
    "thread_idx": (0, _MOST_THREADS - 1),
    "block_dim": (1, _MOST_THREADS),
    "block_idx": (0, _MOST_BLOCKS - 1),
    "grid_dim": (1, _MOST_BLOCKS),
    "lane_id": (0, 63),
    "warp_size": (32, 64),
}
_OPPOSITE = {"lt": "ge", "ge": "lt", "gt": "le", "le": "gt", "eq": "ne", "ne": "eq"}
_SWAPPED = {"gt": "lt", "ge": "le", "eq": "eq"}


@dataclass(frozen=True)
class Sum:
    """`constant + n * value + ...`; `terms` has the n of each value."""

    constant: int = 0
    terms: Mapping[Value, int] = field(default_factory=dict)

    def __add__(self, other: Sum) -> Sum:
        terms = dict(self.terms)
        for value, times in other.terms.items():
            terms[value] = terms.get(value, 0) + times
        return Sum(self.constant + other.constant, {v: n for v, n in terms.items() if n})

    def times(self, factor: int) -> Sum:
        return Sum(self.constant * factor, {v: n * factor for v, n in self.terms.items() if n * factor})

    def only(self, wanted: Callable[[Value], bool]) -> Sum:
        """The terms of these values, without the constant."""
        return Sum(0, {v: n for v, n in self.terms.items() if wanted(v)})


class _Loop(NamedTuple):
    lower: Value
    upper: Value
    step: int


class Bounds:
    """`definition`: the operation that defines a value, if one does."""

    def __init__(self, definition: Callable[[Value], Op | None]):
        self.definition = definition
        self._loops: dict[Value, _Loop] = {}  # by their counters
        self._narrowed: dict[Value, Range] = {}  # by conditions that hold here
        self._computed: dict[Value, Range] = {}

    def enter(self, loop: For, lower: Value, upper: Value) -> None:
        self._loops[loop.body.args[0]] = _Loop(lower, upper, loop.step)

    @contextmanager
    def where(self, facts: Mapping[Value, bool]) -> Iterator[None]:
        """Inside, these conditions are true, or false."""
        narrowed, computed = self._narrowed, self._computed
        self._narrowed, self._computed = dict(narrowed), {}
        for condition, truth in facts.items():
            self._learn(self.definition(condition), truth)
        yield
        self._narrowed, self._computed = narrowed, computed

    # ---- ranges

    def of(self, value: Value, depth: int = _MAX_DEPTH) -> Range:
        """The range of an integer, or a bool."""
        if value in self._narrowed:
            return self._narrowed[value]
        if depth == 0:
            return type_range(value.type)
        if value not in self._computed:
            whole = type_range(value.type)
            found = self._compute(value, depth - 1)
            self._computed[value] = whole if found is None or not is_within(found, whole) else found
        return self._computed[value]

    def _compute(self, value: Value, depth: int) -> Range | None:
        if value in self._loops:
            return self._of_counter(self._loops[value], depth)
        match self.definition(value):
            case Constant(number) if isinstance(number, int):
                return int(number), int(number)
            case Builtin(name, _):
                return _BUILTINS.get(name)
            case Apply("convert", (source,)) if is_integer(source.type):
                return self.of(source, depth)
            case Apply("neg", (arg,)):
                low, high = self.of(arg, depth)
                return -high, -low
            case Apply("select", (_, one, other)):
                ranges = self.of(one, depth), self.of(other, depth)
                return min(low for low, _ in ranges), max(high for _, high in ranges)
            case Apply("rem", (left, right)):
                return _remainder(self.of(left, depth), self.of(right, depth))
            case Apply(fn, (left, right)) if fn in COMBINED:
                return COMBINED[fn](self.of(left, depth), self.of(right, depth))
        return None

    def _of_counter(self, loop: _Loop, depth: int) -> Range:
        lower, upper = self.of(loop.lower, depth), self.of(loop.upper, depth)
        if loop.step > 0:
            return lower[0], max(lower[0], upper[1] - 1)
        return min(lower[1], upper[0] + 1), lower[1]

    # ---- conditions

    def _learn(self, op: Op | None, truth: bool) -> None:
        if not isinstance(op, Apply) or op.fn not in _OPPOSITE or not all(is_integer(v.type) for v in op.args):
            return
        fn, (left, right) = op.fn if truth else _OPPOSITE[op.fn], op.args
        if fn in ("gt", "ge"):
            fn, left, right = _SWAPPED[fn], right, left
        if fn == "ne":
            return
        less, more = self.of(left), self.of(right)
        if fn == "eq":
            self._narrow(left, more)
            self._narrow(right, less)
            return
        apart = 1 if fn == "lt" else 0
        self._narrow(left, (less[0], more[1] - apart))
        self._narrow(right, (less[0] + apart, more[1]))

    def _narrow(self, value: Value, to: Range) -> None:
        """The value, and what it was converted from."""
        known = self.of(value)
        low, high = max(known[0], to[0]), min(known[1], to[1])
        op = self.definition(value)
        if low > high or isinstance(op, Constant):  # nothing runs here
            return
        if (low, high) != known:
            self._narrowed[value] = low, high
            self._computed = {}
        if isinstance(op, Apply) and op.fn == "convert" and is_integer(op.args[0].type):
            (source,) = op.args
            whole, wide = type_range(source.type), type_range(value.type)
            keeps_bits = wide[1] - wide[0] >= whole[1] - whole[0]
            if is_within(self.of(source), wide) or (keeps_bits and low >= 0 and high <= whole[1]):
                self._narrow(source, (low, high))

    # ---- sums

    def exact(self, value: Value) -> Sum | None:
        """The sum that equals the value; None where it may wrap around."""
        found = self.sum_of(value)
        return found if is_within(self.range_of(found), type_range(value.type)) else None

    def range_of(self, sum_: Sum) -> Range:
        low = high = sum_.constant
        for value, times in sum_.terms.items():
            ends = [times * end for end in self.of(value)]
            low, high = low + min(ends), high + max(ends)
        return low, high

    def sum_of(self, value: Value, depth: int = _MAX_DEPTH) -> Sum:
        """The sum that is the value modulo 2 ** bits."""
        found = None if value in self._narrowed or depth == 0 else self._sum(value, depth - 1)
        return Sum(0, {value: 1}) if found is None or len(found.terms) > _MOST_TERMS else found

    def _sum(self, value: Value, depth: int) -> Sum | None:
        match self.definition(value):
            case Constant(number) if isinstance(number, int):
                return Sum(int(number))
            case Apply("add", (left, right)):
                return self.sum_of(left, depth) + self.sum_of(right, depth)
            case Apply("sub", (left, right)):
                return self.sum_of(left, depth) + self.sum_of(right, depth).times(-1)
            case Apply("neg", (arg,)):
                return self.sum_of(arg, depth).times(-1)
            case Apply("mul", (left, right)):
                for one, other in ((left, right), (right, left)):
                    if isinstance(factor := self.definition(other), Constant):
                        return self.sum_of(one, depth).times(int(factor.value))
            case Apply("convert", (source,)) if is_integer(source.type) and source.type != value.type:
                if not is_within(self.of(source), type_range(value.type)):
                    return None
                inner = self.sum_of(source, depth)
                is_equal = is_within(self.range_of(inner), type_range(source.type))
                return inner if is_equal else Sum(0, {source: 1})
        return None


def is_integer(type: Type) -> bool:
    return isinstance(type, Scalar) and type.kind in ("int", "uint")


def type_range(type: Type) -> Range:
    assert isinstance(type, Scalar)
    if type.kind == "bool":
        return 0, 1
    least = -(2 ** (type.bits - 1)) if type.kind == "int" else 0
    return least, least + 2**type.bits - 1


def is_within(inner: Range, outer: Range) -> bool:
    return outer[0] <= inner[0] and inner[1] <= outer[1]


def _remainder(of: Range, by: Range) -> Range | None:
    """C++'s: with the sign of the dividend."""
    if by[0] <= 0:
        return None
    most = by[1] - 1
    return (max(-most, of[0]) if of[0] < 0 else 0), (min(most, of[1]) if of[1] > 0 else 0)
