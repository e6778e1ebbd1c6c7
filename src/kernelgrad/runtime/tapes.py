"""Memory of derivatives that kernels ask for: Note [Requests] in `autodiff/requested.py`. Tapes that a kernel makes for
another one to use, and stacks that are its own. How much of these it needs is known after it has run, in part.

Nobody says when a tape's memory is free but the kernel that uses it, which counts it off. To ask a GPU takes a
synchronisation, so that is done where there is much of such memory.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence, Set
from typing import Any, ClassVar, Protocol

from ..errors import LaunchError
from ..ir.ops import Function
from .arguments import Placement, Supplied
from .config import Launch
from .launch import BoundArguments, Buffer
from .reach import known, reaching
from .scratch import Scratch, available_bytes, is_captured

HEADER = 256  # as in `autodiff/requested`
_MUCH = 1 << 28


class Tapes:
    """Memory in which kernels make tapes, by device, and how large it is. It lives as long as tapes in it are not used,
    also when the kernel that made them is gone."""

    _all: ClassVar[weakref.WeakSet[Scratch]] = weakref.WeakSet()
    _left: ClassVar[list[tuple[int, Scratch]]] = []

    def __init__(self) -> None:
        self._given: dict[int | None, list[tuple[int, Scratch]]] = {}
        weakref.finalize(self, self._leave, self._given).atexit = False

    @classmethod
    def _leave(cls, given: dict[int | None, list[tuple[int, Scratch]]]) -> None:
        cls._left += (one for of_device in given.values() for one in of_device)

    def take(self, size: int, device: int | None, stream: int | None, taken: Set[int] = frozenset()) -> Scratch:
        found = self._unused(size, device, taken)
        if found is None:
            _drop_used(self._left, device)
            _drop_used(self._given.get(device, []), device, taken)
        if found is None:
            return self._new(size, device, stream)
        found.follow(stream)  # the work on its own has been waited for
        return found

    def _unused(self, size: int, device: int | None, taken: Set[int]) -> Scratch | None:
        """Memory of the size whose tapes are all used; `taken`: by this launch, whose tapes are still to be made."""
        given = self._given.get(device, [])
        if device is not None and sum(n for n, _ in given) < _MUCH:
            return None
        same = (memory for n, memory in given if n == size and memory.address not in taken)
        return next(filter(_is_used, same), None)

    def _new(self, size: int, device: int | None, stream: int | None) -> Scratch:
        made = Scratch(size, device, stream).zero()
        self._given.setdefault(device, []).append((size, made))
        self._all.add(made)
        return made

    def drop(self, memory: Scratch) -> None:
        """What was too small."""
        given = self._given[memory.device]
        given[:] = [(n, m) for n, m in given if m is not memory]

    @classmethod
    def counted(cls, device: int | None, stream: int | None) -> list[tuple[Scratch, bytes]]:
        """How many tapes are not used yet, which a launch on the stream, if it is undone, may have counted off."""
        found = [(memory, memory.read(8)) for memory in cls._all if memory.device == device]
        for memory, _ in found:
            memory.follow(stream)
        return found


def _is_used(memory: Scratch) -> bool:
    return int.from_bytes(memory.read(8), "little") == 0


def _drop_used(given: list[tuple[int, Scratch]], device: int | None, taken: Set[int] = frozenset()) -> None:
    """All on the device whose tapes are used, of whatever size: on a GPU if there is much of it."""
    found = [one for one in given if one[1].device == device and one[1].address not in taken]
    if device is None or sum(n for n, _ in found) >= _MUCH:
        used = {id(memory) for _, memory in found if _is_used(memory)}
        given[:] = [(n, memory) for n, memory in given if id(memory) not in used]


class TapeMemory:
    """Of one kernel: tapes of constant sizes."""

    def __init__(self, tapes: tuple[tuple[str, int], ...]):
        self.tapes, self.memory = tapes, Tapes()

    def supplied(self, launch: Launch, placement: Placement, stream: int | None) -> dict[str, Supplied]:
        found: dict[str, Supplied] = {}
        for name, nbytes in self.tapes:
            size = HEADER + nbytes * _threads(launch)
            taken = {supplied.value for supplied in found.values()}
            found[name] = Supplied(self.memory.take(size, placement.cuda, stream, taken).address, size)
        return found


class Growing(Protocol):
    """Memory of a launch that may turn out to be too small."""

    def supply(self, launch: Launch, device: int | None, stream: int | None) -> dict[str, Supplied]: ...

    def fits(self) -> bool:
        """Whether what was supplied was enough; if not, the next is larger."""

    def size(self, launch: Launch) -> int: ...


def run_until_it_fits(
    growing: Sequence[Growing],
    kernel: Any,
    launch: Launch,
    bound: BoundArguments,
    placement: Placement,
    stream: int | None,
    supplied: Mapping[str, Supplied],
) -> None:
    """Launches, if need be again with more room, on what was there before."""
    device = placement.cuda
    if is_captured(device, stream):
        raise LaunchError(
            f"{kernel.name}: how long the tapes of its derivatives are is known when it has run, for which the host"
            " waits, which it cannot while a CUDA graph is captured"
        )
    written = [_whole(b) for b in reaching(kernel.function, launch, bound).buffers if _is_written(b.name, kernel)]
    spans = dict.fromkeys((*written, *kernel.variable_spans(device, stream)))
    saved = [(address, Scratch(nbytes, device, stream).copy_from(address)) for address, nbytes in spans]
    counted = Tapes.counted(device, stream)
    while True:
        total = sum(each.size(launch) for each in growing)
        if total > _ASKED and total > available_bytes(device):
            raise LaunchError(f"{kernel.name}: the tapes of its derivatives need {total:,} bytes; launch fewer threads")
        memory = {n: s for each in growing for n, s in each.supply(launch, device, stream).items()}
        kernel.run(launch, bound, placement, {**supplied, **memory})
        enough = [each.fits() for each in growing]
        if all(enough):
            return
        for address, copy in saved:
            _restore(address, copy, device)
        for tapes, unused in counted:
            tapes.write(unused)


class StackMemory:
    """Of one kernel: how many elements each thread has room for, which is as many as one of its launches needed."""

    def __init__(self, stacks: tuple[tuple[str, int], ...]):
        self.stacks = stacks
        self.room = dict.fromkeys((name for name, _ in stacks), _FIRST)
        self._made: list[Scratch] = []
        self._needed: dict[str, Scratch] = {}

    def size(self, launch: Launch) -> int:
        return sum(size * self.room[name] * _threads(launch) for name, size in self.stacks)

    def supply(self, launch: Launch, device: int | None, stream: int | None) -> dict[str, Supplied]:
        found, threads = dict[str, Supplied](), _threads(launch)
        self._made = []
        for name, size in self.stacks:
            tape, tops = (Scratch(n * threads, device, stream) for n in (size * self.room[name], 8))
            needed = self._needed[name] = Scratch(8, device, stream).zero()
            for what, memory in (("tape", tape), ("tops", tops), ("needed", needed)):
                found[f"_{what}_{name}"] = Supplied(memory.address, memory.nbytes)
            found[f"_capacity_{name}"] = Supplied(self.room[name])
            self._made += tape, tops
        return found

    def fits(self) -> bool:
        found = {name: int.from_bytes(most.read(8), "little") for name, most in self._needed.items()}
        enough = all(found[name] <= self.room[name] for name in found)
        self.room = {name: max(self.room[name], found[name]) for name in found}
        return enough


class ArenaMemory:
    """Of one kernel: tapes of any number and size; `room`: bytes of each thread."""

    def __init__(self) -> None:
        self.room, self.memory = _FIRST_BYTES, Tapes()
        self._last: Scratch | None = None

    def size(self, launch: Launch) -> int:
        return HEADER + self.room * _threads(launch)

    def supply(self, launch: Launch, device: int | None, stream: int | None) -> dict[str, Supplied]:
        made = self._last = self.memory.take(self.size(launch), device, stream).zero()
        return {"_arena": Supplied(made.address, made.nbytes), "_arena_room": Supplied(self.room)}

    def fits(self) -> bool:
        assert self._last is not None
        needed = int.from_bytes(self._last.read(16)[8:], "little")
        if needed <= self.room:
            return True
        self.memory.drop(self._last)
        self.room = -(-needed // 16) * 16
        return False


def notes(function: Function) -> list[str]:
    """What a launch of the kernel's text must pass besides its own arguments."""
    tapes, stacks = function.tapes, function.stacks
    found = [f"// {n}: {HEADER} bytes of zeros, then {nbytes} for each thread, for tapes" for n, nbytes in tapes]
    for name, _ in stacks:
        found.append(
            f"// _tape_{name}: room for _capacity_{name} elements of each thread; _tops_{name}: a number for each;"
        )
        found.append(f"// _needed_{name}: a zero, which becomes what a thread needed: if that is more, launch it again")
    if function.arena:
        found.append(f"// _arena: {HEADER} bytes of zeros, then _arena_room for each thread, zeros too, for tapes;")
        found.append("// its second word becomes what a thread needed: if that is more, launch it again")
    return found


def _threads(launch: Launch) -> int:
    x, y, z = (g * b for g, b in zip(launch.grid, launch.block, strict=True))
    return x * y * z


def _whole(buffer: Buffer) -> tuple[int, int]:
    """All that a launch may touch there, as an address and bytes."""
    before, behind = known(buffer.name, buffer.around)
    return buffer.address - before, before + buffer.nbytes + behind


def _is_written(name: str, kernel: Any) -> bool:
    return name in kernel.written or _root(name) in kernel.written


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


_FIRST, _FIRST_BYTES = 64, 512
_ASKED = 1 << 24
