"""The tape: one stack per type and thread, in buffers the launcher provides.

Element k of a thread's stack lies at `segment + k * threads + thread`, so that neighbouring threads touch neighbouring
addresses. A segment belongs to a block. Where trip counts are known before the launch all segments hold `capacity`
elements per thread; where they are counted, each block has a segment of the length it needs, and one long thread does
not cost memory for all. Offsets are 64-bit.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...ir.builder import Builder, linear_block, linear_thread
from ...ir.ops import Op, Param, Value
from ...ir.types import BOOL, I64, U8, U32, U64, Array, Pointer, Scalar, Struct, Type, element_types


@dataclass(frozen=True)
class Stack:
    type: Type
    memory: Value  # parameter: the buffer
    capacity: Value | None  # parameter: elements per thread, the same for every block, or
    segments: Value | None  # parameter: where each block's segment begins
    position: Value  # variable: where the next element goes
    start: Value  # where the thread's stack begins
    tops: Value | None  # parameter of a split: where each thread's forward stopped

    @property
    def params(self) -> tuple[Param, ...]:
        params = [Param(self.memory, "void *")]
        if self.capacity is not None:
            params.append(Param(self.capacity, "long long"))
        params += [Param(v, "long long *") for v in (self.segments, self.tops) if v is not None]
        return tuple(params)


class Tape:
    """Pushes and pops; `prologue` is code at the start of the function. `keep_top`: another launch does the popping.
    `counted`: segments differ in length. `bits`: bools that registers hold."""

    def __init__(self, prologue: Builder, keep_top: bool, counted: bool, bits: int = 0):
        self.prologue, self.keep_top, self.counted = prologue, keep_top, counted
        self.bits = BitStack(prologue, bits) if bits else None
        self.stacks: dict[Type, Stack] = {}
        self.nbytes = 0  # of a frame, which this has not
        self._threads: Value | None = None

    @property
    def params(self) -> tuple[Param, ...]:
        """Where the launcher passes it."""
        return tuple(p for stack in self.stacks.values() for p in stack.params)

    def push(self, b: Builder, value: Value) -> None:
        if self.bits is not None and value.type == BOOL:
            self.bits.push(b, value)
            return
        for leaf in leaf_values(b, value):
            stack = self._stack(_stored_type(leaf.type))
            at = b.load(stack.position)
            b.store(b.offset(stack.memory, at), b.convert(leaf, U8) if leaf.type == BOOL else leaf)
            b.store(stack.position, b.apply("add", at, self.threads()))

    def pop(self, b: Builder, type: Type, name: str | None = None) -> Value:
        if isinstance(type, Struct | Array):
            parts = element_types(type)
            return b.aggregate(type, tuple(reversed([self.pop(b, part) for part in reversed(parts)])))
        stack = self._stack(_stored_type(type))
        at = b.apply("sub", b.load(stack.position), self.threads())
        b.store(stack.position, at)
        loaded = b.load(b.offset(stack.memory, at), name=name)
        return b.apply("ne", loaded, b.constant(0, U8)) if type == BOOL else loaded

    def restored(self, b: Builder, value: Value) -> Value:
        """What was pushed last, which is this value of a block's frame."""
        if self.bits is not None and value.type == BOOL:
            return self.bits.pop(b)
        return self.pop(b, value.type, value.name)

    def _stack(self, type: Type) -> Stack:
        if type not in self.stacks:
            name = type.name if isinstance(type, Scalar) else f"pointers{len(self.stacks)}"
            b = self.prologue
            memory = Value(Pointer(type, "global"), f"_tape_{name}")
            capacity = None if self.counted else Value(I64, f"_capacity_{name}")
            segments = Value(Pointer(I64, "global"), f"_segments_{name}") if self.counted else None
            start = self.start(b, capacity, segments)
            position = b.alloca(I64, f"_top_{name}")
            tops = Value(Pointer(I64, "global"), f"_tops_{name}") if self.keep_top else None
            if not self.keep_top:
                b.store(position, start)
            self.stacks[type] = Stack(type, memory, capacity, segments, position, start, tops)
        return self.stacks[type]

    def start(self, b: Builder, capacity: Value | None, segments: Value | None) -> Value:
        """Where the thread's first element lies."""
        if capacity is not None:
            segment = b.apply("mul", b.apply("mul", linear_block(b), capacity), self.threads())
        else:
            assert segments is not None
            segment = b.load(b.offset(segments, linear_block(b)))
        return b.apply("add", segment, linear_thread(b))

    def start_forward(self) -> list[Op]:
        b = Builder()
        for stack in self.stacks.values():
            b.store(stack.position, stack.start)
        return b.ops

    def end_forward(self) -> list[Op]:
        """Leaves a note of where the forward sweep stopped, for the reverse to begin there."""
        b = Builder()
        for stack in self.stacks.values():
            b.store(self._note(b, stack), b.load(stack.position))
        return b.ops

    def start_reverse(self) -> list[Op]:
        b = Builder()
        for stack in self.stacks.values():
            b.store(stack.position, b.load(self._note(b, stack)))
        return b.ops

    def _note(self, b: Builder, stack: Stack) -> Value:
        assert stack.tops is not None
        thread = b.apply("add", b.apply("mul", linear_block(b), self.threads()), linear_thread(b))
        return b.offset(stack.tops, thread)

    def threads(self) -> Value:
        """Threads per block, the distance between a thread's elements."""
        if self._threads is None:
            b = self.prologue
            x, y, z = (b.convert(b.builtin("block_dim", axis), I64) for axis in range(3))
            self._threads = b.apply("mul", b.apply("mul", x, y), z, name="~threads")
        return self._threads


class BitStack:
    """Bools in registers of the thread: the last one in the lowest bit of the first, from which others move on."""

    def __init__(self, prologue: Builder, count: int):
        self.type = U32 if count <= U32.bits else U64
        words = -(-count // self.type.bits)
        self.words = [prologue.alloca(self.type, "_bits") for _ in range(words)]
        for word in self.words:
            prologue.store(word, prologue.constant(0, self.type))

    def push(self, b: Builder, value: Value) -> None:
        one, top = b.constant(1, self.type), b.constant(self.type.bits - 1, self.type)
        low = b.convert(value, self.type)
        for word in self.words:
            bits = b.load(word)
            b.store(word, b.apply("or", b.apply("shl", bits, one), low))
            low = b.apply("shr", bits, top)

    def pop(self, b: Builder) -> Value:
        one, top = b.constant(1, self.type), b.constant(self.type.bits - 1, self.type)
        words = [b.load(word) for word in self.words]
        for k, word in enumerate(self.words):
            moved = b.apply("shr", words[k], one)
            if k + 1 < len(words):
                moved = b.apply("or", moved, b.apply("shl", words[k + 1], top))
            b.store(word, moved)
        return b.apply("ne", b.apply("and", words[0], one), b.constant(0, self.type))


def leaf_values(b: Builder, value: Value) -> list[Value]:
    if not isinstance(value.type, Struct | Array):
        return [value]
    count = len(element_types(value.type))
    return [leaf for k in range(count) for leaf in leaf_values(b, b.extract(value, k))]


def leaf_types(type: Type) -> list[Type]:
    if isinstance(type, Struct | Array):
        return [leaf for part in element_types(type) for leaf in leaf_types(part)]
    return [_stored_type(type)]


def _stored_type(type: Type) -> Type:
    return U8 if type == BOOL else type
