"""Neighbouring elements of one thread of a gather, loaded and stored 16 bytes at a time.

    y[i - 3] ... y[i + 3], i a multiple of 4      becomes      y[i - 4 .. i - 1], y[i .. i + 3]

Each element collects from a window of others, and the windows of neighbours overlap: a thread that has four of them
loads a few more elements than one has, all at once. What is loaded besides lies before the window in the same 16 bytes,
which begin in the buffer if it begins at such a multiple; or up to three elements behind it, which the caller sees to.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ....analysis.machine import VECTORS
from ....ir.builder import Builder
from ....ir.ops import Apply, Constant, Extract, Load, Offset, Op, PtrCast, Store, Value
from ....ir.traverse import rebuild, substitute
from ....ir.types import I32, Pointer, Scalar


class _Place(NamedTuple):
    """Of an access: the buffer, and how many elements behind the thread's first it is."""

    buffer: Value
    by: int


class Windows:
    """`ops`: straight code. `start`: the index of the thread's first element, a multiple of the lanes of a vector."""

    def __init__(self, ops: list[Op], start: Value, element: Scalar):
        self.ops, self.start = ops, start
        self.vector = VECTORS[element]
        self.lanes, self.element = len(self.vector.fields), element
        self.definition = {v: op for op in ops for v in op.results}
        found = {op: self._place(op.ptr) for op in ops if isinstance(op, Load | Store)}
        self.places: dict[Op, _Place] = {op: place for op, place in found.items() if place is not None}

    @property
    def buffers(self) -> list[Value]:
        """Those that are loaded or stored so."""
        return list(dict.fromkeys(place.buffer for place in self.places.values()))

    def emit(self, b: Builder) -> None:
        """The operations, with wide loads where the first of a vector's elements is wanted, and stores at the end."""
        values: dict[Value, Value] = {}
        loaded: dict[_Place, Value] = {}
        stored: dict[_Place, dict[int, Value]] = {}
        for op in self.ops:
            place = self.places.get(op)
            if place is None:
                b.add(rebuild(op, lambda v: values.get(v, v), lambda block: substitute(block, values)))
                continue
            whole, lane = _Place(place.buffer, place.by // self.lanes), place.by % self.lanes
            if isinstance(op, Store):
                stored.setdefault(whole, {})[lane] = values.get(op.value, op.value)
                continue
            if whole not in loaded:
                loaded[whole] = b.load(self._pointer(b, whole))
            values[op.results[0]] = b.emit(Extract, loaded[whole], lane, type=self.element, name=op.results[0].name)
        for whole, lanes in stored.items():
            self._store(b, whole, lanes)

    def _store(self, b: Builder, whole: _Place, lanes: dict[int, Value]) -> None:
        assert len(lanes) == self.lanes
        b.store(self._pointer(b, whole), b.aggregate(self.vector, tuple(lanes[k] for k in range(self.lanes))))

    def _pointer(self, b: Builder, whole: _Place) -> Value:
        assert isinstance(whole.buffer.type, Pointer)
        first = b.cast_pointer(b.offset(whole.buffer, self.start), Pointer(self.vector, whole.buffer.type.space))
        return b.offset(first, b.constant(whole.by, I32)) if whole.by else first

    def _place(self, ptr: Value) -> _Place | None:
        op = self.definition.get(ptr)
        if not isinstance(ptr.type, Pointer) or ptr.type.pointee != self.element:
            return None
        starts, by = 0, 0
        while isinstance(op, Offset | PtrCast):
            if op.ptr.type != ptr.type:
                return None
            if isinstance(op, Offset):
                found = self._sum(op.index)
                if found is None:
                    return None
                starts, by = starts + found[0], by + found[1]
            ptr = op.ptr
            op = self.definition.get(ptr)
        return _Place(ptr, by) if op is None and starts == 1 else None

    def _sum(self, value: Value) -> tuple[int, int] | None:
        """How often the start is in an integer, and what is added."""
        if value is self.start:
            return 1, 0
        op = self.definition.get(value)
        if isinstance(op, Constant):
            return (0, op.value) if isinstance(op.value, int) else None
        if not isinstance(op, Apply) or op.fn not in _ARITHMETIC:
            return None
        parts = [self._sum(a) for a in op.args]
        known = [p for p in parts if p is not None]
        return _ARITHMETIC[op.fn](*known) if len(known) == len(parts) else None


_Sum = tuple[int, int]


def _times(one: _Sum, other: _Sum) -> _Sum | None:
    if one[0] and other[0]:
        return None
    return one[0] * other[1] + other[0] * one[1], one[1] * other[1]


_ARITHMETIC: dict[str, Callable[..., _Sum | None]] = {
    "add": lambda a, b: (a[0] + b[0], a[1] + b[1]),
    "sub": lambda a, b: (a[0] - b[0], a[1] - b[1]),
    "mul": _times,
    "neg": lambda a: (-a[0], -a[1]),
    "convert": lambda a: a,
}
