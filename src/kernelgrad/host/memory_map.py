"""Memory by address range. Views, offsets and overlapping arrays of one allocation are told apart here.

A `Cell` is a range that every recorded access takes as a whole or not at all: where an access begins or ends inside a
cell, the cell is split. A program has a few.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal, NamedTuple

Access = Literal["", "read", "written"]


class Span(NamedTuple):
    """Memory that a step reads or writes, and what it is called there. `device`: None is the CPU."""

    name: str
    address: int
    nbytes: int
    device: int | None


class Need(NamedTuple):
    """Whose reverse reads what a cell holds now."""

    step: int
    kernel: str
    parameter: str


class Cell:
    """`need`: the first step whose reverse reads these contents; `is_shared`: there are others. `first`: what was done
    to it first; `is_read`: since it was last written. `print`: of what it held when it was last seen, see
    fingerprints.py; `touched`: somebody else wrote since. `made`, `read`: the last steps that wrote and read it;
    `pattern`: by which it was last written, see segments.py. The others: see beginnings.py."""

    __slots__ = (
        *("start", "end", "device", "need", "is_shared", "first", "is_written", "is_read", "print", "touched"),
        *("patterns", "is_read_since", "is_settled", "beginning", "holds_bits", "made", "read", "pattern"),
    )

    def __init__(self, start: int, end: int, device: int | None):
        self.start, self.end, self.device = start, end, device
        self.need: Need | None = None
        self.first: Access = ""
        self.is_shared = self.is_written = self.is_read = self.touched = False
        self.print: int | None = None
        self.patterns: frozenset[Any] = frozenset()
        self.is_read_since = self.is_settled = False  # it was first written; its beginning needs nothing more
        self.beginning: Any = None
        self.made = self.read = -1
        self.pattern: Any = None
        self.holds_bits = False  # of floating-point numbers, in memory of integers

    @property
    def nbytes(self) -> int:
        return self.end - self.start

    def split(self, at: int) -> Cell:
        """Keeps what is before `at`, gives the rest."""
        rest = Cell(at, self.end, self.device)
        rest.need, rest.first, rest.is_written, rest.touched = self.need, self.first, self.is_written, self.touched
        rest.is_shared, rest.is_read = self.is_shared, self.is_read
        rest.patterns, rest.is_read_since = self.patterns, self.is_read_since
        rest.is_settled, rest.beginning, rest.holds_bits = self.is_settled, self.beginning, self.holds_bits
        rest.made, rest.read, rest.pattern = self.made, self.read, self.pattern
        self.end, self.print = at, None
        return rest


OnSplit = Callable[[Cell, Cell, int | None], None]  # both parts, and the fingerprint that the whole had


class MemoryMap:
    """All cells, in the order of their addresses."""

    def __init__(self, on_split: OnSplit = lambda cell, rest, print: None) -> None:
        self._on_split = on_split
        self._starts: list[int] = []
        self._cells: list[Cell] = []
        self._covers: dict[tuple[int, int], tuple[Cell, ...]] = {}  # of spans seen since the last split
        self._joints: set[int] = set()  # where two cells meet that some span had both of

    def __iter__(self) -> Iterator[Cell]:
        return iter(self._cells)

    def cover(self, span: Span) -> tuple[Cell, ...]:
        """The cells of a span; made, and split, where they are not there."""
        key = span.address, span.nbytes
        found = self._covers.get(key)
        if found is None:
            found = self._covers[key] = self._cover(span.address, span.address + span.nbytes, span.device)
        return found

    def known(self, address: int, nbytes: int) -> tuple[Cell, ...] | None:
        """The cells of a range, as far as they reach into it; None where not all of it is known."""
        end, at, found = address + nbytes, address, []
        for cell in self._cells[max(0, bisect_right(self._starts, address) - 1) :]:
            if cell.start >= end or cell.start > at:
                break
            if cell.end > at:
                found.append(cell)
                at = cell.end
        return tuple(found) if at >= end else None

    def within(self, address: int, nbytes: int) -> list[Cell]:
        """The cells that reach into a range, all of which need not be known."""
        first = max(0, bisect_right(self._starts, address) - 1)
        last = bisect_left(self._starts, address + nbytes)
        return [cell for cell in self._cells[first:last] if cell.end > address]

    def covers(self, spans: Iterable[Span]) -> list[Cell]:
        """Of several spans: each cell once."""
        return list(dict.fromkeys(cell for span in spans for cell in self.cover(span)))

    def _cover(self, start: int, end: int, device: int | None) -> tuple[Cell, ...]:
        self._split(start)
        self._split(end)
        found, at, k = [], start, bisect_right(self._starts, start - 1)
        while at < end:
            cell = self._cells[k] if k < len(self._cells) else None
            if cell is None or cell.start > at:
                cell = Cell(at, end if cell is None else min(end, cell.start), device)
                self._insert(k, cell)
            found.append(cell)
            at, k = cell.end, k + 1
        self._joints.update(cell.end for cell in found[:-1])
        return tuple(found)

    def _split(self, at: int) -> None:
        k = bisect_right(self._starts, at) - 1
        if k >= 0 and self._cells[k].start < at < self._cells[k].end:
            self._covers.clear()
            cell = self._cells[k]
            print = cell.print
            rest = cell.split(at)
            self._joints.add(at)
            self._insert(k + 1, rest)
            self._on_split(cell, rest, print)

    def _insert(self, k: int, cell: Cell) -> None:
        self._starts.insert(k, cell.start)
        self._cells.insert(k, cell)

    def runs(self, cells: Iterable[Cell] | None = None) -> Iterator[tuple[int, int, int | None]]:
        """(start, end, device) of cells that hang together, in order of their addresses; of all cells by default. Two
        allocations may lie side by side: no copy goes from one into the other on a GPU."""
        begun: tuple[int, int, int | None] | None = None
        for cell in self._cells if cells is None else sorted(cells, key=lambda c: c.start):
            if begun is not None and begun[1] == cell.start and cell.start in self._joints:
                begun = begun[0], cell.end, cell.device
                continue
            if begun is not None:
                yield begun
            begun = cell.start, cell.end, cell.device
        if begun is not None:
            yield begun
