"""Where things are before a call has said so: buffers at addresses that stand for them, and traces that keep to those.

Note [Placeholders]
What a derivative launches is found by launching it, with the trace (Note [Traces] in runtime/tracing.py) writing it
down. The arrays of that launch are placeholders: addresses at which no process has memory, a terabyte apart, from which
the buffer and the offset in it follow. Memory that the launch makes for itself, its tape say, is a part of one more
buffer, which whoever calls allocates. So a trace tells which words of which arguments depend on which buffer, once for
all calls. What would read memory, or write addresses as data, is no fixed list; the trace refuses it.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from ..errors import TapeError
from ..ir.layout import leaves, param_layout
from ..ir.ops import Function
from ..ir.types import Pointer, Scalar
from .arrays import BFLOAT16, ArrayView, Device, DType
from .launch import BoundArguments, LaunchConfig
from .tracing import Filled, LiveNumber, Moved, Trace

_SHIFT, _FIRST = 40, 1 << 62
_GRANULE = 256  # bytes
ALIGNED = 16  # bytes: what XLA's buffers are multiples of, everywhere
_WORD = struct.Struct("<Q")


class Place(NamedTuple):
    """In a buffer, so many bytes from its beginning."""

    buffer: int
    offset: int


class Traced(NamedTuple):
    """A launch. `pointers`, `numbers`: which bytes of its arguments are addresses in buffers, and which are read from
    there."""

    executable: Any
    config: LaunchConfig
    arguments: BoundArguments
    pointers: tuple[tuple[int, Place], ...]
    numbers: tuple[tuple[int, Place, int], ...]


def dtype_of(name: str) -> DType:
    return BFLOAT16 if name == BFLOAT16 else np.dtype(name)


def size_of(name: str) -> int:
    return 2 if name == BFLOAT16 else np.dtype(name).itemsize


def placeholder(buffer: int, shape: tuple[int, ...], dtype: str, device: Device, aligned: bool) -> ArrayView:
    """As aligned as all entries of a batch are."""
    size = size_of(dtype)
    address = start_of(buffer) + (ALIGNED if aligned else size)
    return view_at(address, shape, dtype, device)


def start_of(buffer: int) -> int:
    """Where the addresses begin that stand for a buffer."""
    return _FIRST + (buffer << _SHIFT)


def view_at(address: int, shape: tuple[int, ...], dtype: str, device: Device) -> ArrayView:
    nbytes = math.prod(shape) * size_of(dtype)
    return ArrayView(address, nbytes, dtype_of(dtype), shape, True, True, device, None, around=(0, 0))


class Relocatable(Trace):
    """A trace of launches on placeholders. `starts`: those, by their buffers; the last buffer is the launches' own."""

    def __init__(self, device: int | None, starts: list[int]):
        super().__init__(device)
        self.starts = [*starts, start_of(len(starts))]
        self.made: list[Traced | Moved | Filled] = []
        self.mutated: list[Any] = []  # the owners of arrays that are written and whose package is to be told

    def launch(
        self,
        function: Function,
        executable: Any,
        config: LaunchConfig,
        arguments: BoundArguments,
        device: int | None,
    ) -> None:
        super().launch(function, executable, config, arguments, device)
        launched: Any = self.operations.pop()
        _check_told(function, self._live[1], launched.numbers)
        pointers = tuple(
            (at, place) for at, address in _addresses(function, arguments) if (place := self.find(address))
        )
        numbers = tuple((n.offset, self.at(n.array.address), n.size) for n in launched.numbers)
        self.mutated += arguments.mutated
        self.made.append(Traced(executable, config, arguments, pointers, numbers))

    def move(self, target: int, source: int, nbytes: int, device: int | None) -> None:
        super().move(target, source, nbytes, device)
        self.made.append(Moved(target, source, nbytes))

    def fill(self, target: int, nbytes: int, pattern: bytes, device: int | None) -> None:
        self.made.append(Filled(target, nbytes, pattern))

    def own(self, nbytes: int, stream: int | None = None) -> int:
        start = self.starts[-1] + self.nbytes
        self.nbytes += -(-nbytes // _GRANULE) * _GRANULE
        return start

    def constant(self, data: bytes, stream: int | None) -> int:
        raise TapeError("data that is written for a launch may depend on where its arrays are")

    def find(self, address: int) -> Place | None:
        """None for memory that is where it is, and for null."""
        number = (address - _FIRST) >> _SHIFT
        return Place(number, address - self.starts[number]) if 0 <= number < len(self.starts) else None

    def at(self, address: int) -> Place:
        found = self.find(address)
        assert found is not None
        return found


def _addresses(function: Function, arguments: BoundArguments) -> Iterator[tuple[int, int]]:
    """The pointers among the arguments, and where they are."""
    for param, start in zip(function.params, param_layout(function)[0], strict=True):
        for _, offset, type in leaves(param.type, param.name, start):
            if isinstance(type, Pointer):
                yield offset, _WORD.unpack_from(arguments.packed, offset)[0]


def _check_told(function: Function, live: tuple[LiveNumber, ...], told: tuple[LiveNumber, ...]) -> None:
    """A kernel that has a number of the user's but was not told it would use another one."""
    numbers = (p for p in function.params if p.variable is None and isinstance(p.type, Scalar) and p.type.is_float)
    if live and not told and any(numbers):
        raise TapeError(f"{function.name} takes a number that is known when it runs")
