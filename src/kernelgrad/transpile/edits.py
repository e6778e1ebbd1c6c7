"""Changes to a text by byte offsets: what is between them stays as it is."""

from __future__ import annotations

from typing import NamedTuple


class Edit(NamedTuple):
    start: int
    end: int
    text: str


class Edits:
    def __init__(self, text: str):
        self.data = text.encode()
        self._edits: list[Edit] = []

    def replace(self, start: int, end: int, text: str) -> None:
        """One that lies in another goes with it."""
        self._edits.append(Edit(start, end, text))

    def insert(self, at: int, text: str) -> None:
        self._edits.append(Edit(at, at, text))

    def slice(self, start: int, end: int) -> str:
        """A part of the text, with the changes that lie in it."""
        found, at = b"", start
        inside = [e for e in self._edits if start <= e.start and e.end <= end and (e.start, e.end) != (start, end)]
        for edit in _outermost(inside):
            found += self.data[at : edit.start] + edit.text.encode()
            at = edit.end
        return (found + self.data[at:end]).decode()

    def covers(self, at: int) -> bool:
        """Whether what is there is replaced."""
        return any(edit.start <= at < edit.end for edit in self._edits)

    def original(self, start: int, end: int) -> str:
        return self.data[start:end].decode()

    def line_start(self, at: int) -> int:
        return self.data.rfind(b"\n", 0, at) + 1

    def text(self) -> str:
        found, at = b"", 0
        for edit in _outermost(self._edits):
            found += self.data[at : edit.start] + edit.text.encode()
            at = edit.end
        return (found + self.data[at:]).decode()


def _outermost(edits: list[Edit]) -> list[Edit]:
    """In order; of two at one place the first that was made."""
    found: list[Edit] = []
    for edit in sorted(edits, key=lambda e: (e.start, e.start != e.end, -e.end)):
        if not found or edit.start >= found[-1].end:
            found.append(edit)
    return found
