"""Address ranges: cells are split where accesses begin and end."""

from __future__ import annotations

from kernelgrad.host.memory_map import MemoryMap, Need, Span


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


def test_runs_join_what_a_span_had_together() -> None:
    """Neighbours that no span had both of may be two allocations."""
    memory = MemoryMap()
    for start, nbytes, device in ((100, 10, None), (110, 10, None), (120, 10, 0), (200, 30, 0), (210, 5, 0)):
        memory.cover(Span("a", start, nbytes, device))
    apart = [(100, 110, None), (110, 120, None), (120, 130, 0), (200, 230, 0)]
    assert list(memory.runs()) == apart
    written = [cell for cell in memory if cell.start >= 210]
    assert list(memory.runs(written)) == [(210, 230, 0)]
    memory.cover(Span("b", 105, 10, None))
    assert list(memory.runs()) == [(100, 120, None), *apart[2:]]


def test_splits_are_told() -> None:
    told = []
    memory = MemoryMap(lambda cell, rest, print: told.append((cell.end, rest.start, rest.end)))
    memory.cover(Span("a", 100, 50, None))
    memory.cover(Span("b", 100, 20, None))
    assert told == [(120, 120, 150)]
