"""Lambdas: a closure object whose fields are the captures, and a method that finds its variables there."""

from __future__ import annotations

from ..ir.ops import Value
from ..ir.types import Struct
from . import clang
from .clang import Cursor, Kind, identity
from .copies import construct_copy, is_by_code
from .lowering import Closure, Place
from .lowering import FunctionLowering as Fn
from .types import is_reference
from .variables import variable_place
from .visiting import children_of, fields_of, walk


def closure_value(fn: Fn, c: Cursor) -> Value:
    """The closure object, and a note of its captures for when its call operator is lowered."""
    struct = fn.type(c)
    assert isinstance(struct, Struct)
    captured = _captures(c)
    fields = fields_of(c.type)
    takes_this = len(fields) == len(captured) + 1 and fn.this is not None
    if len(fields) != len(captured) and not takes_this:
        raise fn.unsupported(c, "this lambda's captures are not supported", "capture the variables by name")
    if takes_this:
        return _closure_of_this(fn, c, struct, captured, fields)
    closure = Closure(
        {identity(v): (k, is_reference(f.type)) for k, (v, f) in enumerate(zip(captured, fields, strict=True))}
    )
    fn.module.closures[identity(c.type.get_declaration())] = closure
    return _aggregate(fn, c, struct, captured, fields)


def _aggregate(fn: Fn, c: Cursor, struct: Struct, captured: list[Cursor], fields: list[Cursor]) -> Value:
    parts = tuple(_capture(fn, c, v, f) for v, f in zip(captured, fields, strict=True))
    fn.at(c)
    return fn.b.aggregate(struct, parts)


def _closure_of_this(fn: Fn, c: Cursor, struct: Struct, captured: list[Cursor], fields: list[Cursor]) -> Value:
    """`this` is captured where the field is a pointer to the class around the lambda."""
    assert fn.this is not None
    at = next((k for k, f in enumerate(fields) if fn.types.lower(f.type, fn.b.span) == fn.this.type), None)
    if at is None:
        raise fn.unsupported(c, "this lambda's captures are not supported", "capture the variables by name")
    others = [f for k, f in enumerate(fields) if k != at]
    indices = [k for k in range(len(fields)) if k != at]
    captures = {identity(v): (k, is_reference(f.type)) for k, v, f in zip(indices, captured, others, strict=True)}
    fn.module.closures[identity(c.type.get_declaration())] = Closure(captures, at)
    parts = [_capture(fn, c, v, f) for v, f in zip(captured, others, strict=True)]
    parts.insert(at, fn.this)
    return fn.b.aggregate(struct, tuple(parts))


def _capture(fn: Fn, c: Cursor, variable: Cursor, field: Cursor) -> Value:
    if (
        variable.kind == Kind.VAR_DECL
        and identity(variable) not in fn.variables
        and clang.initializer(variable) is not None
    ):
        fn.variables[identity(variable)] = _init_capture(fn, variable)
    found = variable_place(fn, variable, c)
    if is_reference(field.type):
        return fn.generic(found.ptr)
    type = fn.types.lower(field.type, fn.b.span)
    if not is_by_code(fn, type):
        return fn.generic(fn.load(found))
    copied = fn.object(type)
    construct_copy(fn, copied, found.ptr, moves=False)
    return fn.b.load(copied)


def _init_capture(fn: Fn, variable: Cursor) -> Place:
    """`[name = expression]` or `[&name = object]`."""
    from .expressions import place, value

    start = clang.initializer(variable)
    assert start is not None
    if is_reference(variable.type):
        return Place(fn.generic(place(fn, start).ptr))
    type = fn.types.lower(variable.type, fn.b.span)
    return Place(fn.variable(type, variable.spelling, value(fn, start)))


def _captures(c: Cursor) -> list[Cursor]:
    """Captured variables in the order of the closure's fields: explicit ones, then implicit ones by first use."""
    found: dict[int, Cursor] = {}
    for child in children_of(c):
        if child.kind == Kind.VARIABLE_REF:
            found.setdefault(identity(child.referenced), child.referenced)
        elif child.kind == Kind.VAR_DECL:
            found.setdefault(identity(child), child)
    for node in walk(c):
        captured = node.kind == Kind.DECL_REF_EXPR and clang.is_captured(node) and node.referenced is not None
        if captured and _declared_outside(node.referenced, c):
            found.setdefault(identity(node.referenced), node.referenced)
    return list(found.values())


def _declared_outside(variable: Cursor, c: Cursor) -> bool:
    """A lambda inside this one also captures variables of this one's own body: those are not ours."""
    where, extent = variable.location, c.extent
    return not (extent.start.offset <= where.offset < extent.end.offset)
