"""Python and NumPy scalars into the bytes of a C scalar, range checked."""

from __future__ import annotations

import struct
from operator import index
from typing import Any

import numpy as np

from ..ir.types import BF16, Scalar
from .arrays import view

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
