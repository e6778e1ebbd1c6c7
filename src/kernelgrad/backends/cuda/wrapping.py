"""Long statements over several lines, broken where the fewest parentheses are open."""

from __future__ import annotations

from collections.abc import Iterator

_COMMA, _OPEN, _OPERATOR = range(3)  # what is best to break at, of those in equally few parentheses
_OPERATORS = (" ? ", " : ", " || ", " && ", " + ", " - ")
_OPENING, _CLOSING = "([{", ")]}"
_CONTINUED = " " * 4
_SHORTEST = 20


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
