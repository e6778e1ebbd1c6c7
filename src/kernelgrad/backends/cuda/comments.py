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

_COMMA, _OPEN, _OPERATOR = range(3)  # what is best to break at, of those in equally few parentheses
_OPERATORS = (" ? ", " : ", " || ", " && ", " + ", " - ")
_OPENING, _CLOSING = "([{", ")]}"
_CONTINUED = " " * 4
_SHORTEST = 20


@dataclass(slots=True)
class Line:
    """A line of a function's body. `span`: what it comes from; `is_effect`: not merely a temporary's declaration;
    `why`: the reason for how it updates an adjoint; `closes`: it belongs to the statement that the block around it
    is part of. `depth` changes where a block becomes an `else if`: of a long chain, all that follow do each time."""

    text: str
    depth: int
    span: Span = UNKNOWN
    is_effect: bool = True
    why: str = ""
    closes: bool = False

    def __str__(self) -> str:
        return _INDENT * self.depth + self.text


def is_one_if(lines: list[Line]) -> bool:
    """Whether they are an `if` statement with braces, and nothing else."""
    if not lines or not (lines[0].text.startswith("if (") and lines[0].text.endswith("{")):
        return False
    return all(line.closes for line in lines[1:] if line.depth == lines[0].depth)


def annotated(lines: list[Line]) -> Iterator[str]:
    for text in _Annotator(lines).run():
        yield from wrapped(text, WIDTH)


class _Annotator:
    """`told`: for each open block, by its depth, the place that its latest comment gave; `reasons`: those that were
    given since the latest comment of a place."""

    def __init__(self, lines: list[Line]):
        self.lines = lines
        self.told: dict[int, str] = {}
        self.reasons: set[str] = set()

    def run(self) -> Iterator[str]:
        start = 0
        for at, line in enumerate(self.lines):
            if line.is_effect or line.closes:
                yield from self._group(self.lines[start : at + 1])
                start = at + 1
        yield from map(str, self.lines[start:])

    def _group(self, group: list[Line]) -> Iterator[str]:
        last = group[-1]
        if last.closes or not last.span.line:
            yield from map(str, group)
            return
        place = _reversed(last.span)
        first = next((k for k, line in enumerate(group) if _reversed(line.span) or line is last), 0)
        yield from map(str, group[:first])
        head = ""
        if self._is_news(place, last.depth):
            self.reasons.clear()
            head = f"reverse of {place}"
        why = "" if last.why in self.reasons else last.why
        self.reasons.add(last.why)
        yield from _commented(group[first:], head, why)

    def _is_news(self, place: str, depth: int) -> bool:
        before = next((self.told[d] for d in range(depth, 0, -1) if d in self.told), "")
        self.told = {d: told for d, told in self.told.items() if d < depth}
        self.told[depth] = place
        return bool(place) and place != before


def _reversed(span: Span) -> str:
    return f"{span.source.short_name}:{span.line}" if span.reverse and not span.source.is_prelude else ""


def _commented(group: list[Line], head: str, why: str) -> Iterator[str]:
    """The lines of a group, with what it reverses before them and the reason beside its last, or before it."""
    *temporaries, last = group
    beside = f"{last}  // {why}" if why else str(last)
    fits = not why or len(beside) <= WIDTH
    if head and not fits and not temporaries:
        head, why = f"{head}; {why}", ""
    if head:
        yield str(replace(last, text=f"// {head}"))
    yield from map(str, temporaries)
    if why and not fits:
        yield str(replace(last, text=f"// {why}"))
    yield beside if fits else str(last)


# ---- long statements: several lines, broken where the fewest parentheses are open -----------------------------------


def wrapped(line: str, width: int) -> list[str]:
    """The lines of a statement. What the preprocessor or a reader sees as one line stays one."""
    text = line.lstrip()
    if len(line) <= width or text.startswith(("#", "//")) or '"' in text:
        return [line]
    indent = line[: len(line) - len(text)]
    found = []
    while len(indent + text) > width:
        at = _break(text, width - len(indent))
        if at is None:
            break
        found.append(indent + text[:at].rstrip())
        text = text[at:].lstrip()
        if len(found) == 1:
            indent += _CONTINUED
    return [*found, indent + text]


def _break(text: str, room: int) -> int | None:
    """Where the next line begins: an operator leads it, a comma or a parenthesis ends the one before."""
    places = [(depth, kind, -at) for depth, kind, at in _places(text) if _SHORTEST < at <= room]
    return -min(places)[2] if places else None


def _places(text: str) -> Iterator[tuple[int, int, int]]:
    depth = 0
    for at, char in enumerate(text):
        depth += (char in _OPENING) - (char in _CLOSING)
        if char == "(" and text[at - 1 : at].isalnum():
            yield depth, _OPEN, at + 1
        elif text.startswith(", ", at):
            yield depth, _COMMA, at + 2
        elif text.startswith(_OPERATORS, at):
            yield depth, _OPERATOR, at + 1
