"""Arrays of a generated kernel on the GPU, arrays of structs among them."""

from __future__ import annotations

from typing import Any

import numpy as np


class OnDevice:
    """A copy of a NumPy array in the GPU's memory, which every package that knows the CUDA array interface takes."""

    def __init__(self, array: np.ndarray):
        import cupy

        self.dtype, self.shape = array.dtype, array.shape
        self.bytes = cupy.asarray(np.frombuffer(array.tobytes(), np.uint8))

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        data = (self.bytes.data.ptr, False)
        return {"shape": self.shape, "typestr": self.dtype.str, "data": data, "version": 3, "strides": None}

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0

    def numpy(self) -> np.ndarray:
        return np.frombuffer(self.bytes.get().tobytes(), self.dtype).reshape(self.shape)


def to_device(arrays: dict[str, Any]) -> dict[str, Any]:
    """Structs by value and numbers stay as they are."""
    return {name: OnDevice(a) if isinstance(a, np.ndarray) else a for name, a in arrays.items()}


def to_host(arrays: dict[str, Any]) -> dict[str, Any]:
    return {name: a.numpy() if isinstance(a, OnDevice) else a for name, a in arrays.items()}
