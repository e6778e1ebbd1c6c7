"""Copies and assignments that no one wrote: member by member, by the members' own functions where they have any."""

from __future__ import annotations

from ..ir.builder import pointee
from ..ir.ops import Value
from ..ir.types import I32, Array, Struct, Type
from .clang import Cursor, Kind
from .lowering import FunctionLowering as Fn


def construct_copy(fn: Fn, to: Value, of: Value, moves: bool) -> None:
    """What an implicit copy or move constructor does."""
    _each(fn, to, of, "move" if moves else "copy")


def assign(fn: Fn, to: Value, of: Value, moves: bool) -> None:
    """What an implicit assignment does."""
    _each(fn, to, of, "move=" if moves else "copy=")


def is_by_code(fn: Fn, type: Type) -> bool:
    """Whether copying or assigning an object is more than copying its bytes."""
    while isinstance(type, Array):
        type = type.element
    if not isinstance(type, Struct):
        return False
    own = any(_of_kind(fn, type, how) is not None for how in _KINDS)
    return own or any(is_by_code(fn, field.type) for field in type.fields)


def _each(fn: Fn, to: Value, of: Value, how: str) -> None:
    from .calls import call_function

    type = pointee(to)
    if not is_by_code(fn, type):
        fn.b.store(to, fn.b.load(of))
        return
    if isinstance(type, Array):
        for k in range(type.count):
            index = fn.constant(k, I32)
            _each(fn, fn.b.offset(fn.b.decay(to), index), fn.b.offset(fn.b.decay(of), index), how)
        return
    assert isinstance(type, Struct)
    written = _written(fn, type, how)
    if written is not None:
        fn.unit.check_body(written)
        call_function(fn, written, [fn.generic(to), fn.generic(of)], fn.b.span)
        return
    for k in range(len(type.fields)):
        _each(fn, fn.b.member(to, k), fn.b.member(of, k), how)


_KINDS = ("copy", "move", "copy=", "move=")


def _written(fn: Fn, struct: Struct, how: str) -> Cursor | None:
    """The user's own; moving is copying where nobody wrote how to move."""
    found = _of_kind(fn, struct, how)
    if found is None and how.startswith("move"):
        found = _of_kind(fn, struct, how.replace("move", "copy"))
    return found


def _of_kind(fn: Fn, struct: Struct, how: str) -> Cursor | None:
    for member in fn.members(struct):
        if _kind(member) == how and not member.is_default_method() and member.get_definition() is not None:
            return member.get_definition()
    return None


def _kind(member: Cursor) -> str | None:
    if member.kind == Kind.CONSTRUCTOR:
        return "copy" if member.is_copy_constructor() else "move" if member.is_move_constructor() else None
    if member.kind == Kind.CXX_METHOD:
        return "copy=" if member.is_copy_assignment_operator_method() else (
            "move=" if member.is_move_assignment_operator_method() else None)  # fmt: skip
    return None
