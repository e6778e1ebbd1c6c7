"""Values that a buffer was promised to hold once, and that a launch read at two places of it."""

from __future__ import annotations

import ctypes
from typing import NamedTuple

import numpy as np

from ..ir.types import Pointer, Scalar, Type
from .launch import Buffer
from .layouts import scalar_dtype
from .races import Column, Log


class Repeat(NamedTuple):
    """One value, the rows of the log that read it first and again, and how many such values there are."""

    value: int
    rows: tuple[int, int]
    values: int


def first_reads(log: Log) -> Log:
    """One row for each address and size."""
    if not len(log):
        return log
    _, first = np.unique(np.stack([log.address, log.size.astype(np.uint64)]), axis=1, return_index=True)
    return log.at(np.sort(first))


def find(log: Log, buffer: Buffer, type: Type) -> Repeat | None:
    """`log`: the reads of the buffer."""
    if not len(log) or not (isinstance(type, Pointer) and isinstance(type.pointee, Scalar)):
        return None
    places, rows = _elements(log, buffer.address, type.pointee.size)
    held = np.frombuffer(ctypes.string_at(buffer.address, buffer.nbytes), scalar_dtype(type.pointee))[places]
    order = np.lexsort((places, held))
    same = np.flatnonzero(held[order][1:] == held[order][:-1])
    if not len(same):
        return None
    one, other = order[same[0]], order[same[0] + 1]
    return Repeat(int(held[one]), (int(rows[one]), int(rows[other])), len(np.unique(held[order][same])))


def _elements(log: Log, begin: int, size: int) -> tuple[Column, Column]:
    """The elements that were read, each once, and a row that reads it."""
    counts = np.maximum(1, log.size.astype(np.int64) // size)
    rows = np.repeat(np.arange(len(log)), counts)
    within = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    places = (log.address[rows] - np.uint64(begin)).astype(np.int64) // size + within
    found, first = np.unique(places, return_index=True)
    return found, rows[first]
