"""A call's steps as machine code goes through them: Note [Handlers] in `handler`.

Programs live as long as the process: XLA's executables know their handlers by name and may run at any time.
"""

from __future__ import annotations

import ctypes
import struct
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..errors import DeviceError, KernelGradError, LaunchError
from ..runtime.arrays import ArrayView, Device
from ..runtime.cpu import LaunchStatus
from ..runtime.launch import BoundArguments, LaunchConfig
from ..runtime.tracing import Filled, Moved
from ..runtime.workers import core_count
from . import handler
from .handler import ENTRY, PROGRAM
from .launching import Called, Step, Steps
from .placing import ALIGNED, Place, Relocatable, Traced

_ALIGN = 64
_PIECES = 8  # of a launch, for each thread that shares it
_COMMAND_BUFFERS = 1  # the trait: what is launched is always the same

Check = Callable[[handler.Status], None]


class Memory:
    """Bytes that machine code reads, where they stay."""

    def __init__(self, data: bytes):
        self._memory = np.empty(len(data) + _ALIGN, np.uint8)
        self.address = -(-self._memory.ctypes.data // _ALIGN) * _ALIGN
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


class Program:
    """`steps`: on the CPU, or on each of the GPUs, which have the same ones but for the code that is loaded. `strides`:
    by how many bytes the buffers of a batch's entries are apart. `nbytes`: the size of the buffer behind the others
    that the call needs, 0 for none. `address`: of its handler."""

    def __init__(self, steps: Sequence[Steps], strides: list[int], batch: int | None, on_gpu: bool):
        made, own_bytes = _Lists(steps[0].trace), max(found.nbytes for found in steps)
        for alike in zip(*(found.steps for found in steps), strict=True):
            (_add_on_gpu if on_gpu else _add_on_cpu)(made, alike)
        scratch = -(-made.scratch_bytes // _ALIGN) * _ALIGN
        needed = len(made.template) + made.workers * scratch
        is_lent = not on_gpu and needed > handler.STACK_BYTES
        self.nbytes = own_bytes + (_ALIGN + needed if is_lent else 0)
        self.checks = [entry.check for entry in made.entries]
        self.waits = made.waits
        strides = [*strides, *[0] * (self.nbytes > 0)]
        self._launches = [Memory(entry.launch) for entry in made.entries]
        self._tables = {
            "template": Memory(bytes(made.template)),
            "relocations": Memory(b"".join(struct.pack("<qqq", to, *place) for to, place in made.relocations)),
            "entries": Memory(_packed_entries(made.entries, [memory.address for memory in self._launches])),
            "strides": Memory(struct.pack(f"<{len(strides)}q", *strides)),
        }
        words = {
            "buffers": len(strides),
            "template_bytes": len(made.template),
            "relocation_count": len(made.relocations),
            "entry_count": len(made.entries),
            "memory_buffer": len(strides) - 1 if is_lent else -1,
            "memory_offset": own_bytes + _ALIGN,
            "scratch_bytes": scratch,
            "workers": made.workers,
            "batch": 1 if batch is None else batch,
            "describe": ctypes.cast(_DESCRIBE, ctypes.c_void_p).value,
            "number": len(_programs),
            "traits": _COMMAND_BUFFERS if on_gpu and not made.waits else 0,
            "alignment": ALIGNED - 1,
            "on_gpu": on_gpu,
        }
        words |= {name: memory.address for name, memory in self._tables.items()}
        self._keep = Memory(struct.pack(f"<{len(PROGRAM)}q", *[words[name] for name in PROGRAM])), made.keep
        self._code = handler.handler_of(self._keep[0].address)
        _programs.append(self)

    @property
    def address(self) -> int:
        return int(self._code.address)


_programs: list[Program] = []


def _packed_entries(entries: list[Entry], launches: list[int]) -> bytes:
    parts = []
    for entry, launch in zip(entries, launches, strict=True):
        words = dict(zip(ENTRY, (entry.code, entry.arguments, launch, *entry[4:], 0), strict=True))
        parts.append(struct.pack(f"<{len(ENTRY)}q", *[words[name] for name in ENTRY]))
    return b"".join(parts)


class _Lists:
    """What a program is made of, as it grows. `waits`: the host takes part."""

    def __init__(self, trace: Relocatable):
        self.trace = trace
        self.template = bytearray()
        self.relocations: list[tuple[int, Place]] = []
        self.entries: list[Entry] = []
        self.keep: list[Any] = []
        self.scratch_bytes, self.workers, self.waits = 0, 1, False

    def arguments(self, data: bytes, pointers: Any = ()) -> int:
        """Where they are; each of the pointers in them is in a buffer."""
        self.template += bytes(-len(self.template) % _ALIGN)
        start = len(self.template)
        self.template += data + bytes(-len(data) % _ALIGN)
        self.relocations += [(start + at, place) for at, place in pointers]
        return start

    def places(self, *addresses: int) -> list[tuple[int, Place]]:
        return [(8 * k, self.trace.at(address)) for k, address in enumerate(addresses)]

    def tell(self, code: str, to: int, place: Place, size: int, launch: bytes, check: Check) -> None:
        """Has a number brought among the arguments of the launch that follows."""
        start = self.arguments(struct.pack("<3q", 0, size, 0), [(0, place)])
        struct.pack_into("<q", self.template, start + 16, to - start)
        self.entries.append(Entry(int(handler.code()[code].address), start, launch, check))

    def python(self, step: Called, device: bool) -> None:
        """A launch that Python makes: it is told where all buffers are."""
        self.waits = True
        count = len(self.trace.starts)
        start = self.arguments(bytes(8 * count), [(8 * k, Place(k, 0)) for k in range(count)])
        operation = handler.OPERATION(_calling(step, self.trace, device))
        self.keep.append(operation)
        code = ctypes.cast(operation, ctypes.c_void_p).value
        self.entries.append(Entry(code or 0, start, b"", _raise_kept))


# ---- on the CPU -----------------------------------------------------------------------------------------------------


def _add_on_cpu(lists: _Lists, steps: Sequence[Step]) -> None:
    from ..runtime.native_list import operation

    match steps[0]:
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
        case Called() as step:
            lists.python(step, False)


def _launch_on_cpu(lists: _Lists, entry: Any, arguments: BoundArguments, pointers: Any, numbers: Any) -> None:
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
    def told(status: handler.Status) -> None:
        found = LaunchStatus(max(0, status.which), status.thread, status.block)
        found.overrun = status.overrun
        check(found)

    return told


def _never(status: handler.Status) -> None:
    raise LaunchError("an operation failed that cannot")


# ---- on a GPU -------------------------------------------------------------------------------------------------------


def _add_on_gpu(lists: _Lists, steps: Sequence[Step]) -> None:
    match steps[0]:
        case Traced(_, config, arguments, pointers, numbers):
            start = lists.arguments(arguments.packed, pointers)
            for at, place, size in numbers:  # the host waits for what lies on the GPU
                lists.waits = True
                functions = _pack("cuMemcpyDtoHAsync_v2", "cuStreamSynchronize")
                lists.tell("gpu.fetch", start + at, place, size, functions, _driver_error)
            executables = [step.executable for step in steps if isinstance(step, Traced)]
            launch = _gpu_launch(executables, config, len(arguments.packed))
            lists.keep += executables
            lists.entries.append(Entry(_gpu("launch"), start, launch, _driver_error))
        case Moved(target, source, nbytes):
            start = lists.arguments(struct.pack("<3Q", 0, 0, nbytes), lists.places(target, source))
            lists.entries.append(Entry(_gpu("move"), start, _pack("cuMemcpyDtoDAsync_v2"), _driver_error))
        case Filled(target, nbytes, pattern):
            _fill_on_gpu(lists, target, nbytes, pattern)
        case Called() as step:
            lists.python(step, True)


def _gpu_launch(executables: list[Any], config: LaunchConfig, nbytes: int) -> bytes:
    """As `kg.gpu.launch` reads it: the driver's functions, grid, block, shared memory, the kernel on each device."""
    found = [executable.ready(config) for executable in executables]
    several = _driver_function("cuCtxGetDevice") if len(found) > 1 else 0
    numbers = (*config.grid, *config.block, max(shared for _, shared in found))
    head = struct.pack("<2Q7I4xQ", _driver_function("cuLaunchKernel"), several, *numbers, nbytes)
    return head + struct.pack(f"<{len(found)}Q", *[function for function, _ in found])


def _fill_on_gpu(lists: _Lists, target: int, nbytes: int, pattern: bytes) -> None:
    width = len(pattern)
    start = lists.arguments(struct.pack("<3Q", 0, nbytes // width, 0) + pattern, lists.places(target))
    functions = {1: "cuMemsetD8Async", 2: "cuMemsetD16Async", 4: "cuMemsetD32Async", 8: "cuMemsetD2D32Async"}
    lists.entries.append(Entry(_gpu(f"set{8 * width}"), start, _pack(functions[width]), _driver_error))


def _gpu(name: str) -> int:
    return int(handler.code()[f"gpu.{name}"].address)


def _pack(*names: str) -> bytes:
    return struct.pack(f"<{len(names)}Q", *map(_driver_function, names))


def _driver_function(name: str) -> int:
    from ..runtime.devices import library

    return ctypes.cast(getattr(library(), name), ctypes.c_void_p).value or 0


def _driver_error(status: handler.Status) -> None:
    from ..runtime.devices import describe, driver

    bindings = driver()
    raise DeviceError(describe(bindings, bindings.CUresult(status.which)))


# ---- Python's part --------------------------------------------------------------------------------------------------

_raised: dict[int, Exception] = {}  # by thread


def _calling(step: Called, trace: Relocatable, on_gpu: bool) -> Callable[..., None]:
    """Makes the launch on real arrays. An exception is kept until somebody asks what went wrong."""

    def call(arguments: int, _launch: int, _begin: int, _end: int, stream: int | None, status: int) -> None:
        try:
            addresses = (ctypes.c_uint64 * len(trace.starts)).from_address(arguments)
            step.target._launch(step.launch.on(stream or 0) if on_gpu else step.launch, real(addresses), {})
        except Exception as error:
            _raised[threading.get_ident()] = error
            handler.Status.from_address(status).which = handler.RAISED

    def real(addresses: Any) -> tuple[Any, ...]:
        device: Device = ("cuda", _current_device()) if on_gpu else "cpu"

        def moved(value: Any) -> Any:
            if not isinstance(value, ArrayView):
                return value
            place = trace.at(value.address)
            return value._replace(address=addresses[place.buffer] + place.offset, device=device)

        numbers = {k: _number(moved(array), on_gpu) for k, array in step.numbers.items()}
        return tuple(numbers[k] if k in numbers else moved(value) for k, value in enumerate(step.args))

    return call


def _number(array: ArrayView, on_gpu: bool) -> float:
    from ..runtime.scratch import read_bytes

    data = read_bytes(array.address, array.nbytes, array.device[1] if on_gpu else None)  # type: ignore[arg-type]
    return float(np.frombuffer(data, array.dtype)[0])


def _current_device() -> int:
    from ..runtime.devices import check, driver

    bindings = driver()
    return int(check(bindings, bindings.cuCtxGetDevice()))


def _raise_kept(status: handler.Status) -> None:
    raise _raised.pop(threading.get_ident())


def _write_message(number: int, entry: int, status: int, text: int, room: int) -> None:
    """Writes what went wrong where XLA's error takes it from."""
    try:
        _programs[number].checks[entry](handler.Status.from_address(status))
        words = "a launch failed"
    except KernelGradError as error:
        words = str(error)
    except Exception as error:
        words = f"{type(error).__name__}: {error}"
    data = words.encode()[: room - 1] + b"\0"
    ctypes.memmove(text, data, len(data))


_DESCRIBE = handler.DESCRIBE(_write_message)
