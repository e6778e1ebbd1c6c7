"""Which bytes around a pointer's target a launch may touch: an interval for what it loads and one for what it stores.

Every integer has an interval at every place: what conditions around it, loops and arithmetic leave of what its type can
hold. Arithmetic that might wrap leaves all of that. So an index nobody knows anything of, one that was loaded, has an
interval, too, and the footprint is far larger than any memory: whoever asks cuts it off where the memory ends.

`Footprints` follows the body once, with a frame of `intervals` for each block: what holds there, on top of what holds
around it.
"""

from __future__ import annotations

from typing import NamedTuple

from ...deep import deeply
from ...ir.ops import (
    Apply,
    Atomic,
    Block,
    Call,
    For,
    Function,
    If,
    Load,
    Member,
    Offset,
    PtrCast,
    Store,
    Value,
    While,
)
from ...ir.types import Pointer, Struct
from ..roots import UNKNOWN, analyse
from .intervals import Intervals, Numbers
from .ranges import Dim3, Range

ANYWHERE: Range = (-(1 << 70), 1 << 70)
Targets = dict[str, Range]  # where a pointer may point: bytes behind where arguments point, by their paths


class Footprint(NamedTuple):
    """Bytes behind where a pointer points: the first, and that after the last. None where nothing is touched."""

    loads: Range | None = None
    stores: Range | None = None

    @property
    def both(self) -> Range | None:
        found = [r for r in self if r is not None]
        return (min(r[0] for r in found), max(r[1] for r in found)) if found else None


@deeply
def footprints(function: Function, grid: Dim3, block: Dim3, numbers: Numbers) -> dict[str, Footprint]:
    """By the paths of pointers among the arguments, `p` or `s.p`. What is missing is not touched."""
    found = _Footprints(function, grid, block, numbers)
    found.follow(function.body)
    return found.touched


class _Footprints:
    def __init__(self, function: Function, grid: Dim3, block: Dim3, numbers: Numbers):
        self._intervals = Intervals(function, grid, block, numbers)
        self._memory = analyse(function)
        self.touched: dict[str, Footprint] = {}

    # ---- the walk

    def follow(self, block: Block) -> None:
        for op in block.ops:
            match op:
                case If():
                    self._branch(op)
                case For():
                    with self._intervals.counting(op) as is_entered:
                        if is_entered:
                            self.follow(op.body)
                case While():
                    self._repeat(op)
                case Load():
                    self._touch(op.ptr, op.result.type.size, Footprint(loads=(0, 0)))
                case Store():
                    self._touch(op.ptr, op.value.type.size, Footprint(stores=(0, 0)))
                case Atomic():
                    self._touch(op.ptr, op.result.type.size, Footprint((0, 0), (0, 0)))
                case Call():
                    for arg in op.args:
                        self._touch_any(arg)
                case _:
                    pass

    def _branch(self, op: If) -> None:
        for side, holds in ((op.then, True), (op.orelse, False)):
            with self._intervals.assuming(op.cond, holds) as is_possible:
                if is_possible:
                    self.follow(side)

    def _repeat(self, op: While) -> None:
        with self._intervals.repeating(op):
            self.follow(op.before)
            with self._intervals.entering(op) as is_entered:
                if is_entered:
                    self.follow(op.body)

    # ---- what is touched

    def _touch(self, pointer: Value, size: int, how: Footprint) -> None:
        for path, (first, last) in self._targets(pointer).items():
            self._add(path, Footprint(*((first, last + size) if part is not None else None for part in how)))

    def _touch_any(self, value: Value) -> None:
        if isinstance(value.type, Pointer):
            for path in self._anywhere(value):
                self._add(path, Footprint(ANYWHERE, ANYWHERE))

    def _add(self, path: str, new: Footprint) -> None:
        old = self.touched.get(path, Footprint())
        loads, stores = (Footprint(*pair).both for pair in zip(old, new, strict=True))
        self.touched[path] = Footprint(loads, stores)

    # ---- pointers

    def _targets(self, pointer: Value) -> Targets:
        path = self._intervals.path(pointer)
        if path is not None:
            return {path: (0, 0)}
        match self._intervals.definition(pointer):
            case PtrCast(ptr):
                return self._targets(ptr)
            case Member(ptr, index) if isinstance(ptr.type, Pointer) and isinstance(ptr.type.pointee, Struct):
                at = ptr.type.pointee.fields[index].offset
                return _moved(self._targets(ptr), (at, at))
            case Offset(ptr, index) if isinstance(ptr.type, Pointer):
                size, (least, most) = ptr.type.pointee.size, self._intervals.offset(index)
                return _moved(self._targets(ptr), (least * size, most * size))
            case Apply("select", (_, one, other)):
                return _joined(self._targets(one), self._targets(other))
        return self._anywhere(pointer)

    def _anywhere(self, pointer: Value) -> Targets:
        """Of a pointer that nobody followed: in all memory that it may point to."""
        roots = self._memory.of(pointer)
        known = self._intervals.pointers.items()
        return {path: ANYWHERE for root, paths in known if root in roots or UNKNOWN in roots for path in paths}


def _moved(targets: Targets, by: Range) -> Targets:
    return {path: (first + by[0], last + by[1]) for path, (first, last) in targets.items()}


def _joined(one: Targets, other: Targets) -> Targets:
    both = {path: (min(one[path][0], at[0]), max(one[path][1], at[1])) for path, at in other.items() if path in one}
    return {**one, **other, **both}
