"""Memory that stands for the user's: copies of it, in which arrays lie to each other as they do there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..runtime.arrays import ArrayView
from ..runtime.scratch import Scratch
from . import transfers

_ALIGNED = 256


class Place:
    """A copy of a run of the user's memory, as it is now."""

    def __init__(self, start: int, end: int, device: int | None, stream: int | None):
        self.start, self.end, self.device = start, end, device
        self._memory = Scratch(end - start + _ALIGNED, device, stream)
        self.address = self._memory.address + (start - self._memory.address) % _ALIGNED
        self.owner = self._memory
        transfers.move(self.address, start, end - start, device, stream)


class Memory:
    """All of it, by the user's addresses."""

    def __init__(self, places: list[Place]):
        self.places = places

    def find(self, address: int, nbytes: int) -> Place | None:
        found = (p for p in self.places if p.start <= address and address + nbytes <= p.end)
        return next(found, None)

    def moved(self, array: ArrayView) -> ArrayView:
        """The copy of an array; the array where there is none."""
        place = self.find(array.address, array.nbytes) if array.nbytes else None
        if place is None:
            return array._replace(versioned=False)
        at = place.address + array.address - place.start
        around = array.around if array.around is not None else (0, 0)
        return array._replace(address=at, owner=place.owner, versioned=False, tracked=False, around=around)

    def moved_all(self, value: Any) -> Any:
        if isinstance(value, ArrayView):
            return self.moved(value)
        if isinstance(value, Mapping):
            return {name: self.moved_all(part) for name, part in value.items()}
        return [self.moved_all(part) for part in value] if isinstance(value, list) else value
