"""Copies, fills and sums of memory by address, on the CPU, on a GPU, and between them."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import numpy as np

from ..errors import ArgumentError, UnsupportedError
from ..runtime.arrays import BFLOAT16, ArrayView, DType
from ..runtime.config import flat_launch
from ..runtime.devices import check, current, driver
from ..runtime.driver_library import number
from ..runtime.recording import TRACE, refuse_look
from ..runtime.scratch import zero_bytes

Array = np.ndarray[Any, Any]

_SOURCE = """
template <typename T> __global__ void add(T *y, const T *x, long long n) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n) y[i] += x[i];
}
template <typename T> __global__ void add_each(T *y, const T *x, long long stride, long long n) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n) y[i * stride] += x[i * stride];
}
template <typename T> __global__ void fill(T *y, T value, long long n) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n) y[i] = value;
}
template <typename T, typename S> __global__ void cast(T *y, const S *x, long long n) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n) y[i] = (T)x[i];
}
"""
_BLOCK = 256
_C_TYPES = {"f2": "__half", "f4": "float", "f8": "double"}
_BITS = {1: "unsigned char", 2: "unsigned short", 4: "unsigned int", 8: "unsigned long long"}


@cache
def kernel(name: str) -> Any:
    """One of our own."""
    return _module()[name]


@cache
def _module() -> Any:
    from ..api import compile
    from .device_prints import SOURCE

    head = "#include <cuda_fp16.h>\n#include <cuda_bf16.h>\n"
    return compile(head + _SOURCE + SOURCE, name="transfers.cu")


def host_array(address: int, nbytes: int, dtype: Any = np.uint8) -> Array:
    """Memory of the CPU as an array, without a copy."""
    if not nbytes:
        return np.empty(0, dtype)
    memory: Any = (ctypes.c_char * nbytes).from_address(address)
    found: Array = np.frombuffer(memory, dtype)
    return found


def move(target: int, source: int, nbytes: int, device: int | None, stream: int | None) -> None:
    """Copies bytes. `device`: of whichever side is on a GPU; the driver knows which one an address belongs to."""
    if not nbytes:
        return
    trace = TRACE.get()
    if trace is not None:
        trace.move(target, source, nbytes, device)
        return
    if device is None:
        ctypes.memmove(target, source, nbytes)
        return
    bindings = driver()
    with current(device):
        check(bindings, bindings.cuMemcpyAsync(target, source, nbytes, stream or 0))


def zero(target: int, nbytes: int, device: int | None, stream: int | None) -> None:
    if nbytes:
        zero_bytes(target, nbytes, device, stream)


def add(target: int, source: int, nbytes: int, dtype: DType, device: int | None, stream: int | None) -> None:
    """target += source, for numbers of that dtype in the same memory."""
    if not nbytes:
        return
    if device is None and isinstance(dtype, np.dtype) and TRACE.get() is None:
        _add_fields(host_array(target, nbytes, dtype), host_array(source, nbytes, dtype))
        return
    if isinstance(dtype, np.dtype) and len(kinds(dtype)) > 1:
        _add_leaves(target, source, nbytes, dtype, device, stream)
        return
    base = _base(dtype)
    count = nbytes // (2 if base == BFLOAT16 else np.dtype(base).itemsize)
    views = _view(target, nbytes, base, device), _view(source, nbytes, base, device)
    _launch(f"add<{c_type(dtype)}>", stream, *views, count)


def c_type(dtype: DType) -> str:
    """Of the only kind of number in it."""
    base = _base(dtype)
    return "__nv_bfloat16" if base == BFLOAT16 else _C_TYPES[base]


def _add_leaves(
    target: int, source: int, nbytes: int, dtype: np.dtype[Any], device: int | None, stream: int | None
) -> None:
    """Of structs with several kinds of numbers: each member by itself. Integers have no adjoints."""
    for offset, kind in _float_leaves(dtype):
        size = np.dtype(kind).itemsize
        if dtype.itemsize % size or (target + offset) % size or (source + offset) % size:
            raise UnsupportedError(f"adjoints of {dtype} cannot be added up here: a member is not aligned")
        views = [_view(start + offset, nbytes - offset, kind, device) for start in (target, source)]
        _launch(f"add_each<{_C_TYPES[kind]}>", stream, *views, dtype.itemsize // size, nbytes // dtype.itemsize)


def _float_leaves(dtype: np.dtype[Any], start: int = 0) -> list[tuple[int, str]]:
    """Where in an item the floating-point numbers are, and of which kind."""
    if dtype.fields is not None:
        return [leaf for part in dtype.fields.values() for leaf in _float_leaves(part[0], start + part[1])]
    if dtype.subdtype is not None:
        element, shape = dtype.subdtype
        count = int(np.prod(shape))
        return [leaf for k in range(count) for leaf in _float_leaves(element, start + k * element.itemsize)]
    if dtype.kind == "c":
        half = dtype.itemsize // 2
        return [(start, f"f{half}"), (start + half, f"f{half}")]
    return [(start, f"f{dtype.itemsize}")] if dtype.kind == "f" else []


def _add_fields(target: Array, source: Array) -> None:
    """Also of structured arrays, whose integers have no adjoints."""
    if target.dtype.names is not None:
        for name in target.dtype.names:
            _add_fields(target[name], source[name])
    elif target.dtype.kind in "fc":
        target += source


def _base(dtype: DType) -> str:
    """The only kind of number in it."""
    if isinstance(dtype, str):
        return dtype
    found = kinds(dtype)
    if len(found) != 1 or not found <= set(_C_TYPES):
        raise UnsupportedError(f"adjoints of {dtype} cannot be added up here: several kinds of numbers")
    return next(iter(found))


def kinds(dtype: DType) -> frozenset[str]:
    """The kinds of numbers in it: f4 in float32, in float4 and in complex64."""
    return frozenset((dtype,)) if isinstance(dtype, str) else frozenset(_leaf_kinds(dtype))


def float_kinds(dtype: DType) -> frozenset[str]:
    """The kinds that have adjoints."""
    return frozenset(kind for kind in kinds(dtype) if kind.startswith(("f", "bf")))


def holds_floats(dtype: DType) -> bool:
    return bool(float_kinds(dtype))


def _leaf_kinds(dtype: np.dtype[Any]) -> list[str]:
    if dtype.fields is not None:
        return [kind for part in dtype.fields.values() for kind in _leaf_kinds(part[0])]
    if dtype.subdtype is not None:
        return _leaf_kinds(dtype.subdtype[0])
    return [f"f{dtype.itemsize // 2}"] if dtype.kind == "c" else [f"{dtype.kind}{dtype.itemsize}"]


def fill(target: int, nbytes: int, pattern: bytes, device: int | None, stream: int | None) -> None:
    """Writes the same few bytes again and again."""
    if not nbytes:
        return
    trace = TRACE.get()
    if device is None and trace is not None:
        trace.fill(target, nbytes, pattern, device)
        return
    if device is None:
        host_array(target, nbytes, np.dtype(f"V{len(pattern)}"))[...] = np.void(pattern)
        return
    if len(pattern) not in _BITS:
        raise ArgumentError(f"fill: items of {len(pattern)} bytes cannot be filled on a GPU")
    view = raw(target, nbytes, np.dtype(f"u{len(pattern)}"), device)
    value, count = int.from_bytes(pattern, "little"), nbytes // len(pattern)
    _launch(f"fill<{_BITS[len(pattern)]}>", stream, view, value, count)


def _launch(name: str, stream: int | None, *args: Any) -> None:
    """One thread for each of as many as the last argument says."""
    bound, placement = kernel(name).bind(args)
    kernel(name).run(flat_launch(max(1, -(-args[-1] // _BLOCK)), _BLOCK, stream), bound, placement, {})


def _view(address: int, nbytes: int, base: str, device: int | None) -> ArrayView:
    dtype: DType = BFLOAT16 if base == BFLOAT16 else np.dtype(base)
    return raw(address, nbytes, dtype, device)


def raw(address: int, nbytes: int, dtype: DType, device: int | None, owner: Any = None) -> ArrayView:
    """Memory as an argument of a launch."""
    size = dtype.itemsize if isinstance(dtype, np.dtype) else 2
    on: Any = "cpu" if device is None else ("cuda", device)
    return ArrayView(address, nbytes, dtype, (nbytes // size,), True, True, on, owner)


def is_zero(address: int, nbytes: int, device: int | None, stream: int | None) -> bool:
    """Whether memory holds nothing but zeros. Waits for the stream."""
    return not np.any(read(address, nbytes, device, stream))


def read(address: int, nbytes: int, device: int | None, stream: int | None) -> Array:
    """The bytes, once the stream has come this far."""
    refuse_look()
    if device is None:
        return host_array(address, nbytes).copy()
    data = np.empty(nbytes, np.uint8)
    move(data.ctypes.data, address, nbytes, device, stream)
    bindings = driver()
    with current(device):
        check(bindings, bindings.cuStreamSynchronize(stream or 0))
    return data


def synchronize(device: int) -> None:
    """Waits for all that the device has to do."""
    bindings = driver()
    with current(device):
        check(bindings, bindings.cuCtxSynchronize())


def order_after(waiting: int, done: int, device: int) -> None:
    """What is put on stream `waiting` from now on runs after what is on stream `done` by now."""
    if waiting == done or TRACE.get() is not None:
        return
    bindings = driver()
    with current(device):
        event = check(bindings, bindings.cuEventCreate(number("CU_EVENT_", "DISABLE_TIMING")))
        check(bindings, bindings.cuEventRecord(event, done))
        check(bindings, bindings.cuStreamWaitEvent(waiting, event, 0))
        check(bindings, bindings.cuEventDestroy(event))
