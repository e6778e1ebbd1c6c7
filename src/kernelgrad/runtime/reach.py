"""What of the memory around a view a launch may touch.

Of a part of a larger array, C lets a kernel touch the rest: `step(u[1:-1])` may read a halo, `u[-1]` and `u[n]`. Who
keeps or replaces what a launch touches must know. `reach` bounds it, by what the launch's integers say
(`analysis/access/footprints`) and by where the allocation ends.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from struct import Struct
from typing import Any, NamedTuple

from ..analysis.access.footprints import Footprint, footprints
from ..errors import ArgumentError
from ..ir.layout import leaves, param_layout
from ..ir.ops import Function
from ..ir.types import Scalar
from .config import Launch
from .integers import Growing, code_of
from .launch import BoundArguments, Buffer
from .scratch import Scratch
from .signature import user_params

_REMEMBERED = 1024  # kinds of launches
_ALIGNED = 256  # bytes
_NOTHING = Footprint()


class Reaches:
    """The footprints of a kernel's launches. Of their integers only those count that some footprint depends on."""

    def __init__(self, function: Function):
        self._function = function
        self._numbers = dict(_integers(function))
        self._relevant: Growing[str] = Growing()
        self._found: dict[Any, dict[str, Footprint]] = {}

    def find(self, launch: Launch, packed: bytes) -> dict[str, Footprint]:
        """By the paths of pointers."""
        found = self._found.get(self._key(launch, packed))
        if found is None:
            asked: dict[str, None] = {}

            def number(path: str) -> int | None:
                asked[path] = None
                return self._read(path, packed)

            found = footprints(self._function, launch.grid, launch.block, number)
            self._relevant.add(path for path in asked if path in self._numbers)
            if len(self._found) >= _REMEMBERED:
                self._found.clear()
            self._found[self._key(launch, packed)] = found
        return found

    def _read(self, path: str, packed: bytes) -> int | None:
        place = self._numbers.get(path)
        return None if place is None else int(place.unpack_from(packed)[0])

    def _key(self, launch: Launch, packed: bytes) -> Any:
        return launch.grid, launch.block, tuple([self._read(path, packed) for path in self._relevant.parts])


def _integers(function: Function) -> Iterable[tuple[str, Struct]]:
    """Where in the packed arguments they are."""
    for param, start in zip(user_params(function), param_layout(function)[0], strict=False):
        for path, offset, type in leaves(param.type, param.name, start):
            if isinstance(type, Scalar) and not type.is_float:
                yield path, Struct(f"<{offset}x{code_of(type)}")


reaches_of = lru_cache(256)(Reaches)


Margins = tuple[int, int]


class Reach(NamedTuple):
    """How many bytes before and behind a buffer a launch may load and store; None: nobody knows."""

    loads: Margins | None = (0, 0)
    stores: Margins | None = (0, 0)

    @property
    def both(self) -> Margins | None:
        if self.loads is None or self.stores is None:
            return None
        return max(self.loads[0], self.stores[0]), max(self.loads[1], self.stores[1])


def reaches(function: Function, launch: Launch, bound: BoundArguments) -> dict[str, Reach]:
    """Of the buffers that are parts of something larger."""
    parts = [b for b in bound.buffers if b.is_part]
    if not parts:
        return {}
    found = reaches_of(function).find(launch, bound.packed)
    return {b.name: Reach(*(_beyond(b, part) for part in found.get(b.name, _NOTHING))) for b in parts}


def _beyond(buffer: Buffer, touched: Margins | None) -> Margins | None:
    if touched is None:
        return 0, 0
    before, behind = max(0, -touched[0]), max(0, touched[1] - buffer.nbytes)
    if buffer.around is None:
        return None if before or behind else (0, 0)
    return min(before, buffer.around[0]), min(behind, buffer.around[1])


def known(buffer: str, around: Margins | None) -> Margins:
    """For who keeps or replaces what a launch touches."""
    if around is None:
        raise ArgumentError(
            f"'{buffer}' is a part of a larger array, the kernel may touch more of that, and where it ends cannot be"
            " known; pass the whole array, or a view of one of NumPy, CuPy or PyTorch"
        )
    return around


def reaching(function: Function, launch: Launch, bound: BoundArguments) -> BoundArguments:
    """The arguments, whose buffers know what around them the launch may touch, no more."""
    found = reaches(function, launch, bound)
    if not found:
        return bound
    buffers = [b._replace(around=found[b.name].both) if b.name in found else b for b in bound.buffers]
    return bound._replace(buffers=tuple(buffers))


def alone(bound: BoundArguments) -> BoundArguments:
    """The arguments, with nothing around their buffers."""
    return bound._replace(buffers=tuple([b._replace(around=(0, 0)) for b in bound.buffers]))


class Copy:
    """What a buffer and the memory around it that the launch may touch held: at `address` what was at the buffer's."""

    def __init__(self, buffer: Buffer, device: int | None, stream: int | None):
        before, behind = known(buffer.name, buffer.around)
        start = buffer.address - before
        self.nbytes = before + buffer.nbytes + behind
        self.memory = Scratch(self.nbytes + (_ALIGNED if before else 0), device, stream)
        at = (start - self.memory.address) % _ALIGNED if before else 0  # as aligned as the buffer is
        self.memory.copy_from(start, at, self.nbytes)
        self.address = self.memory.address + at + before

    def read(self) -> bytes:
        return self.memory.read()
