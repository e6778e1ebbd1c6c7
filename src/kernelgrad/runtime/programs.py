"""A program (Note [Programs] in `operations`) as it is put together from what a trace on placeholders wrote down."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..errors import DeviceError, LaunchError
from . import operations
from .cpu import LaunchStatus
from .launch import BoundArguments, LaunchConfig
from .native_list import operation
from .operations import ENTRY, PROGRAM, Status
from .placing import Place, Relocatable, Traced
from .tracing import Filled, Moved
from .workers import core_count

ALIGN = 64
_PIECES = 8  # of a launch, for each thread that shares it

Check = Callable[[Status], None]


class Memory:
    """Bytes that machine code reads, where they stay."""

    def __init__(self, data: bytes):
        self._memory = np.empty(len(data) + ALIGN, np.uint8)
        self.address = -(-self._memory.ctypes.data // ALIGN) * ALIGN
        ctypes.memmove(self.address, data, len(data))


class Entry(NamedTuple):
    """`launch`: bytes, whose address the code is given. `check`: raises what a status says."""

    code: int
    arguments: int
    launch: bytes
    check: Check
    blocks: int = 0
    chunk: int = 0
    guard: int = -1
    prints: bool = False


class Lists:
    """What a program is made of, as it grows. `scratch_bytes`: what each of its `workers` needs; `keep`: what must stay
    as long as it does. `host_numbers`: numbers that are known when it runs are the host's, also on a GPU."""

    def __init__(self, trace: Relocatable, host_numbers: bool = False):
        self.trace, self.host_numbers = trace, host_numbers
        self.template = bytearray()
        self.relocations: list[tuple[int, Place]] = []
        self.entries: list[Entry] = []
        self.keep: list[Any] = []
        self.scratch_bytes, self.workers, self.waits = 0, 1, False

    def arguments(self, data: bytes, pointers: Any = ()) -> int:
        """Where they are; each of the pointers in them is in a buffer."""
        self.template += bytes(-len(self.template) % ALIGN)
        start = len(self.template)
        self.template += data + bytes(-len(data) % ALIGN)
        self.relocations += [(start + at, place) for at, place in pointers]
        return start

    def places(self, *addresses: int) -> list[tuple[int, Place]]:
        return [(8 * k, self.trace.at(address)) for k, address in enumerate(addresses)]

    def tell(self, code: str, to: int, place: Place, size: int, launch: bytes, check: Check) -> None:
        """Has a number brought among the arguments of the launch that follows."""
        start = self.arguments(struct.pack("<3q", 0, size, 0), [(0, place)])
        struct.pack_into("<q", self.template, start + 16, to - start)
        self.entries.append(Entry(int(operations.code()[code].address), start, launch, check))

    def tables(self) -> Tables:
        return Tables(self)


class Tables:
    """The parts of a program that lie in memory, and its words for them."""

    def __init__(self, lists: Lists):
        self._launches = [Memory(entry.launch) for entry in lists.entries]
        self._tables = {
            "template": Memory(bytes(lists.template)),
            "relocations": Memory(b"".join(struct.pack("<qqq", to, *place) for to, place in lists.relocations)),
            "entries": Memory(_packed_entries(lists.entries, [memory.address for memory in self._launches])),
        }
        self.words = {name: memory.address for name, memory in self._tables.items()} | {
            "template_bytes": len(lists.template),
            "relocation_count": len(lists.relocations),
            "entry_count": len(lists.entries),
        }


def program_of(words: dict[str, int]) -> Memory:
    """Words that are not there are 0."""
    return Memory(struct.pack(f"<{len(PROGRAM)}q", *[words.get(name, 0) for name in PROGRAM]))


def _packed_entries(entries: list[Entry], launches: list[int]) -> bytes:
    parts = []
    for entry, launch in zip(entries, launches, strict=True):
        words = dict(zip(ENTRY, (entry.code, entry.arguments, launch, *entry[4:], 0), strict=True))
        parts.append(struct.pack(f"<{len(ENTRY)}q", *[words[name] for name in ENTRY]))
    return b"".join(parts)


# ---- on the CPU -----------------------------------------------------------------------------------------------------


def add_on_cpu(lists: Lists, step: Traced | Moved | Filled) -> None:
    match step:
        case Traced(executable, config, arguments, pointers, numbers):
            _launch_on_cpu(lists, executable.entry(config, arguments), arguments, pointers, numbers)
            lists.keep.append(executable)
        case Moved(target, source, nbytes):
            data = struct.pack("<3Q", 0, 0, nbytes)
            start = lists.arguments(data, lists.places(target, source))
            lists.entries.append(Entry(operation("move"), start, b"", _never))
        case Filled(target, nbytes, pattern):
            data = struct.pack("<3Q", 0, nbytes, len(pattern)) + pattern
            name = "set" if len(pattern) == 1 else "fill"
            start = lists.arguments(data, lists.places(target))
            lists.entries.append(Entry(operation(name), start, b"", _never))


def _launch_on_cpu(lists: Lists, entry: Any, arguments: BoundArguments, pointers: Any, numbers: Any) -> None:
    start = lists.arguments(arguments.packed, pointers)
    for at, place, size in numbers:
        lists.tell("tell", start + at, place, size, b"", _never)
    workers = min(core_count(), entry.blocks) if entry.is_large else 1
    chunk = max(1, -(-entry.blocks // (workers * _PIECES))) if workers > 1 else 0
    lists.workers = max(lists.workers, workers)
    lists.scratch_bytes = max(lists.scratch_bytes, entry.scratch_bytes)
    guard = -1 if entry.guard is None else entry.guard
    check = _failing(entry.check)
    lists.entries.append(Entry(entry.address, start, entry.launch, check, entry.blocks, chunk, guard, entry.prints))


def _failing(check: Callable[[LaunchStatus], None]) -> Check:
    def told(status: Status) -> None:
        found = LaunchStatus(max(0, status.which), status.thread, status.block)
        found.overrun = status.overrun
        check(found)

    return told


def _never(status: Status) -> None:
    raise LaunchError("an operation failed that cannot")


# ---- on a GPU -------------------------------------------------------------------------------------------------------


def add_on_gpu(lists: Lists, steps: Sequence[Any]) -> None:
    match steps[0]:
        case Traced(_, config, arguments, pointers, numbers):
            start = lists.arguments(arguments.packed, pointers)
            for at, place, size in numbers:
                _tell_on_gpu(lists, start + at, place, size)
            executables = [step.executable for step in steps if isinstance(step, Traced)]
            launch = _gpu_launch(executables, config, len(arguments.packed))
            lists.keep += executables
            lists.entries.append(Entry(_gpu("launch"), start, launch, _driver_error))
        case Moved(target, source, nbytes):
            start = lists.arguments(struct.pack("<3Q", 0, 0, nbytes), lists.places(target, source))
            lists.entries.append(Entry(_gpu("move"), start, _pack("cuMemcpyDtoDAsync_v2"), _driver_error))
        case Filled(target, nbytes, pattern):
            _fill_on_gpu(lists, target, nbytes, pattern)


def _tell_on_gpu(lists: Lists, to: int, place: Place, size: int) -> None:
    if lists.host_numbers:
        lists.tell("tell", to, place, size, b"", _never)
        return
    lists.waits = True  # the host waits for what lies on the GPU
    functions = _pack("cuMemcpyDtoHAsync_v2", "cuStreamSynchronize")
    lists.tell("gpu.fetch", to, place, size, functions, _driver_error)


def _gpu_launch(executables: list[Any], config: LaunchConfig, nbytes: int) -> bytes:
    """As `kg.gpu.launch` reads it: the driver's functions, grid, block, shared memory, the kernel on each device."""
    found = [executable.ready(config) for executable in executables]
    several = driver_function("cuCtxGetDevice") if len(found) > 1 else 0
    numbers = (*config.grid, *config.block, max(shared for _, shared in found))
    head = struct.pack("<2Q7I4xQ", driver_function("cuLaunchKernel"), several, *numbers, nbytes)
    return head + struct.pack(f"<{len(found)}Q", *[function for function, _ in found])


def _fill_on_gpu(lists: Lists, target: int, nbytes: int, pattern: bytes) -> None:
    width = len(pattern)
    start = lists.arguments(struct.pack("<3Q", 0, nbytes // width, 0) + pattern, lists.places(target))
    functions = {1: "cuMemsetD8Async", 2: "cuMemsetD16Async", 4: "cuMemsetD32Async", 8: "cuMemsetD2D32Async"}
    lists.entries.append(Entry(_gpu(f"set{8 * width}"), start, _pack(functions[width]), _driver_error))


def _gpu(name: str) -> int:
    return int(operations.code()[f"gpu.{name}"].address)


def _pack(*names: str) -> bytes:
    return struct.pack(f"<{len(names)}Q", *map(driver_function, names))


def driver_function(name: str) -> int:
    from .devices import library

    return ctypes.cast(getattr(library(), name), ctypes.c_void_p).value or 0


def _driver_error(status: Status) -> None:
    from .devices import describe, driver

    bindings = driver()
    raise DeviceError(describe(bindings, status.which))
