"""Types of IR values. Integers carry their signedness, as in C; sizes are those of the device.

Types are equal by what they say. Passes compare them all the time, most often one with itself: hence one object for
each scalar, and comparisons of their own in place of a dataclass's, which make tuples of all fields first.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal

Space = Literal["generic", "global", "shared", "constant", "local", "host"]
SPACES: tuple[Space, ...] = ("generic", "global", "shared", "constant", "local", "host")


def _derived() -> Any:
    """A field that follows from the others."""
    return dataclasses.field(init=False, compare=False, repr=False)


@dataclass(frozen=True, eq=False)
class Scalar:
    """A number: `kind` is bool, int (signed), uint or float. There is one object for each: equal is identical."""

    name: str
    kind: Literal["bool", "int", "uint", "float"]
    bits: int
    # What passes ask of types more often than for anything else follows from that.
    size: int = _derived()
    align: int = _derived()
    is_float: bool = _derived()
    is_signed: bool = _derived()

    def __post_init__(self) -> None:
        nbytes = max(1, self.bits // 8)
        derived = {"size": nbytes, "align": nbytes, "is_float": self.kind == "float"}
        for name, value in (*derived.items(), ("is_signed", self.kind in ("int", "float"))):
            object.__setattr__(self, name, value)

    def __new__(cls, name: str, kind: str, bits: int) -> Scalar:
        return _MADE.setdefault((name, kind, bits), super().__new__(cls))

    def __reduce__(self) -> tuple[type[Scalar], tuple[str, str, int]]:
        return Scalar, (self.name, self.kind, self.bits)

    def __str__(self) -> str:
        return self.name


_MADE: dict[tuple[str, str, int], Scalar] = {}

BOOL = Scalar("bool", "bool", 1)
I8, I16, I32, I64 = (Scalar(f"i{bits}", "int", bits) for bits in (8, 16, 32, 64))
U8, U16, U32, U64 = (Scalar(f"u{bits}", "uint", bits) for bits in (8, 16, 32, 64))
F16, F32, F64 = (Scalar(f"f{bits}", "float", bits) for bits in (16, 32, 64))
BF16 = Scalar("bf16", "float", 16)

SCALARS: dict[str, Scalar] = {t.name: t for t in (BOOL, I8, U8, I16, U16, I32, U32, I64, U64, F16, BF16, F32, F64)}


def limits(type: Scalar) -> tuple[int, int]:
    """The least and greatest integer of the type."""
    if type.kind == "int":
        return -(1 << (type.bits - 1)), (1 << (type.bits - 1)) - 1
    return 0, (1 << type.bits) - 1


# As CUDA C++ spells them.
C_NAMES = {
    "bool": "bool",
    "i8": "signed char",
    "u8": "unsigned char",
    "i16": "short",
    "u16": "unsigned short",
    "i32": "int",
    "u32": "unsigned int",
    "i64": "long long",
    "u64": "unsigned long long",
    "f16": "__half",
    "bf16": "__nv_bfloat16",
    "f32": "float",
    "f64": "double",
}


@dataclass(frozen=True, eq=False)
class Pointer:
    """The address of a `pointee`. `void *` is a pointer to u8."""

    pointee: Type
    space: Space = "generic"

    size = 8
    align = 8

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, Pointer) and self.space == other.space and self.pointee == other.pointee

    def __hash__(self) -> int:
        return hash((self.pointee, self.space))

    def __str__(self) -> str:
        shown: str | None = self.__dict__.get("_shown")
        if shown is None:  # made once: values are printed with their types
            shown = self.__dict__["_shown"] = f"ptr<{self.pointee}, {self.space}>"
        return shown


@dataclass(frozen=True, eq=False)
class Array:
    """`count` elements one after another. An `extern __shared__` array has count 0."""

    element: Type
    count: int

    @property
    def size(self) -> int:
        return self.element.size * self.count

    @property
    def align(self) -> int:
        return self.element.align

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, Array) and self.count == other.count and self.element == other.element

    def __hash__(self) -> int:
        return hash((self.element, self.count))

    def __str__(self) -> str:
        return f"array<{self.element}, {self.count}>"


def innermost(type: Type) -> Type:
    """What an array is made of, of arrays perhaps."""
    return innermost(type.element) if isinstance(type, Array) else type


@dataclass(frozen=True)
class Field:
    name: str
    type: Type
    offset: int


class Struct:
    """A record with the layout clang gave it; fields that overlap make it a union.

    Structs are equal by name, so that a struct may hold pointers to itself; `define` fills one in once.
    CUDA's vector types (float4, ...) are structs like any other.
    """

    __slots__ = ("name", "fields", "size", "align")

    def __init__(self, name: str, fields: tuple[Field, ...] = (), size: int = 0, align: int = 1):
        self.name = name
        self.define(fields, size, align)

    def define(self, fields: tuple[Field, ...], size: int, align: int) -> None:
        self.fields, self.size, self.align = fields, size, align

    @property
    def is_union(self) -> bool:
        ends = [0]
        for field in self.fields:
            if field.offset < ends[-1]:
                return True
            ends.append(field.offset + field.type.size)
        return False

    def index(self, name: str) -> int:
        return next(k for k, field in enumerate(self.fields) if field.name == name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Struct) and other.name == self.name

    def __hash__(self) -> int:
        return hash(("struct", self.name))

    def __str__(self) -> str:
        return f'struct "{self.name}"'

    def __repr__(self) -> str:
        return f"Struct({self.name!r})"


Type = Scalar | Pointer | Array | Struct


def element_types(aggregate: Struct | Array) -> tuple[Type, ...]:
    """The types of an aggregate's direct parts, in order."""
    if isinstance(aggregate, Struct):
        return tuple(field.type for field in aggregate.fields)
    return (aggregate.element,) * aggregate.count
