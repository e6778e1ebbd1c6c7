"""Launches, copies and fills written down instead of done, so that they can be done again and again as one.

Note [Traces]
While a trace is there (`TRACE`), what would be put to work is appended to its list, and nothing runs: a gradient's
launches, the memory it clears, what a recording saves. All addresses are final. Memory for that comes from the trace's
own, which lives as long as it does; memory that is freed is given to later operations, as it would have been. Whoever
wants to look at contents meanwhile cannot, and gets an error: what depends on them is no fixed list.
A GPU's trace has nothing of the CPU's memory in it: that is made and cleared at once (`trace_on`), and to copy, fill or
launch anything there is an error.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from ..errors import TapeError
from ..ir.ops import Function
from .arrays import ArrayView
from .launch import BoundArguments, LaunchConfig
from .recording import TRACE

_GRANULE = 256  # bytes


class LiveNumber(NamedTuple):
    """A number among a launch's arguments that is read from memory when it runs: 0-d arrays were passed for it.
    `offset`: in the packed arguments; `size`: of the parameter there."""

    offset: int
    size: int
    array: ArrayView


class Launched(NamedTuple):
    executable: Any
    config: LaunchConfig
    arguments: BoundArguments
    numbers: tuple[LiveNumber, ...]


class Moved(NamedTuple):
    target: int
    source: int
    nbytes: int


class Filled(NamedTuple):
    target: int
    nbytes: int
    pattern: bytes


Operation = Launched | Moved | Filled


class Trace:
    """`device`: the only one that is used, None for the CPU."""

    def __init__(self, device: int | None):
        self.device = device
        self.operations: list[Operation] = []
        self.nbytes = 0
        self._memory: list[Any] = []
        self._stream: int | None = None
        self._unused: dict[int, list[int]] = {}
        self._live: tuple[tuple[Any, ...], tuple[LiveNumber, ...]] = ((), ())

    @contextmanager
    def open(self) -> Iterator[Trace]:
        token = TRACE.set(self)
        try:
            yield self
        finally:
            TRACE.reset(token)

    # ---- operations

    def launch(
        self,
        function: Function,
        executable: Any,
        config: LaunchConfig,
        arguments: BoundArguments,
        device: int | None,
    ) -> None:
        self._require(device, "launches on the CPU and on a GPU")
        params, numbers = self._live
        is_told = bool(numbers) and _params(function)[: len(params)] == params
        self.operations.append(Launched(executable, config, arguments, numbers if is_told else ()))

    def move(self, target: int, source: int, nbytes: int, device: int | None) -> None:
        self._require(device, "copies between CPU and GPU")
        self.operations.append(Moved(target, source, nbytes))

    def fill(self, target: int, nbytes: int, pattern: bytes, device: int | None) -> None:
        self._require(device, "fills memory of the CPU and of a GPU")
        self.operations.append(Filled(target, nbytes, pattern))

    def _require(self, device: int | None, otherwise: str) -> None:
        if device != self.device:
            raise TapeError(f"a program runs on one device: this one {otherwise}")

    @contextmanager
    def telling(self, function: Function, numbers: tuple[LiveNumber, ...]) -> Iterator[None]:
        """Launches of this kernel and of what was derived from it get their numbers from memory."""
        self._live = (tuple([p for p in _params(function) if p[2] is None]), numbers)
        try:
            yield
        finally:
            self._live = ((), ())

    # ---- memory

    def allocate(self, owner: Any, nbytes: int, stream: int | None) -> int:
        """Memory that `owner` has as long as it lives."""
        size = -(-max(1, nbytes) // _GRANULE) * _GRANULE
        free = self._unused.setdefault(size, [])
        address = free.pop() if free else self.own(size, stream)
        weakref.finalize(owner, free.append, address).atexit = False
        return address

    def follow(self, stream: int | None) -> None:
        """Its list runs there now: its memory is freed there, in its time."""
        if stream != self._stream:
            for made in self._memory:
                made.follow(stream)
            self._stream = stream

    def own(self, nbytes: int, stream: int | None = None) -> int:
        """Memory that lives as long as this does, aligned."""
        from .scratch import Scratch

        token = TRACE.set(None)
        try:
            made = Scratch(nbytes + _GRANULE, self.device, stream)
        finally:
            TRACE.reset(token)
        self._memory.append(made)
        self.nbytes += made.nbytes
        return made.address + -made.address % _GRANULE

    def constant(self, data: bytes, stream: int | None) -> int:
        """Memory that holds this, written now."""
        from .scratch import Scratch

        token = TRACE.set(None)
        try:
            made = Scratch(len(data), self.device, stream)
            made.write(data)
        finally:
            TRACE.reset(token)
        self._memory.append(made)
        self.nbytes += made.nbytes
        return made.address


def _params(function: Function) -> tuple[Any, ...]:
    return tuple([(p.name, p.type, p.variable) for p in function.params])


def fill_placeholder(array: ArrayView, pattern: bytes) -> None:
    """While a trace is there: fills an array with an element."""
    trace = TRACE.get()
    assert trace is not None
    device = array.device[1] if isinstance(array.device, tuple) else None
    trace.fill(array.address, array.nbytes, pattern, device)


def trace_on(device: int | None) -> Trace | None:
    """The trace that memory of this device takes part in."""
    trace = TRACE.get()
    return trace if trace is not None and trace.device == device else None
