"""Module variables (`__device__`, `__constant__`): one copy per module and device, shared by the module's kernels."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import ArgumentError, DeviceError
from ..ir.ops import Global
from ..ir.types import Array, Struct
from ..locks import make_lock
from .layouts import array_shape, scalar_dtype, struct_dtype


class Variable:
    """A module variable as an array: `variable[...] = values`, `variable[...]`, `numpy.asarray(variable)`.

    The bytes are on the host or on one GPU, wherever they were last used, and move when they are used elsewhere.
    """

    def __init__(self, declaration: Global):
        self.name, self.type, self.space = declaration.name, declaration.type, declaration.space
        self._declaration = declaration
        self._host = np.zeros(max(1, declaration.type.size), np.uint8)
        if declaration.init is not None:
            self._host[:] = np.frombuffer(declaration.init, np.uint8)
        self._device: Any = None  # runtime.devices.DeviceMemory
        self._on_device = False  # which copy is current
        self.version = 0  # counts changes from the host, so that executables know when to copy a constant
        self._lock = make_lock()

    # ---- for the user

    def __getitem__(self, key: Any) -> Any:
        return self._array()[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        """NumPy's assignment; a struct also takes a dict, or numbers for its members in order."""
        if self._declaration.fixed:
            raise ArgumentError(f"the variable '{self.name}' is const: what reads it was compiled with its value")
        array = self._array()
        array[key] = _record(value, array.dtype) if array.dtype.fields is not None else value
        self.version += 1

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.array(self._array(), dtype=dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self._array().shape)

    @property
    def dtype(self) -> Any:
        return self._array().dtype

    def __repr__(self) -> str:
        return f"Variable({self.name!r}, shape={self.shape}, dtype={self.dtype}, space={self.space!r})"

    def _array(self) -> np.ndarray[Any, Any]:
        self._to_host()
        shape, element = array_shape(self.type) if isinstance(self.type, Array) else ((), self.type)
        dtype = struct_dtype(element) if isinstance(element, Struct) else None
        if dtype is None and not isinstance(element, Struct):
            scalar = scalar_dtype(element) if not hasattr(element, "pointee") else np.dtype("u8")  # type: ignore[arg-type]
            dtype = np.dtype("u2") if isinstance(scalar, str) else scalar
        if dtype is None:
            return self._host
        return self._host.view(dtype).reshape(shape)

    # ---- for launches

    def copy(self) -> Variable:
        """Another one, that holds the same."""
        made = Variable(self._declaration)
        made._host[:] = np.frombuffer(self.bytes(), np.uint8)
        made.version = 1
        return made

    def bytes(self) -> bytes:
        self._to_host()
        return self._host.tobytes()

    @property
    def host_span(self) -> tuple[int, int]:
        """Where its bytes are on the host, whether or not they are current, and how many: `variable[...]` is there."""
        return int(self._host.ctypes.data), self._host.nbytes

    def host_address(self) -> int:
        self._to_host()
        return int(self._host.ctypes.data)

    def device_address(self, device: int, stream: int) -> int:
        """The address on a GPU, after bringing the current contents there."""
        from .devices import DeviceMemory

        with self._lock:
            if self._device is not None and self._device.device != device:
                raise DeviceError(f"variable '{self.name}' is already in use on CUDA device {self._device.device}")
            if self._device is None:
                self._device = DeviceMemory(self._host.nbytes, device)
            if not self._on_device:
                self._device.copy_from_host(self._host.tobytes(), stream)
                self._on_device = True
            return int(self._device.address)

    def _to_host(self) -> None:
        with self._lock:
            if self._on_device:
                self._host[:] = np.frombuffer(self._device.copy_to_host(), np.uint8)
                self._on_device = False


def _record(value: Any, dtype: Any) -> Any:
    """A struct's value in the form that NumPy takes: nested tuples, or arrays of the dtype as they are."""
    if isinstance(value, dict):
        return tuple(_record(value[name], dtype[name]) for name in dtype.names)
    is_record = dtype.fields is not None and isinstance(value, tuple | list) and len(value) == len(dtype.names)
    if is_record and not any(isinstance(part, tuple | dict) and len(part) == len(dtype.names) for part in value):
        return tuple(_record(part, dtype[name]) for part, name in zip(value, dtype.names, strict=True))
    return value
