"""Between which numbers an integer lies where it is used, in every launch, and what it is the sum of: from types,
CUDA's limits, loops, and the conditions that hold there.

A sum is one of whole numbers, and equal to the value but for multiples of 2 ** bits, since that is how integers wrap.
Where all that the sum may be fits into the type, they are equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from ...ir.ops import Apply, Builtin, Constant, For, Op, Value
from ...ir.types import Scalar, Type
from .ranges import COMBINED, Range

_DEEP = 12  # operations behind an integer that are looked at
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
    """The constant, and values so many times each."""

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
        """Those of the values, without the constant."""
        return Sum(0, {v: n for v, n in self.terms.items() if wanted(v)})


class _Counted(NamedTuple):
    lower: Value
    upper: Value
    step: int


class Bounds:
    """`definition`: of a value, if it has one."""

    def __init__(self, definition: Callable[[Value], Op | None]):
        self.definition = definition
        self._counters: dict[Value, _Counted] = {}
        self._told: dict[Value, Range] = {}  # by conditions that hold here
        self._found: dict[Value, Range] = {}

    def enter(self, loop: For, lower: Value, upper: Value) -> None:
        self._counters[loop.body.args[0]] = _Counted(lower, upper, loop.step)

    @contextmanager
    def where(self, facts: Mapping[Value, bool]) -> Iterator[None]:
        """Where these conditions are true, or false."""
        told, found = self._told, self._found
        self._told, self._found = dict(told), {}
        for condition, truth in facts.items():
            self._learn(self.definition(condition), truth)
        yield
        self._told, self._found = told, found

    # ---- ranges

    def of(self, value: Value, deep: int = _DEEP) -> Range:
        """An integer, or a bool."""
        if value in self._told:
            return self._told[value]
        if deep == 0:
            return type_range(value.type)
        if value not in self._found:
            whole = type_range(value.type)
            found = self._computed(value, deep - 1)
            self._found[value] = whole if found is None or not is_within(found, whole) else found
        return self._found[value]

    def _computed(self, value: Value, deep: int) -> Range | None:
        if value in self._counters:
            return self._counted(self._counters[value], deep)
        match self.definition(value):
            case Constant(number) if isinstance(number, int):
                return int(number), int(number)
            case Builtin(name, _):
                return _BUILTINS.get(name)
            case Apply("convert", (source,)) if is_integer(source.type):
                return self.of(source, deep)
            case Apply("neg", (arg,)):
                low, high = self.of(arg, deep)
                return -high, -low
            case Apply("select", (_, one, other)):
                ranges = self.of(one, deep), self.of(other, deep)
                return min(low for low, _ in ranges), max(high for _, high in ranges)
            case Apply("rem", (left, right)):
                return _remainder(self.of(left, deep), self.of(right, deep))
            case Apply(fn, (left, right)) if fn in COMBINED:
                return COMBINED[fn](self.of(left, deep), self.of(right, deep))
        return None

    def _counted(self, loop: _Counted, deep: int) -> Range:
        lower, upper = self.of(loop.lower, deep), self.of(loop.upper, deep)
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
        """And what it was converted from."""
        known = self.of(value)
        low, high = max(known[0], to[0]), min(known[1], to[1])
        op = self.definition(value)
        if low > high or isinstance(op, Constant):  # nothing runs here
            return
        if (low, high) != known:
            self._told[value] = low, high
            self._found = {}
        if isinstance(op, Apply) and op.fn == "convert" and is_integer(op.args[0].type):
            (source,) = op.args
            whole, wide = type_range(source.type), type_range(value.type)
            keeps_bits = wide[1] - wide[0] >= whole[1] - whole[0]
            if is_within(self.of(source), wide) or (keeps_bits and low >= 0 and high <= whole[1]):
                self._narrow(source, (low, high))

    # ---- sums

    def exact(self, value: Value) -> Sum | None:
        """What it is equal to."""
        found = self.sum_of(value)
        return found if is_within(self.range_of(found), type_range(value.type)) else None

    def range_of(self, sum_: Sum) -> Range:
        low = high = sum_.constant
        for value, times in sum_.terms.items():
            ends = [times * end for end in self.of(value)]
            low, high = low + min(ends), high + max(ends)
        return low, high

    def sum_of(self, value: Value, deep: int = _DEEP) -> Sum:
        """What it is but for multiples of 2 ** bits."""
        found = None if value in self._told or deep == 0 else self._sum(value, deep - 1)
        return Sum(0, {value: 1}) if found is None or len(found.terms) > _MOST_TERMS else found

    def _sum(self, value: Value, deep: int) -> Sum | None:
        match self.definition(value):
            case Constant(number) if isinstance(number, int):
                return Sum(int(number))
            case Apply("add", (left, right)):
                return self.sum_of(left, deep) + self.sum_of(right, deep)
            case Apply("sub", (left, right)):
                return self.sum_of(left, deep) + self.sum_of(right, deep).times(-1)
            case Apply("neg", (arg,)):
                return self.sum_of(arg, deep).times(-1)
            case Apply("mul", (left, right)):
                for one, other in ((left, right), (right, left)):
                    if isinstance(factor := self.definition(other), Constant):
                        return self.sum_of(one, deep).times(int(factor.value))
            case Apply("convert", (source,)) if is_integer(source.type) and source.type != value.type:
                if not is_within(self.of(source), type_range(value.type)):
                    return None
                inner = self.sum_of(source, deep)
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
    """With the sign of what is divided."""
    if by[0] <= 0:
        return None
    most = by[1] - 1
    return (max(-most, of[0]) if of[0] < 0 else 0), (min(most, of[1]) if of[1] > 0 else 0)
