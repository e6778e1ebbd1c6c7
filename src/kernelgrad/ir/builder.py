"""Building IR: a `Builder` appends operations to the block under construction and gives back their results."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ..errors import UNKNOWN, InternalError, Span
from .functions import PURE
from .ops import (
    Aggregate,
    Alloca,
    Apply,
    Atomic,
    AtomicKind,
    Block,
    Builtin,
    Constant,
    Extract,
    For,
    GlobalRef,
    If,
    Insert,
    Load,
    Member,
    Offset,
    Op,
    PtrCast,
    PtrDiff,
    Scope,
    Store,
    Undef,
    Value,
    While,
)
from .types import BOOL, I64, U32, Array, Pointer, Space, Struct, Type, element_types, innermost


def result_type(fn: str, args: tuple[Value, ...], given: Type | None = None) -> Type:
    """The type of `Apply(fn, args)`."""
    row = PURE[fn]
    if row.result == "bool":
        return BOOL
    if row.result == "same":
        return args[1 if fn == "select" else 0].type
    if given is None:
        raise InternalError(f"the result type of '{fn}' must be given")
    return given


class Builder:
    """`span` is stamped on what is built; set it as lowering moves through the source."""

    def __init__(self, span: Span = UNKNOWN):
        self.span = span
        self.ops: list[Op] = []

    def add(self, op: Op) -> Op:
        self.ops.append(op)
        return op

    def emit(
        self, op_class: Callable[..., Op], *fields: Any, type: Type | None = None, name: str | None = None, **attrs: Any
    ) -> Value:
        """Append an operation with one result of `type`."""
        assert type is not None
        return self.add(op_class(*fields, results=(Value(type, name),), span=self.span, **attrs)).result

    def effect(self, op_class: Callable[..., Op], *fields: Any, **attrs: Any) -> None:
        """Append an operation without a result."""
        self.add(op_class(*fields, span=self.span, **attrs))

    # ---- values

    def constant(self, value: int | float | bool, type: Type) -> Value:
        return self.emit(Constant, value, type=type)

    def null(self, type: Pointer) -> Value:
        return self.emit(Constant, 0, type=type)

    def undef(self, type: Type, name: str | None = None) -> Value:
        return self.emit(Undef, type=type, name=name)

    def apply(self, fn: str, *args: Value, type: Type | None = None, name: str | None = None) -> Value:
        return self.emit(Apply, fn, args, type=result_type(fn, args, type), name=name)

    def convert(self, value: Value, type: Type, name: str | None = None) -> Value:
        return value if value.type == type else self.apply("convert", value, type=type, name=name)

    def aggregate(self, type: Struct | Array, args: tuple[Value, ...]) -> Value:
        return self.emit(Aggregate, args, type=type)

    def extract(self, aggregate: Value, index: int) -> Value:
        assert isinstance(aggregate.type, Struct | Array)
        return self.emit(Extract, aggregate, index, type=element_types(aggregate.type)[index])

    def insert(self, aggregate: Value, value: Value, index: int) -> Value:
        return self.emit(Insert, aggregate, value, index, type=aggregate.type)

    def builtin(self, name: str, axis: int = 0, type: Type = U32) -> Value:
        return self.emit(Builtin, name, axis, type=type)

    # ---- memory

    def alloca(self, type: Type, name: str | None = None) -> Value:
        return self.emit(Alloca, type=Pointer(type, "local"), name=name)

    def global_ref(self, name: str, type: Type, space: Space) -> Value:
        return self.emit(GlobalRef, name, type=Pointer(type, space), name=name)

    def offset(self, ptr: Value, index: Value) -> Value:
        return self.emit(Offset, ptr, index, type=ptr.type)

    def member(self, ptr: Value, index: int) -> Value:
        struct = pointee(ptr)
        assert isinstance(struct, Struct) and isinstance(ptr.type, Pointer)
        return self.emit(Member, ptr, index, type=Pointer(struct.fields[index].type, ptr.type.space))

    def cast_pointer(self, ptr: Value, type: Pointer) -> Value:
        return ptr if ptr.type == type else self.emit(PtrCast, ptr, type=type)

    def decay(self, ptr: Value) -> Value:
        """From the address of an array to the address of its first element."""
        array = pointee(ptr)
        assert isinstance(array, Array) and isinstance(ptr.type, Pointer)
        return self.cast_pointer(ptr, Pointer(array.element, ptr.type.space))

    def elements(self, ptr: Value) -> Value:
        """From the address of an array, of arrays perhaps, to that of the first number in it."""
        assert isinstance(ptr.type, Pointer)
        return self.cast_pointer(ptr, Pointer(innermost(pointee(ptr)), ptr.type.space))

    def pointer_difference(self, left: Value, right: Value) -> Value:
        return self.emit(PtrDiff, left, right, type=I64)

    def load(self, ptr: Value, volatile: bool = False, name: str | None = None) -> Value:
        return self.emit(Load, ptr, volatile, type=pointee(ptr), name=name)

    def store(self, ptr: Value, value: Value, volatile: bool = False) -> None:
        self.effect(Store, ptr, value, volatile)

    def atomic(self, kind: AtomicKind, ptr: Value, *args: Value, scope: Scope = "device") -> Value:
        return self.emit(Atomic, kind, ptr, args, scope, type=pointee(ptr))

    # ---- control

    @contextmanager
    def region(self) -> Iterator[Region]:
        """Collects what is built inside the `with` into a region: `region.block(args, results)` afterwards."""
        outer, self.ops = self.ops, []
        region = Region()
        try:
            yield region
        finally:
            region.ops, self.ops = self.ops, outer

    def if_(self, cond: Value, then: Block, orelse: Block | None = None, exits: bool = False) -> tuple[Value, ...]:
        results = tuple(Value(v.type, v.name) for v in then.results)
        orelse = Block((), (), ()) if orelse is None else orelse
        self.add(If(cond, then, orelse, exits, results=results, span=self.span))
        return results

    def for_(
        self, lower: Value, upper: Value, inits: tuple[Value, ...], step: int, body: Block, unroll: int | None = None
    ) -> tuple[Value, ...]:
        results = tuple(Value(v.type, arg.name) for v, arg in zip(inits, body.args[1:], strict=True))
        self.add(For(lower, upper, inits, step, body, unroll, results=results, span=self.span))
        return results

    def while_(
        self, inits: tuple[Value, ...], before: Block, body: Block, unroll: int | None = None
    ) -> tuple[Value, ...]:
        results = tuple(Value(v.type, v.name) for v in before.results[1:])
        self.add(While(inits, before, body, unroll, results=results, span=self.span))
        return results


class Region:
    """The operations collected by `Builder.region`."""

    def __init__(self) -> None:
        self.ops: list[Op] = []

    def block(self, args: tuple[Value, ...] = (), results: tuple[Value, ...] = ()) -> Block:
        return Block(args, tuple(self.ops), results)


def pointee(ptr: Value) -> Type:
    if not isinstance(ptr.type, Pointer):
        raise InternalError(f"expected a pointer, got {ptr.type}")
    return ptr.type.pointee


# ---- numbers in the whole block or grid ------------------------------------------------------------------------------


def linear_thread(b: Builder) -> Value:
    return _linear(b, "thread_idx", "block_dim", "~thread")


def linear_block(b: Builder) -> Value:
    return _linear(b, "block_idx", "grid_dim", "~block")


def linear_warp(b: Builder) -> Value:
    """The number of the warp in the grid."""
    x, y, z = (b.convert(b.builtin("block_dim", axis), I64) for axis in range(3))
    threads = b.apply("mul", b.apply("mul", x, y), z)
    lanes = b.constant(32, I64)
    warps = b.apply("div", b.apply("add", threads, b.constant(31, I64)), lanes)
    return b.apply("add", b.apply("mul", linear_block(b), warps), b.apply("div", linear_thread(b), lanes))


def _linear(b: Builder, index: str, extent: str, name: str) -> Value:
    (x, y, z) = (b.convert(b.builtin(index, axis), I64) for axis in range(3))
    width, height = (b.convert(b.builtin(extent, axis), I64) for axis in range(2))
    rows = b.apply("add", y, b.apply("mul", z, height))
    return b.apply("add", x, b.apply("mul", rows, width), name=name)
