"""Arrays of integers as doubles for the length of a launch: what is differentiated by them is a function of numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import LaunchError, ProgramError, Span
from ..host import transfers
from ..runtime.arrays import ArrayView
from ..runtime.scratch import Scratch

_DOUBLE = np.dtype("f8")
_EXACT = 1 << 53  # integers that doubles hold


class RealBuffers:
    """One for each array; what is in them goes back when the launch is done."""

    def __init__(self, device: int | None):
        self.device = device
        self._made: list[tuple[ArrayView, Scratch]] = []
        self._back: list[Any] = []  # until the copies are done

    def of(self, array: ArrayView | None) -> ArrayView | None:
        if array is None:
            return None
        data = transfers.read(array.address, array.nbytes, self.device, 0).view(array.dtype)
        memory = Scratch(8 * data.size, self.device, 0)
        memory.write(data.astype(np.float64).tobytes())
        self._made.append((array, memory))
        return transfers.raw(memory.address, 8 * data.size, np.dtype("f8"), self.device, memory)

    def put_back(self) -> None:
        for array, memory in self._made:
            numbers = np.frombuffer(memory.read(), np.float64)
            self._back.append(as_integers(numbers, np.dtype(array.dtype)))
            transfers.move(array.address, self._back[-1].ctypes.data, array.nbytes, self.device, 0)


class RealAdjoint:
    """The adjoint of integers as doubles, in place of an array of the same integers, or of doubles."""

    def __init__(self, given: ArrayView):
        self.given = given
        self._device = given.device[1] if isinstance(given.device, tuple) else None
        data = transfers.read(given.address, given.nbytes, self._device, 0).view(given.dtype)
        self._numbers = np.ascontiguousarray(data.astype(_DOUBLE))
        self.view = transfers.raw(self._numbers.ctypes.data, self._numbers.nbytes, _DOUBLE, None)

    def put_back(self) -> None:
        dtype = self.given.dtype
        found = self._numbers if dtype == _DOUBLE else as_integers(self._numbers, np.dtype(dtype))
        transfers.move(self.given.address, found.ctypes.data, found.nbytes, self._device, 0)
        if self._device is not None:
            transfers.synchronize(self._device)


def as_integers(reals: Any, dtype: np.dtype[Any], span: Span | None = None) -> Any:
    """What doubles stand for."""
    limits = np.iinfo(dtype)
    if not np.all((max(limits.min, -_EXACT) <= reals) & (reals <= min(limits.max, _EXACT))):
        problem = f"an integer that is differentiated by has grown past what {dtype} holds"
        raise LaunchError(problem) if span is None else ProgramError(problem, span)
    return np.ascontiguousarray(reals.astype(np.int64 if dtype.kind == "i" else np.uint64).astype(dtype))
