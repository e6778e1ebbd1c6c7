"""Words for what a launch got and what a parameter wants."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..ir.types import Array, Pointer, Struct, Type
from .arrays import ArrayView, Device, DType, view
from .layouts import array_shape, flat_dtypes, struct_dtype


def device_name(device: Device) -> str:
    return "the CPU" if device == "cpu" else f"{device[0]}:{device[1]}"


def dtype_name(dtype: DType) -> str:
    return dtype if isinstance(dtype, str) else str(dtype)


def with_article(name: str) -> str:
    """Of a dtype: an int32, but a uint8."""
    return f"{'an' if name[:1] in 'aeio' else 'a'} {name}"


def array_text(array: ArrayView) -> str:
    return f"{with_article(dtype_name(array.dtype))} array of shape {array.shape} on {device_name(array.device)}"


def value_text(value: Any) -> str:
    """What the user passed, in a few words."""
    if value is None:
        return "None"
    if isinstance(value, bool | int | float | complex | np.generic):
        return f"{type(value).__name__} {value}"
    array = view(value)
    if array is not None:
        return array_text(array)
    text = repr(value)
    return f"{type(value).__name__} {text if len(text) <= 40 else text[:37] + '...'}"


def wanted_array(pointee: Type, anything: bool) -> str:
    """What array a pointer to `pointee` wants."""
    if anything:
        return "an array of any dtype"
    flat = " or ".join(sorted(dtype_name(d) for d in flat_dtypes(pointee)))
    match pointee:
        case Pointer():
            return "an array of addresses (uint64)"
        case Struct():
            structured = f"a structured array laid out as {pointee.name} ({pointee.size} bytes)"
            return f"{structured} or a flat array of {flat}" if flat else structured
        case Array() if not flat:
            return wanted_array(pointee.element, anything)
        case Array():
            return f"an array of {flat}, {pointee.size} bytes per item"
        case _:
            return f"{with_article(flat)} array"


def layout_hint(pointee: Type) -> str | None:
    """The dtype to make a structured array with."""
    _, item = array_shape(pointee)
    dtype = struct_dtype(item) if isinstance(item, Struct) else None
    return None if dtype is None else f"its layout is numpy.dtype({dtype})"
