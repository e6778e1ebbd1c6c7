"""What a log of memory accesses shows: conflicts between threads, and reads of memory nothing wrote.

A log is columns of equal length, in the order of execution. Memory is looked at in cells: the largest power of two
bytes that divides every address and size in the log, so that neighbouring small accesses do not seem to overlap.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

READ, WRITE, ATOMIC = 0, 1, 2

Column = NDArray[Any]
Pairs = tuple[Column, Column]  # row numbers


@dataclass(frozen=True)
class Log:
    """`epoch` counts the block's barriers so far, `phase` also the meetings of its warps."""

    address: Column
    size: Column
    kind: Column
    op: Column
    region: Column
    block: Column
    thread: Column
    epoch: Column
    phase: Column

    def __len__(self) -> int:
        return len(self.address)

    def at(self, rows: Column) -> Log:
        return Log(*(getattr(self, f.name)[rows] for f in fields(self)))

    @staticmethod
    def joined(logs: list[Log]) -> Log:
        return Log(*(np.concatenate([getattr(log, f.name) for log in logs]) for f in fields(Log)))


# ---- cells ----------------------------------------------------------------------------------------------------------


def cells(log: Log) -> tuple[Column, Column]:
    """Each access as the cells it touches: their numbers, and the row of the log each belongs to."""
    if not len(log):
        return log.address, np.zeros(0, np.int64)
    bits = int(np.bitwise_or.reduce(log.address | log.size))
    cell = min(8, bits & -bits)
    counts = log.size.astype(np.int64) // cell
    rows = np.repeat(np.arange(len(log)), counts)
    within = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    return log.address[rows] // np.uint64(cell) + within.astype(np.uint64), rows


def group_ids(*columns: Column) -> Column:
    """A number for each combination of the columns' values: small, though not every number need occur."""
    ids, span = np.zeros(len(columns[0]), np.int64), 1
    if not len(ids):
        return ids
    for column in columns:
        low = column.min()
        width = int(column.max() - low) + 1
        if span * width >= 2**62:
            ids, span = _dense(ids)
        ids = ids * width + (column - low).astype(np.int64)
        span *= width
    return ids if span <= 4 * len(ids) + 1024 else _dense(ids)[0]


def _dense(ids: Column) -> tuple[Column, int]:
    """Renumbered without gaps, and how many there are."""
    found, renumbered = np.unique(ids, return_inverse=True)
    return renumbered, len(found)


# ---- reads of memory nothing wrote ----------------------------------------------------------------------------------


def unwritten_reads(log: Log) -> Column:
    """Rows that read (or atomically update) a cell of their block before anything wrote it."""
    cell, rows = cells(log)
    if not len(rows):
        return rows
    place = group_ids(cell, log.block[rows])
    kind = log.kind[rows]
    first_write = np.full(place.max() + 1, len(log), np.int64)
    writes = np.flatnonzero(kind != READ)
    written, first = np.unique(place[writes], return_index=True)
    first_write[written] = rows[writes[first]]
    early = (kind != WRITE) & (first_write[place] >= rows)
    return np.unique(rows[early])


# ---- conflicts ------------------------------------------------------------------------------------------------------


def conflicts_in_blocks(log: Log) -> Pairs:
    """Accesses of two threads of a block to one cell, one a write, not both atomic, that no meeting orders.

    Threads of different warps are ordered by the block's barriers alone; those of one warp by its meetings too."""
    cell, rows = _contested(log, log.block.astype(np.int64) * 1024 + log.thread)
    if not len(rows):
        return rows, rows
    block, epoch, phase, thread = (column[rows] for column in (log.block, log.epoch, log.phase, log.thread))
    warp = thread // 32
    across = _conflicts(group_ids(cell, block, epoch), warp, log.kind[rows])
    within = _conflicts(group_ids(cell, block, epoch, warp, phase), thread, log.kind[rows])
    left, right = (np.concatenate(side) for side in zip(across, within, strict=True))
    return rows[left], rows[right]


def conflicts_between_blocks(log: Log) -> Pairs:
    """The same for different blocks, which nothing orders."""
    cell, rows = _contested(log, log.block)
    if not len(rows):
        return rows, rows
    left, right = _conflicts(cell, log.block[rows], log.kind[rows])
    return rows[left], rows[right]


def _contested(log: Log, actor: Column) -> tuple[Column, Column]:
    """The cells (renumbered) and rows left when cells are dropped that nobody writes or only one actor touches: most
    are, and telling so is cheap."""
    cell, rows = cells(log)
    if not len(rows):
        return cell, rows
    place = group_ids(cell)
    keep = (_varies(place, actor[rows]) & _has(place, log.kind[rows] != READ))[place]
    return group_ids(place[keep]), rows[keep]


def _conflicts(group: Column, actor: Column, kind: Column) -> Pairs:
    """One pair of conflicting rows for each group that has any: different actors, one a write, not both atomic."""
    suspicious = _varies(group, actor) & (
        _has(group, kind == WRITE) | (_has(group, kind == READ) & _has(group, kind == ATOMIC))
    )
    left: list[Column] = []
    right: list[Column] = []
    # Each attempt fixes one row per group and looks for a partner. A plain write conflicts with any other actor's row.
    # Without one, a read and an atomic must differ: if the first read finds no atomic, all of them are its actor's, and
    # the first atomic finds a read.
    for fixed_kind, partner_kinds in ((WRITE, (READ, WRITE, ATOMIC)), (READ, (ATOMIC,)), (ATOMIC, (READ,))):
        candidates = np.flatnonzero(suspicious[group] & (kind == fixed_kind))
        groups, first = np.unique(group[candidates], return_index=True)
        fixed = np.full(len(suspicious), -1, np.int64)
        fixed[groups] = candidates[first]
        mate = fixed[group]
        fits = (mate >= 0) & np.isin(kind, partner_kinds) & (actor != actor[mate])
        partners = np.flatnonzero(fits)
        groups, first = np.unique(group[partners], return_index=True)
        left.append(fixed[groups])
        right.append(partners[first])
        suspicious[groups] = False
    return np.concatenate(left), np.concatenate(right)


def _has(group: Column, holds: Column) -> Column:
    """For each group, whether it holds for any row."""
    found: Column = np.zeros(group.max() + 1, np.bool_)
    found[group[holds]] = True
    return found


def _varies(group: Column, actor: Column) -> Column:
    """For each group, whether it has several actors."""
    any_actor = np.zeros(group.max() + 1, actor.dtype)
    any_actor[group] = actor
    return _has(group, actor != any_actor[group])


def summary(log: Log) -> Log:
    """One row for each kind of access of a block to an address: enough for conflicts between blocks."""
    if not len(log):
        return log
    _, first = np.unique(group_ids(log.address, log.size, log.kind, log.block), return_index=True)
    return log.at(first)
