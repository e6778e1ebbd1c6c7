"""The CUDA driver's own library: the few functions and numbers of it that are used, called without other packages.

A call takes what the function in cuda.h takes in and returns `(status, *what comes out)`. Handles and addresses are
integers. `tests/runtime/test_driver_library.py` holds this table against cuda.h.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from typing import Any

from ..errors import DeviceError
from ..locks import cached_property

NAME = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"

# By the letters below, in the order of cuda.h; * marks what comes out.
FUNCTIONS = {
    "cuInit": "u",
    "cuDriverGetVersion": "*i",
    "cuGetErrorName": "i *s",
    "cuGetErrorString": "i *s",
    "cuDeviceGet": "*i i",
    "cuDeviceGetCount": "*i",
    "cuDeviceGetName": "p i i",
    "cuDeviceGetAttribute": "*i i i",
    "cuDeviceGetDefaultMemPool": "*p i",
    "cuDeviceTotalMem_v2": "*z i",
    "cuDevicePrimaryCtxRetain": "*p i",
    "cuCtxGetCurrent": "*p",
    "cuCtxGetDevice": "*i",
    "cuCtxPushCurrent_v2": "p",
    "cuCtxPopCurrent_v2": "*p",
    "cuCtxSynchronize": "",
    "cuMemAlloc_v2": "*d z",
    "cuMemFree_v2": "d",
    "cuMemAllocAsync": "*d z p",
    "cuMemFreeAsync": "d p",
    "cuMemGetInfo_v2": "*z *z",
    "cuMemPoolSetAttribute": "p i p",
    "cuMemcpyAsync": "d d z p",
    "cuMemcpyHtoD_v2": "d p z",
    "cuMemcpyHtoDAsync_v2": "d p z p",
    "cuMemcpyDtoH_v2": "p d z",
    "cuMemcpyDtoHAsync_v2": "p d z p",
    "cuMemcpyDtoDAsync_v2": "d d z p",
    "cuMemsetD8Async": "d c z p",
    "cuPointerGetAttribute": "p i d",
    "cuModuleLoadData": "*p p",
    "cuModuleGetFunction": "*p p p",
    "cuModuleGetGlobal_v2": "*d *z p p",
    "cuFuncGetAttribute": "*i i p",
    "cuFuncSetAttribute": "p i i",
    "cuLaunchKernel": "p u u u u u u u p p p",
    "cuStreamCreate": "*p u",
    "cuStreamDestroy_v2": "p",
    "cuStreamSynchronize": "p",
    "cuStreamWaitEvent": "p p u",
    "cuStreamIsCapturing": "p *i",
    "cuStreamBeginCapture_v2": "p i",
    "cuStreamEndCapture": "p *p",
    "cuGraphInstantiateWithFlags": "*p p l",
    "cuGraphLaunch": "p p",
    "cuGraphDestroy": "p",
    "cuGraphExecDestroy": "p",
    "cuEventCreate": "*p u",
    "cuEventRecord": "p p",
    "cuEventDestroy_v2": "p",
}
_VOID_P = ctypes.c_void_p
_LETTERS: dict[str, Any] = {
    "i": ctypes.c_int,
    "u": ctypes.c_uint,
    "c": ctypes.c_ubyte,
    "l": ctypes.c_ulonglong,
    "z": ctypes.c_size_t,
    "d": ctypes.c_uint64,  # an address on a device
    "p": _VOID_P,  # a handle, or an address on the host; bytes are one
    "s": ctypes.c_char_p,
}

# Of its enumerations, without what their names begin with.
NUMBERS = {
    "CU_DEVICE_ATTRIBUTE_": {
        "MAX_THREADS_PER_BLOCK": 1,
        "MAX_BLOCK_DIM_X": 2,
        "MAX_BLOCK_DIM_Y": 3,
        "MAX_BLOCK_DIM_Z": 4,
        "MAX_GRID_DIM_X": 5,
        "MAX_GRID_DIM_Y": 6,
        "MAX_GRID_DIM_Z": 7,
        "MAX_SHARED_MEMORY_PER_BLOCK": 8,
        "MAX_REGISTERS_PER_BLOCK": 12,
        "COMPUTE_CAPABILITY_MAJOR": 75,
        "COMPUTE_CAPABILITY_MINOR": 76,
        "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": 97,
    },
    "CU_FUNC_ATTRIBUTE_": {
        "MAX_THREADS_PER_BLOCK": 0,
        "SHARED_SIZE_BYTES": 1,
        "LOCAL_SIZE_BYTES": 3,
        "NUM_REGS": 4,
        "MAX_DYNAMIC_SHARED_SIZE_BYTES": 8,
    },
    "CU_POINTER_ATTRIBUTE_": {"DEVICE_ORDINAL": 9, "RANGE_START_ADDR": 11, "RANGE_SIZE": 12},
    "CU_MEMPOOL_ATTR_": {"RELEASE_THRESHOLD": 4},
    "CU_STREAM_": {"NON_BLOCKING": 1},
    "CU_STREAM_CAPTURE_": {"STATUS_NONE": 0, "MODE_THREAD_LOCAL": 1},
    "CU_EVENT_": {"DISABLE_TIMING": 2},
}
_SUFFIXES = ("", "_v2", "WithFlags")  # of functions that have changed: cuda.h calls them by the plain name


def number(prefix: str, name: str) -> int:
    return NUMBERS[prefix][name]


class Driver:
    """Its functions, by the names that programs use: `driver.cuMemAlloc(nbytes)` gives `(status, address)`. What calls
    them is made once: launches that are not replayed make some of these calls each."""

    def __init__(self, library: Any):
        self.library = library

    def __getattr__(self, name: str) -> Callable[..., tuple[Any, ...]]:
        symbol = next((name + suffix for suffix in _SUFFIXES if name + suffix in FUNCTIONS), None)
        if symbol is None:
            raise AttributeError(name)
        made = _CALLERS.get(symbol, _caller)(_function(self.library, symbol), FUNCTIONS[symbol].split())
        self.__dict__[name] = made
        return made

    @cached_property
    def launch_kernel(self) -> Callable[..., int]:
        """cuLaunchKernel itself, which gives the status. Nothing is converted, which would take as long as the rest:
        extents are integers that fit, handles and addresses are `ctypes.c_void_p`, None for 0."""
        address = ctypes.cast(_function(self.library, "cuLaunchKernel"), _VOID_P).value
        return ctypes.CFUNCTYPE(ctypes.c_int)(address or 0)


def _function(library: Any, symbol: str) -> Any:
    try:
        function = getattr(library, symbol)
    except AttributeError:
        raise DeviceError(f"the NVIDIA driver has no {symbol}: it is too old for CUDA 12") from None
    function.argtypes = [_VOID_P if "*" in letter else _LETTERS[letter] for letter in FUNCTIONS[symbol].split()]
    function.restype = ctypes.c_int
    return function


def _caller(function: Any, letters: list[str]) -> Callable[..., tuple[Any, ...]]:
    outs = [_LETTERS[letter[1:]] for letter in letters if "*" in letter]
    if not outs:
        return lambda *given: (function(*given),)
    if len(outs) > 1:
        return _giving_some(function, outs)
    return _giving_one(function, outs[0], len(letters), "*" in letters[0])


def _giving_one(function: Any, out: Any, count: int, first: bool) -> Callable[..., tuple[Any, ...]]:
    byref = ctypes.byref

    def alone() -> tuple[Any, ...]:
        made = out()
        return function(byref(made)), made.value or 0

    def before(*given: Any) -> tuple[Any, ...]:
        made = out()
        return function(byref(made), *given), made.value or 0

    def behind(*given: Any) -> tuple[Any, ...]:
        made = out()
        return function(*given, byref(made)), made.value or 0

    return alone if count == 1 else before if first else behind


def _giving_some(function: Any, outs: list[Any]) -> Callable[..., tuple[Any, ...]]:
    def giving(*given: Any) -> tuple[Any, ...]:
        made = [out() for out in outs]
        status = function(*map(ctypes.byref, made), *given)
        return (status, *[out.value or 0 for out in made])

    return giving


# ---- those that the header's types say too little of -----------------------------------------------------------------


def _device_name(function: Any, _: list[str]) -> Callable[..., tuple[Any, ...]]:
    def giving(room: int, device: int) -> tuple[int, bytes]:
        name = ctypes.create_string_buffer(room)
        return function(name, room, device), name.value

    return giving


def _pointer_attribute(function: Any, _: list[str]) -> Callable[..., tuple[Any, ...]]:
    """Of those that are numbers."""
    return _giving_one(function, ctypes.c_uint64, 3, True)


def _pool_attribute(function: Any, _: list[str]) -> Callable[..., tuple[Any, ...]]:
    """Of those that are numbers."""
    return lambda pool, attribute, value: (function(pool, attribute, ctypes.byref(ctypes.c_uint64(value))),)


_CALLERS = {
    "cuDeviceGetName": _device_name,
    "cuPointerGetAttribute": _pointer_attribute,
    "cuMemPoolSetAttribute": _pool_attribute,
}
