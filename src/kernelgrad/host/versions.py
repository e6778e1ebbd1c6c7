"""What memory held before steps overwrote it: pieces, in segments of a recording, within a budget of bytes.

Note [Segments]
A recording's steps are cut into segments. Of each, enough is saved to bring memory back from where the segment ends to
where it begins: of every cell that is written in it, what it held when it was first written there (`first` pieces). An
*exact* segment also has, for each step, what that step overwrites and a reverse up to it reads: it is reversed step
by step. A *thin* one has the first pieces alone: its steps are run again, from its beginning. Thinning a segment, and
merging two thin neighbours, frees memory; both may be done at any time, so a recording of unknown length stays within
its budget. Without a budget there is one exact segment, and nothing is saved but what reverses read.

Which neighbours are merged: those with the fewest steps for the memory that there will be when their turn comes. The
older, the more: all later segments are gone by then. This is how binomial checkpoints lie, without knowing the end.

Note [Too small a budget]
What it takes at least: all memory that steps write, twice (what it holds when the reverse begins, and the first pieces
of one segment), and what may not be thinned, tapes and logs. Who gives less is told how much that is, which is known
when the recording ends: until then nothing is saved any more (`is_short`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol

from ..errors import TapeError
from ..runtime.scratch import Scratch, Slabs
from . import transfers
from .memory_map import Cell

_SHARE = 4  # of the budget, for the segment that is being recorded


class Piece(NamedTuple):
    """What memory held before a step. `first`: in its segment."""

    step: int
    start: int
    memory: Scratch
    first: bool

    @property
    def nbytes(self) -> int:
        return self.memory.nbytes

    def restore(self, stream: int | None) -> None:
        transfers.move(self.start, self.memory.address, self.nbytes, self.memory.device, stream)


class Segment:
    """Steps from `start` to before `end`. `captured`: the cells that have a first piece."""

    def __init__(self, start: int, exact: bool = True):
        self.start, self.end, self.exact = start, start, exact
        self.pieces: list[Piece] = []
        self.captured: set[Cell] = set()
        self.nbytes = 0

    @property
    def length(self) -> int:
        return self.end - self.start

    def of_step(self, step: int) -> list[Piece]:
        """The pieces of the last step that has some, if it is this one."""
        found = []
        for piece in reversed(self.pieces):
            if piece.step != step:
                break
            found.append(piece)
        return found

    def drop_step(self, step: int) -> list[Piece]:
        dropped = self.of_step(step)
        del self.pieces[len(self.pieces) - len(dropped) :]
        self.nbytes -= sum(piece.nbytes for piece in dropped)
        return dropped

    def restore(self, streams: Streams) -> None:
        """Memory as it was at the beginning. Later pieces first: earlier ones know better."""
        for piece in reversed(self.pieces):
            piece.restore(streams(piece.memory.device))


class Streams:
    """On which stream each device works."""

    def __init__(self, streams: dict[int, int]):
        self._streams = streams

    def __call__(self, device: int | None) -> int | None:
        return None if device is None else self._streams.get(device, 0)


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

    @property
    def current(self) -> Segment:
        return self.segments[-1]

    def split(self, cell: Cell, rest: Cell) -> None:
        """A piece of a cell is a piece of both its parts."""
        for segment in self.segments:
            if cell in segment.captured:
                segment.captured.add(rest)

    def save(self, segment: Segment, step: int, cells: Iterable[Cell], stream: int | None) -> int:
        """What of these cells is to be saved before a step writes them; the bytes that its reverse and earlier ones
        need. In a segment with first pieces alone these are not kept."""
        if self.is_short:
            return 0
        needed, saved = 0, []
        for cell in cells:
            needed += cell.nbytes if cell.need is not None else 0
            first = self.budget is not None and cell not in segment.captured
            if first or (cell.need is not None and segment.exact):
                saved.append((cell, first))
                segment.captured.add(cell)
        self._copy(segment, step, saved, stream)
        return needed

    def _copy(self, segment: Segment, step: int, saved: list[tuple[Cell, bool]], stream: int | None) -> None:
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
        """What a step has written, where it must not run again."""
        log, nbytes = Segment(step, exact=False), sum(cell.nbytes for cell in cells)
        self._kept += nbytes
        while self.room < nbytes and (self._thin() or self._merge() or self.give_up()):
            pass
        self.save(log, step, cells, stream)
        return log

    def keep(self, tape_bytes: int) -> None:
        """A launch made a tape of its own."""
        self._kept += tape_bytes
        self.take(tape_bytes)

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
        if self.current.nbytes > (self.budget - self.reserved) // _SHARE:
            self._open(step + 1)
        while self.room < 0 and not self.is_short:
            if not (self._thin() or self._merge() or self.give_up()):
                if self.current.length == 0 or len(self.current.pieces) == 0:
                    self.clear()
                    self.is_short = True
                self._open(step + 1)

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
        return True

    def require_enough(self) -> None:
        """When the recording ends. The reverse begins with what is reserved."""
        if self._unused_bytes and self._unused_bytes > self.room:
            self._drop_unused()
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


def thin(segment: Segment) -> list[Piece]:
    """Keeps the first pieces, gives the others."""
    dropped = [piece for piece in segment.pieces if not piece.first]
    segment.pieces = [piece for piece in segment.pieces if piece.first]
    segment.exact = False
    segment.nbytes -= sum(piece.nbytes for piece in dropped)
    return dropped


def merge(older: Segment, newer: Segment) -> list[Piece]:
    """Both in `older`: of the newer, what the older did not write. Gives the rest."""
    covered = [_is_covered(piece, older.pieces) for piece in newer.pieces]
    dropped = [piece for piece, is_covered in zip(newer.pieces, covered, strict=True) if is_covered]
    older.pieces += [piece for piece, is_covered in zip(newer.pieces, covered, strict=True) if not is_covered]
    older.captured |= newer.captured
    older.end = newer.end
    older.nbytes += newer.nbytes - sum(piece.nbytes for piece in dropped)
    return dropped


def _is_covered(piece: Piece, pieces: list[Piece]) -> bool:
    at, end = piece.start, piece.start + piece.nbytes
    for other in sorted(pieces, key=lambda p: p.start):
        if other.start <= at < other.start + other.nbytes:
            at = other.start + other.nbytes
    return at >= end
