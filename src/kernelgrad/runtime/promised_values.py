"""What a launch read of buffers of which something was promised, and whether that holds: `kg.assume`."""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

import numpy as np

from ..analysis.promises import Segments
from ..ir.types import Pointer, Scalar, Type
from .launch import Buffer
from .layouts import scalar_dtype
from .races import Column, Log


class Held(NamedTuple):
    """The elements that were read, in order, what they hold, and a row of the log that reads each."""

    places: Column
    values: Column
    rows: Column

    def at(self, places: Column) -> Held:
        """Those of these places; all of them were read."""
        found = np.searchsorted(self.places, places)
        return Held(places, self.values[found], self.rows[found])


def first_reads(log: Log) -> Log:
    """One row for each address and size."""
    if not len(log):
        return log
    _, first = np.unique(np.stack([log.address, log.size.astype(np.uint64)]), axis=1, return_index=True)
    return log.at(np.sort(first))


def held(log: Log, buffer: Buffer, type: Type) -> Held | None:
    """`log`: the reads of the buffer."""
    if not len(log) or not (isinstance(type, Pointer) and isinstance(type.pointee, Scalar)):
        return None
    places, rows = _elements(log, buffer.address, type.pointee.size)
    values = np.frombuffer(ctypes.string_at(buffer.address, buffer.nbytes), scalar_dtype(type.pointee))[places]
    return Held(places, values, rows)


def _elements(log: Log, begin: int, size: int) -> tuple[Column, Column]:
    """The elements that were read, each once, and a row that reads it."""
    counts = np.maximum(1, log.size.astype(np.int64) // size)
    rows = np.repeat(np.arange(len(log)), counts)
    within = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    places = (log.address[rows] - np.uint64(begin)).astype(np.int64) // size + within
    found, first = np.unique(places, return_index=True)
    return found, rows[first]


# ---- what is wrong --------------------------------------------------------------------------------------------------


class Broken(NamedTuple):
    """One case, in words, the rows of the log that it is seen by, and how many such cases there are."""

    problem: str
    rows: tuple[int, ...]
    cases: int


class Repeat(NamedTuple):
    """One value, the rows of the log that read it first and again, and how many such values there are."""

    value: int
    rows: tuple[int, int]
    values: int


def repeated(of: Held) -> Repeat | None:
    """A value that is at two places."""
    order = np.lexsort((of.places, of.values))
    same = np.flatnonzero(of.values[order][1:] == of.values[order][:-1])
    if not len(same):
        return None
    one, other = order[same[0]], order[same[0] + 1]
    found = len(np.unique(of.values[order][same]))
    return Repeat(int(of.values[one]), (int(of.rows[one]), int(of.rows[other])), found)


def overlapping(segments: Segments, begin: Held, count: Held | None) -> Broken | None:
    """Two segments that share elements, of those whose ends were both read."""
    if count is None:
        places = np.intersect1d(begin.places, begin.places - 1)
        starts, ends = begin.at(places), begin.at(places + 1).values.astype(object)
    else:
        places = np.intersect1d(begin.places, count.places)
        starts = begin.at(places)
        ends = starts.values.astype(object) + count.at(places).values.astype(object)
    some = np.flatnonzero(ends > starts.values.astype(object))
    early = some[starts.values[some] < 0]
    if len(early):
        case = f"of s = {places[early[0]]}, it begins at {starts.values[early[0]]}"
        return Broken(
            f"one of the segments {segments.shown} begins before 0: {case}", (int(starts.rows[early[0]]),), len(early)
        )
    order = some[np.argsort(starts.values[some], kind="stable")]
    lower, upper = starts.values[order].astype(object), ends[order]
    reached = np.maximum.accumulate(upper) if len(upper) else upper
    met = np.flatnonzero(lower[1:] < reached[:-1])
    if not len(met):
        return None
    other = int(met[0]) + 1
    one = int(np.flatnonzero(upper[:other] > lower[other])[0])
    told = [f"of s = {places[order[k]]}, {lower[k]} .. {upper[k]}" for k in (one, other)]
    rows = (int(starts.rows[order[one]]), int(starts.rows[order[other]]))
    return Broken(f"the segments {segments.shown} overlap: {told[0]}, and {told[1]}", rows, len(met))


def no_multiple(of: Held, name: str, number: int) -> Broken | None:
    return _first(of, name, of.values % number != 0, f"no multiple of {number}")


def outside(of: Held, name: str, ends: tuple[int, int]) -> Broken | None:
    low, high = ends
    return _first(of, name, (of.values < low) | (of.values > high), f"not within {low} .. {high}")


def _first(of: Held, name: str, wrong: Any, how: str) -> Broken | None:
    found = np.flatnonzero(wrong)
    if not len(found):
        return None
    row = found[0]
    problem = f"'{name}[{of.places[row]}]' is {of.values[row]}, which is {how}"
    return Broken(problem, (int(of.rows[row]),), len(found))


def wrong_number(name: str, value: int, number: int | None, ends: tuple[int, int] | None) -> str | None:
    """What is wrong with an integer among the arguments."""
    if number is not None and value % number:
        return f"'{name}' is {value}, which is no multiple of {number}"
    if ends is not None and not ends[0] <= value <= ends[1]:
        return f"'{name}' is {value}, which is not within {ends[0]} .. {ends[1]}"
    return None
