"""A trace on a GPU as a CUDA graph: all launches, copies and fills are put to work by one call."""

from __future__ import annotations

import ctypes
import struct
import weakref
from contextlib import suppress
from typing import Any

from .devices import check, current, driver
from .driver_library import number
from .tracing import Filled, Launched, Moved, Operation

_FLOATS = {2: "<e", 4: "<f", 8: "<d"}


class Graph:
    """`run(stream)` puts all operations of a trace on a stream. Numbers that are read from the CPU's memory are part of
    the graph: where they have changed, it is captured anew."""

    def __init__(self, operations: list[Operation], device: int):
        self._operations, self._device = operations, device
        self._numbers = [n for op in operations if isinstance(op, Launched) for n in op.numbers]
        self._told: list[bytes] | None = None
        self._executable: Any = None

    def run(self, stream: int | None) -> None:
        told = [ctypes.string_at(n.array.address, n.array.nbytes) for n in self._numbers]
        if self._executable is None or told != self._told:
            self._executable, self._told = self._captured(), told
        bindings = driver()
        with current(self._device):
            check(bindings, bindings.cuGraphLaunch(self._executable.handle, stream or 0))

    def _captured(self) -> _GraphExecutable:
        bindings = driver()
        with current(self._device):
            stream = check(bindings, bindings.cuStreamCreate(number("CU_STREAM_", "NON_BLOCKING")))
            try:
                mode = number("CU_STREAM_CAPTURE_", "MODE_THREAD_LOCAL")
                check(bindings, bindings.cuStreamBeginCapture(stream, mode))
                try:
                    for operation in self._operations:
                        _enqueue(operation, int(stream))
                finally:
                    graph = check(bindings, bindings.cuStreamEndCapture(stream))
                made = check(bindings, bindings.cuGraphInstantiate(graph, 0))
                check(bindings, bindings.cuGraphDestroy(graph))
            finally:
                check(bindings, bindings.cuStreamDestroy(stream))
        return _GraphExecutable(made, self._device)


class _GraphExecutable:
    """Destroyed with this object."""

    def __init__(self, handle: Any, device: int):
        self.handle = handle
        weakref.finalize(self, _destroy, handle, device)


def _destroy(handle: Any, device: int) -> None:
    with suppress(Exception):  # at the interpreter's end the driver may be gone
        bindings = driver()
        with current(device):
            bindings.cuGraphExecDestroy(handle)


def _enqueue(operation: Operation, stream: int) -> None:
    bindings = driver()
    match operation:
        case Moved(target, source, nbytes):
            check(bindings, bindings.cuMemcpyDtoDAsync(target, source, nbytes, stream))
        case Filled(target, nbytes, pattern):
            check(bindings, bindings.cuMemsetD8Async(target, pattern[0], nbytes, stream))
        case Launched(executable, config, arguments, numbers):
            packed = bytearray(arguments.packed)
            for offset, size, array in numbers:
                value = struct.unpack(_FLOATS[array.nbytes], ctypes.string_at(array.address, array.nbytes))
                packed[offset : offset + size] = struct.pack(_FLOATS[size], *value)
            executable.launch(config._replace(stream=stream), arguments._replace(packed=bytes(packed)))
