"""The two halves of a reverse that host code asks for. The first one records, the second one reverses the recording.
In between the program may do what it likes: the arguments hold for the reverse what they held after the first half."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..host import transfers
from .function import Call
from .gradient import HostGradient

Contents = list[tuple[int, np.ndarray[Any, Any], int | None]]


class Half:
    """What the first half leaves for the second. `key`: of what is common to both."""

    def __init__(
        self, gradient: HostGradient, key: Any, args: tuple[Any, ...], given: dict[str, Any], device: int | None
    ):
        self.gradient, self.key = gradient, key
        with Call(gradient.target, args, "cpu" if device is None else "cuda") as self.call:
            self.tape, self.result = gradient.recorded(self.call, given)
            self.call.bring_back()
            self.held = [*self.call.memory]  # also what is freed: the recording has it
            self.left = self._contents()

    def reverse(self, given: dict[str, Any], seed: float = 1.0) -> None:
        memory, now = self.call.memory, self._contents()
        _put(self.left)
        try:
            with memory.there_again(self.held):
                self.gradient.reverse(self.tape, self.call, given, self.result, seed)
        finally:
            _put(now)

    def _contents(self) -> Contents:
        """Of all that arguments lead to."""
        places = [(a.start, a.nbytes, a.device) for a in self.call.arguments.values()]
        return [(start, _read(start, nbytes, device), device) for start, nbytes, device in places]


def _read(start: int, nbytes: int, device: int | None) -> np.ndarray[Any, Any]:
    return transfers.read(start, nbytes, device, None if device is None else 0).copy()


def _put(contents: Contents) -> None:
    for start, held, device in contents:
        transfers.move(start, held.ctypes.data, held.nbytes, device, None if device is None else 0)
        if device is not None:
            transfers.synchronize(device)
