"""The memory of a host program: who allocated what, where it lies, whether it is still there."""

from __future__ import annotations

import ctypes
from bisect import bisect_right, insort
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from ..errors import UNKNOWN, ProgramError, Span
from ..runtime.scratch import Scratch

Kind = Literal["host", "device", "managed", "stack", "static", "argument"]

_ALIGNED = 256
_MOST = 1 << 47  # bytes that have addresses
_FREED_BY = {"host": "free or delete", "device": "cudaFree"}


@dataclass(order=True)
class Allocation:
    """`device`: the GPU that it lies on, None for the CPU's memory. A `kind` of device memory may lie there too."""

    start: int
    nbytes: int = field(compare=False)
    kind: Kind = field(compare=False)
    device: int | None = field(compare=False, default=None)
    owner: Any = field(compare=False, default=None, repr=False)
    made: Span = field(compare=False, default=UNKNOWN)
    freed: Span | None = field(compare=False, default=None)
    pinned: bool = field(compare=False, default=False)
    twin: Allocation | None = field(compare=False, default=None, repr=False)  # on the device, of memory for both

    @property
    def end(self) -> int:
        return self.start + self.nbytes

    @property
    def shown(self) -> str:
        what = {"stack": "a variable", "static": "a variable", "argument": "an argument"}.get(self.kind, "memory")
        at = f", allocated in line {self.made.line}" if self.made.line else ""
        return f"{what} of {self.nbytes} bytes{at}"


class Memory:
    """All allocations, by address. What was freed is remembered until the call ends, to tell who uses it after that."""

    def __init__(self, device: int | None):
        self.device = device  # of device memory
        self._all: list[Allocation] = []

    def __iter__(self) -> Any:
        return iter(self._all)

    def allocate(self, nbytes: int, kind: Kind, span: Span, pinned: bool = False) -> Allocation:
        device = self.device if kind == "device" else None
        try:
            if nbytes >= _MOST:  # a size below zero, too
                raise MemoryError
            owner = Scratch(nbytes + _ALIGNED, device, 0).zero()
        except MemoryError:
            raise ProgramError(f"there is no memory for {nbytes} bytes", span) from None
        start = -(-owner.address // _ALIGNED) * _ALIGNED
        made = Allocation(start, nbytes, kind, device, owner, span, pinned=pinned)
        self.add(made)
        return made

    def add(self, allocation: Allocation) -> Allocation:
        """Also of memory that somebody else owns. Addresses of freed memory may come again."""
        if allocation.nbytes:
            low, high = allocation.start, allocation.end
            self._all = [a for a in self._all if not (a.freed is not None and a.start < high and low < a.end)]
        insort(self._all, allocation)
        return allocation

    def remove(self, allocation: Allocation) -> None:
        self._all = [a for a in self._all if a is not allocation]

    def find(self, address: int) -> Allocation | None:
        """What an address points into, or just behind."""
        k = bisect_right(self._all, Allocation(address, 0, "host")) - 1
        if k >= 0 and self._all[k].start <= address <= self._all[k].end:
            return self._all[k]
        return None

    def at(self, address: int, span: Span, what: str) -> Allocation:
        if address == 0:
            raise ProgramError(f"{what} a null pointer", span)
        found = self.find(address)
        if found is None:
            raise ProgramError(f"{what} memory that nobody allocated", span, "was the pointer set?")
        if found.freed is not None:
            raise ProgramError(f"{what} memory that was freed in line {found.freed.line}", span)
        return found

    def check(self, address: int, nbytes: int, span: Span, what: str) -> Allocation | None:
        """The allocation that all of these bytes lie in."""
        if not nbytes:
            return None
        found = self.at(address, span, what)
        if address + nbytes > found.end:
            where = f"bytes {address - found.start} to {address - found.start + nbytes} of {found.shown}"
            raise ProgramError(f"{what} {where}: out of bounds", span)
        return found

    def check_host(self, address: int, nbytes: int, span: Span, what: str) -> None:
        found = self.check(address, nbytes, span, what)
        if found is not None and found.kind == "device":
            raise ProgramError(f"{what} device memory, which the host cannot", span, "copy it with cudaMemcpy first")

    def free(self, address: int, kinds: tuple[Kind, ...], span: Span) -> Allocation | None:
        if address == 0:
            return None
        found = self.at(address, span, "frees")
        if found.start != address:
            raise ProgramError(f"frees the inside of {found.shown}", span, "free what the allocation gave")
        if found.kind not in kinds:
            raise ProgramError(f"frees {found.shown}, which was not allocated to be freed so", span)
        found.freed = span
        return found

    @contextmanager
    def there_again(self, allocations: Iterable[Allocation]) -> Iterator[None]:
        """With what the program freed since: a recording holds it, and its reverse uses it."""
        freed = {id(a): (a, a.freed) for a in allocations if a.freed is not None}
        for allocation, _ in freed.values():
            allocation.freed = None
        try:
            yield
        finally:
            for allocation, at in freed.values():
                allocation.freed = at

    def forget_freed(self) -> None:
        self._all = [a for a in self._all if a.freed is None]

    def drop_since(self, known: set[int]) -> None:
        """Frees what was allocated after that: a call failed, or ended the program. Static storage stays."""
        self._all = [a for a in self._all if id(a) in known or a.kind == "static"]


def read_bytes(address: int, nbytes: int) -> bytes:
    """Of the CPU's memory."""
    return ctypes.string_at(address, nbytes)


def write_bytes(address: int, data: bytes) -> None:
    ctypes.memmove(address, data, len(data))
