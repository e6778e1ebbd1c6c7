"""Arrays of integers as doubles for the length of a launch: what is differentiated by them is a function of numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import LaunchError
from ..host import transfers
from ..runtime.arrays import ArrayView
from ..runtime.scratch import Scratch

_EXACT = float(1 << 53)


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
            if not np.all(np.abs(numbers) <= _EXACT):
                raise LaunchError("an integer that is differentiated by has grown past what a double holds")
            self._back.append(np.ascontiguousarray(numbers.astype(np.int64).astype(array.dtype)))
            transfers.move(array.address, self._back[-1].ctypes.data, array.nbytes, self.device, 0)
