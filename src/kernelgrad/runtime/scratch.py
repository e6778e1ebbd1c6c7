"""Memory that a launch needs for itself: tapes, shadows of unlisted buffers, copies. On the CPU or on a GPU."""

from __future__ import annotations

import ctypes
import os
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cache
from typing import Any

import numpy as np

from .devices import check, current, driver
from .driver_library import number
from .recording import TRACE, refuse_look
from .streams import owner_of
from .tracing import trace_on

# Who has memory to lend: (bytes, device, stream) -> its address, and what has it as long as it lives; None where it
# comes from the system, or from the driver. What is lent is for work on that stream, and may be lent again there once
# its owner is gone.
Lender = Callable[[int, int | None, int], tuple[int, Any]]
LENDER: ContextVar[Lender | None] = ContextVar("kernelgrad lender", default=None)

# Who is told how many bytes are about to be made, and may free others first.
Asked = Callable[[int], None]
_ASKED: ContextVar[Asked | None] = ContextVar("kernelgrad asked", default=None)


@contextmanager
def asking(asked: Asked | None) -> Iterator[None]:
    """For all memory that is made inside."""
    token = _ASKED.set(asked)
    try:
        yield
    finally:
        _ASKED.reset(token)


class Scratch:
    """`nbytes` of memory, freed with this object: on a GPU when the work before on its stream is done."""

    def __init__(self, nbytes: int, device: int | None, stream: int | None, slabs: Slabs | None = None):
        self.nbytes, self.device, self.stream = nbytes, device, stream or 0
        self._host: Any = None
        self._last: list[Any]
        asked = _ASKED.get()
        if asked is not None:
            asked(nbytes)
        trace = trace_on(device)
        if trace is not None:  # a GPU's work list says nothing of the CPU's memory
            self._last = [self.stream, None]
            with asking(None):  # its own pages were asked for
                self.address = trace.allocate(self, nbytes, stream)
            return
        lender = LENDER.get()
        if lender is not None:
            self.address, self._owner = lender(max(1, nbytes), device, self.stream)
            self._last = [self.stream, None]
            return
        if device is None:
            self._host = np.empty(max(1, nbytes), np.uint8) if slabs is None else slabs.take(nbytes)
            self.address = int(self._host.ctypes.data)
            return
        bindings = driver()
        with current(device):
            _keep_freed_memory(device)
            self.address = int(check(bindings, bindings.cuMemAllocAsync(max(1, nbytes), self.stream)))
        self._last = [self.stream, owner_of(self.stream)]
        # At the process's end the driver frees everything, and may be gone already.
        weakref.finalize(self, _free, self.address, device, self._last).atexit = False

    def follow(self, stream: int | None) -> None:
        """From now on it is used on another stream, and freed there."""
        self.stream = stream or 0
        if self.device is not None:
            self._last[:] = self.stream, owner_of(self.stream)

    def zero(self) -> Scratch:
        return self.fill(0)

    def fill(self, byte: int) -> Scratch:
        trace = trace_on(self.device)
        if trace is not None:
            trace.fill(self.address, self.nbytes, bytes((byte,)), self.device)
        elif self.device is None:
            ctypes.memset(self.address, byte, self.nbytes)
        else:
            bindings = driver()
            with current(self.device or 0):
                check(bindings, bindings.cuMemsetD8Async(self.address, byte, max(1, self.nbytes), self.stream))
        return self

    def copy_from(self, address: int, at: int = 0, nbytes: int | None = None) -> Scratch:
        """To byte `at` and on; all of it by default."""
        count = self.nbytes if nbytes is None else nbytes
        trace = TRACE.get()
        if trace is not None:
            trace.move(self.address + at, address, count, self.device)
        elif self.device is None:
            ctypes.memmove(self.address + at, address, count)
        else:
            bindings = driver()
            with current(self.device or 0):
                check(bindings, bindings.cuMemcpyDtoDAsync(self.address + at, address, count, self.stream))
        return self

    def write(self, data: bytes) -> None:
        trace = TRACE.get()
        if trace is not None:
            trace.move(self.address, trace.constant(data, self.stream), len(data), self.device)
            return
        if self.device is None:
            ctypes.memmove(self.address, data, len(data))
            return
        bindings = driver()
        with current(self.device or 0):
            check(bindings, bindings.cuMemcpyHtoDAsync(self.address, data, len(data), self.stream))

    def read(self, nbytes: int | None = None) -> bytes:
        """The contents, or the first bytes of them, once the stream has come this far."""
        refuse_look()
        count = self.nbytes if nbytes is None else nbytes
        if self.device is None:
            return ctypes.string_at(self.address, count)
        bindings = driver()
        data = np.empty(max(1, count), np.uint8)
        with current(self.device or 0):
            check(bindings, bindings.cuMemcpyDtoHAsync(data.ctypes.data, self.address, count, self.stream))
            check(bindings, bindings.cuStreamSynchronize(self.stream))
        return data.tobytes()[:count]


def is_captured(device: int | None, stream: int | None) -> bool:
    """Whether a stream's work goes into a CUDA graph now: nobody can wait for it. A trace runs nothing."""
    if device is None or TRACE.get() is not None:
        return False
    bindings = driver()
    with current(device):
        found = check(bindings, bindings.cuStreamIsCapturing(stream or 0))
    return bool(found != number("CU_STREAM_CAPTURE_", "STATUS_NONE"))


class Slabs:
    """Memory of the CPU for many copies that are freed at about the same time. The system hands out new memory page by
    page, which takes longer than to fill it; of a large piece the pages are large, too. A slab is as large as all
    before it, and freed with the last of its parts."""

    def __init__(self) -> None:
        self._taken = 0
        self._rest: np.ndarray[Any, np.dtype[np.uint8]] = np.empty(0, np.uint8)

    def take(self, nbytes: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
        aligned = -(-max(1, nbytes) // _LINE) * _LINE
        self._taken += aligned
        if self._taken <= _SLABS[0] or aligned > _SLABS[1] // 4:
            return np.empty(max(1, nbytes), np.uint8)
        if aligned > len(self._rest):
            self._rest = np.empty(min(max(self._taken, _SLABS[0]), _SLABS[1]), np.uint8)
        found, self._rest = self._rest[:nbytes], self._rest[aligned:]
        return found


_LINE = 64  # bytes of a cache line
_SLABS = 1 << 22, 1 << 25  # the smallest and the largest


@cache
def _keep_freed_memory(device: int) -> None:
    """Lets the driver keep some of what is freed for the next launch: asking the system again takes milliseconds."""
    bindings = driver()
    handle = check(bindings, bindings.cuDeviceGet(device))
    pool = check(bindings, bindings.cuDeviceGetDefaultMemPool(handle))
    total = int(check(bindings, bindings.cuDeviceTotalMem(handle)))
    attribute = number("CU_MEMPOOL_ATTR_", "RELEASE_THRESHOLD")
    check(bindings, bindings.cuMemPoolSetAttribute(pool, attribute, total // _KEPT_SHARE))


_KEPT_SHARE = 16  # of the device's memory


def available_bytes(device: int | None) -> int:
    """Memory that can still be had."""
    if device is None:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    bindings = driver()
    with current(device):
        free, _ = check(bindings, bindings.cuMemGetInfo())
    return int(free)


def zero_bytes(address: int, nbytes: int, device: int | None, stream: int | None) -> None:
    """Clears memory of the user's, on the stream."""
    trace = TRACE.get()
    if trace is not None:
        trace.fill(address, nbytes, b"\0", device)
        return
    if device is None:
        ctypes.memset(address, 0, nbytes)
        return
    bindings = driver()
    with current(device):
        check(bindings, bindings.cuMemsetD8Async(address, 0, nbytes, stream or 0))


def read_bytes(address: int, nbytes: int, device: int | None) -> bytes:
    """What memory holds, on a GPU after all that was put to work there."""
    refuse_look()
    if device is None:
        return ctypes.string_at(address, nbytes)
    bindings = driver()
    data = np.empty(max(1, nbytes), np.uint8)
    with current(device):
        check(bindings, bindings.cuCtxSynchronize())
        check(bindings, bindings.cuMemcpyDtoH(data.ctypes.data, address, nbytes))
    return data.tobytes()[:nbytes]


def _free(address: int, device: int, last: list[Any]) -> None:
    """`last`: the stream that it was used on last, and its owner."""
    with suppress(Exception):  # at the interpreter's end the driver may be gone, and the memory with it
        bindings = driver()
        with current(device):
            bindings.cuMemFreeAsync(address, last[0])
