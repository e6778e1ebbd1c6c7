"""What memory held when a recording began, where a program that runs it again cannot do without.

Note [Beginnings]
A program's call begins with memory as it was when the program was made, after the recording. That is right for what
steps write before any of them reads it, and for what none of them writes. A launch may write a part of an array: of the
rest nobody knows which of the two it is. It is one of them as long as all launches that write the array store to the
same elements, or to others before anyone reads it: so is v of a stencil, whose ends nobody writes. A launch's *pattern*
says which elements these are: the kernel, its shape, its addresses and the numbers that decide where it stores. There
is none where contents of memory decide. Before the first write that has no pattern, or another one after somebody has
read, the array is copied: what the patterns so far write needs no beginning, and the rest is as it was.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ..runtime.scratch import Scratch
from .fingerprints import SMALL
from .memory_map import Cell
from .steps import Step
from .versions import Store

_SHARE = 4  # of what is left of a budget, for a copy of what is not small


class Beginning(NamedTuple):
    """A copy of memory from `start` on; none where there was no room for it."""

    memory: Scratch | None
    start: int
    step: str
    parameter: str


class Beginnings:
    """`store`: pays for copies of what is not small."""

    def __init__(self, store: Store):
        self._store = store

    def before(self, step: Step, cells: Iterable[Cell]) -> None:
        """Before a step writes cells."""
        for cell in cells:
            if cell.first == "read" or cell.is_settled:
                continue
            if step.writes_all:
                cell.is_settled = not cell.is_read_since
                if cell.is_settled:
                    continue
            pattern = None if step.writes_all else step.stored(cell)
            if pattern is None or (cell.is_read_since and pattern not in cell.patterns):
                self._keep(step, cell)
            else:
                cell.patterns |= {pattern}

    def _keep(self, step: Step, cell: Cell) -> None:
        name = next(
            (s.name for s in step.writes if s.address < cell.end and cell.start < s.address + s.nbytes), "array"
        )
        memory = None
        if cell.nbytes <= SMALL or self._has_room(cell.nbytes):
            memory = Scratch(cell.nbytes, cell.device, step.stream).copy_from(cell.start)
        cell.beginning, cell.is_settled = Beginning(memory, cell.start, step.name, name), True
        if memory is not None and cell.nbytes > SMALL:
            self._store.keep(cell.nbytes)

    def _has_room(self, nbytes: int) -> bool:
        return self._store.budget is None or nbytes <= self._store.room // _SHARE
