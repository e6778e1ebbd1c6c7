"""Comments of the emitted text: which source line a piece reverses, and why an adjoint is updated as it is.

Statements come in groups: what has an effect, and before it the temporaries it needs. A group of the reverse says what
it reverses, unless the group before it in the same block said so, or the statement it is nested in.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ...errors import UNKNOWN, Span

WIDTH = 120
_INDENT = "    "


@dataclass(frozen=True)
class Line:
    """A line of a function's body. `span`: what it comes from; `is_effect`: not merely a temporary's declaration;
    `why`: the reason for how it updates an adjoint; `closes`: it belongs to the statement that the block around it
    is part of."""

    text: str
    depth: int
    span: Span = UNKNOWN
    is_effect: bool = True
    why: str = ""
    closes: bool = False

    def __str__(self) -> str:
        return _INDENT * self.depth + self.text


def annotated(lines: list[Line]) -> Iterator[str]:
    return _Annotator(lines).run()


class _Annotator:
    """`told`: for each open block, from the outside, the place that its latest comment gave, and the latest reason."""

    def __init__(self, lines: list[Line]):
        self.lines = lines
        self.told: dict[int, tuple[str, str]] = {}

    def run(self) -> Iterator[str]:
        start = 0
        for at, line in enumerate(self.lines):
            if line.is_effect or line.closes:
                yield from self._group(self.lines[start : at + 1])
                start = at + 1
        yield from map(str, self.lines[start:])

    def _group(self, group: list[Line]) -> Iterator[str]:
        last = group[-1]
        place = "" if last.closes else _reversed(last.span)
        before, why = self._told_at(last.depth)
        first = next((k for k, line in enumerate(group) if _reversed(line.span) or line is last), 0)
        yield from map(str, group[:first])
        if place and place != before:
            yield str(replace(last, text=f"// reverse of {place}"))
            why = ""
        if not last.closes:
            self._tell(last.depth, place, last.why or why)
        yield from map(str, group[first:-1])
        yield from _with_reason(last, last.why if last.why != why else "")

    def _told_at(self, depth: int) -> tuple[str, str]:
        return next((self.told[d] for d in range(depth, 0, -1) if d in self.told), ("", ""))

    def _tell(self, depth: int, place: str, why: str) -> None:
        self.told = {d: told for d, told in self.told.items() if d < depth}
        self.told[depth] = place, why


def _reversed(span: Span) -> str:
    return f"{span.source.short_name}:{span.line}" if span.reverse and not span.source.is_prelude else ""


def _with_reason(line: Line, why: str) -> Iterator[str]:
    beside = f"{line}  // {why}"
    if why and len(beside) > WIDTH:
        yield str(replace(line, text=f"// {why}"))
    yield beside if why and len(beside) <= WIDTH else str(line)
