"""Tapes of derivatives that are part of a thread of another kernel: in local arrays, or in a frame that is passed.

How much each of these holds is a constant; where it is not, stacks have room for as much as the launch is given memory
for, and say how much they would have needed. A frame without loops has a place for each value; one with loops has
stacks, and a note of how far each of them goes, for the reverse to begin there. One in an arena is one stack.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ...ir.builder import Builder
from ...ir.ops import Op, Param, Value
from ...ir.types import BOOL, I64, U8, Array, Pointer, Struct, Type, element_types
from .tape import Stack, Tape, leaf_types, leaf_values


class LocalTape(Tape):
    """Stacks in local memory: one element beside the other."""

    def __init__(self, prologue: Builder, sizes: Mapping[Type, int]):
        super().__init__(prologue, False, False)
        self.sizes, self.own = sizes, dict[Type, Stack]()

    def _stack(self, type: Type) -> Stack:
        if type not in self.own:
            b = self.prologue
            memory = b.decay(b.alloca(Array(type, max(1, self.sizes[type])), f"_tape_{len(self.own)}"))
            start, position = b.constant(0, I64), b.alloca(I64, "_top")
            b.store(position, start)
            self.own[type] = Stack(type, memory, None, None, position, start, None)
        return self.own[type]

    def threads(self) -> Value:
        if self._threads is None:
            self._threads = self.prologue.constant(1, I64)
        return self._threads


class FrameTape(Tape):
    """Between two functions: `frame` is a parameter of both. `nbytes`: how large what it leads to must be."""

    def __init__(self, prologue: Builder, sizes: Mapping[Type, int], in_loops: bool, values: Iterable[Value]):
        super().__init__(prologue, False, False)
        self.frame = Value(Pointer(U8), "_tape")
        self.own: dict[Type, Stack] = {}
        self._regions: dict[Type, int] = {}
        self._notes: dict[Type, int] = {}
        self._places: dict[Value, list[int]] = {}
        if in_loops:
            for type in sorted(sizes, key=lambda t: -t.size):
                self._regions[type] = self._room(type, sizes[type])
            self._notes = {type: self._room(I64, 1) for type in sizes}
        else:
            for value in sorted(values, key=lambda v: -_largest(v.type)):
                self._places[value] = [self._room(type, 1) for type in leaf_types(value.type)]

    @property
    def params(self) -> tuple[Param, ...]:
        return (Param(self.frame, "void *"),)

    def _room(self, type: Type, count: int) -> int:
        start = -(-self.nbytes // type.size) * type.size
        self.nbytes = start + type.size * count
        return start

    def _at(self, b: Builder, start: int, type: Type) -> Value:
        return b.cast_pointer(b.offset(self.frame, b.constant(start, I64)), Pointer(type))

    # ---- places

    def push(self, b: Builder, value: Value) -> None:
        if self._regions:
            super().push(b, value)
            return
        for leaf, start in zip(leaf_values(b, value), self._places[value], strict=True):
            stored = b.convert(leaf, U8) if leaf.type == BOOL else leaf
            b.store(self._at(b, start, stored.type), stored)

    def restored(self, b: Builder, value: Value) -> Value:
        if self._regions:
            return super().restored(b, value)
        return self._loaded(b, value.type, iter(self._places[value]), value.name)

    def _loaded(self, b: Builder, type: Type, places: Iterable[int], name: str | None = None) -> Value:
        if isinstance(type, Struct | Array):
            return b.aggregate(type, tuple(self._loaded(b, part, places) for part in element_types(type)))
        start = next(iter(places))
        if type == BOOL:
            return b.apply("ne", b.load(self._at(b, start, U8)), b.constant(0, U8))
        return b.load(self._at(b, start, type), name=name)

    # ---- stacks

    def _stack(self, type: Type) -> Stack:
        if type not in self.own:
            b = self.prologue
            memory = self._at(b, self._regions[type], type)
            start, position = b.constant(0, I64), b.alloca(I64, "_top")
            self.own[type] = Stack(type, memory, None, None, position, start, None)
        return self.own[type]

    def threads(self) -> Value:
        if self._threads is None:
            self._threads = self.prologue.constant(1, I64)
        return self._threads

    def start_forward(self) -> list[Op]:
        b = Builder()
        for stack in self.own.values():
            b.store(stack.position, stack.start)
        return b.ops

    def end_forward(self) -> list[Op]:
        b = Builder()
        for type, stack in self.own.items():
            b.store(self._at(b, self._notes[type], I64), b.load(stack.position))
        return b.ops

    def start_reverse(self) -> list[Op]:
        b = Builder()
        for type, stack in self.own.items():
            b.store(stack.position, b.load(self._at(b, self._notes[type], I64)))
        return b.ops


class BoundedTape(Tape):
    """Stacks between two functions that one thread calls, in memory of the launch. `fits`: a parameter of the first one
    that says whether all found room; without that the second must not run. `needed`: where the launch learns how much
    room would do."""

    def __init__(self, prologue: Builder):
        super().__init__(prologue, True, False)
        self.fits = Value(Pointer(BOOL), "_fits")
        self.needed: dict[Type, Value] = {}

    @property
    def params(self) -> tuple[Param, ...]:
        needed = (Param(v, "long long *") for v in self.needed.values())
        return (*super().params, *needed, Param(self.fits, "bool *"))

    def push(self, b: Builder, value: Value) -> None:
        for leaf in leaf_values(b, value):
            stored = b.convert(leaf, U8) if leaf.type == BOOL else leaf
            stack = self._stack(stored.type)
            at = b.load(stack.position)
            with b.region() as region:
                b.store(b.offset(stack.memory, at), stored)
            b.if_(b.apply("lt", at, self._end(b, stack)), region.block())
            b.store(stack.position, b.apply("add", at, self.threads()))

    def _stack(self, type: Type) -> Stack:
        stack = super()._stack(type)
        name = (stack.memory.name or "").removeprefix("_tape")
        self.needed.setdefault(type, Value(Pointer(I64, "global"), f"_needed{name}"))
        return stack

    def _end(self, b: Builder, stack: Stack) -> Value:
        assert stack.capacity is not None
        return b.apply("add", stack.start, b.apply("mul", stack.capacity, self.threads()))

    def end_forward(self) -> list[Op]:
        b = Builder()
        b.store(self.fits, b.constant(True, BOOL))
        for type, stack in self.stacks.items():
            top = b.load(stack.position)
            used = b.apply("div", b.apply("sub", top, stack.start), self.threads())
            b.atomic("max", self.needed[type], used)
            fits = b.apply("le", top, self._end(b, stack))
            b.store(self.fits, b.apply("and", b.load(self.fits), fits))
        return [*super().end_forward(), *b.ops]


class ArenaTape(Tape):
    """Between two functions, of any size: one stack of slots, whatever is in them, behind a note of how far it goes.
    `room`: how large the frame may be, a parameter of the first one; `size`: where that says how large it would be.
    What finds no room is not stored, and then the second must not run."""

    def __init__(self, prologue: Builder, values: Iterable[Value]):
        super().__init__(prologue, False, False)
        self.frame, self.room = Value(Pointer(U8), "_tape"), Value(I64, "_room")
        self.size = Value(Pointer(I64), "_size")
        self.slot = max((leaf.size for v in values for leaf in leaf_types(v.type)), default=1)
        self.position = prologue.alloca(I64, "_top")

    @property
    def params(self) -> tuple[Param, ...]:
        return Param(self.frame, "void *"), Param(self.room, "long long"), Param(self.size, "long long *")

    def push(self, b: Builder, value: Value) -> None:
        for leaf in leaf_values(b, value):
            stored = b.convert(leaf, U8) if leaf.type == BOOL else leaf
            at = b.load(self.position)
            end = b.apply("add", at, b.constant(self.slot, I64))
            with b.region() as region:
                b.store(self._at(b, at, stored.type), stored)
            b.if_(b.apply("le", end, self.room), region.block())
            b.store(self.position, end)

    def pop(self, b: Builder, type: Type, name: str | None = None) -> Value:
        if isinstance(type, Struct | Array):
            return super().pop(b, type, name)
        at = b.apply("sub", b.load(self.position), b.constant(self.slot, I64))
        b.store(self.position, at)
        loaded = b.load(self._at(b, at, U8 if type == BOOL else type), name=name)
        return b.apply("ne", loaded, b.constant(0, U8)) if type == BOOL else loaded

    def _at(self, b: Builder, start: Value, type: Type) -> Value:
        return b.cast_pointer(b.offset(self.frame, start), Pointer(type))

    def start_forward(self) -> list[Op]:
        b = Builder()
        b.store(self.position, b.constant(I64.size, I64))
        return b.ops

    def end_forward(self) -> list[Op]:
        b = Builder()
        end = b.load(self.position)
        b.store(self.size, end)
        with b.region() as region:
            b.store(b.cast_pointer(self.frame, Pointer(I64)), end)
        b.if_(b.apply("le", end, self.room), region.block())
        return b.ops

    def start_reverse(self) -> list[Op]:
        b = Builder()
        b.store(self.position, b.load(b.cast_pointer(self.frame, Pointer(I64))))
        return b.ops


def _largest(type: Type) -> int:
    return max((leaf.size for leaf in leaf_types(type)), default=1)
