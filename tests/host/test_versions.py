"""Pieces of what memory held, thinned and merged: each way back leads to the same place."""

from __future__ import annotations

import numpy as np
import pytest

from kernelgrad import TapeError
from kernelgrad.host.memory_map import Cell, MemoryMap, Need, Span
from kernelgrad.host.versions import Segment, Store, Streams, merge, thin

STREAMS = Streams({})


def cells_of(memory: MemoryMap, array: np.ndarray, start: int, count: int) -> list[Cell]:
    return list(memory.cover(Span("a", array.ctypes.data + 8 * start, 8 * count, None)))


def written(store: Store, segment: Segment, step: int, cells: list[Cell], array: np.ndarray, value: float) -> None:
    store.save(segment, step, cells, None)
    at = (cells[0].start - array.ctypes.data) // 8
    array[at : at + sum(c.nbytes for c in cells) // 8] = value
    segment.end = step + 1


def test_merged_segments_restore_the_older_state() -> None:
    array, memory, store = np.arange(8.0), MemoryMap(), Store(1 << 20)
    before = array.copy()
    older, newer = Segment(0), Segment(2)
    written(store, older, 0, cells_of(memory, array, 0, 4), array, 10)
    written(store, older, 1, cells_of(memory, array, 0, 4), array, 20)
    written(store, newer, 2, cells_of(memory, array, 2, 4), array, 30)
    written(store, newer, 3, cells_of(memory, array, 0, 2), array, 40)
    assert not thin(older) and not thin(newer)  # nobody needs what lay between
    assert sum(piece.nbytes for piece in merge(older, newer)) == 32  # what the older had already, also of a half
    older.restore(STREAMS)
    np.testing.assert_array_equal(array, before)
    assert older.end == 4 and older.nbytes == 32 + 16


def test_needed_contents_are_kept_until_thinned() -> None:
    array, memory, store = np.arange(4.0), MemoryMap(), Store(1 << 20)
    segment = Segment(0)
    cells = cells_of(memory, array, 0, 4)
    for step in range(3):
        cells[0].need = Need(step, "k", "a")
        written(store, segment, step, cells, array, float(step))
    assert segment.nbytes == 3 * 32 and store.nbytes == 3 * 32
    assert sum(piece.nbytes for piece in thin(segment)) == 2 * 32
    segment.restore(STREAMS)
    np.testing.assert_array_equal(array, np.arange(4.0))


def test_without_a_budget_only_what_is_needed() -> None:
    array, memory, store = np.arange(4.0), MemoryMap(), Store(None)
    cells = cells_of(memory, array, 0, 4)
    written(store, store.current, 0, cells, array, 1.0)
    assert store.nbytes == 0


def test_a_long_recording_stays_within_its_budget() -> None:
    array, memory, store = np.zeros(16), MemoryMap(), Store(20 * 128)
    cells = cells_of(memory, array, 0, 16)
    for step in range(1000):
        cells[0].need = Need(step, "k", "a")
        written(store, store.current, step, cells, array, float(step))
        store.step_done(step)
        assert store.nbytes <= 20 * 128
    assert store.segments[0].start == 0 and store.segments[-1].end == 1000
    for before, after in zip(store.segments, store.segments[1:], strict=False):
        assert before.end == after.start


def test_a_budget_below_one_state_is_refused() -> None:
    array, memory, store = np.zeros(16), MemoryMap(), Store(100)
    cells = cells_of(memory, array, 0, 16)
    cells[0].need = Need(0, "k", "a")
    written(store, store.current, 0, cells, array, 1.0)
    store.reserved = 128
    store.step_done(0)
    assert store.is_short and store.nbytes == 0
    with pytest.raises(TapeError, match="100 bytes are too few for this program: it takes 256"):
        store.require_enough()
