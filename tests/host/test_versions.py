"""Pieces of what memory held, thinned and merged: each way back leads to the same place."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kernelgrad import TapeError
from kernelgrad.host.memory_map import Cell, MemoryMap, Need, Span
from kernelgrad.host.segments import ALL, Segment, Streams, merge, thin
from kernelgrad.host.versions import Store

STREAMS = Streams({})


def cells_of(memory: MemoryMap, array: np.ndarray, start: int, count: int) -> list[Cell]:
    return list(memory.cover(Span("a", array.ctypes.data + 8 * start, 8 * count, None)))


def written(store: Store, step: int, cells: list[Cell], array: np.ndarray, value: float, pattern: Any = None) -> None:
    store.save(step, cells, dict.fromkeys(cells, pattern), None)
    at = (cells[0].start - array.ctypes.data) // 8
    array[at : at + sum(c.nbytes for c in cells) // 8] = value
    for cell in cells:
        cell.made = step
    store.current.end = step + 1


def begin(store: Store, step: int) -> Segment:
    if step:
        store.segments.append(Segment(step))
    return store.current


def test_merged_segments_restore_the_older_state() -> None:
    array, store = np.arange(8.0), Store(1 << 20)
    memory = MemoryMap(lambda cell, rest, print: store.split(cell, rest))
    before = array.copy()
    older = begin(store, 0)
    written(store, 0, cells_of(memory, array, 0, 4), array, 10)
    written(store, 1, cells_of(memory, array, 0, 4), array, 20)
    newer = begin(store, 2)
    written(store, 2, cells_of(memory, array, 2, 4), array, 30)
    written(store, 3, cells_of(memory, array, 0, 2), array, 40)
    assert not thin(older) and not thin(newer)  # nobody needs what lay between
    assert sum(piece.nbytes for piece in merge(older, newer)) == 32  # what the older had already, also of a half
    older.restore(STREAMS)
    np.testing.assert_array_equal(array, before)
    assert older.end == 4 and older.nbytes == 32 + 16


@pytest.mark.parametrize(("patterns", "saved"), [((ALL, ALL), 0), (("odd", "odd"), 0), (("odd", ALL), 32),
                                                 ((ALL, None), 0), ((None, ALL), 32)])  # fmt: skip
def test_what_nobody_reads_before_it_is_overwritten_is_not_kept(patterns: tuple[Any, Any], saved: int) -> None:
    """But where elements may be left that the first of two steps does not store to."""
    array, memory, store = np.arange(4.0), MemoryMap(), Store(1 << 20)
    cells = cells_of(memory, array, 0, 4)
    for step, pattern in enumerate(patterns):
        written(store, step, cells, array, float(step), pattern)
    assert store.nbytes == saved


def test_contents_made_in_one_segment_and_read_in_another_are_kept_until_these_are_one() -> None:
    array, memory, store = np.arange(4.0), MemoryMap(), Store(1 << 20)
    cells = cells_of(memory, array, 0, 4)
    written(store, 0, cells, array, 1.0, ALL)
    begin(store, 1).end = 2
    cells[0].read = 1
    begin(store, 2)
    written(store, 2, cells, array, 2.0, ALL)
    assert store.nbytes == 32
    assert store._thin() and store._thin() and not store._thin() and store._merge()
    assert store.nbytes == 0 and [s.start for s in store.segments] == [0, 2]


def test_needed_contents_are_kept_until_thinned() -> None:
    array, memory, store = np.arange(4.0), MemoryMap(), Store(1 << 20)
    segment = store.current
    cells = cells_of(memory, array, 0, 4)
    for step in range(3):
        cells[0].need = Need(step, "k", "a")
        written(store, step, cells, array, float(step))
    assert segment.nbytes == 3 * 32 and store.nbytes == 3 * 32
    assert sum(piece.nbytes for piece in thin(segment)) == 2 * 32
    segment.restore(STREAMS)
    np.testing.assert_array_equal(array, np.arange(4.0))


def test_without_a_budget_only_what_is_needed() -> None:
    array, memory, store = np.arange(4.0), MemoryMap(), Store(None)
    cells = cells_of(memory, array, 0, 4)
    written(store, 0, cells, array, 1.0)
    assert store.nbytes == 0


def test_a_long_recording_stays_within_its_budget() -> None:
    array, memory, store = np.zeros(16), MemoryMap(), Store(20 * 128)
    cells = cells_of(memory, array, 0, 16)
    for step in range(1000):
        cells[0].need = Need(step, "k", "a")
        written(store, step, cells, array, float(step))
        store.step_done(step)
        assert store.nbytes <= 20 * 128
    assert store.segments[0].start == 0 and store.segments[-1].end == 1000
    for before, after in zip(store.segments, store.segments[1:], strict=False):
        assert before.end == after.start


def test_a_budget_below_one_state_is_refused() -> None:
    array, memory, store = np.zeros(16), MemoryMap(), Store(100)
    cells = cells_of(memory, array, 0, 16)
    cells[0].need = Need(0, "k", "a")
    store.reserved = 128
    written(store, 0, cells, array, 1.0)
    assert store.is_short and store.nbytes == 0
    with pytest.raises(TapeError, match="100 bytes are too few for this program: it takes 256"):
        store.require_enough()
