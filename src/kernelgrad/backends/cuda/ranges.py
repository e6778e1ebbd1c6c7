"""Upper bounds of integers that the text shows: enough to see that a shift stays within the width, and that a
cast changes nothing."""

from __future__ import annotations

from collections.abc import Mapping

from ...ir.ops import Apply, Builtin, Constant, For, Op, Value, While
from ...ir.types import Scalar
from .halving import most_trips

_DEPTH = 8


def is_below(value: Value, limit: int, definition: Mapping[Value, Op], counters: Mapping[Value, For]) -> bool:
    """Whether `0 <= value < limit` always holds. `counters` are the loops by their counting values."""
    bound = _Bounds(definition, counters).of(value, _DEPTH)
    return bound is not None and bound < limit


class _Bounds:
    def __init__(self, definition: Mapping[Value, Op], counters: Mapping[Value, For]):
        self.definition, self.counters = definition, counters

    def of(self, value: Value, depth: int) -> int | None:
        """The largest the value can be, if it is never negative; None if that is not plain to see."""
        if depth == 0:
            return None
        if value in self.counters:
            return self.counter(self.counters[value], depth - 1)
        match self.definition.get(value):
            case Constant(number):
                return int(number) if number >= 0 else None
            case Builtin(name) if name in _MOST:
                return _MOST[name]
            case Apply(fn, args) if fn in _BOUNDS:
                return _BOUNDS[fn](*(self.of(a, depth - 1) for a in args))
            case Apply("rem", (_, by)) if isinstance(by.type, Scalar) and by.type.kind == "uint":
                most = self.of(by, depth - 1)
                return most - 1 if most else None
            case Apply("convert", (source,)) if isinstance(source.type, Scalar) and not source.type.is_float:
                return self.of(source, depth - 1)
            case _:
                return None

    def counter(self, loop: For, depth: int) -> int | None:
        lower, upper = self.of(loop.lower, depth), self.of(loop.upper, depth)
        if lower is None and loop.step < 0:
            lower = self.last_trip(loop.lower)
        if lower is None or (upper is None and not self.is_number(loop.upper, -1)):
            return None
        return max(0, upper - 1) if loop.step > 0 and upper is not None else lower if loop.step < 0 else None

    def last_trip(self, value: Value) -> int | None:
        """The most that the number of a loop's last trip can be, if the value is that: -1 where there was none, with
        which no loop begins that counts down to zero."""
        match self.definition.get(value):
            case Apply("sub", (trips, one)) if self.is_number(one, 1):
                loop = self.definition.get(trips)
                most = most_trips(loop, trips, self.definition) if isinstance(loop, While) else None
                return None if most is None else most - 1
            case _:
                return None

    def is_number(self, value: Value, number: int) -> bool:
        op = self.definition.get(value)
        return isinstance(op, Constant) and op.value == number


def _either(a: int | None, b: int | None) -> int | None:
    known = [x for x in (a, b) if x is not None]
    return min(known, default=None)


def _sum(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else a + b


def _product(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else a * b


def _bits(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else (1 << max(a, b).bit_length()) - 1


_MOST = {"lane_id": 31, "thread_idx": 1023, "block_dim": 1024, "block_idx": (1 << 31) - 2, "grid_dim": (1 << 31) - 1}
_BOUNDS = {"and": _either, "or": _bits, "xor": _bits, "add": _sum, "mul": _product}
