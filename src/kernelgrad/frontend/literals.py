"""Literals and constants: numbers, null pointers, strings."""

from __future__ import annotations

import ast

from ..ir.ops import Global, Value
from ..ir.types import BOOL, I8, Array, Pointer, Scalar, Space, Type
from . import clang
from .clang import Cursor, Kind
from .lowering import FunctionLowering as Fn
from .lowering import Place
from .visiting import children_of

LITERAL = "string literal"  # of the host, which no variable is called


def literal(fn: Fn, c: Cursor) -> Value:
    number = clang.evaluate(c)
    if number is None:
        raise fn.unsupported(c, "this constant cannot be evaluated")
    return constant_of(fn, number, fn.type(c))


def constant_of(fn: Fn, number: int | float, type: Type) -> Value:
    if type == BOOL:
        return fn.constant(bool(number), BOOL)
    is_float = isinstance(type, Scalar) and type.is_float
    return fn.constant(float(number) if is_float else int(number), type)


def null(fn: Fn, c: Cursor) -> Value:
    """Also where a parameter is written as an array."""
    type = fn.types.parameter(c.type, fn.unit.span(c))
    assert isinstance(type, Pointer)
    return fn.b.null(type)


def string_text(fn: Fn, c: Cursor) -> str | None:
    """The text of a string literal, looking through decay and parentheses."""
    try:
        return literal_text(c)
    except (SyntaxError, ValueError) as error:
        raise fn.unsupported(c, "this string literal is not supported") from error


def literal_text(c: Cursor) -> str | None:
    while c.kind != Kind.STRING_LITERAL:
        children = children_of(c)
        if len(children) != 1:
            return None
        c = children[0]
    return str(ast.literal_eval(c.spelling))


def string_place(fn: Fn, c: Cursor) -> Place:
    text = string_text(fn, c)
    assert text is not None
    data = text.encode() + b"\0"
    space: Space = "host" if fn.on_host else "constant"
    key = hash(data) | 1 << (72 if fn.on_host else 70)
    name = fn.module.global_name(key)
    if name is None:
        called = LITERAL if fn.on_host else "string"
        name = fn.module.add_global(Global(called, Array(I8, len(data)), space, data, fn.b.span), key)
    return Place(fn.b.global_ref(name, Array(I8, len(data)), space))
