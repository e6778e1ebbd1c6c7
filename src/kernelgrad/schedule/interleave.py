"""Adjoints in arrays of their own that are added to at the same index are interleaved in one array: an access for all.

    d_px[j] += a;  d_py[j] += b;  d_pz[j] += c;    ->    together[4 * j] += a;  [4 * j + 1] += b;  [4 * j + 2] += c;

Each atomic addition of a lane is an access to memory of its own, but neighbours are added in one, four floats at a time
(`backends/cuda/neighbours`). A launch that follows adds to the adjoints what was added here.

Note [Interleaved]
That is possible for memory with which the code does nothing but add to it, since nobody can tell when that happens.
Additions by lanes that are all at different elements (without `Atomic.together`) stay where they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ..analysis.access.constant_offsets import symbol_and_constant
from ..ir.builder import Builder
from ..ir.ops import Atomic, Block, For, Function, Offset, Op, Param, Value, While
from ..ir.traverse import blocks, descend, operands, uses, walk, with_body
from ..ir.types import F32, I64, Pointer

MOST = 4
_MEMORY = "_together_"
Loops = tuple[For | While, ...]
Groups = Sequence[tuple[str, ...]]


@dataclass(frozen=True, eq=False)
class AddsAtIndex:
    """Additions of one IR block at one index, by the parameters they go to. `loops`: those around, from the outside."""

    index: Value
    adds: Mapping[str, Atomic]
    loops: Loops


def adds_by_index(function: Function) -> list[AddsAtIndex]:
    """To memory that is only added to, several at each index; none where `run` has been already."""
    if any(p.name.startswith(_MEMORY) for p in function.params):
        return []
    return list(_Finder(function).inside(function.body, ()))


def width_of(group: tuple[str, ...]) -> int:
    """How many elements there are for each index."""
    return 2 if len(group) == 2 else MOST


def memory_of(number: int) -> str:
    return f"{_MEMORY}{number}"


class _Finder:
    def __init__(self, function: Function):
        self.used = uses(function.body)
        self.offsets = {op.result: op for op in walk(function.body) if isinstance(op, Offset)}
        params = {p.value: p.name for p in function.params if p.type == Pointer(F32, "global")}
        seen = {v for op in walk(function.body) for v in self.seen_by(op)}
        self.names = {v: name for v, name in params.items() if v not in seen}

    def seen_by(self, op: Op) -> Iterator[Value]:
        """The pointers that an operation uses for anything but adding, or what they are offsets of."""
        results = (v for block in blocks(op) for v in block.results)
        for value in (*operands(op), *results):
            offset = self.offsets.get(value)
            if offset is not None and not self.is_addition(op, value):
                yield offset.ptr
            elif offset is None and not isinstance(op, Offset):
                yield value

    def is_addition(self, op: Op, ptr: Value) -> bool:
        adds = isinstance(op, Atomic) and op.ptr is ptr and op.kind == "add" and op.scope == "device"
        return adds and not self.used.get(op.results[0])

    def inside(self, block: Block, loops: Loops) -> Iterator[AddsAtIndex]:
        found: dict[Value, dict[str, Atomic]] = {}
        for op in block.ops:
            if isinstance(op, Atomic) and op.together and (at := self.offsets.get(op.ptr)) and at.ptr in self.names:
                found.setdefault(at.index, {}).setdefault(self.names[at.ptr], op)
            for inner in blocks(op):
                yield from self.inside(inner, (*loops, op) if isinstance(op, For | While) else loops)
        for index, adds in found.items():
            if len(adds) > 1:
                yield AddsAtIndex(index, adds, loops)


def run(function: Function, groups: Groups) -> Function:
    """`groups`: two to four names of parameters each, which get an array together."""
    memory = [_param(number) for number in range(len(groups))]
    definition = {r: op for op in walk(function.body) for r in op.results}
    places = {op: place for place in _places(function, groups, memory, definition) for op in place.slots}

    def block(old: Block) -> Block:
        b, left = Builder(), {places[op]: len(places[op].slots) for op in old.ops if op in places}
        for op in old.ops:
            place = places.get(op)
            if place is None:
                b.add(descend(op, block))
                continue
            b.span = op.span
            place.add(b, op)
            left[place] -= 1
            if not left[place]:
                place.fill(b, op)
        return Block(old.args, tuple(b.ops), old.results)

    return replace(with_body(function, block(function.body)), params=(*function.params, *memory))


def _param(number: int) -> Param:
    name = memory_of(number)
    return Param(Value(Pointer(F32, "global"), name), "float *", restrict=True, variable=name)


def _places(
    function: Function, groups: Groups, memory: list[Param], definition: Mapping[Value, Op]
) -> Iterator[_Place]:
    for found in adds_by_index(function):
        for group, array in zip(groups, memory, strict=True):
            slots: dict[Op, int] = {found.adds[name]: slot for slot, name in enumerate(group) if name in found.adds}
            if len(slots) > 1:
                yield _Place(array.value, width_of(group), *symbol_and_constant(found.index, definition), slots)


@dataclass(frozen=True, eq=False)
class _Place:
    """Where additions of a group go: element `(symbol + constant) * width + slot`, by the slot of each."""

    memory: Value
    width: int
    symbol: Value | None
    constant: int
    slots: dict[Op, int]

    def add(self, b: Builder, op: Op) -> None:
        assert isinstance(op, Atomic)
        b.add(replace(op, ptr=self.at(b, self.slots[op]), results=(Value(op.result.type),)))

    def fill(self, b: Builder, like: Op) -> None:
        """Adds zero to the slots that nothing is added to, so that the access is a whole one."""
        assert isinstance(like, Atomic)
        for slot in range(self.width):
            if slot not in self.slots.values():
                zero = b.constant(0.0, F32)
                b.add(replace(like, ptr=self.at(b, slot), args=(zero,), results=(Value(F32),)))

    def at(self, b: Builder, slot: int) -> Value:
        at = b.constant(self.constant * self.width + slot, I64)
        if self.symbol is not None:
            first = b.apply("mul", b.convert(self.symbol, I64), b.constant(self.width, I64))
            at = b.apply("add", first, at)
        return b.offset(self.memory, at)
