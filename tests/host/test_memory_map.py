"""Address ranges: cells are split where accesses begin and end."""

from __future__ import annotations

from kernelgrad.host.memory_map import MemoryMap, Need, Span, runs


def ranges(cells: object) -> list[tuple[int, int]]:
    return [(cell.start, cell.end) for cell in cells]  # type: ignore[attr-defined]


def test_overlapping_spans_share_cells() -> None:
    memory = MemoryMap()
    first = memory.cover(Span("a", 100, 50, None))
    first[0].need = Need(0, "k", "a")
    second = memory.cover(Span("b", 120, 60, None))
    assert ranges(second) == [(120, 150), (150, 180)]
    assert ranges(memory.cover(Span("a", 100, 50, None))) == [(100, 120), (120, 150)]
    assert [cell.need is not None for cell in memory] == [True, True, False]


def test_a_span_over_gaps_and_cells() -> None:
    memory = MemoryMap()
    memory.cover(Span("a", 110, 10, None))
    memory.cover(Span("b", 140, 10, None))
    assert ranges(memory.cover(Span("c", 100, 60, None))) == [
        (100, 110),
        (110, 120),
        (120, 140),
        (140, 150),
        (150, 160),
    ]


def test_what_is_known() -> None:
    memory = MemoryMap()
    memory.cover(Span("a", 100, 20, None))
    memory.cover(Span("b", 120, 20, None))
    assert memory.known(105, 30) is not None and memory.known(90, 20) is None and memory.known(130, 20) is None


def test_runs_join_neighbours_on_one_device() -> None:
    memory = MemoryMap()
    for start, device in ((100, None), (110, None), (120, 0), (200, 0)):
        memory.cover(Span("a", start, 10, device))
    assert list(runs(memory)) == [(100, 120, None), (120, 130, 0), (200, 210, 0)]


def test_splits_are_told() -> None:
    told = []
    memory = MemoryMap(lambda cell, rest, print: told.append((cell.end, rest.start, rest.end)))
    memory.cover(Span("a", 100, 50, None))
    memory.cover(Span("b", 100, 20, None))
    assert told == [(120, 120, 150)]
