"""Which NumPy dtypes have the memory layout of a C type."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..ir.types import BF16, F32, F64, Array, Field, Pointer, Scalar, Struct, Type
from .arrays import BFLOAT16, DType

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
