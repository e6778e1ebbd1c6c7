"""What a checkpoint in the reverse must keep: of the memory that steps will write, what they, or steps before, will
read (Note [Dead contents]). All steps are known by then."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence

from .memory_map import Cell, MemoryMap
from .segments import ALL, Pattern
from .steps import Step

_NEVER = 1 << 62


class _Accesses:
    """The steps that write and read a cell, in order. `changes`: of each that writes it, the next one to do so by
    another pattern."""

    def __init__(self) -> None:
        self.writes: list[int] = []
        self.patterns: list[Pattern] = []
        self.reads: list[int] = []
        self.changes: list[int] = []

    def find_changes(self) -> None:
        following = _NEVER
        for k in range(len(self.writes) - 1, -1, -1):
            if k + 1 < len(self.writes) and self.patterns[k + 1] != self.patterns[k]:
                following = self.writes[k + 1]
            self.changes.append(following)
        self.changes.reverse()

    def next_read(self, step: int) -> int:
        k = bisect_left(self.reads, step)
        return self.reads[k] if k < len(self.reads) else _NEVER

    def last_read(self, step: int) -> int:
        """Before it."""
        k = bisect_left(self.reads, step)
        return self.reads[k - 1] if k else -1


class LiveContents:
    def __init__(self, steps: Sequence[Step], cells: MemoryMap):
        self._accesses: dict[Cell, _Accesses] = {cell: _Accesses() for cell in cells if cell.is_written}
        self._sizes: dict[int, int] = {}
        for number, step in enumerate(steps):
            read = self._accesses if step.is_opaque else cells.covers((*step.reads, *step.reread))
            for cell in read:
                if cell in self._accesses:
                    self._accesses[cell].reads.append(number)
            for cell in cells.covers(step.writes):
                self._accesses[cell].writes.append(number)
                self._accesses[cell].patterns.append(step.stores_to(cell))
        for found in self._accesses.values():
            found.find_changes()

    def split(self, cell: Cell, rest: Cell) -> None:
        if cell in self._accesses:
            self._accesses[rest] = self._accesses[cell]

    def kept(self, start: int, end: int, outer: Iterable[int]) -> frozenset[Cell]:
        """What is kept where steps from `start` to before `end` may run again. `outer`: where others that are not done
        with begin."""
        cells = self._accesses.items()
        return frozenset(cell for cell, found in cells if _is_kept(found, start, end, outer))

    def size(self, start: int, end: int) -> int:
        """About how many bytes that is."""
        if start not in self._sizes:
            self._sizes[start] = sum(cell.nbytes for cell in self.kept(start, end, ()))
        return self._sizes[start]


def _is_kept(found: _Accesses, start: int, end: int, outer: Iterable[int]) -> bool:
    k = bisect_left(found.writes, start)
    if k == len(found.writes) or found.writes[k] >= end:
        return False
    pattern = found.patterns[k]
    if pattern is None or found.next_read(start) <= found.writes[k]:
        return True
    if pattern is not ALL and found.changes[k] < end:
        return True
    made, read = found.writes[k - 1] if k else -1, found.last_read(start)
    return any(made < begin <= read for begin in outer)
