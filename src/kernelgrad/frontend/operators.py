"""What C++'s operators compute of values: arithmetic, comparisons, steps of pointers and counters."""

from __future__ import annotations

from ..ir.ops import Value
from ..ir.types import BOOL, I32, I64, Pointer, Scalar, Type
from .clang import Cursor
from .literals import constant_of
from .lowering import FunctionLowering as Fn

ARITHMETIC = {"*": "mul", "/": "div", "%": "rem", "+": "add", "-": "sub", "<<": "shl", ">>": "shr"}
ARITHMETIC |= {"&": "and", "^": "xor", "|": "or"}
_COMPARE = {"<": "lt", ">": "gt", "<=": "le", ">=": "ge", "==": "eq", "!=": "ne"}


def numeric(fn: Fn, v: Value, type: Type) -> Value:
    """A conversion between arithmetic types."""
    return fn.to_bool(v) if type == BOOL else fn.b.convert(v, type)


def as_index(fn: Fn, v: Value) -> Value:
    """What a pointer moves by. Of bools and small integers, clang's tree does not show the promotion."""
    return fn.b.convert(v, promoted(v.type))


def binary(fn: Fn, c: Cursor, operator: str, a: Value, b: Value) -> Value:
    """An operator on values that clang has already brought to their common type."""
    fn.at(c)
    if isinstance(a.type, Pointer) or isinstance(b.type, Pointer):
        return pointer_binary(fn, c, operator, a, b)
    if operator in _COMPARE:
        return fn.b.apply(_COMPARE[operator], a, b)
    if operator not in ARITHMETIC or not isinstance(a.type, Scalar):
        raise fn.unsupported(c, f"operator '{operator}' is not supported here")
    return fn.b.apply(ARITHMETIC[operator], a, b)


def pointer_binary(fn: Fn, c: Cursor, operator: str, a: Value, b: Value) -> Value:
    if isinstance(b.type, Pointer) and not isinstance(a.type, Pointer):
        a, b = b, a
    if isinstance(b.type, Pointer):
        assert isinstance(a.type, Pointer)
        b = fn.b.cast_pointer(b, a.type)
        if operator in _COMPARE:
            return fn.b.apply(_COMPARE[operator], a, b)
        return fn.b.pointer_difference(a, b)
    return fn.b.offset(a, as_index(fn, b) if operator == "+" else fn.b.apply("neg", fn.b.convert(b, I64)))


def step(fn: Fn, old: Value, by: int) -> Value:
    """`old + by`, in the promoted type, as C++ has it."""
    if isinstance(old.type, Pointer):
        return fn.b.offset(old, fn.constant(by, I64))
    wide = promoted(old.type)
    result = fn.b.apply("add", fn.b.convert(old, wide), constant_of(fn, by, wide) if by > 0 else _minus_one(fn, wide))
    return fn.b.convert(result, old.type)


def _minus_one(fn: Fn, type: Type) -> Value:
    assert isinstance(type, Scalar)
    return constant_of(fn, (1 << type.bits) - 1 if type.kind == "uint" else -1, type)


def promoted(type: Type) -> Type:
    """C++'s integer promotion."""
    small = isinstance(type, Scalar) and not type.is_float and type.bits < 32
    return I32 if small else type
