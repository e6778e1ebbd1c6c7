"""What the host's calls do: one row each. The frontend says which calls there are (`frontend/host_calls`)."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from ..errors import ProgramError, UnsupportedError
from ..ir.ops import HostCall
from ..ir.types import Pointer, Struct
from .libc import LIBC
from .memory import Kind, read_bytes, write_bytes
from .values import Symbol, pack_scalar, pointee_dtype

Handler = Callable[..., Any]


# ---- memory -------------------------------------------------------------------------------------------------------


def _allocate(kind: Kind, pinned: bool = False) -> Handler:
    def allocate(run: Any, op: HostCall, nbytes: int, *_: Any) -> int:
        made = run.memory.allocate(nbytes, kind, op.span, pinned)
        return int(made.start)

    return allocate


def _calloc(run: Any, op: HostCall, count: int, nbytes: int) -> int:
    return int(run.memory.allocate(count * nbytes, "host", op.span).start)


def _realloc(run: Any, op: HostCall, address: int, nbytes: int) -> int:
    made = run.memory.allocate(nbytes, "host", op.span)
    if address:
        old = run.memory.at(address, op.span, "reallocates")
        run.machine.copy(made.start, address, min(nbytes, old.nbytes), op.span)
        _free("host")(run, op, address)
    return int(made.start)


def _free(*kinds: Kind) -> Handler:
    def free(run: Any, op: HostCall, address: int, *_: Any) -> None:
        found = run.memory.free(address, kinds, op.span)
        for gone in (found, found.twin) if found is not None else ():
            if gone is not None:
                gone.freed = op.span
                run.machine.freed(gone)

    return free


def _device_pointer(run: Any, op: HostCall, address: int, *_: Any) -> int:
    if run.memory.device is not None:
        raise UnsupportedError("mapped host memory on a GPU", op.span, "copy it with cudaMemcpy")
    return address


_SIDES: dict[int, tuple[str, str]] = {0: ("host", "host"), 1: ("device", "host"), 2: ("host", "device"),
                                      3: ("device", "device")}  # fmt: skip


def _memcpy(run: Any, op: HostCall, to: int, of: int, nbytes: int, kind: int = 4, *_: Any) -> None:
    _check_side(run, op, (to, of), nbytes, kind)
    run.machine.copy(to, of, nbytes, op.span)


def _check_side(run: Any, op: HostCall, ends: tuple[int, int], nbytes: int, kind: int) -> None:
    """A wrong direction is an error, or chaos, on a GPU."""
    for address, wanted, what in zip(ends, _SIDES.get(kind, ()), ("copies to", "copies from"), strict=False):
        found = run.memory.check(address, nbytes, op.span, what)
        if found is not None and found.kind in ("host", "stack", "static", "device"):
            side = "device" if found.kind == "device" else "host"
            if side != wanted and not found.pinned:
                problem = f"{what} {found.shown} of the {side}, while the direction of the copy says {wanted}"
                raise ProgramError(problem, op.span)


def _memcpy_2d(run: Any, op: HostCall, to: int, to_pitch: int, of: int, of_pitch: int, width: int, height: int,
               kind: int, *_: Any) -> None:  # fmt: skip
    if width > to_pitch or width > of_pitch:
        raise ProgramError(f"copies rows of {width} bytes with a pitch of {min(to_pitch, of_pitch)}", op.span)
    for row in range(height):
        _memcpy(run, op, to + row * to_pitch, of + row * of_pitch, width, kind)


def _host_copy(run: Any, op: HostCall, to: int, of: int, nbytes: int) -> int:
    for address, what in ((to, "copies to"), (of, "copies from")):
        run.memory.check_host(address, nbytes, op.span, what)
    if op.fn == "memcpy" and to < of + nbytes and of < to + nbytes and to != of:
        raise ProgramError("memcpy between places that overlap", op.span, "use memmove")
    run.machine.copy(to, of, nbytes, op.span)
    return to


def _memset(run: Any, op: HostCall, to: int, byte: int, nbytes: int, *_: Any) -> int:
    if op.fn == "memset":
        run.memory.check_host(to, nbytes, op.span, "sets")
    run.machine.fill(to, byte, nbytes, op.span)
    return to


def _memset_2d(run: Any, op: HostCall, to: int, pitch: int, byte: int, width: int, height: int, *_: Any) -> None:
    for row in range(height):
        run.machine.fill(to + row * pitch, byte, width, op.span)


def _pitched(run: Any, op: HostCall, to: int, pitch_to: int, width: int, height: int) -> None:
    pitch = -(-width // 512) * 512
    made = run.memory.allocate(pitch * height, "device", op.span)
    for at, number in ((to, made.start), (pitch_to, pitch)):
        run.memory.check_host(at, 8, op.span, "writes")
        run.machine.write(at, int(number).to_bytes(8, "little"), op.span)


def _memory_info(run: Any, op: HostCall, *places: int) -> None:
    for at in places:
        run.machine.write(at, (64 << 30).to_bytes(8, "little"), op.span)


def _sort_order(run: Any, op: HostCall, order: int, keys: int, count: int, falls: bool) -> None:
    """Which element comes where, of keys on the device: found here. Equal ones stay in their order."""
    type = op.args[1].type
    assert isinstance(type, Pointer)
    dtype = np.dtype(pointee_dtype(type.pointee))
    nbytes = count * dtype.itemsize
    host = run.memory.allocate(max(nbytes, 4 * count), "host", op.span)
    run.machine.copy(host.start, keys, nbytes, op.span)
    found = np.frombuffer(read_bytes(host.start, nbytes), dtype)
    ranks = np.argsort(found[::-1] if falls else found, kind="stable")
    at = (count - 1 - ranks)[::-1] if falls else ranks
    run.machine.write(host.start, at.astype(np.int32).tobytes(), op.span)
    run.machine.copy(order, host.start, 4 * count, op.span)
    run.memory.free(host.start, ("host",), op.span)
    run.machine.freed(host)


# ---- device variables ---------------------------------------------------------------------------------------------


def _symbol(run: Any, op: HostCall, symbol: Any, nbytes: int, offset: int) -> int:
    symbol = run.state.managed.get(symbol, symbol)
    if not isinstance(symbol, Symbol):
        raise ProgramError("no __device__ or __constant__ variable", op.span, "pass the variable itself")
    if offset + nbytes > symbol.variable.type.size:
        size, name = symbol.variable.type.size, symbol.variable.name
        raise ProgramError(f"bytes {offset} to {offset + nbytes} of '{name}', which has {size}", op.span)
    return int(run.state.symbol_address(symbol, run.memory)) + offset


def _to_symbol(run: Any, op: HostCall, symbol: Any, of: int, nbytes: int, offset: int = 0, *_: Any) -> None:
    at = _symbol(run, op, symbol, nbytes, offset)
    run.machine.copy(at, of, nbytes, op.span)
    run.state.symbol_written(symbol, run.memory)


def _from_symbol(run: Any, op: HostCall, to: int, symbol: Any, nbytes: int, offset: int = 0, *_: Any) -> None:
    run.machine.copy(to, _symbol(run, op, symbol, nbytes, offset), nbytes, op.span)


def _symbol_size(run: Any, op: HostCall, symbol: Any) -> int:
    _symbol(run, op, symbol, 0, 0)
    return int(symbol.variable.type.size)


# ---- streams, events, devices -------------------------------------------------------------------------------------


def _handle(run: Any, op: HostCall, *_: Any) -> int:
    return int(run.state.new_handle())


def _record(run: Any, op: HostCall, event: int, *_: Any) -> None:
    run.machine.synchronize()
    run.state.events[event] = time.perf_counter()


def _elapsed(run: Any, op: HostCall, start: int, stop: int) -> float:
    for event in (start, stop):
        if event not in run.state.events:
            raise ProgramError("an event that was not recorded", op.span)
    return float((run.state.events[stop] - run.state.events[start]) * 1000)


def _synchronize(run: Any, op: HostCall, *_: Any) -> None:
    run.machine.synchronize()


def _set_device(run: Any, op: HostCall, device: int) -> None:
    if device:
        raise UnsupportedError("more than one device", op.span, "use device 0")


_PROPERTIES = {"totalGlobalMem": 64 << 30, "sharedMemPerBlock": 48 << 10, "sharedMemPerBlockOptin": 227 << 10,
               "sharedMemPerMultiprocessor": 228 << 10, "totalConstMem": 64 << 10, "memPitch": (1 << 31) - 1,
               "regsPerBlock": 65536, "regsPerMultiprocessor": 65536, "warpSize": 32, "maxThreadsPerBlock": 1024,
               "clockRate": 1_980_000, "major": 9, "minor": 0, "multiProcessorCount": 132, "canMapHostMemory": 1,
               "concurrentKernels": 1, "asyncEngineCount": 3, "unifiedAddressing": 1, "memoryClockRate": 2_619_000,
               "memoryBusWidth": 6144, "l2CacheSize": 50 << 20, "maxThreadsPerMultiProcessor": 2048,
               "managedMemory": 1, "cooperativeLaunch": 1, "concurrentManagedAccess": 1,
               "maxBlocksPerMultiProcessor": 32, "deviceOverlap": 1, "pageableMemoryAccess": 1,
               "computePreemptionSupported": 1, "textureAlignment": 512, "surfaceAlignment": 512}  # fmt: skip
_EXTENTS = {"maxThreadsDim": (1024, 1024, 64), "maxGridSize": (2**31 - 1, 65535, 65535)}
_ATTRIBUTES = {1: 1024, 8: 48 << 10, 10: 32, 13: 1_980_000, 16: 132, 75: 9, 76: 0, 95: 1, 97: 227 << 10}


def _properties(run: Any, op: HostCall, to: int, device: int) -> None:
    type = op.args[0].type
    assert isinstance(type, Pointer) and isinstance(type.pointee, Struct)
    run.memory.check_host(to, type.pointee.size, op.span, "writes")
    for field in type.pointee.fields:
        if field.name == "name":
            run.machine.write(to + field.offset, b"kernelgrad\0", op.span)
        for k, number in enumerate(_EXTENTS.get(field.name, ())):
            run.machine.write(to + field.offset + 4 * k, number.to_bytes(4, "little"), op.span)
        if field.name in _PROPERTIES:
            run.machine.write(to + field.offset, pack_scalar(_PROPERTIES[field.name], field.type), op.span)  # type: ignore[arg-type]


def _attribute(run: Any, op: HostCall, attribute: int, device: int) -> int:
    if attribute not in _ATTRIBUTES:
        raise UnsupportedError(f"the device attribute {attribute}", op.span)
    return _ATTRIBUTES[attribute]


def _no_error(run: Any, op: HostCall, code: int) -> int:
    made = run.memory.allocate(16, "static", op.span)
    write_bytes(made.start, b"no error\0" if code == 0 else b"an error\0")
    return int(made.start)


CALLS: dict[str, Handler] = {
    **LIBC,
    "malloc": _allocate("host"),
    "aligned_alloc": lambda run, op, align, nbytes: _calloc(run, op, 1, nbytes),
    "posix_memalign": lambda run, op, align, nbytes: _calloc(run, op, 1, nbytes),
    "calloc": _calloc,
    "realloc": _realloc,
    "free": _free("host"),
    "__kg_sort_order": _sort_order,
    "__kg_bytes": lambda run, op, address: run.memory.at(address, op.span, "deletes").nbytes,
    "cudaMalloc": _allocate("device"),
    "cudaMallocAsync": _allocate("device"),
    "cudaMallocManaged": _allocate("managed"),
    "cudaMallocHost": _allocate("host", pinned=True),
    "cudaHostAlloc": _allocate("host", pinned=True),
    "cudaMallocPitch": _pitched,
    "cudaFree": _free("device", "managed"),
    "cudaFreeAsync": _free("device"),
    "cudaFreeHost": _free("host"),
    "cudaHostGetDevicePointer": _device_pointer,
    "cudaMemcpy": _memcpy,
    "cudaMemcpyAsync": _memcpy,
    "cudaMemcpy2D": _memcpy_2d,
    "cudaMemcpy2DAsync": _memcpy_2d,
    "cudaMemset": _memset,
    "cudaMemsetAsync": _memset,
    "cudaMemset2D": _memset_2d,
    "cudaMemset2DAsync": _memset_2d,
    "cudaMemGetInfo": _memory_info,
    "memcpy": _host_copy,
    "memmove": _host_copy,
    "memset": _memset,
    "cudaMemcpyToSymbol": _to_symbol,
    "cudaMemcpyToSymbolAsync": _to_symbol,
    "cudaMemcpyFromSymbol": _from_symbol,
    "cudaMemcpyFromSymbolAsync": _from_symbol,
    "cudaGetSymbolAddress": lambda run, op, symbol: _symbol(run, op, symbol, 0, 0),
    "cudaGetSymbolSize": _symbol_size,
    **dict.fromkeys(
        (
            "cudaStreamCreate",
            "cudaStreamCreateWithFlags",
            "cudaStreamCreateWithPriority",
            "cudaEventCreate",
            "cudaEventCreateWithFlags",
        ),
        _handle,
    ),
    **dict.fromkeys(
        ("cudaDeviceSynchronize", "cudaThreadSynchronize", "cudaStreamSynchronize", "cudaEventSynchronize"),
        _synchronize,
    ),
    **dict.fromkeys(("cudaStreamDestroy", "cudaEventDestroy", "cudaStreamWaitEvent"), lambda *_: None),
    "cudaEventRecord": _record,
    "cudaEventElapsedTime": _elapsed,
    "cudaGetDevice": lambda run, op: 0,
    "cudaGetDeviceCount": lambda run, op: 1,
    "cudaSetDevice": _set_device,
    "cudaDriverGetVersion": lambda run, op: 12080,
    "cudaRuntimeGetVersion": lambda run, op: 12080,
    "cudaDeviceCanAccessPeer": lambda run, op, *_: 0,
    "cudaGetDeviceProperties": _properties,
    "cudaDeviceGetAttribute": _attribute,
    "cudaGetErrorString": _no_error,
    "cudaGetErrorName": _no_error,
}
