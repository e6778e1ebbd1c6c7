"""A call's steps as machine code goes through them: Note [Handlers] in `handler`.

Programs live as long as the process: XLA's executables know their handlers by name and may run at any time.
"""

from __future__ import annotations

import ctypes
import struct
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..errors import KernelGradError
from ..runtime.arrays import ArrayView, Device
from ..runtime.placing import ALIGNED, Place, Relocatable
from ..runtime.programs import ALIGN, Entry, Lists, Memory, add_on_cpu, add_on_gpu, program_of
from . import handler
from .launching import Called, Step, Steps

_COMMAND_BUFFERS = 1  # the trait: what is launched is always the same


class Program:
    """`steps`: on the CPU, or on each of the GPUs, which have the same ones but for the code that is loaded. `strides`:
    by how many bytes the buffers of a batch's entries are apart. `nbytes`: the size of the buffer behind the others
    that the call needs, 0 for none. `address`: of its handler."""

    def __init__(self, steps: Sequence[Steps], strides: list[int], batch: int | None, on_gpu: bool):
        made, own_bytes = Lists(steps[0].trace), max(found.nbytes for found in steps)
        for alike in zip(*(found.steps for found in steps), strict=True):
            _add(made, alike, on_gpu)
        scratch = -(-made.scratch_bytes // ALIGN) * ALIGN
        needed = len(made.template) + made.workers * scratch
        is_lent = not on_gpu and needed > handler.STACK_BYTES
        self.nbytes = own_bytes + (ALIGN + needed if is_lent else 0)
        self.checks = [entry.check for entry in made.entries]
        self.waits = made.waits
        strides = [*strides, *[0] * (self.nbytes > 0)]
        tables, apart = made.tables(), Memory(struct.pack(f"<{len(strides)}q", *strides))
        words = {
            "buffers": len(strides),
            "memory_buffer": len(strides) - 1 if is_lent else -1,
            "memory_offset": own_bytes + ALIGN,
            "scratch_bytes": scratch,
            "workers": made.workers,
            "batch": 1 if batch is None else batch,
            "strides": apart.address,
            "describe": ctypes.cast(_DESCRIBE, ctypes.c_void_p).value or 0,
            "number": len(_programs),
            "traits": _COMMAND_BUFFERS if on_gpu and not made.waits else 0,
            "alignment": ALIGNED - 1,
            "on_gpu": on_gpu,
        }
        memory = program_of(words | tables.words)
        self._keep = memory, tables, apart, made.keep
        self._code = handler.handler_of(memory.address)
        _programs.append(self)

    @property
    def address(self) -> int:
        return int(self._code.address)


_programs: list[Program] = []


def _add(lists: Lists, steps: Sequence[Step], on_gpu: bool) -> None:
    first = steps[0]
    if isinstance(first, Called):
        _python(lists, first, on_gpu)
    elif on_gpu:
        add_on_gpu(lists, steps)
    else:
        add_on_cpu(lists, first)


def _python(lists: Lists, step: Called, on_gpu: bool) -> None:
    """A launch that Python makes: it is told where all buffers are."""
    lists.waits = True
    count = len(lists.trace.starts)
    start = lists.arguments(bytes(8 * count), [(8 * k, Place(k, 0)) for k in range(count)])
    operation = handler.OPERATION(_calling(step, lists.trace, on_gpu))
    lists.keep.append(operation)
    code = ctypes.cast(operation, ctypes.c_void_p).value
    lists.entries.append(Entry(code or 0, start, b"", _raise_kept))


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
