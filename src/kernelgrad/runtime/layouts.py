"""Which NumPy dtypes have the memory layout of a C type; Python and NumPy scalars into the bytes of one, range
checked."""

from __future__ import annotations

import struct
from operator import index
from typing import Any

import numpy as np

from ..ir.types import BF16, F32, F64, Array, Field, Pointer, Scalar, Struct, Type
from .arrays import BFLOAT16, DType, view

_ADDRESSES = frozenset((np.dtype("u8"), np.dtype("i8")))
_COMPLEX: dict[Type, DType] = {F32: np.dtype("c8"), F64: np.dtype("c16")}
_LETTERS = {"bool": "?", "int": "i", "uint": "u", "float": "f"}


def scalar_dtype(scalar: Scalar) -> DType:
    if scalar == BF16:
        return BFLOAT16
    return np.dtype("?" if scalar.kind == "bool" else f"{_LETTERS[scalar.kind]}{scalar.size}")


def flat_dtypes(type: Type) -> frozenset[DType]:
    """The unstructured dtypes that an array of `type` may have: its only scalar type, complex numbers for a pair."""
    if isinstance(type, Pointer):
        return _ADDRESSES
    leaves = set(_leaves(type))
    if len(leaves) != 1:
        return frozenset()
    (leaf,) = leaves
    if isinstance(leaf, Pointer):
        return _ADDRESSES
    pair = isinstance(type, Struct) and type.size == 2 * leaf.size
    also = [_COMPLEX[leaf]] if pair and leaf in _COMPLEX else []
    return frozenset([scalar_dtype(leaf), *also])


def _leaves(type: Type) -> list[Scalar | Pointer]:
    match type:
        case Array():
            return _leaves(type.element)
        case Struct():
            return [leaf for field in type.fields for leaf in _leaves(field.type)]
        case _:
            return [type]


def same_layout(dtype: DType, type: Type) -> bool:
    """Whether a (structured) dtype lays out its items exactly as C does: names, offsets, sizes and kinds."""
    if not isinstance(dtype, np.dtype):
        return isinstance(type, Scalar) and dtype == scalar_dtype(type)
    match type:
        case Pointer():
            return dtype in _ADDRESSES
        case Scalar():
            return _is_scalar(dtype, type)
        case Array():
            shape, element = array_shape(type)
            return dtype.subdtype is not None and dtype.shape == shape and same_layout(dtype.subdtype[0], element)
        case Struct():
            return _same_struct(dtype, type)


def _is_scalar(dtype: np.dtype[Any], scalar: Scalar) -> bool:
    if scalar == BF16:
        return dtype.name == BFLOAT16
    return bool(dtype == scalar_dtype(scalar))


def _same_struct(dtype: np.dtype[Any], struct: Struct) -> bool:
    if dtype.fields is None or dtype.itemsize != struct.size or set(dtype.fields) != {f.name for f in struct.fields}:
        return False
    return all(_same_field(dtype.fields[field.name], field) for field in struct.fields)


def _same_field(entry: Any, field: Field) -> bool:
    return bool(entry[1] == field.offset) and same_layout(entry[0], field.type)


def array_shape(type: Type) -> tuple[tuple[int, ...], Type]:
    """The extents and the innermost element type of an array of arrays."""
    shape: list[int] = []
    while isinstance(type, Array):
        shape.append(type.count)
        type = type.element
    return tuple(shape), type


def struct_dtype(struct: Struct) -> np.dtype[Any] | None:
    """The structured dtype with the struct's layout; None if NumPy cannot express it (bfloat16 members)."""
    formats = [_format(field.type) for field in struct.fields]
    if not formats or any(f is None for f in formats):
        return None
    names, offsets = [f.name for f in struct.fields], [f.offset for f in struct.fields]
    layout: Any = {"names": names, "formats": formats, "offsets": offsets, "itemsize": struct.size}
    dtype: np.dtype[Any] = np.dtype(layout)
    return dtype


def _format(type: Type) -> Any:
    match type:
        case Scalar():
            return None if type == BF16 else scalar_dtype(type)
        case Pointer():
            return np.dtype("u8")
        case Struct():
            return struct_dtype(type)
        case Array():
            shape, element = array_shape(type)
            inner = _format(element)
            return None if inner is None else (inner, shape)


# ---- numbers --------------------------------------------------------------------------------------------------------


# `struct` codes by scalar name; bf16 is made from f32.
_CODES = dict(
    zip("bool i8 u8 i16 u16 i32 u32 i64 u64 f16 f32 f64".split(), "? b B h H i I q Q e f d".split(), strict=True)
)


class Unfit(Exception):
    """A value that does not convert: what it should have been, and a remedy where there is one."""

    def __init__(self, wants: str, hint: str | None = None):
        self.wants, self.hint = wants, hint
        super().__init__(wants)


class Converter:
    """Writes values of one C type into the argument buffer; `Unfit` for those that do not convert."""

    __slots__ = ()

    def write(self, value: Any, out: bytearray, offset: int) -> None:
        raise NotImplementedError


class IntegerConverter(Converter):
    __slots__ = ("low", "high", "_pack")

    def __init__(self, scalar: Scalar):
        signed = scalar.kind == "int"
        self.low = -(1 << (scalar.bits - 1)) if signed else 0
        self.high = (1 << (scalar.bits - signed)) - 1
        self._pack = struct.Struct("<" + _CODES[scalar.name]).pack_into

    def write(self, value: Any, out: bytearray, offset: int) -> None:
        number = value if type(value) is int else as_integer(value)
        if number is None or not self.low <= number <= self.high:
            raise Unfit(f"an integer from {self.low} to {self.high}", _gpu_scalar_hint(value))
        self._pack(out, offset, number)


class BoolConverter(Converter):
    __slots__ = ()

    def write(self, value: Any, out: bytearray, offset: int) -> None:
        number = as_integer(value)
        if number not in (0, 1):
            raise Unfit("True or False", _gpu_scalar_hint(value))
        out[offset] = number


class FloatConverter(Converter):
    __slots__ = ("_pack",)

    def __init__(self, scalar: Scalar):
        self._pack = struct.Struct("<" + _CODES[scalar.name]).pack_into

    def write(self, value: Any, out: bytearray, offset: int) -> None:
        number = value if type(value) is float else as_float(value)
        if number is None:
            raise Unfit("a number", _gpu_scalar_hint(value))
        try:
            self._pack(out, offset, number)
        except OverflowError:
            raise Unfit("a number in its range") from None


class BFloatConverter(Converter):
    __slots__ = ()

    def write(self, value: Any, out: bytearray, offset: int) -> None:
        number = as_float(value)
        if number is None:
            raise Unfit("a number", _gpu_scalar_hint(value))
        try:
            (bits,) = struct.unpack("<I", struct.pack("<f", number))
        except OverflowError:
            raise Unfit("a number in its range") from None
        # Round to nearest even; NaN keeps its upper half, made quiet.
        rounded = (bits >> 16) | 0x40 if number != number else (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
        if rounded & 0x7FFF == 0x7F80 and abs(number) != float("inf"):
            raise Unfit("a number in its range")
        struct.pack_into("<H", out, offset, rounded)


def converter(scalar: Scalar) -> Converter:
    if scalar == BF16:
        return BFloatConverter()
    if scalar.kind == "bool":
        return BoolConverter()
    return FloatConverter(scalar) if scalar.is_float else IntegerConverter(scalar)


def as_integer(value: Any) -> int | None:
    """An integer as Python's int; None for anything else, floats with a whole value included."""
    value = _unwrapped(value)
    if isinstance(value, np.bool_):
        return int(value)
    try:
        return index(value)
    except TypeError:
        return None


def as_float(value: Any) -> float | None:
    """A real number as Python's float; None for anything else."""
    value = _unwrapped(value)
    if isinstance(value, str | bytes | np.flexible | np.complexfloating | np.datetime64 | np.timedelta64):
        return None
    if not hasattr(value, "__float__") and not hasattr(value, "__index__"):
        return None
    try:
        return float(value)
    except (TypeError, OverflowError):
        return None


def _unwrapped(value: Any) -> Any:
    """The number in a 0-d array on the CPU that is in no graph; other arrays are None, everything else is itself."""
    if isinstance(value, int | float | np.generic):
        return value
    array = view(value)
    if array is None:
        return value
    is_number = array.shape == () and array.device == "cpu" and not array.tracked
    return value.item() if is_number and hasattr(value, "item") else None


def _gpu_scalar_hint(value: Any) -> str | None:
    array = view(value)
    if array is None or array.shape != () or array.device == "cpu":
        return None
    return "a number on the GPU must be fetched first: pass value.item()"
