"""Reading a DLPack capsule: address, type, shape and device of the memory it lends.

The capsule is looked at, never consumed: whoever keeps it alive keeps the memory alive.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import numpy as np

CPU, CUDA, CUDA_HOST, CUDA_MANAGED = 1, 2, 3, 13
_READ_ONLY = 1

# (type code, bits) -> dtype; code 4 is bfloat16, which NumPy does not know.
_KINDS = {0: "i", 1: "u", 2: "f", 5: "c", 6: "?"}
_BFLOAT = 4


class _Device(ctypes.Structure):
    _fields_ = (("kind", ctypes.c_int32), ("ordinal", ctypes.c_int32))


class _DataType(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", _Device),
        ("ndim", ctypes.c_int32),
        ("dtype", _DataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _VersionedHead(ctypes.Structure):
    """What precedes the tensor in a capsule of DLPack 1.0 and later."""

    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
    )


@dataclass(frozen=True)
class Lent:
    """What a capsule lends. `strides` counts elements, None for C order; `dtype` is "bfloat16" or a NumPy dtype."""

    address: int
    dtype: np.dtype[Any] | str
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None
    device: tuple[int, int]
    read_only: bool
    capsule: Any


_is_valid = ctypes.pythonapi.PyCapsule_IsValid
_is_valid.restype, _is_valid.argtypes = ctypes.c_int, (ctypes.py_object, ctypes.c_char_p)
_get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_get_pointer.restype, _get_pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)


def borrow(producer: Any) -> Lent:
    """The memory that `producer` lends through `__dlpack__`, ready for use on the default stream."""
    try:
        capsule = producer.__dlpack__(max_version=(1, 0))
    except TypeError:  # a producer older than DLPack 1.0
        capsule = producer.__dlpack__()
    return read(capsule)


def read(capsule: Any) -> Lent:
    tensor, read_only = _tensor(capsule)
    shape = tuple(tensor.shape[: tensor.ndim]) if tensor.ndim else ()
    strides = tuple(tensor.strides[: tensor.ndim]) if tensor.ndim and tensor.strides else None
    device = (tensor.device.kind, tensor.device.ordinal)
    address = (tensor.data or 0) + tensor.byte_offset
    return Lent(address, _dtype(tensor.dtype), shape, strides, device, read_only, capsule)


def _tensor(capsule: Any) -> tuple[_Tensor, bool]:
    if _is_valid(capsule, b"dltensor_versioned"):
        address = _get_pointer(capsule, b"dltensor_versioned")
        head = _VersionedHead.from_address(address)
        return _Tensor.from_address(address + ctypes.sizeof(_VersionedHead)), bool(head.flags & _READ_ONLY)
    return _Tensor.from_address(_get_pointer(capsule, b"dltensor")), False


def _dtype(kind: _DataType) -> np.dtype[Any] | str:
    if kind.lanes == 1 and (kind.code, kind.bits) == (_BFLOAT, 16):
        return "bfloat16"
    letter = _KINDS.get(kind.code)
    if letter is None or kind.lanes != 1 or kind.bits % 8:
        return f"DLPack type {kind.code} of {kind.bits} bits x {kind.lanes}"
    return np.dtype("?" if letter == "?" else f"{letter}{kind.bits // 8}")
