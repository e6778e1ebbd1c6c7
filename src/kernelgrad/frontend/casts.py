"""Conversions, implicit and written: one row per kind of cast that clang tells apart."""

from __future__ import annotations

from collections.abc import Callable

from ..ir.builder import pointee
from ..ir.ops import Value
from ..ir.types import U64, Array, Pointer, Struct, Type
from . import clang, expressions, literals
from .clang import Cursor
from .lowering import FunctionLowering as Fn
from .lowering import Place
from .operators import numeric
from .visiting import operand_of


def cast_value(fn: Fn, c: Cursor) -> Value | None:
    inner = operand_of(c)
    if inner is None:
        return literals.literal(fn, c)
    handler = _CASTS.get(clang.cast_kind(c))
    if handler is None:
        raise fn.unsupported(c, f"this conversion to '{c.type.spelling}' is not supported")
    return handler(fn, c, inner)


def _cast_same(fn: Fn, c: Cursor, inner: Cursor) -> Value | None:
    return expressions.value_or_none(fn, inner)


def _cast_numeric(fn: Fn, c: Cursor, inner: Cursor) -> Value:
    v = expressions.value(fn, inner)
    fn.at(c)
    return numeric(fn, v, fn.type(c))


def _cast_decay(fn: Fn, c: Cursor, inner: Cursor) -> Value:
    target = expressions.place(fn, inner).ptr
    if not isinstance(pointee(target), Array):
        raise fn.unsupported(c, "this array cannot be used as a pointer here")
    return fn.generic(fn.b.decay(target))


def _cast_function(fn: Fn, c: Cursor, inner: Cursor) -> Value:
    raise fn.unsupported(c, *expressions.FUNCTION_POINTER)


def _cast_pointer(fn: Fn, c: Cursor, inner: Cursor) -> Value:
    v, type = expressions.value(fn, inner), fn.types.parameter(c.type, fn.unit.span(c))
    if not isinstance(type, Pointer) or not isinstance(v.type, Pointer):
        raise fn.unsupported(c, f"this conversion to '{c.type.spelling}' is not supported")
    return fn.b.cast_pointer(v, type)


def _cast_null(fn: Fn, c: Cursor, inner: Cursor) -> Value:
    return literals.null(fn, c)


def _cast_integer_to_pointer(fn: Fn, c: Cursor, inner: Cursor) -> Value:
    if clang.evaluate(inner) == 0:
        return literals.null(fn, c)
    raise fn.unsupported(c, "an integer cannot be turned into a pointer", "pass the pointer itself")


def _cast_address(fn: Fn, c: Cursor, inner: Cursor) -> Value:
    return numeric(fn, fn.b.apply("address", expressions.value(fn, inner), type=U64), fn.type(c))


def _cast_base(fn: Fn, c: Cursor, inner: Cursor) -> Value:
    type = fn.type(c)
    if isinstance(type, Pointer):
        return to_base(fn, c, expressions.value(fn, inner), type.pointee)
    return fn.b.load(to_base(fn, c, expressions.temporary(fn, inner).ptr, type))


def to_base(fn: Fn, c: Cursor, ptr: Value, base: Type) -> Value:
    """The address of a base class inside a derived object; clang's cast may skip several levels."""
    derived = pointee(ptr)
    if derived == base:
        return ptr
    if isinstance(derived, Struct) and isinstance(base, Struct):
        index = fn.types.base_index(derived, base)
        if index is not None:
            return fn.b.member(ptr, index)
        for k, field in enumerate(derived.fields):
            if field.name.startswith("_base") and isinstance(field.type, Struct) and _derives(fn, field.type, base):
                return to_base(fn, c, fn.b.member(ptr, k), base)
    raise fn.unsupported(c, "this conversion to a base class is not supported")


def _derives(fn: Fn, derived: Struct, base: Struct) -> bool:
    if fn.types.base_index(derived, base) is not None:
        return True
    return any(
        isinstance(f.type, Struct) and f.name.startswith("_base") and _derives(fn, f.type, base) for f in derived.fields
    )


def _cast_derived(fn: Fn, c: Cursor, inner: Cursor) -> Value:
    """Base to derived: right for a base at offset 0, which a first base always is."""
    v, type = expressions.value(fn, inner), fn.type(c)
    assert isinstance(type, Pointer)
    return fn.b.cast_pointer(v, type)


def _cast_bits(fn: Fn, c: Cursor, inner: Cursor) -> Value:
    v = expressions.value(fn, inner)
    return fn.b.apply("bitcast", v, type=fn.type(c))


def _cast_void(fn: Fn, c: Cursor, inner: Cursor) -> None:
    expressions.effect(fn, inner)


_CASTS: dict[int, Callable[[Fn, Cursor, Cursor], Value | None]] = {
    1: _cast_pointer,
    3: _cast_bits,
    4: _cast_same,
    5: _cast_same,
    6: _cast_derived,
    7: _cast_base,
    8: _cast_base,
    11: _cast_decay,
    12: _cast_function,
    13: _cast_null,
    19: _cast_same,
    20: _cast_same,
    21: _cast_integer_to_pointer,
    22: _cast_address,
    23: _cast_numeric,
    24: _cast_void,
    27: _cast_numeric,
    28: _cast_numeric,
    29: _cast_numeric,
    36: _cast_numeric,
    37: _cast_numeric,
    38: _cast_numeric,
    39: _cast_numeric,
}


def cast_place(fn: Fn, c: Cursor) -> Place:
    inner = operand_of(c)
    if inner is None:
        raise fn.unsupported(c, "this expression is not supported")
    kind = clang.cast_kind(c)
    if kind in (7, 8):
        found = expressions.place(fn, inner)
        return Place(to_base(fn, c, found.ptr, fn.type(c)), found.volatile)
    if kind == 2 or kind == 6:  # reinterpret_cast<T &>, or base to derived
        ptr = expressions.place(fn, inner).ptr
        assert isinstance(ptr.type, Pointer)
        return Place(fn.b.cast_pointer(ptr, Pointer(fn.type(c), ptr.type.space)))
    return expressions.place(fn, inner)
