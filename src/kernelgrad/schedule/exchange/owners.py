"""Which cells of shared memory a loop's updates reach, and whether each cell can have one owner: threads that differ
along an axis alone, which add to the same cells, divide them up then."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...analysis.access.affine import Affine
from ...analysis.access.block_affine import BlockAffine
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
    """None unless the update is of a shared variable, at an address that the loop's counter moves."""
    root = definition.get(aliases.root(update.ptr))
    if not isinstance(root, GlobalRef) or not from_counter(loop, definition).is_possible(update.ptr):
        return None
    variable, counter = module.globals[root.name], loop.body.args[0]
    address = BlockAffine(definition, uniform, counter).address(update.ptr)
    if variable.space != "shared" or not variable.type.size or address is None or not address.slope(counter):
        return None
    return Cell(update, root.name, variable.type.size, address)


def owned_along(axis: int, cells: list[Cell], block: tuple[int, int, int], trips: Trips) -> list[Cell]:
    """The updates whose cells do not depend on a thread's index along the axis, and each have one owner: the thread's
    other indices and an iteration."""
    chosen: list[Cell] = []
    for cell in cells if block[axis] > 1 else ():
        beside = [c for c in chosen if c.variable == cell.variable]
        if _have_owners([*beside, cell], axis, block, trips):
            chosen.append(cell)
    return chosen


def _have_owners(cells: list[Cell], axis: int, block: tuple[int, int, int], trips: Trips) -> bool:
    """Whether no two owners reach the same cell of one variable, nor two cells overlap. Addresses are compared without
    what is not the thread's: that, with the counter's part, must be the same in all updates."""
    sizes = {c.update.value.type.size for c in cells}
    rests = [c.address.rest(*(("thread_idx", a) for a in range(3))) for c in cells]
    found = [_cells_and_owners(c, axis, block, trips) for c in cells]
    if len(sizes) > 1 or any(rest != rests[0] for rest in rests) or any(f is None for f in found):
        return False
    addresses, owners = (np.concatenate([f[k] for f in found if f is not None]) for k in range(2))
    if (addresses % min(sizes) != addresses[0] % min(sizes)).any():
        return False
    order = np.argsort(addresses, kind="stable")
    addresses, owners = addresses[order], owners[order]
    return not bool(((addresses[1:] == addresses[:-1]) & (owners[1:] != owners[:-1])).any())


def _cells_and_owners(
    cell: Cell, axis: int, block: tuple[int, int, int], trips: Trips
) -> tuple[_Numbers, _Numbers] | None:
    """The address of every cell that an update may reach, and its owner: the thread's other indices, and the iteration.
    A loop of unknown trip count runs no further than the variable's end. None for what wraps around beyond it."""
    slopes = [cell.address.slope(("thread_idx", a)) for a in range(3)]
    stride = cell.address.slope(trips.loop.body.args[0]) * trips.loop.step
    count = (cell.nbytes - cell.update.value.type.size) // abs(stride) + 1 if trips.number is None else trips.number
    extents = tuple(1 if a == axis else n for a, n in enumerate(block))
    if slopes[axis] or math.prod(extents) * count > _MOST_CELLS:
        return None
    *indices, iteration = np.indices((*extents, max(1, count)))
    addresses = sum(slope * index for slope, index in zip(slopes, indices, strict=True)) + stride * iteration
    if max(np.ptp(addresses), abs(stride)) > cell.nbytes - cell.update.value.type.size:
        return None
    return (addresses + cell.address.const).ravel(), np.arange(addresses.size)
