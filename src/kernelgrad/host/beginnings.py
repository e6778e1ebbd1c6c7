"""What memory held when a recording began, where a program that runs it again cannot do without.

Note [Beginnings]
A program's call begins with memory as it was when the program was made, after the recording. That is right for what
steps write before any of them reads it, and for what none of them writes. A launch may write a part of an array: of the
rest nobody knows which of the two it is. It is one of them as long as all launches that write the array store to the
same elements, or to others before anyone reads it: so is v of a stencil, whose ends nobody writes. A launch's *pattern*
says which elements these are: the kernel, its shape, its addresses and the numbers that decide where it stores. There
is none where contents of memory decide. Before the first write that has no pattern, or another one after somebody has
read, the array is copied: what the patterns so far write needs no beginning, and the rest is as it was.

Reverses need none of these copies. Within a budget they are made where there is room, and given up before the recording
would fail for lack of it: who asks for a program is told then.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..runtime.scratch import Scratch
from .fingerprints import SMALL
from .memory_map import Cell
from .steps import Step
from .versions import Store

_SHARE = 4  # of what is left of a budget, for a copy of what is not small


@dataclass
class Beginning:
    """A copy of memory from `start` on; none where there is no room for it."""

    memory: Scratch | None
    start: int
    step: str
    parameter: str


class Beginnings:
    """`store`: pays for copies. A few small ones may have all that is left of a budget."""

    def __init__(self, store: Store):
        self._store, self._small = store, SMALL

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
        made = cell.beginning = Beginning(None, cell.start, step.name, name)
        cell.is_settled = True
        if self._has_room(cell.nbytes):
            self._store.lend(made, cell.nbytes)
            made.memory = Scratch(cell.nbytes, cell.device, step.stream).copy_from(cell.start)

    def _has_room(self, nbytes: int) -> bool:
        if self._store.budget is None:
            return True
        is_small = nbytes <= self._small
        self._small -= nbytes if is_small else 0
        return nbytes <= self._store.room // (1 if is_small else _SHARE)
