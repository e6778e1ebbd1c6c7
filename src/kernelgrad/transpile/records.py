"""Structs and arrays of floating-point numbers as values of host code that is recorded: each is a copy in memory of its
own, beside which its adjoint lies. As an adjoint, such memory is an array of its one floating-point type: integers
beside the numbers have none, and so are zero there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..errors import Span
from ..ir.ops import Aggregate, Extract, HostCall, Insert, Load, Op, Store, Value
from ..ir.types import U64, Array, Pointer, Scalar, Struct, Type, element_types
from .recorded_calls import SPELLED, not_yet
from .recording_text import TAPE

if TYPE_CHECKING:
    from .recorded_function import Skeleton


def is_record(type: Type) -> bool:
    """Whether it holds numbers, and is none."""
    return isinstance(type, Struct | Array) and any(isinstance(t, Scalar) and t.is_float for t in _leaves(type))


def numbers_of(type: Type) -> str | None:
    """How the one type of all its numbers is spelled; none where there are several, or pointers."""
    leaves = set(_leaves(type))
    floats = {t.name for t in leaves if isinstance(t, Scalar) and t.is_float}
    has_one = len(floats) == 1 and floats <= SPELLED.keys() and not any(isinstance(t, Pointer) for t in leaves)
    return SPELLED[floats.pop()] if has_one else None


def _leaves(type: Type) -> Iterator[Scalar | Pointer]:
    if isinstance(type, Struct | Array):
        for part in element_types(type):
            yield from _leaves(part)
    else:
        yield type


def concerns(at: Skeleton, op: Op) -> bool:
    match op:
        case Load() | Aggregate() | Insert():
            return is_record(op.result.type)
        case Store():
            return is_record(op.value.type)
        case Extract():
            return op.aggregate in at.cells
    return False


def record(at: Skeleton, op: Op) -> None:
    match op:
        case Load():
            at.cells[op.result] = _copy(at, op.result.type, at.value(op.ptr), op.span)
        case Store():
            _move(at, at.value(op.ptr), place_of(at, op.value, op.span), op.value.type, op.span)
        case Aggregate():
            made = at.cells[op.result] = _new(at, op.result.type, op.span)
            for index, part in enumerate(op.args):
                _set(at, _part(at, made, index), part, op.span)
        case Insert():
            made = at.cells[op.result] = _copy(at, op.result.type, place_of(at, op.aggregate, op.span), op.span)
            _set(at, _part(at, made, op.index), op.value, op.span)
        case Extract():
            _extract(at, op)


def _extract(at: Skeleton, op: Extract) -> None:
    place, type = _part(at, at.cells[op.aggregate], op.index), op.result.type
    if is_record(type):
        at.cells[op.result] = _copy(at, type, place, op.span)
    elif isinstance(type, Scalar) and type.is_float:
        found = at.host("load", (place,), Pointer(type))
        assert found is not None
        at.cells[op.result] = found
    else:
        at.of[op.result] = at.b.load(place)


def place_of(at: Skeleton, value: Value, span: Span) -> Value:
    """Of one that was given, or is a constant, the numbers have no derivative."""
    if value not in at.cells:
        made = _new(at, value.type, span)
        at.b.store(made, at.of[value])
        at.cells[value] = made
    return at.cells[value]


def _set(at: Skeleton, place: Value, part: Value, span: Span) -> None:
    """A part of memory that is new."""
    if is_record(part.type):
        _move(at, place, place_of(at, part, span), part.type, span)
    elif isinstance(part.type, Scalar) and part.type.is_float:
        at.host("store", (place, at.cell_of(part)), None)
    else:
        at.b.store(place, at.value(part))


def _part(at: Skeleton, place: Value, index: int) -> Value:
    assert isinstance(place.type, Pointer)
    if isinstance(place.type.pointee, Struct):
        return at.b.member(place, index)
    return at.b.offset(at.b.decay(place), at.b.constant(index, U64))


def _new(at: Skeleton, type: Type, span: Span) -> Value:
    if numbers_of(type) is None:
        problem = "a struct that is copied by host code, with floating-point numbers of several types or with pointers,"
        raise not_yet(problem, span, "pass its members, or a pointer to it")
    return at.b.emit(HostCall, f"{TAPE}.host", (at.b.constant(type.size, U64),), type=Pointer(type))


def _copy(at: Skeleton, type: Type, of: Value, span: Span) -> Value:
    made = _new(at, type, span)
    _move(at, made, of, type, span)
    return made


def _move(at: Skeleton, to: Value, of: Value, type: Type, span: Span) -> None:
    if numbers_of(type) is None:
        _new(at, type, span)
    at.host(f"copy_of<{numbers_of(type)}>", (to, of, at.b.constant(type.size, U64)), None)
