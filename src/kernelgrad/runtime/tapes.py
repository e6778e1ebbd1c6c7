"""Memory for tapes that a kernel makes for another one to use: Note [Requests] in `autodiff/requested.py`.

Nobody says when a tape's memory is free but the kernel that uses it, which counts it off. To ask a GPU takes a
synchronisation, so that is done where there is much of such memory.
"""

from __future__ import annotations

from .arguments import Placement, Supplied
from .config import Launch
from .scratch import Scratch

HEADER = 256  # as in `autodiff/requested`
_MUCH = 1 << 28


class TapeMemory:
    """Of one kernel: by device, what its launches were given, and how large that is."""

    def __init__(self, tapes: tuple[tuple[str, int], ...]):
        self.tapes = tapes
        self._given: dict[int | None, list[tuple[int, Scratch]]] = {}

    def supplied(self, launch: Launch, placement: Placement, stream: int | None) -> dict[str, Supplied]:
        x, y, z = (g * b for g, b in zip(launch.grid, launch.block, strict=True))
        found = {}
        for name, nbytes in self.tapes:
            size = HEADER + nbytes * x * y * z
            memory = self._unused(size, placement.cuda) or self._new(size, placement.cuda, stream)
            found[name] = Supplied(memory.address, size)
        return found

    def _unused(self, size: int, device: int | None) -> Scratch | None:
        """Memory of the size whose tapes are all used."""
        given = self._given.get(device, [])
        if device is not None and sum(n for n, _ in given) < _MUCH:
            return None
        same = (memory for n, memory in given if n == size)
        return next((m for m in same if int.from_bytes(m.read(8), "little") == 0), None)

    def _new(self, size: int, device: int | None, stream: int | None) -> Scratch:
        made = Scratch(size, device, stream).zero()
        self._given.setdefault(device, []).append((size, made))
        return made
