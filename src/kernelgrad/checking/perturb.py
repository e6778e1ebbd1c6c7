"""Arguments of a launch as vectors of numbers: copies in double precision that can be perturbed, seeded and read back.

Each argument becomes a `Piece`. Its floats are one vector, whatever the C type: an array, an array of records, a
number, a record with pointers in it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np

from ..errors import ArgumentError
from ..ir.types import F64, Array, Pointer, Scalar, Struct, Type
from ..runtime.arrays import view
from ..runtime.layouts import scalar_dtype, struct_dtype
from ..transforms.widen import widen_bytes

Vector = np.ndarray[Any, np.dtype[np.float64]]


class Piece(Protocol):
    """`floats`: what the argument holds now."""

    floats: Vector

    def primal(self, floats: Vector) -> Any:
        """A fresh argument that holds these numbers."""

    def shadow(self, floats: Vector) -> Any:
        """A fresh adjoint that holds these numbers."""

    def tangent(self, floats: Vector) -> Any:
        """A fresh tangent that holds these numbers."""

    def read(self, argument: Any) -> Vector:
        """The numbers that an argument or a shadow holds after a launch."""

    def label(self, k: int) -> str: ...


class Number:
    """A floating-point parameter; its adjoint is an array of one, and so is its tangent, but for that of a number in a
    record, which is a number."""

    def __init__(self, name: str, value: Any, in_record: bool = False):
        self.name, self.floats, self.in_record = name, np.array([float(value)]), in_record

    def primal(self, floats: Vector) -> Any:
        return float(floats[0])

    def shadow(self, floats: Vector) -> Any:
        return floats.copy()

    def tangent(self, floats: Vector) -> Any:
        return self.primal(floats) if self.in_record else floats.copy()

    def read(self, argument: Any) -> Vector:
        return np.array(argument, np.float64).reshape(1)

    def label(self, k: int) -> str:
        return self.name


class Fixed:
    """What has no derivative: an integer, a null pointer."""

    floats = np.zeros(0)

    def __init__(self, value: Any):
        self.value = value

    def primal(self, floats: Vector) -> Any:
        return self.value

    def shadow(self, floats: Vector) -> Any:
        return None if self.value is None else 0

    def tangent(self, floats: Vector) -> Any:
        return self.shadow(floats)

    def read(self, argument: Any) -> Vector:
        return self.floats

    def label(self, k: int) -> str:
        return ""


class Buffer:
    """An array, or a record passed by value (`single`): bytes, and where in them the floats are."""

    def __init__(self, name: str, array: np.ndarray[Any, Any], old: Type, new: Type, single: bool = False):
        self.name, self.single = name, single
        self.data = np.frombuffer(widen_bytes(array.tobytes(), old, new), np.uint8).copy()
        self.dtype = _dtype(new, name)
        self.paths = _float_paths(new, 0)
        count = self.data.nbytes // max(1, new.size)
        starts = np.array([offset for _, offset in self.paths], np.int64)
        self.where = ((np.arange(count) * new.size)[:, None] + starts).reshape(-1) // 8
        self.shape = array.shape if array.size == count else (count,)
        self.floats = self._floats_of(self.data)

    def _floats_of(self, data: np.ndarray[Any, Any]) -> Vector:
        return data.view(np.uint8).reshape(-1).view(np.float64)[self.where] if self.where.size else np.zeros(0)

    def _filled(self, data: np.ndarray[Any, Any], floats: Vector) -> np.ndarray[Any, Any]:
        if self.where.size:
            data.view(np.float64)[self.where] = floats
        return data.view(self.dtype)

    def primal(self, floats: Vector) -> Any:
        filled = self._filled(self.data.copy(), floats)
        return filled[0] if self.single else filled

    def shadow(self, floats: Vector) -> Any:
        return self._filled(np.zeros_like(self.data), floats)

    def tangent(self, floats: Vector) -> Any:
        return self.shadow(floats)

    def read(self, argument: Any) -> Vector:
        return self._floats_of(np.atleast_1d(argument).view(np.uint8)).copy()

    def label(self, k: int) -> str:
        item, leaf = divmod(k, len(self.paths))
        if self.single:
            return self.name + self.paths[leaf][0]
        index = ", ".join(str(int(i)) for i in np.unravel_index(item, self.shape))
        return f"{self.name}[{index}]{self.paths[leaf][0]}"


class Elements(Buffer):
    """An array of numbers or records without pointers, inside a record."""

    def __init__(self, name: str, value: Any, old: Array, new: Array):
        dtype = _dtype(old, name)
        shape = _shape(old)
        super().__init__(name, np.array(_plain(value, np.dtype((dtype, shape))), dtype), old, new, single=True)
        self.shape = shape

    def primal(self, floats: Vector) -> Any:
        return self._filled(self.data.copy(), floats).reshape(self.shape)

    def tangent(self, floats: Vector) -> Any:
        return self._filled(np.zeros_like(self.data), floats).reshape(self.shape)


class Composite:
    """A struct with pointers, passed by value, or an array with pointers inside one: a piece per member."""

    def __init__(self, members: dict[Any, Piece], is_array: bool = False):
        self.members, self.is_array = members, is_array
        self.floats = np.concatenate([m.floats for m in members.values()]) if members else np.zeros(0)

    def _made(self, floats: Vector, make: Callable[[Piece, Vector], Any]) -> Any:
        parts = np.split(floats, np.cumsum([m.floats.size for m in self.members.values()])[:-1])
        found = {name: make(member, part) for (name, member), part in zip(self.members.items(), parts, strict=False)}
        return list(found.values()) if self.is_array else found

    def primal(self, floats: Vector) -> Any:
        return self._made(floats, lambda member, part: member.primal(part))

    def shadow(self, floats: Vector) -> Any:
        return self._made(floats, lambda member, part: member.shadow(part))

    def tangent(self, floats: Vector) -> Any:
        return self._made(floats, lambda member, part: member.tangent(part))

    def read(self, argument: Any) -> Vector:
        found = [member.read(argument[name]) for name, member in self.members.items()]
        return np.concatenate(found) if found else np.zeros(0)

    def label(self, k: int) -> str:
        for member in self.members.values():
            if k < member.floats.size:
                return member.label(k)
            k -= member.floats.size
        return ""


def make_piece(name: str, value: Any, old: Type, new: Type, in_record: bool = False) -> Piece:
    """`old`: the type of the user's argument; `new`: the same in double precision."""
    match old, new:
        case Scalar(), Scalar():
            return Number(name, value, in_record) if old.is_float else Fixed(value)
        case Pointer(), Pointer():
            return Fixed(None) if value is None else _buffer(name, value, old.pointee, new.pointee)
        case Struct(), Struct():
            return _record(name, value, old, new)
        case Array(), Array() if _holds_pointer(old):
            parts = enumerate(value)
            pieces = {k: make_piece(f"{name}[{k}]", v, old.element, new.element, in_record) for k, v in parts}
            return Composite(pieces, is_array=True)
        case Array(), Array():
            return Elements(name, value, old, new)
    raise ArgumentError(f"check_gradient: '{name}' has a type it cannot copy")


def _buffer(name: str, value: Any, old: Type, new: Type) -> Buffer:
    if isinstance(old, Pointer) or _holds_pointer(old):
        raise ArgumentError(f"check_gradient: '{name}' points to memory that holds pointers, which cannot be copied")
    return Buffer(name, to_numpy(value), old, new)


def _record(name: str, value: Any, old: Struct, new: Struct) -> Piece:
    if not _holds_pointer(old):
        dtype = struct_dtype(old)
        if dtype is None:
            raise ArgumentError(f"check_gradient: '{name}' has a type it cannot copy")
        return Buffer(name, _structured(value, dtype), old, new, single=True)
    named = value if isinstance(value, Mapping) else dict(zip((f.name for f in old.fields), value, strict=True))
    types = zip(old.fields, new.fields, strict=True)
    return Composite(
        {f.name: make_piece(f"{name}.{f.name}", named[f.name], f.type, g.type, in_record=True) for f, g in types}
    )


def _structured(value: Any, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    return np.array([value if isinstance(value, np.void) else _plain(value, dtype)], dtype)


def _plain(value: Any, dtype: np.dtype[Any]) -> Any:
    """In the form that NumPy takes: a tuple for a record, a list for an array."""
    if dtype.subdtype is not None:
        element, shape = dtype.subdtype
        inner = np.dtype((element, shape[1:])) if len(shape) > 1 else element
        return [_plain(part, inner) for part in value]
    if dtype.names is None or isinstance(value, np.void):
        return value
    parts = [value[name] for name in dtype.names] if isinstance(value, Mapping) else value
    return tuple(_plain(part, dtype[name]) for part, name in zip(parts, dtype.names, strict=True))


def to_numpy(value: Any) -> np.ndarray[Any, Any]:
    """A copy on the host of whatever array a launch takes."""
    for method in ("detach", "cpu", "get"):  # PyTorch, PyTorch, CuPy
        if not isinstance(value, np.ndarray) and hasattr(value, method):
            value = getattr(value, method)()
    found = view(value)
    if isinstance(value, np.ndarray) or found is None or found.device != "cpu":
        return np.array(value)
    dtype = found.dtype if isinstance(found.dtype, np.dtype) else np.dtype("u2")  # the bits of a bfloat16
    return np.frombuffer(bytearray(ctypes.string_at(found.address, found.nbytes)), dtype).reshape(found.shape)


def _holds_pointer(type: Type) -> bool:
    match type:
        case Pointer():
            return True
        case Array(element, _):
            return _holds_pointer(element)
        case Struct():
            return any(_holds_pointer(f.type) for f in type.fields)
    return False


def _dtype(type: Type, name: str) -> np.dtype[Any]:
    while isinstance(type, Array):
        type = type.element
    found: Any = scalar_dtype(type) if isinstance(type, Scalar) else None
    if isinstance(type, Struct):
        found = struct_dtype(type)
    if not isinstance(found, np.dtype):
        raise ArgumentError(f"check_gradient: '{name}' has a type it cannot copy")
    return found


def _shape(type: Type) -> tuple[int, ...]:
    return (type.count, *_shape(type.element)) if isinstance(type, Array) else ()


def _float_paths(type: Type, offset: int) -> list[tuple[str, int]]:
    """The floats in one item: how C reaches them, and their byte offsets."""
    match type:
        case Scalar():
            return [("", offset)] if type == F64 else []
        case Array(element, count):
            return [
                (f"[{k}]{path}", at)
                for k in range(count)
                for path, at in _float_paths(element, offset + k * element.size)
            ]
        case Struct():
            return [
                (f".{f.name}{path}", at) for f in type.fields for path, at in _float_paths(f.type, offset + f.offset)
            ]
    return []
