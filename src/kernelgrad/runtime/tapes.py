"""Memory of derivatives that kernels ask for: Note [Requests] in `autodiff/requested.py`. Tapes that a kernel makes for
another one to use, and stacks that are its own.

Nobody says when a tape's memory is free but the kernel that uses it, which counts it off. To ask a GPU takes a
synchronisation, so that is done where there is much of such memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Any

from ..errors import LaunchError
from .arguments import Placement, Supplied
from .config import Launch
from .launch import BoundArguments
from .scratch import Scratch, available_bytes

HEADER = 256  # as in `autodiff/requested`
_MUCH = 1 << 28


class TapeMemory:
    """Of one kernel: by device, what its launches were given, and how large that is."""

    def __init__(self, tapes: tuple[tuple[str, int], ...]):
        self.tapes = tapes
        self._given: dict[int | None, list[tuple[int, Scratch]]] = {}

    def supplied(self, launch: Launch, placement: Placement, stream: int | None) -> dict[str, Supplied]:
        x, y, z = (g * b for g, b in zip(launch.grid, launch.block, strict=True))
        found: dict[str, Supplied] = {}
        for name, nbytes in self.tapes:
            size = HEADER + nbytes * x * y * z
            taken = {supplied.value for supplied in found.values()}
            memory = self._unused(size, placement.cuda, taken) or self._new(size, placement.cuda, stream)
            found[name] = Supplied(memory.address, size)
        return found

    def _unused(self, size: int, device: int | None, taken: Set[int]) -> Scratch | None:
        """Memory of the size whose tapes are all used; `taken`: by this launch, whose tapes are still to be made."""
        given = self._given.get(device, [])
        if device is not None and sum(n for n, _ in given) < _MUCH:
            return None
        same = (memory for n, memory in given if n == size and memory.address not in taken)
        return next((m for m in same if int.from_bytes(m.read(8), "little") == 0), None)

    def _new(self, size: int, device: int | None, stream: int | None) -> Scratch:
        made = Scratch(size, device, stream).zero()
        self._given.setdefault(device, []).append((size, made))
        return made


class StackMemory:
    """Of one kernel: how many elements each thread has room for, which is as many as one of its launches needed."""

    def __init__(self, stacks: tuple[tuple[str, int], ...]):
        self.stacks = stacks
        self.room = dict.fromkeys((name for name, _ in stacks), _FIRST)

    def run(
        self, kernel: Any, launch: Launch, bound: BoundArguments, placement: Placement, supplied: Mapping[str, Supplied]
    ) -> None:
        """Launches, if need be again with more room, on what was there before."""
        x, y, z = (g * b for g, b in zip(launch.grid, launch.block, strict=True))
        stream = launch.stream if isinstance(launch.stream, int) else 0
        written = [b for b in bound.buffers if _root(b.name) in kernel.written or b.name in kernel.written]
        saved = [Scratch(b.nbytes, placement.cuda, stream).copy_from(b.address) for b in written]
        while True:
            memory, needed = self._memory(kernel.name, x * y * z, placement.cuda, stream)
            kernel.run(launch, bound, placement, {**supplied, **memory})
            found = {name: int.from_bytes(most.read(8), "little") for name, most in needed.items()}
            if all(found[name] <= self.room[name] for name in found):
                return
            self.room = {name: max(self.room[name], found[name]) for name in found}
            for buffer, copy in zip(written, saved, strict=True):
                _restore(buffer.address, copy, placement.cuda)

    def _memory(
        self, kernel: str, threads: int, device: int | None, stream: int | None
    ) -> tuple[dict[str, Supplied], dict[str, Scratch]]:
        total = sum(size * self.room[name] * threads for name, size in self.stacks)
        if total > _ASKED and total > available_bytes(device):
            raise LaunchError(f"{kernel}: the tapes of its derivatives need {total:,} bytes; launch fewer threads")
        found, needed = dict[str, Supplied](), dict[str, Scratch]()
        for name, size in self.stacks:
            tape, tops = (Scratch(n * threads, device, stream) for n in (size * self.room[name], 8))
            needed[name] = Scratch(8, device, stream).zero()
            for what, memory in (("tape", tape), ("tops", tops), ("needed", needed[name])):
                found[f"_{what}_{name}"] = Supplied(memory.address, memory.nbytes)
            found[f"_capacity_{name}"] = Supplied(self.room[name])
            self._kept = (*getattr(self, "_kept", ()), tape, tops)[-2 * len(self.stacks) :]
        return found, needed


def notes(tapes: tuple[tuple[str, int], ...], stacks: tuple[tuple[str, int], ...]) -> list[str]:
    """What a launch of the kernel's text must pass besides its own arguments."""
    found = [f"// {n}: {HEADER} bytes of zeros, then {nbytes} for each thread, for tapes" for n, nbytes in tapes]
    for name, _ in stacks:
        found.append(
            f"// _tape_{name}: room for _capacity_{name} elements of each thread; _tops_{name}: a number for each;"
        )
        found.append(f"// _needed_{name}: a zero, which becomes what a thread needed: if that is more, launch it again")
    return found


def _root(name: str) -> str:
    return name.partition(".")[0].partition("[")[0]


def _restore(address: int, copy: Scratch, device: int | None) -> None:
    from .devices import check, current, driver

    if device is None:
        import ctypes

        ctypes.memmove(address, copy.address, copy.nbytes)
        return
    bindings = driver()
    with current(device):
        check(bindings, bindings.cuMemcpyDtoDAsync(address, copy.address, copy.nbytes, copy.stream))


_FIRST = 64
_ASKED = 1 << 24
