"""The cells of shared arrays by their indices, and whether these stay in their rows: `s[1][0]` may be `s[0][33]`."""

from __future__ import annotations

from collections.abc import Callable

from ...ir.builder import pointee
from ...ir.ops import Apply, Block, For, Function, GlobalRef, If, Load, Offset, Op, PtrCast, Store, Value, While
from ...ir.types import Array, Type
from ..access.intervals import Intervals
from ..access.ranges import Range
from ..roots import Memory, is_shared

_PARTS = ("add", "mul", "shl", "convert")
Cell = tuple[tuple[int, tuple[Value, ...]], ...]  # what is summed up to each index, by the bytes of what it counts


def cell_of(ptr: Value, definition: Callable[[Value], Op | None]) -> Cell | None:
    """None where an address is no element of arrays."""
    found: dict[int, tuple[Value, ...]] = {}
    while True:
        match definition(ptr):
            case Offset(inner, index):
                size = pointee(ptr).size
                found[size] = (index, *found.get(size, ()))
                ptr = inner
            case PtrCast(inner):
                ptr = inner
            case GlobalRef():
                return tuple(sorted(found.items()))
            case _:
                return None


def cell_type(root: Value) -> Type:
    type = pointee(root)
    while isinstance(type, Array):
        type = type.element
    return type


def ranges_in_rows(function: Function, memory: Memory, intervals: Intervals) -> dict[Value, Range] | None:
    """Between which numbers the parts of indices into shared memory lie where it is stored to; None where an access may
    leave its row. An index into a whole variable is in it, or the kernel has no meaning."""
    rows = _Rows(memory, intervals)
    return rows.stored if rows.block(function.body) else None


class _Rows:
    def __init__(self, memory: Memory, intervals: Intervals):
        self.memory, self.intervals = memory, intervals
        self.stored: dict[Value, Range] = {}

    def block(self, block: Block) -> bool:
        return all(map(self._op, block.ops))

    def _op(self, op: Op) -> bool:
        match op:
            case Load(ptr) | Store(ptr) if is_shared(ptr):
                return self._access(ptr, isinstance(op, Store))
            case If(cond, then, orelse):
                return self._branch(cond, then, True) and self._branch(cond, orelse, False)
            case For(body=body):
                with self.intervals.counting(op) as happens:
                    return not happens or self.block(body)
            case While(before=before, body=body):
                with self.intervals.repeating(op):
                    return self.block(before) and self._entered(op, body)
        return True

    def _branch(self, cond: Value, side: Block, holds: bool) -> bool:
        with self.intervals.assuming(cond, holds) as happens:
            return not happens or self.block(side)

    def _entered(self, loop: While, body: Block) -> bool:
        with self.intervals.entering(loop) as happens:
            return not happens or self.block(body)

    def _access(self, ptr: Value, stores: bool) -> bool:
        found, cell = self.memory.of(ptr), cell_of(ptr, self.intervals.definition)
        if len(found) != 1 or cell is None:
            return False
        for index in (index for _, indices in cell if stores for index in indices):
            self._note(index)
        (root,) = found
        rows, whole = _rows(pointee(root))
        return all(size == whole or (size in rows and self._is_in(indices, rows[size])) for size, indices in cell)

    def _note(self, index: Value) -> None:
        low, high = self.intervals.of(index)
        before = self.stored.get(index, (low, high))
        self.stored[index] = min(low, before[0]), max(high, before[1])
        op = self.intervals.definition(index)
        for part in op.args if isinstance(op, Apply) and op.fn in _PARTS else ():
            self._note(part)

    def _is_in(self, indices: tuple[Value, ...], count: int) -> bool:
        ranges = [self.intervals.of(index) for index in indices]
        return sum(r[0] for r in ranges) >= 0 and sum(r[1] for r in ranges) < count


def _rows(type: Type) -> tuple[dict[int, int], int]:
    """How many elements of so many bytes a row of each kind has; and the bytes of what the variable is an array of."""
    rows, whole = dict[int, int](), type.element.size if isinstance(type, Array) else type.size
    while isinstance(type, Array):
        rows[type.element.size] = type.count
        type = type.element
    return rows, whole
