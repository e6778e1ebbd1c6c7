"""Values of host code in Python: numbers as numbers, pointers as addresses, structs and arrays as tuples.

Floats of a recorded program are `Cell`s, numbers in memory that have an adjoint, where they may have one.
"""

from __future__ import annotations

import struct as packing
from collections.abc import Callable
from typing import Any

import numpy as np

from ..errors import InternalError
from ..ir.types import BF16, Array, Pointer, Scalar, Struct, Type
from ..runtime.arrays import ArrayView
from .memory import read_bytes

_CODES = {"bool": "?", "i8": "b", "u8": "B", "i16": "h", "u16": "H", "i32": "i", "u32": "I", "i64": "q", "u64": "Q"}
_CODES |= {"f16": "e", "f32": "f", "f64": "d"}


class Cell:
    """A float in memory of its own."""

    __slots__ = ("address", "type")

    def __init__(self, address: int, type: Scalar):
        self.address, self.type = address, type

    @property
    def number(self) -> float:
        return float(unpack(read_bytes(self.address, self.type.size), self.type))

    @property
    def array(self) -> np.ndarray[Any, Any]:
        """As a 0-d array, which recordings take for a number with an adjoint."""
        from ..host.transfers import host_array

        return host_array(self.address, self.type.size, np.dtype(f"f{self.type.size}")).reshape(())


class Symbol:
    """The address of a `__device__` or `__constant__` variable, which the host cannot use as one."""

    def __init__(self, variable: Any):
        self.variable = variable


def plain(value: Any) -> Any:
    """Without cells: the numbers they hold."""
    if isinstance(value, Cell):
        return value.number
    return tuple(map(plain, value)) if isinstance(value, tuple) else value


def holds(value: Any, kind: type) -> bool:
    return isinstance(value, kind) or (isinstance(value, tuple) and any(holds(part, kind) for part in value))


def unpack(data: bytes, type: Type) -> Any:
    """The value that bytes are."""
    return build(type, 0, lambda leaf, at: _scalar(data[at : at + leaf.size], leaf))


def build(type: Type, at: int, leaf: Callable[[Scalar | Pointer, int], Any]) -> Any:
    """A value from its numbers and pointers, which lie at these offsets."""
    if isinstance(type, Struct):
        return tuple(build(field.type, at + field.offset, leaf) for field in type.fields)
    if isinstance(type, Array):
        return tuple(build(type.element, at + k * type.element.size, leaf) for k in range(type.count))
    return leaf(type, at)


def _scalar(data: bytes, type: Scalar | Pointer) -> Any:
    if isinstance(type, Pointer):
        return int.from_bytes(data, "little")
    if type == BF16:
        return packing.unpack("<f", b"\0\0" + data)[0]
    (value,) = packing.unpack("<" + _CODES[type.name], data)
    return value


def pack(value: Any, type: Type) -> bytes:
    data = bytearray(type.size)
    for part, leaf, at in parts(value, type):
        data[at : at + leaf.size] = pack_scalar(part, leaf)
    return bytes(data)


def parts(value: Any, type: Type, at: int = 0) -> list[tuple[Any, Scalar | Pointer, int]]:
    """The numbers and pointers in a value, with their types and offsets."""
    if isinstance(type, Struct):
        pairs = zip(value, type.fields, strict=True)
        return [found for part, field in pairs for found in parts(part, field.type, at + field.offset)]
    if isinstance(type, Array):
        size = type.element.size
        return [found for k, part in enumerate(value) for found in parts(part, type.element, at + k * size)]
    return [(value, type, at)]


def pack_scalar(value: Any, type: Scalar | Pointer) -> bytes:
    if isinstance(value, Symbol):
        raise InternalError("the address of a device variable is stored")
    if isinstance(type, Pointer):
        return int(value).to_bytes(8, "little")
    if type == BF16:
        bits = int(np.float32(plain(value)).view(np.uint32))
        return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16 & 0xFFFF).to_bytes(2, "little")
    if type.name == "f32":
        with np.errstate(over="ignore"):
            return np.float32(plain(value)).tobytes()
    return packing.pack("<" + _CODES[type.name], plain(value))


def part_names(path: str, type: Struct | Array) -> list[str]:
    """What messages and adjoints call the parts of a value."""
    if isinstance(type, Struct):
        return [f"{path}.{field.name}" for field in type.fields]
    return [f"{path}[{k}]" for k in range(type.count)]


def zero(type: Type) -> Any:
    return build(type, 0, lambda leaf, _: 0.0 if isinstance(leaf, Scalar) and leaf.is_float else 0)


def is_float(type: Type) -> bool:
    return isinstance(type, Scalar) and type.is_float


def pointee_dtype(type: Type) -> Any:
    """Of an array of what a pointer points to."""
    from ..host.arguments import element_dtype

    while isinstance(type, Array):
        type = type.element
    return np.dtype("u8") if isinstance(type, Pointer) else element_dtype(type)


def view_of(address: int, nbytes: int, type: Type, device: int | None, owner: Any) -> ArrayView:
    """Memory from an address on, as a launch takes it: a whole number of elements."""
    from ..host.transfers import raw

    dtype = pointee_dtype(type)
    size = dtype.itemsize if isinstance(dtype, np.dtype) else 2
    return raw(address, nbytes // size * size, dtype, device, owner)
