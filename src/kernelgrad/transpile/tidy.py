"""Generated texts as one: what several of them bring along is written once."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

_GUARD = re.compile(r"#ifndef (KERNELGRAD_\w+)$")
_EMPTY = re.compile(r"namespace kg \{\s*\}  // namespace kg\n+")
_ADJACENT = re.compile(r"\}  // namespace kg\n+namespace kg \{\n+")


def joined(texts: Iterable[str]) -> str:
    """With an empty line between them."""
    whole = "\n".join(text.strip("\n") + "\n" for text in texts if text.strip())
    found = _EMPTY.sub("", "\n".join(_first_ones(whole.split("\n"))))
    return re.sub(r"\n{3,}", "\n\n", _ADJACENT.sub("", found))


def _first_ones(lines: list[str]) -> Iterator[str]:
    """Without guarded pieces that were there before, and without the guards: a file has each piece once."""
    seen: set[str] = set()
    depth, dropped, at = 0, False, 0
    while at < len(lines):
        line, at = lines[at], at + 1
        guard = _GUARD.match(line) if depth == 0 else None
        if guard is not None:
            depth, dropped = 1, guard[1] in seen
            seen.add(guard[1])
            at += 1  # its #define
            continue
        if depth:
            depth += line.startswith("#if") - line.startswith("#endif")
            if not depth:
                continue
        if not (depth and dropped):
            yield line
