"""Memory as one number after the other: what a buffer of vectors or records is to those who add up its elements.

A lane of a `float4` and a member of a record are numbers at their offsets. Where all floats of a type are of one width
and at multiples of it, and so is where the next element begins, its memory is an array of such numbers: of
`struct { float mean[3]; int id; float opacity; }`, five for each. Numbers in the place of an integer, or of what is
left free between members, are nobody's, and stay zero.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...ir.builder import Builder, pointee
from ...ir.ops import Value
from ...ir.types import F64, Array, Pointer, Scalar, Struct, Type, innermost
from .shadows import adjoint_type, wide_type


def flat(type: Type) -> Scalar | None:
    """The number that memory of this type is an array of; None where its floats are of several widths or lie elsewhere,
    or where something else is in their place."""
    element = innermost(type)
    if isinstance(element, Scalar):
        return element
    found = list(_leaves(element))
    floats = {leaf for leaf, _ in found if leaf is not None and leaf.is_float}
    if len(floats) != 1 or any(leaf is None for leaf, _ in found):
        return None
    (number,) = floats
    return number if all(n % number.size == 0 for n in (element.size, *_starts(element))) else None


def numbers_in(type: Type) -> int:
    """How many numbers an element is."""
    number = flat(type)
    assert number is not None
    return type.size // number.size


def floats_in(type: Type) -> int:
    """How many of them are floats: so many additions a load makes."""
    match type:
        case Array(element, count):
            return count * floats_in(element)
        case Struct():
            return sum(floats_in(field.type) for field in type.fields)
    return int(isinstance(type, Scalar) and type.is_float)


def flat_adjoint(type: Type) -> Scalar | None:
    """The number that adjoints to memory of this type are, if doubles for them have the same places."""
    element = innermost(type)
    if isinstance(element, Scalar):
        return flat(adjoint_type(element))
    if any(leaf is None for leaf, _ in _leaves(element)):
        return None
    narrow, wide = adjoint_type(element), wide_type(element)
    alike = flat(narrow) is not None and flat(wide) == F64 and _places(narrow) == _places(wide)
    return flat(narrow) if alike else None


def as_numbers(b: Builder, ptr: Value) -> Value:
    """A pointer to the first number of what it leads to."""
    number = flat(pointee(ptr))
    assert number is not None and isinstance(ptr.type, Pointer)
    return b.cast_pointer(ptr, Pointer(number, ptr.type.space))


def _places(element: Type) -> tuple[int, list[int]]:
    """How many numbers there are, and which of them are floats."""
    number = flat(element)
    assert number is not None
    return element.size // number.size, [at // number.size for at in _starts(element)]


def _starts(element: Type) -> list[int]:
    return [at for leaf, at in _leaves(element) if leaf is not None and leaf.is_float]


def _leaves(type: Type, at: int = 0) -> Iterator[tuple[Scalar | None, int]]:
    """What is in it, and where; None of pointers, and of what is one thing or another."""
    match type:
        case Scalar():
            yield type, at
        case Array(element, count):
            for k in range(count):
                yield from _leaves(element, at + k * element.size)
        case Struct() if not type.is_union:
            for field in type.fields:
                yield from _leaves(field.type, at + field.offset)
        case _:
            yield None, at
