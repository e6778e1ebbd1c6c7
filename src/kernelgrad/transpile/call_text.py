"""The arguments of calls and launches as they stand in the text: macros among them stay macros, whatever they expand
to."""

from __future__ import annotations

from dataclasses import dataclass

from ..frontend import clang
from ..frontend.clang import Cursor
from ..frontend.in_source import extent
from ..frontend.text import Token, tokens

_OPEN, _CLOSE = (b"(", b"[", b"{"), (b")", b"]", b"}")
Range = tuple[int, int]


@dataclass(frozen=True)
class LaunchText:
    """Where the parts of `kernel<<<configuration>>>(arguments)` are."""

    kernel: Range
    configuration: list[Range]
    arguments: list[Range]


def argument_ranges(text: bytes, start: int, end: int) -> list[Range] | None:
    """Of the call that begins and ends there; None of what ends with no list of arguments."""
    opened = _last_list(text, start, end)
    return None if opened is None else _pieces(text, opened + 1, end - 1)


def launch_text(text: bytes, start: int, end: int) -> LaunchText | None:
    """Of the launch that begins and ends there; None of what is none in the text."""
    opened = _last_list(text, start, end)
    first, last = text.find(b"<<<", start, end), text.rfind(b">>>", start, opened or start)
    if opened is None or first < 0 or last < first:
        return None
    configuration, arguments = _pieces(text, first + 3, last), _pieces(text, opened + 1, end - 1)
    return LaunchText(_trimmed(text, start, first), configuration, arguments)


def _last_list(text: bytes, start: int, end: int) -> int | None:
    """Where the parenthesis is that the last one closes; None if it is not the last of the text."""
    depth, opened, closed = 0, -1, -1
    for token in tokens(text, start, end):
        if token.text in _OPEN:
            opened = token.start if depth == 0 else opened
            depth += 1
        elif token.text in _CLOSE:
            depth -= 1
            closed = token.start if depth == 0 else closed
    is_list = depth == 0 and closed == end - 1 and text[opened : opened + 1] == b"("
    return opened if is_list else None


def _pieces(text: bytes, start: int, end: int) -> list[Range]:
    """What commas are between, of a list."""
    cuts = [start, *(at for token in _commas(text, start, end) for at in (token.start, token.end)), end]
    found = [_trimmed(text, a, b) for a, b in zip(cuts[::2], cuts[1::2], strict=True)]
    return [] if len(found) == 1 and found[0][0] == found[0][1] else found


def _commas(text: bytes, start: int, end: int) -> list[Token]:
    depth, found = 0, list[Token]()
    for token in tokens(text, start, end):
        depth += (token.text in _OPEN) - (token.text in _CLOSE)
        if token.text == b"," and depth == 0:
            found.append(token)
    return found


def _trimmed(text: bytes, start: int, end: int) -> Range:
    inside = list(tokens(text, start, end))
    return (inside[0].start, inside[-1].end) if inside else (start, start)


def start(function: Cursor) -> int:
    return extent(function).start


def is_default(c: Cursor) -> bool:
    return clang.statement_class(c) == clang.DEFAULT_ARG
