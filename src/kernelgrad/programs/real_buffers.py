"""Arrays of integers as doubles for the length of a launch: what is differentiated by them is a function of numbers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from ..errors import LaunchError, ProgramError, Span
from ..host import transfers
from ..runtime.arrays import ArrayView
from ..runtime.scratch import Scratch

_DOUBLE = np.dtype("f8")
_EXACT = 1 << 53  # integers that doubles hold
# In place of an integer that no double holds. It signals: whatever is computed from it has other bits.
_INEXACT = np.uint64(0x7FF4_0000_0000_0001)


class _Range(NamedTuple):
    """Memory that some of the arrays lie in, as it was, as integers and as doubles, and the doubles for it."""

    start: int
    before: np.ndarray[Any, Any]
    numbers: np.ndarray[Any, Any]
    memory: Scratch


class RealBuffers:
    """One for the memory of arrays that touch each other, so that what they share they share here, too; what is in
    them goes back when the launch is done. `others`: arrays that stay as they are."""

    def __init__(self, device: int | None, arrays: Iterable[ArrayView | None], others: Iterable[Any]):
        self.device = device
        self._back: list[Any] = []  # until the copies are done
        self._ranges = [self._range(a) for a in _joined([a for a in arrays if a is not None])]
        for other in (o for o in others if isinstance(o, ArrayView)):
            for one in self._ranges:
                if one.start < other.address + other.nbytes and other.address < one.start + one.before.nbytes:
                    raise LaunchError("integers that are differentiated by lie in one allocation with other arrays")

    def _range(self, array: ArrayView) -> _Range:
        data = transfers.read(array.address, array.nbytes, self.device, 0).view(array.dtype).copy()
        memory = Scratch(8 * data.size, self.device, 0)
        numbers = as_doubles(data)
        memory.write(numbers.tobytes())
        return _Range(array.address, data, numbers, memory)

    def of(self, array: ArrayView | None) -> ArrayView | None:
        if array is None:
            return None
        one = next(r for r in self._ranges if r.start <= array.address < r.start + r.before.nbytes)
        offset, size = array.address - one.start, one.before.itemsize
        address = one.memory.address + offset // size * 8
        return transfers.raw(address, array.nbytes // size * 8, np.dtype("f8"), self.device, one.memory)

    def put_back(self) -> None:
        for one in self._ranges:
            numbers = np.frombuffer(one.memory.read(), np.float64)
            changed = numbers.view(np.uint64) != one.numbers.view(np.uint64)
            if not changed.any():
                continue
            now = one.before.copy()
            now[changed] = as_integers(numbers[changed], now.dtype)
            self._back.append(now)
            transfers.move(one.start, now.ctypes.data, now.nbytes, self.device, 0)


def _joined(arrays: list[ArrayView]) -> list[ArrayView]:
    """Those that share memory as one."""
    found: list[ArrayView] = []
    for array in sorted(arrays, key=lambda a: a.address):
        last = found[-1] if found else None
        if last is None or array.address >= last.address + last.nbytes:
            found.append(array)
            continue
        size = np.dtype(array.dtype).itemsize
        if array.dtype != last.dtype or (array.address - last.address) % size:
            raise LaunchError("integers of several types, which are differentiated by, lie in one allocation")
        nbytes = max(last.nbytes, array.address + array.nbytes - last.address)
        found[-1] = last._replace(nbytes=nbytes, shape=(nbytes // size,))
    return found


class RealAdjoint:
    """The adjoint of integers as doubles, in place of an array of the same integers, or of doubles."""

    def __init__(self, given: ArrayView):
        self.given = given
        self._device = given.device[1] if isinstance(given.device, tuple) else None
        data = transfers.read(given.address, given.nbytes, self._device, 0).view(given.dtype)
        self._numbers = data.copy() if data.dtype == _DOUBLE else as_doubles(data)
        self.view = transfers.raw(self._numbers.ctypes.data, self._numbers.nbytes, _DOUBLE, None)

    def put_back(self) -> None:
        dtype = self.given.dtype
        found = self._numbers if dtype == _DOUBLE else as_integers(self._numbers, np.dtype(dtype))
        transfers.move(self.given.address, found.ctypes.data, found.nbytes, self._device, 0)
        if self._device is not None:
            transfers.synchronize(self._device)


def as_doubles(integers: Any) -> Any:
    """With another number in place of each that no double holds."""
    numbers = np.ascontiguousarray(integers.astype(_DOUBLE))
    if integers.dtype.itemsize == 8:
        inexact = (integers > _EXACT) | (integers < (-_EXACT if integers.dtype.kind == "i" else 0))
        numbers.view(np.uint64)[inexact] = _INEXACT
    return numbers


def are_inexact(numbers: Any) -> Any:
    """Which of them stand for integers that no double holds."""
    return numbers.view(np.uint64) == _INEXACT


def as_integers(reals: Any, dtype: np.dtype[Any], span: Span | None = None) -> Any:
    """What doubles stand for."""
    limits = np.iinfo(dtype)
    if np.isnan(reals).any() or not np.all((max(limits.min, -_EXACT) <= reals) & (reals <= min(limits.max, _EXACT))):
        problem = f"an integer that is differentiated by has grown past what {dtype} holds"
        raise LaunchError(problem) if span is None else ProgramError(problem, span)
    return np.ascontiguousarray(reals.astype(np.int64 if dtype.kind == "i" else np.uint64).astype(dtype))
