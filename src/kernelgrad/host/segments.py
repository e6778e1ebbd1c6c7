"""Segments of a recording: what brings memory back from where each ends to where it begins.

Note [Segments]
A recording's steps are cut into segments. An *exact* segment has, for each step, what that step overwrites and a
reverse up to it reads: it is reversed step by step. A *thin* one has its *first* pieces alone: what memory held when it
began, of the cells that are written in it, so that its steps can run again. Thinning a segment, and merging two thin
neighbours, frees memory; both may be done at any time, so a recording of unknown length stays within its budget. The
oldest are thinned first. Without a budget there is one exact segment, and nothing is saved but what reverses read.

Note [Dead contents]
A cell needs no first piece where steps that run again overwrite it before anyone reads it: the partner of a ping-pong.
Two more may want what it held when the segment began.

- Steps before the segment, when their turn comes. Not those of the segment that made these contents: it makes them
  again. So these contents are kept where they were made in one segment and read in another one before this.
- Elements that nobody overwrites. A launch's *pattern* (see beginnings.py) says which elements it stores to, `ALL` if
  they are the whole cell. As long as all that write a cell do so by one pattern, the other elements are at any time
  what they were. Where another pattern follows, or one that nobody knows, contents are kept.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Iterable
from copy import copy
from dataclasses import dataclass
from typing import NamedTuple

from ..runtime.scratch import Scratch
from . import transfers
from .memory_map import Cell

ALL = "all"
Pattern = Hashable  # None: nobody knows


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


@dataclass
class Capture:
    """A cell that a segment's steps write. `saved`: it has a first piece; `live`: and cannot do without. `pattern`: of
    all that write it there, None if they differ. `made`, `read`: the step that made what it held when the segment
    began, and the last before that to read it."""

    saved: bool
    live: bool
    pattern: Pattern
    made: int
    read: int

    def add(self, pattern: Pattern, saved: bool) -> None:
        """Another step writes it."""
        if self.pattern is ALL or self.pattern == pattern:
            return
        self.pattern = None
        self.saved |= saved
        self.live = True

    @property
    def is_spare(self) -> bool:
        """Whether only earlier steps may need its piece."""
        return self.saved and not self.live


class Segment:
    """Steps from `start` to before `end`. `kept`: the cells that are to have a first piece, where that is known."""

    def __init__(self, start: int, exact: bool = True, kept: frozenset[Cell] = frozenset()):
        self.start, self.end, self.exact, self.kept = start, start, exact, kept
        self.pieces: list[Piece] = []
        self.captured: dict[Cell, Capture] = {}
        self.nbytes = 0

    @property
    def length(self) -> int:
        return self.end - self.start

    def split(self, cell: Cell, rest: Cell) -> None:
        """A piece of a cell is a piece of both its parts."""
        if cell in self.captured:
            self.captured[rest] = copy(self.captured[cell])
        if cell in self.kept:
            self.kept |= {rest}

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

    def drop_first(self, cells: Iterable[Cell]) -> list[Piece]:
        """The first pieces of no other cells than these."""
        gone, order = set(cells), sorted(self.captured, key=lambda cell: cell.start)
        if not gone:
            return []
        starts = [cell.start for cell in order]

        def is_gone(piece: Piece) -> bool:
            within = order[bisect_left(starts, piece.start) : bisect_left(starts, piece.start + piece.nbytes)]
            return piece.first and gone.issuperset(within)

        dropped = [piece for piece in self.pieces if is_gone(piece)]
        self.pieces = [piece for piece in self.pieces if not is_gone(piece)]
        self.nbytes -= sum(piece.nbytes for piece in dropped)
        return dropped

    def restore(self, streams: Streams) -> None:
        """Memory as it was at the beginning, but for what is dead. Later pieces first: earlier ones know better."""
        for piece in reversed(self.pieces):
            piece.restore(streams(piece.memory.device))


class Streams:
    """On which stream each device works."""

    def __init__(self, streams: dict[int, int]):
        self._streams = streams

    def __call__(self, device: int | None) -> int | None:
        return None if device is None else self._streams.get(device, 0)


def thin(segment: Segment) -> list[Piece]:
    """Keeps the first pieces, gives the others."""
    dropped = [piece for piece in segment.pieces if not piece.first]
    segment.pieces = [piece for piece in segment.pieces if piece.first]
    segment.exact = False
    segment.nbytes -= sum(piece.nbytes for piece in dropped)
    return dropped


def merge(older: Segment, newer: Segment) -> list[Piece]:
    """Both in `older`: of the newer, what the older does not make again. Gives the rest."""
    dropped = newer.drop_first([cell for cell in newer.captured if _is_made_again(older, newer, cell)])
    for cell, found in newer.captured.items():
        earlier = older.captured.get(cell)
        if earlier is None or not (earlier.saved or earlier.pattern is ALL or earlier.pattern == found.pattern):
            older.captured[cell] = found if earlier is None else Capture(True, True, None, found.made, found.read)
        else:
            earlier.add(found.pattern, saved=False)
    older.pieces += newer.pieces
    older.end = newer.end
    older.nbytes += newer.nbytes
    return dropped


def _is_made_again(older: Segment, newer: Segment, cell: Cell) -> bool:
    earlier = older.captured.get(cell)
    if earlier is None:
        return False
    return earlier.saved or earlier.pattern is ALL or earlier.pattern == newer.captured[cell].pattern
