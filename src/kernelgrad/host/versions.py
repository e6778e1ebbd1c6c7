"""What memory held before steps overwrote it: pieces, in segments of a recording (Note [Segments]), within a budget of
bytes.

Which neighbours are merged: those with the fewest steps for the memory that there will be when their turn comes. The
older, the more: all later segments are gone by then. This is how binomial checkpoints lie, without knowing the end.

Note [Too small a budget]
What is enough for any program: all memory that steps write, twice (what it holds when the reverse begins, and the first
pieces of one segment), and what may not be thinned, tapes and logs. Who gives too little is told how much that is,
which is known when the recording ends: until then nothing is saved any more (`is_short`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from typing import Protocol

from ..errors import TapeError
from ..runtime.scratch import Scratch, Slabs
from .memory_map import Cell
from .segments import ALL, Capture, Pattern, Piece, Segment, merge, thin

_SHARE = 4  # of the budget, for the segment that is being recorded


class Copy(Protocol):
    """What has a copy of memory, and may lose it."""

    memory: Scratch | None


class Store:
    """The segments of a recording. `budget`: bytes, None without end."""

    def __init__(self, budget: int | None):
        self.budget = budget
        self.segments = [Segment(0)]
        self.nbytes = self.peak = 0
        self._unused: dict[tuple[int, int | None, int], list[Scratch]] = {}
        self._unused_bytes = 0
        self._slabs = Slabs() if budget is None else None  # parts of it would be freed one by one, and counted so
        self.reserved = 0  # of the budget: for what memory holds when the reverse begins
        self.is_short = False  # of memory, see Note [Too small a budget]
        self._kept = 0  # bytes of tapes and logs
        self._lent: list[tuple[Copy, int]] = []  # that can be done without
        self.opaque = -1  # the last step that may have read any memory

    @property
    def current(self) -> Segment:
        return self.segments[-1]

    def split(self, cell: Cell, rest: Cell) -> None:
        for segment in self.segments:
            segment.split(cell, rest)

    def save(self, step: int, cells: list[Cell], patterns: Mapping[Cell, Pattern], stream: int | None) -> int:
        """What of these cells is to be saved before a step writes them, and room for it; the bytes that its reverse and
        earlier ones need."""
        saved = [] if self.is_short else self._make_room(step, cells, patterns)
        if self.is_short:
            return 0
        if self.budget is not None:
            kept = {cell for cell, first in saved if first}
            for cell in cells:
                self._capture(cell, patterns.get(cell), cell in kept)
        self.copy(self.current, step, saved, stream)
        return sum(cell.nbytes for cell in cells if cell.need is not None)

    def _make_room(self, step: int, cells: list[Cell], patterns: Mapping[Cell, Pattern]) -> list[tuple[Cell, bool]]:
        """The cells to be saved, and whether it is for the beginning of their segment."""
        while True:
            saved = self._to_be_saved(cells, patterns)
            if self.budget is None or sum(cell.nbytes for cell, _ in saved) <= self.room:
                return saved
            if self._thin() or self._merge() or self.give_up():
                continue
            if self.current.exact and self.current.length:
                self._open(step)
            elif self.current.exact and len(self.segments) > 1:
                self.segments.pop()  # the step becomes a part of the one before, which is thin
            else:
                self._fall_short()
                return []

    def _to_be_saved(self, cells: list[Cell], patterns: Mapping[Cell, Pattern]) -> list[tuple[Cell, bool]]:
        saved = []
        for cell in cells:
            first = self.budget is not None and self._is_first(cell, patterns.get(cell))
            if first or (cell.need is not None and self.current.exact):
                saved.append((cell, first))
        return saved

    def _is_first(self, cell: Cell, pattern: Pattern) -> bool:
        """Whether it takes a first piece of what a cell holds now: Note [Dead contents]."""
        found = self.current.captured.get(cell)
        if found is not None:
            return not (found.saved or found.pattern is ALL or found.pattern == pattern)
        return self._is_live(cell, pattern) or self.crosses(cell.made, self._last_read(cell))

    def _is_live(self, cell: Cell, pattern: Pattern) -> bool:
        """When it is first written in this segment."""
        is_other = cell.pattern is not None and cell.pattern is not ALL and cell.pattern != pattern
        return pattern is None or is_other or self._last_read(cell) >= self.current.start

    def _last_read(self, cell: Cell) -> int:
        """Of what it holds now."""
        return max(cell.read, self.opaque)

    def crosses(self, made: int, read: int) -> bool:
        """Whether a segment begins after the first of these steps, and not after the second."""
        k = bisect_right(self.segments, made, key=lambda segment: segment.start)
        return k < len(self.segments) and self.segments[k].start <= read

    def _capture(self, cell: Cell, pattern: Pattern, first: bool) -> None:
        found = self.current.captured.get(cell)
        if found is not None:
            found.add(pattern, first)
        else:
            live = self._is_live(cell, pattern)
            self.current.captured[cell] = Capture(first, live, pattern, cell.made, self._last_read(cell))
        cell.pattern = pattern

    def copy(self, segment: Segment, step: int, saved: list[tuple[Cell, bool]], stream: int | None) -> None:
        """Of cells, and whether these are first pieces."""
        k = 0
        while k < len(saved):
            cell, first = saved[k]
            end, k = cell.end, k + 1
            while k < len(saved) and saved[k][0].start == end and not (first or saved[k][1]):
                end, k = saved[k][0].end, k + 1  # first pieces stay apart: a merge drops those that an older one has
            memory = self._allocate(end - cell.start, cell.device, stream).copy_from(cell.start)
            segment.pieces.append(Piece(step, cell.start, memory, first))
            segment.nbytes += memory.nbytes
            self.take(memory.nbytes)

    def _allocate(self, nbytes: int, device: int | None, stream: int | None) -> Scratch:
        """Memory that was just freed is at hand; new memory has to be fetched page by page."""
        unused = self._unused.get((nbytes, device, stream or 0))
        if unused:
            self._unused_bytes -= nbytes
            return unused.pop()
        if self._unused_bytes and self._unused_bytes + nbytes > self.room:
            self._drop_unused()
        return Scratch(nbytes, device, stream, self._slabs)

    def log(self, step: int, cells: list[Cell], stream: int | None) -> Segment:
        """What a step has written, where it must not run again. The step is done."""
        log, nbytes = Segment(step, exact=False), sum(cell.nbytes for cell in cells)
        self._kept += nbytes
        self._require(nbytes, step + 1)
        if not self.is_short:
            self.copy(log, step, [(cell, True) for cell in cells], stream)
        return log

    def keep(self, nbytes: int, step: int) -> None:
        """A launch is about to make a tape of its own, or a part of it; nothing is saved yet for the step."""
        self._kept += nbytes
        if self.budget is not None:
            self._require(nbytes, step)
        self.take(nbytes)

    def lend(self, copy: Copy, nbytes: int) -> None:
        """For a copy that the reverse does not need."""
        self._lent.append((copy, nbytes))
        self.take(nbytes)

    def give_up(self) -> bool:
        """All such copies; whether there was one."""
        lent, self._lent = self._lent, []
        for copy, nbytes in lent:
            copy.memory = None
            self.nbytes -= nbytes
        return bool(lent)

    def take(self, nbytes: int) -> None:
        self.nbytes += nbytes
        self.peak = max(self.peak, self.nbytes)
        self._trim_unused()

    def reserve(self, nbytes: int) -> None:
        self.reserved += nbytes
        self._trim_unused()

    def lay_aside(self, nbytes: int) -> None:
        """What was reserved is used from now on; or no more, if it is negative."""
        if self.budget is not None:
            self.reserved -= nbytes
            self.take(nbytes)

    def free(self, pieces: Iterable[Piece]) -> None:
        for piece in pieces:
            self.nbytes -= piece.nbytes
            if self.budget is not None:
                key = piece.nbytes, piece.memory.device, piece.memory.stream
                self._unused.setdefault(key, []).append(piece.memory)
                self._unused_bytes += piece.nbytes
        self._trim_unused()

    def _trim_unused(self) -> None:
        """What is at hand is memory, too: it and what is held are within the budget together."""
        if self._unused_bytes and self._unused_bytes > self.room:
            self._drop_unused()

    def _drop_unused(self) -> None:
        self._unused.clear()
        self._unused_bytes = 0

    @property
    def room(self) -> int:
        """Bytes of the budget that are left."""
        assert self.budget is not None
        return self.budget - self.reserved - self.nbytes

    # ---- the budget

    def step_done(self, step: int) -> None:
        """Cuts, thins and merges segments as the budget demands."""
        self.current.end = step + 1
        if self.budget is None or self.is_short:
            return
        if not self.current.exact or self.current.nbytes > (self.budget - self.reserved) // _SHARE:
            self._open(step + 1)
        self._require(0, step + 1)

    def _require(self, nbytes: int, step: int) -> None:
        """Makes room between two steps."""
        while self.room < nbytes and not self.is_short:
            if self._thin() or self._merge() or self.give_up():
                continue
            if self.current.length:
                self._open(step)
            else:
                self._fall_short()

    def _fall_short(self) -> None:
        self.clear()
        self.is_short = True

    def _open(self, step: int) -> None:
        self.segments.append(Segment(step))
        self.current.end = step

    def _thin(self) -> bool:
        """The oldest exact segment but the one that is being recorded."""
        for segment in self.segments[:-1]:
            if segment.exact:
                self.free(thin(segment))
                return True
        return False

    def _merge(self) -> bool:
        old = self.segments[:-1]
        if len(old) < 2:
            return False
        count = len(old)
        k = min(range(count - 1), key=lambda k: (old[k].length + old[k + 1].length) / (count - k))
        self.free(merge(old[k], old[k + 1]))
        del self.segments[k + 1]
        self._drop_spares(self.segments[k + 1])
        return True

    def _drop_spares(self, segment: Segment) -> None:
        """What no earlier segment needs any more, since two of them became one."""
        spares = {cell: found for cell, found in segment.captured.items() if found.is_spare}
        unneeded = [cell for cell, found in spares.items() if not self.crosses(found.made, found.read)]
        dropped = segment.drop_first(unneeded) if unneeded else []
        self.free(dropped)
        for piece in dropped:
            for cell in unneeded:
                if piece.start <= cell.start < piece.start + piece.nbytes:
                    spares[cell].saved = False

    def require_enough(self) -> None:
        """When the recording ends. The reverse begins with what is reserved."""
        if self.is_short:
            needed = 2 * self.reserved + self._kept
            raise TapeError(
                f"tape_budget: {self.budget:,} bytes are too few for this program: it takes {needed:,}, twice the"
                " memory that its steps write and what launches keep that must not run again"
            )

    def clear(self) -> None:
        self.segments = [Segment(0)]
        self._drop_unused()
        self.nbytes = sum(nbytes for _, nbytes in self._lent)
