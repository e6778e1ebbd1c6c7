"""Which cells of shared memory a loop's updates reach, and whether the threads of a block can share them out."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...analysis.access.affine import Affine
from ...analysis.access.block_affine import Slopes
from ...analysis.aliases import Aliases
from ...analysis.block_interpreter.lanes import Trips, Update, from_counter
from ...ir.ops import For, GlobalRef, Module, Op, Value

_Numbers = np.ndarray[Any, np.dtype[np.int64]]
_MOST_CELLS = 1 << 20


@dataclass(frozen=True, eq=False)
class Cell:
    """Where an update goes: bytes from the start of a shared variable of so many bytes."""

    update: Update
    variable: str
    nbytes: int
    address: Affine


def cell_of(
    update: Update, loop: For, module: Module, definition: dict[Value, Op], aliases: Aliases, uniform: set[Value]
) -> Cell | None:
    """None for an update of anything but a shared variable whose cell the counter picks."""
    root = definition.get(aliases.root(update.ptr))
    if not isinstance(root, GlobalRef) or not from_counter(loop, definition).is_possible(update.ptr):
        return None
    variable, counter = module.globals[root.name], loop.body.args[0]
    address = Slopes(definition, uniform, counter).address(update.ptr)
    if variable.space != "shared" or not variable.type.size or address is None or not address.slope(counter):
        return None
    return Cell(update, root.name, variable.type.size, address)


def owned_along(axis: int, cells: list[Cell], block: tuple[int, int, int], trips: Trips) -> list[Cell]:
    """Those of the updates with which all threads along an axis add to the same cells."""
    chosen: list[Cell] = []
    for cell in cells if block[axis] > 1 else ():
        beside = [c for c in chosen if c.variable == cell.variable]
        if _have_owners([*beside, cell], axis, block, trips):
            chosen.append(cell)
    return chosen


def _have_owners(cells: list[Cell], axis: int, block: tuple[int, int, int], trips: Trips) -> bool:
    """Whether each cell that the updates of one variable reach belongs to one thread. What is not the thread's must be
    the same for all of them, the counter's part too, since iterations are numbered from 0 here."""
    sizes = {c.update.value.type.size for c in cells}
    rests = [c.address.rest(*(("thread_idx", a) for a in range(3))) for c in cells]
    found = [_owned(c, axis, block, trips) for c in cells]
    if len(sizes) > 1 or any(rest != rests[0] for rest in rests) or any(f is None for f in found):
        return False
    places, owners = (np.concatenate([f[k] for f in found if f is not None]) for k in range(2))
    if (places % min(sizes) != places[0] % min(sizes)).any():
        return False
    order = np.argsort(places, kind="stable")
    places, owners = places[order], owners[order]
    return not bool(((places[1:] == places[:-1]) & (owners[1:] != owners[:-1])).any())


def _owned(cell: Cell, axis: int, block: tuple[int, int, int], trips: Trips) -> tuple[_Numbers, _Numbers] | None:
    """Every cell that an update may reach, and its owner: the thread's other indices, and the iteration. A loop of
    unknown length runs no further than the variable's end. What would reach further wraps around."""
    slopes = [cell.address.slope(("thread_idx", a)) for a in range(3)]
    by = cell.address.slope(trips.loop.body.args[0]) * trips.loop.step
    count = (cell.nbytes - cell.update.value.type.size) // abs(by) + 1 if trips.number is None else trips.number
    extents = tuple(1 if a == axis else n for a, n in enumerate(block))
    if slopes[axis] or math.prod(extents) * count > _MOST_CELLS:
        return None
    *indices, iteration = np.indices((*extents, max(1, count)))
    places = sum(slope * index for slope, index in zip(slopes, indices, strict=True)) + by * iteration
    if max(np.ptp(places), abs(by)) > cell.nbytes - cell.update.value.type.size:
        return None
    return (places + cell.address.const).ravel(), np.arange(places.size)
