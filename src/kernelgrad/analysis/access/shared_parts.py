"""Parts of a launch's dynamic shared memory across which nothing reaches: arrays that a kernel lays out in it.

extern __shared__ float s[];  float *q = s, *k = s + rows * d, *v = k + columns * d;
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ...ir.builder import pointee
from ...ir.ops import (
    Apply,
    Atomic,
    Block,
    For,
    Function,
    GlobalRef,
    If,
    Load,
    Member,
    Offset,
    Op,
    PtrCast,
    Store,
    Value,
    While,
)
from ...ir.traverse import blocks, operands, walk
from ...ir.types import U8, Array, Pointer, Struct, Type
from .intervals import Intervals

_ALIGN = 16  # bytes, of the largest vectors
_MOST = 16  # parts


class SharedPart(NamedTuple):
    """`start`: in bytes from where the memory begins. `type`: of its elements."""

    start: int
    nbytes: int
    type: Type


class SharedPlace(NamedTuple):
    """Of an access. `constants`: which steps on the way to its pointer have a constant offset; `moved`: what these add
    up to, in bytes from the part's start."""

    part: int
    constants: tuple[int, ...]
    moved: int


class SharedLayout(NamedTuple):
    """`places`: of the accesses, in the order in which they stand. `numbers`: the arguments that say where parts begin,
    by their names: sizes of tiles, as a rule."""

    variable: str
    parts: tuple[SharedPart, ...]
    places: tuple[SharedPlace, ...]
    numbers: tuple[tuple[str, int], ...]


class _Reach(NamedTuple):
    """The bytes between which an access lies. `constants`: the offsets of steps on its way that have a constant one.
    `type`: of the element that it is in."""

    start: int
    end: int
    constants: dict[int, int]
    type: Type


_UNREACHABLE = _Reach(0, 0, {}, U8)


def accesses_of(function: Function, variable: str) -> list[Load | Store | Atomic]:
    """To a shared variable, in the order in which they stand."""
    definition = {v: op for op in walk(function.body) for v in op.results}
    accesses = (op for op in walk(function.body) if isinstance(op, Load | Store | Atomic))
    return [op for op in accesses if _variable(op.ptr, definition) == variable]


def way_to(ptr: Value, definition: dict[Value, Op]) -> list[Op]:
    """The operations by which a pointer comes from a variable, from that on; none if it comes otherwise."""
    way = []
    while (op := definition.get(ptr)) is not None:
        way.append(op)
        if isinstance(op, GlobalRef):
            return way[::-1]
        if not isinstance(op, PtrCast | Offset | Member):
            break
        ptr = op.ptr
    return []


def _variable(ptr: Value, definition: dict[Value, Op]) -> str | None:
    way = way_to(ptr, definition)
    return way[0].name if way and isinstance(way[0], GlobalRef) else None


def layout_of(function: Function, variable: str, nbytes: int, intervals: Intervals) -> SharedLayout | None:
    """If there are several parts. `nbytes`: of the memory."""
    accesses = accesses_of(function, variable)
    if not only_accessed(accesses, function, variable):
        return None
    reaching = _Reaching(function, accesses, intervals)
    reaching.follow(function.body)
    reaches = [reaching.found.get(id(op), _UNREACHABLE) for op in accesses]
    if not all(reach.start >= 0 and reach.end <= nbytes for reach in reaches):
        return None
    reached = [reach for reach in reaches if reach is not _UNREACHABLE]
    parts = list(_parted(reached)) if reached else []
    if not 1 < len(parts) <= _MOST:
        return None
    at = tuple(_place(reach, parts) for reach in reaches)
    whole = all(own.moved % _size(op) == 0 for own, op in zip(at, accesses, strict=True))
    return SharedLayout(variable, tuple(parts), at, tuple(reaching.numbers())) if whole else None


def _size(op: Load | Store | Atomic) -> int:
    assert isinstance(op.ptr.type, Pointer)
    return op.ptr.type.pointee.size


def _place(reach: _Reach, parts: list[SharedPart]) -> SharedPlace:
    number = next((k for k, part in reversed(list(enumerate(parts))) if part.start <= reach.start), 0)
    return SharedPlace(number, tuple(reach.constants), sum(reach.constants.values()) - parts[number].start)


def only_accessed(accesses: list[Load | Store | Atomic], function: Function, variable: str) -> bool:
    """Whether nothing else is done with pointers to the variable."""
    pointers = {op.result for op in walk(function.body) if isinstance(op, GlobalRef) and op.name == variable}
    for op in walk(function.body):
        if isinstance(op, PtrCast | Offset | Member) and op.ptr in pointers:
            pointers.add(op.result)
    known = {id(op) for op in accesses}
    for op in walk(function.body):
        used = [v for v in (*operands(op), *_results(op)) if v in pointers]
        is_access = id(op) in known and used == [op.ptr]  # type: ignore[attr-defined]
        if used and not is_access and not (isinstance(op, PtrCast | Offset | Member) and op.result in pointers):
            return False
    return bool(accesses)


def reaches_of(
    function: Function, accesses: list[Load | Store | Atomic], intervals: Intervals
) -> dict[int, tuple[int, int]]:
    """The bytes between which accesses lie that threads get to, from where their variable begins."""
    reaching = _Reaching(function, accesses, intervals)
    reaching.follow(function.body)
    return {number: (reach.start, reach.end) for number, reach in reaching.found.items()}


def _results(op: Op) -> Iterator[Value]:
    """Of its blocks."""
    return (v for block in blocks(op) for v in block.results)


class _Reaching:
    """Follows the body, and finds how far accesses reach."""

    def __init__(self, function: Function, accesses: list[Load | Store | Atomic], intervals: Intervals):
        self.intervals = intervals
        self.definition = {v: op for op in walk(function.body) for v in op.results}
        self.accesses = {id(op) for op in accesses}
        self.found: dict[int, _Reach] = {}  # where nobody gets to, there is none
        self.params = {p.value: p.name for p in function.params}
        self.indices: dict[Value, None] = {}  # that are constants

    def follow(self, block: Block) -> None:
        for op in block.ops:
            match op:
                case If():
                    for side, holds in ((op.then, True), (op.orelse, False)):
                        with self.intervals.assuming(op.cond, holds) as is_possible:
                            if is_possible:
                                self.follow(side)
                case For():
                    with self.intervals.counting(op) as is_entered:
                        if is_entered:
                            self.follow(op.body)
                case While():
                    with self.intervals.repeating(op):
                        self.follow(op.before)
                        with self.intervals.entering(op) as is_entered:
                            if is_entered:
                                self.follow(op.body)
                case Load(ptr) | Store(ptr) | Atomic(_, ptr) if id(op) in self.accesses:
                    self.found[id(op)] = self._reach(ptr)

    def _reach(self, ptr: Value) -> _Reach:
        first = last = 0
        constants: dict[int, int] = {}
        type = element = pointee(ptr)
        for number, step in enumerate(way_to(ptr, self.definition)):
            match step:
                case Offset(_, index):
                    element = pointee(step.result)
                    least, most = (end * element.size for end in self.intervals.offset(index))
                    first, last = first + least, last + most
                    if least == most:
                        constants[number] = least
                        self.indices[index] = None
                case Member(base, index):
                    struct = pointee(base)
                    assert isinstance(struct, Struct)
                    first, last = (end + struct.fields[index].offset for end in (first, last))
                case PtrCast():
                    element = pointee(step.result)
        return _Reach(first, last + type.size, constants, element)

    def numbers(self) -> Iterator[tuple[str, int]]:
        """The arguments that constant indices are computed from."""
        todo, seen = list(self.indices), set[Value]()
        while todo:
            value = todo.pop()
            if value in seen:
                continue
            seen.add(value)
            op = self.definition.get(value)
            if isinstance(op, Apply):
                todo += op.args
            elif value in self.params:
                least, most = self.intervals.of(value)
                if least == most:
                    yield self.params[value], least


def _parted(reaches: list[_Reach]) -> Iterator[SharedPart]:
    """By what overlaps, or begins in what others are aligned to."""
    group: list[_Reach] = []
    for reach in sorted(reaches, key=lambda r: r.start):
        if group and reach.start // _ALIGN * _ALIGN >= max(r.end for r in group):
            yield _part(group)
            group = []
        group.append(reach)
    yield _part(group)


def _part(group: list[_Reach]) -> SharedPart:
    start = group[0].start // _ALIGN * _ALIGN
    type = max((reach.type for reach in group), key=lambda t: (t.align, t.size))
    end = max(reach.end for reach in group)
    count = -(-(end - start) // type.size)
    return SharedPart(start, count * type.size, type)


def array_of(part: SharedPart) -> Array:
    return Array(part.type, part.nbytes // part.type.size)
