"""Launches that come again: one call of machine code instead of all that Python does for a launch.

Note [Replays]
What a launch amounts to depends on its shape, on its integers, and on what its arrays are; on where they are and on
floating-point numbers only in that these are among the arguments. When a launch comes for the second time it is made
on placeholders (Note [Placeholders] in `placing`) under a trace, which gives a program (Note [Programs] in
`operations`). From then on such a launch is its key, a look into a table, and the program run on the arrays' addresses.
What is not plain is left to the usual way, which has the words for what is wrong: parts of larger arrays, arrays that
are not contiguous, arguments that share memory, launches whose tape must be counted, large launches on the CPU, which
are shared among its cores. So is everything while it is recorded.
"""

from __future__ import annotations

import ctypes
import struct
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from itertools import combinations
from typing import Any

import numpy as np

from ..errors import KernelGradError
from ..ir.layout import param_layout
from ..ir.ops import Function
from ..ir.types import F16, F32, F64, Pointer, Scalar
from .arguments import Binder
from .arrays import ArrayView, is_part, mark_written, view
from .config import Launch
from .devices import context_number, current
from .operations import OTHER_CONTEXT, OVERLAP, Status, code
from .placing import ALIGNED, Relocatable, start_of
from .programs import ALIGN, Lists, Memory, add_on_cpu, add_on_gpu, driver_function, program_of
from .reach import reaches
from .recording import RECORDER, TRACE
from .scratch import Scratch
from .signature import user_params
from .tracing import LiveNumber
from .workers import scratch_memory

_POINTER, _INTEGER, _NUMBER = range(3)
_NUMBER_CODES = {F16: "e6x", F32: "f4x", F64: "d"}
_STACK_BYTES = 1 << 16
_MOST_BYTES = 1 << 22  # of memory besides the arguments: what needs more takes its time
_REMEMBERED = 256

Slowly = Callable[[Launch, tuple[Any, ...]], None]
Key = tuple[Any, ...]


class Replays:
    """Those of one kernel, or of one derivative of it, which takes the kernel's arguments and then arrays, `others` of
    them. `slowly`: the usual way. `apart`: its arguments may not share memory. `plain`: it depends on nothing else."""

    def __init__(self, function: Function, others: int, slowly: Slowly, apart: bool, plain: bool):
        self._function, self._slowly, self._apart = function, slowly, apart
        kinds = [_kind(p.type) for p in user_params(function)]
        self._kinds = None if None in kinds or not plain else (*kinds, *[_POINTER] * others)
        self._found: dict[Key, Replay | None] = {}
        self._seen: dict[Key, None] = {}

    def launch(self, launch: Launch, args: Sequence[Any]) -> bool:
        """Whether that was all."""
        if RECORDER.get() is not None or TRACE.get() is not None:
            return False
        found = self.find(launch, args)
        return found is not None and found[0].run(args, found[1], found[2])

    def find(
        self, launch: Launch, args: Sequence[Any], detached: bool = False
    ) -> tuple[Replay, list[int], list[float]] | None:
        """With the addresses and numbers that it is run with. `detached`: of tensors, it does not matter whether
        PyTorch's graph has a part in them, and nobody counts what is written; and they may be parts of others."""
        kinds = self._kinds
        if kinds is None or len(args) != len(kinds) or launch.stream is not None:
            return None
        key, addresses, numbers = [launch, detached], list[int](), list[float]()
        try:
            for kind, arg in zip(kinds, args, strict=True):
                if kind == _POINTER:
                    if arg is None:
                        key.append(None)
                        continue
                    read = _readers.get(type(arg)) or _find_reader(type(arg))
                    address = read(arg, key.append, detached)
                    if address is None:
                        return None
                    addresses.append(address)
                elif kind == _NUMBER:
                    if type(arg) not in _FLOATS:
                        return None
                    numbers.append(arg)
                elif type(arg) in _INTEGERS:
                    key.append(arg)
                else:
                    return None
        except (TypeError, ValueError, BufferError, RuntimeError):  # no plain memory
            return None
        whole = tuple(key)
        found = self._found.get(whole)
        if found is None and whole not in self._found:
            found = self._prepare(whole, launch, args)
        return None if found is None else (found, addresses, numbers)

    def _prepare(self, key: Key, launch: Launch, args: Sequence[Any]) -> Replay | None:
        """None at the first time, and where it cannot be."""
        if key not in self._seen:
            _forget_first(self._seen)
            self._seen[key] = None
            return None
        try:
            making = _Making(self._function, self._kinds or (), launch, args, detached=key[1])
            found: Replay | None = making.made(self._slowly, self._apart)
        except KernelGradError:  # it looks at memory, say
            found = None
        _forget_first(self._found)
        self._found[key] = found
        return found


class Replay:
    """`nbytes`: of memory besides the arguments; `written`: which arguments PyTorch is told of. `inside`: the kernel
    provably touches nothing around its arrays."""

    __slots__ = ("_program", "_keep", "_pack", "_checks", "_nbytes", "_device", "_written", "_stream", "inside")

    def __init__(
        self, lists: Lists, words: dict[str, int], nbytes: int, codes: str, device: int | None, keep: Any
    ) -> None:
        tables = lists.tables()
        memory = program_of(words | tables.words)
        self._program, self._nbytes, self._device = memory.address, nbytes, device
        self._keep = memory, tables, lists.keep, keep
        self._checks = [entry.check for entry in lists.entries]
        self._pack = struct.Struct(codes).pack
        self._written: tuple[int, ...] = ()
        self._stream: Callable[[Sequence[Any]], int] | None = None
        self.inside = False

    @property
    def needs_memory(self) -> bool:
        """On a GPU; the CPU's threads have some."""
        return self._nbytes > 0 and self._device is not None

    def written_in(self, numbers: Sequence[int]) -> Replay:
        self._written = tuple(numbers)
        return self

    def on_stream(self, stream: Callable[[Sequence[Any]], int]) -> Replay:
        """`stream`: the current one, by the arguments."""
        self._stream = stream
        return self

    def run(self, args: Sequence[Any], addresses: Sequence[int], numbers: Sequence[float]) -> bool:
        stream = 0 if self._stream is None else self._stream(args)
        own = 0
        if self._nbytes:
            if self._device is None:
                own = scratch_memory(self._nbytes)
            else:
                memory = Scratch(self._nbytes, self._device, stream)
                own = memory.address
        try:
            given = self._pack(*addresses, own, *numbers)
        except (struct.error, OverflowError):
            return False
        which = _run(self._program, given, stream, _status())
        if which != -1 and not self._went(which, given, stream):
            return False
        if self._written:
            mark_written(tuple([args[k] for k in self._written]))
        return True

    def _went(self, which: int, given: bytes, stream: int) -> bool:
        """Whether it did in the end."""
        if which == OTHER_CONTEXT:
            with current(self._device or 0):
                which = _run(self._program, given, stream, _status())
        if which >= 0:
            self._checks[which](Status.from_address(_status()))
        return which == -1


class _Making:
    """Makes a program of a launch: its arrays become placeholders, its numbers one more buffer."""

    def __init__(self, function: Function, kinds: tuple[Any, ...], launch: Launch, args: Sequence[Any], detached: bool):
        self.launch, self.args, self._kinds, self._detached = launch, args, kinds, detached
        self.views: dict[int, ArrayView] = {}
        for k, (kind, arg) in enumerate(zip(kinds, args, strict=True)):
            found = view(arg) if kind == _POINTER and arg is not None else None
            if found is not None:
                address = start_of(len(self.views)) + (found.address % ALIGNED or ALIGNED)
                # Its owner tells later which argument it was.
                self.views[k] = found._replace(address=address, owner=_Argument(k), tracked=False, around=(0, 0))
        devices = {v.device for v in self.views.values()}
        device = next(iter(devices), "cpu")
        self.device = device[1] if isinstance(device, tuple) else None
        self._numbers = len(self.views)
        starts = [v.address for v in self.views.values()]
        self.trace = Relocatable(self.device, [*starts, start_of(self._numbers)])
        self._function = function
        self._live, self._codes = self._live_numbers(kinds)

    def _live_numbers(self, kinds: tuple[Any, ...]) -> tuple[tuple[LiveNumber, ...], str]:
        live, codes = list[LiveNumber](), ""
        params = user_params(self._function)
        for param, offset, kind in zip(params, param_layout(self._function)[0], kinds, strict=False):
            if kind == _NUMBER and isinstance(param.type, Scalar):
                at = ArrayView(
                    start_of(self._numbers) + 8 * len(live),
                    param.type.size,
                    np.dtype("f4"),
                    (),
                    True,
                    False,
                    "cpu",
                    None,
                )
                live.append(LiveNumber(offset, param.type.size, at))
                codes += _NUMBER_CODES[param.type]
        return tuple(live), codes

    def made(self, slowly: Slowly, apart: bool) -> Replay | None:
        inside = self._detached and self._stays_inside()
        if not inside and any(is_part(view_of) for view_of in map(view, self.args) if view_of is not None):
            return None
        plain = [0.0 if kind == _NUMBER else arg for kind, arg in zip(self._kinds, self.args, strict=True)]
        args = tuple([self.views.get(k, arg) for k, arg in enumerate(plain)])
        with self.trace.open(), self.trace.telling(self._function, self._live):
            slowly(self.launch, args)
        lists = Lists(self.trace, host_numbers=True)
        for step in self.trace.made:
            add_on_cpu(lists, step) if self.device is None else add_on_gpu(lists, (step,))
        if any(e.chunk or e.prints for e in lists.entries) or self.trace.nbytes > _MOST_BYTES:
            return None
        made = self._replay(lists, self._apart_pairs() if apart else [])
        made.inside = inside
        return made

    def _stays_inside(self) -> bool:
        """Whether the kernel provably touches nothing around its arrays: what they are parts of does not matter."""
        own = len(user_params(self._function))
        with _no_graph():
            bound, _ = Binder(self._function, frozenset()).bind(self.args[:own])
        unknown = [b._replace(is_part=True, around=None) for b in bound.buffers]
        found = reaches(self._function, self.launch, bound._replace(buffers=tuple(unknown)))
        return all(reach.both == (0, 0) for reach in found.values())

    def _replay(self, lists: Lists, pairs: list[tuple[int, ...]]) -> Replay:
        scratch = -(-lists.scratch_bytes // ALIGN) * ALIGN
        needed, own = len(lists.template) + scratch, self.trace.nbytes
        is_lent = self.device is None and needed > _STACK_BYTES
        count = self._numbers + 2
        table = Memory(b"".join(struct.pack("<4q", *pair) for pair in pairs))
        strides = Memory(bytes(8 * count))
        words = {
            "buffers": count,
            "memory_buffer": count - 1 if is_lent else -1,
            "memory_offset": own + ALIGN,
            "scratch_bytes": scratch,
            "workers": 1,
            "batch": 1,
            "strides": strides.address,
            "on_gpu": self.device is not None,
            "numbers": self._numbers,
            "pair_count": len(pairs),
            "pairs": table.address,
        }
        if self.device is not None:
            words |= {"context_of": driver_function("cuCtxGetCurrent"), "context": context_number(self.device)}
        nbytes = own + (ALIGN + needed if is_lent else 0)
        codes = f"<{self._numbers}Q8xQ{self._codes}"
        made = Replay(lists, words, nbytes, codes, self.device, (table, strides))
        if not self._detached:
            made.written_in(sorted({o.number for o in self.trace.mutated if isinstance(o, _Argument)}))
        if self.device is not None:
            first = next(iter(self.views))
            made.on_stream(_stream_reader(self.args[first], first))
        return made

    def _apart_pairs(self) -> list[tuple[int, ...]]:
        sizes = [(number, v.nbytes) for number, v in enumerate(self.views.values()) if v.nbytes]
        return [(*one, *other) for one, other in combinations(sizes, 2)]


class _Argument:
    """The owner of a placeholder: which argument it stands for."""

    def __init__(self, number: int):
        self.number = number


# ---- what arrays are ------------------------------------------------------------------------------------------------
# A reader adds to a launch's key what its plan may depend on, and gives the address; None for what is not plain.

Reader = Callable[[Any, Callable[[Any], None], bool], int | None]
_FLOATS = frozenset((float, int, np.float32, np.float64))
_INTEGERS = frozenset((int, bool))
_byte = ctypes.c_char.from_buffer
_address_of = ctypes.addressof


def _kind(type: Any) -> int | None:
    if isinstance(type, Pointer):
        return _POINTER
    if not isinstance(type, Scalar):
        return None
    return _INTEGER if not type.is_float else _NUMBER if type in _NUMBER_CODES else None


def _numpy(array: Any, add: Callable[[Any], None], detached: bool) -> int | None:
    """`from_buffer` raises where the memory is not contiguous, not writable, or not there."""
    base, nbytes = array.base, array.nbytes
    if base is not None and getattr(base, "nbytes", -1) != nbytes:
        return None
    address = _address_of(_byte(array))
    add(array.dtype)
    add(nbytes << 4 | address & 15)
    return address


def _tensor(tensor: Any, add: Callable[[Any], None], detached: bool) -> int | None:
    if not tensor.is_contiguous() or tensor.is_neg() or tensor.is_conj():
        return None
    nbytes, address = tensor.nbytes, tensor.data_ptr()
    if not detached and (tensor.requires_grad or tensor.untyped_storage().nbytes() != nbytes):
        return None
    add(tensor.dtype)
    add(nbytes << 4 | address & 15)
    add(tensor.device)
    if detached:
        add(tensor.untyped_storage().nbytes() != nbytes)
    return int(address)


def _cupy(array: Any, add: Callable[[Any], None], detached: bool) -> int | None:
    memory, nbytes = array.data, array.nbytes
    if array.base is not None or not array.flags.c_contiguous:
        return None
    add(array.dtype)
    add(nbytes << 4 | memory.ptr & 15)
    add(memory.device_id)
    return int(memory.ptr)


def _no_reader(array: Any, add: Callable[[Any], None], detached: bool) -> int | None:
    return None


_readers: dict[type, Reader] = {np.ndarray: _numpy}


def _find_reader(kind: type) -> Reader:
    torch, cupy = sys.modules.get("torch"), sys.modules.get("cupy")
    found: Reader = _no_reader
    if torch is not None and kind in (torch.Tensor, torch.nn.Parameter):
        found = _tensor
    elif cupy is not None and kind is cupy.ndarray:
        found = _cupy
    return _readers.setdefault(kind, found)


def _stream_reader(array: Any, place: int) -> Callable[[Sequence[Any]], int]:
    """The current stream of the package of an array, which is the argument at this place."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        current_stream, index = torch._C._cuda_getCurrentRawStream, array.device.index
        return lambda _: current_stream(index)
    from .streams import current_stream as any_stream

    return lambda args: any_stream(args[place]) or 0


def _no_graph() -> Any:
    torch = sys.modules.get("torch")
    return nullcontext() if torch is None else torch.no_grad()


# ---- calls ----------------------------------------------------------------------------------------------------------

_local = threading.local()


def _status() -> int:
    """The address of this thread's status."""
    try:
        return _local.address  # type: ignore[no-any-return]
    except AttributeError:
        _local.status = Status()
        _local.address = ctypes.addressof(_local.status)
        return _local.address  # type: ignore[no-any-return]


def _load() -> Any:
    words = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p
    return ctypes.CFUNCTYPE(ctypes.c_int64, *words)(code()["replay"].address)


_run = _load()


def _forget_first(table: dict[Key, Any]) -> None:
    while len(table) >= _REMEMBERED:
        table.pop(next(iter(table)), None)


__all__ = ["OVERLAP", "Replay", "Replays"]
