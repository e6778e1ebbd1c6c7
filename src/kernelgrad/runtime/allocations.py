"""The allocation that an array is a view of, and what of it lies around the array: C lets a kernel touch all of it."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import DeviceError
from .arrays import ArrayView
from .devices import driver
from .driver_library import number

_START, _SIZE = (number("CU_POINTER_ATTRIBUTE_", name) for name in ("RANGE_START_ADDR", "RANGE_SIZE"))

Extent = tuple[int, int]  # an address, and that after the last byte


def allocation(array: ArrayView) -> Extent | None:
    """The whole memory that an array is in; None where nobody knows."""
    found = _extent_of(array.owner)
    if found is None or not (found[0] <= array.address and array.address + array.nbytes <= found[1]):
        return None
    return found


def margins(array: ArrayView) -> tuple[int, int] | None:
    """The bytes of its allocation before and behind an array."""
    found = allocation(array)
    return None if found is None else (array.address - found[0], found[1] - array.address - array.nbytes)


def _extent_of(owner: Any) -> Extent | None:
    if isinstance(owner, np.ndarray):
        return _of_numpy(owner)
    if hasattr(owner, "untyped_storage"):
        storage = owner.untyped_storage()
        return storage.data_ptr(), storage.data_ptr() + storage.nbytes()
    memory: Any = getattr(getattr(owner, "data", None), "mem", None)  # CuPy's chunk
    if hasattr(memory, "ptr") and hasattr(memory, "size"):
        return int(memory.ptr), int(memory.ptr) + int(memory.size)
    if hasattr(owner, "__cuda_array_interface__"):
        return _of_address(owner.__cuda_array_interface__["data"][0])
    return _of_buffer(owner)


def _of_numpy(array: Any) -> Extent | None:
    """That of the array at the end of the chain of bases, or of what else is there."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    if array.base is not None:
        return _extent_of(array.base)
    start = int(array.ctypes.data)
    if not array.size:
        return start, start
    ends = [(count - 1) * stride for count, stride in zip(array.shape, array.strides, strict=True)]
    return start + sum(min(end, 0) for end in ends), start + sum(max(end, 0) for end in ends) + int(array.itemsize)


def _of_buffer(owner: Any) -> Extent | None:
    """bytes, mmap, ctypes: what has Python's buffer protocol."""
    try:
        memory = np.frombuffer(memoryview(owner).cast("B"), np.uint8)
    except (TypeError, ValueError):
        return None
    return memory.ctypes.data, memory.ctypes.data + memory.nbytes


def _of_address(address: int) -> Extent | None:
    """What the driver says of memory on a GPU: all of a pool, if the memory is from one."""
    if not address:
        return None
    try:
        bindings = driver()
    except DeviceError:
        return None
    failed, start = bindings.cuPointerGetAttribute(_START, address)
    unknown, size = bindings.cuPointerGetAttribute(_SIZE, address)
    return None if failed or unknown else (start, start + size)
