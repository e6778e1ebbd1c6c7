"""A line on the terminal while something takes longer than two seconds."""

from __future__ import annotations

import sys
import time

_PATIENCE = 2.0  # seconds
_EVERY = 0.5


class Progress:
    def __init__(self, what: str, total: int):
        self._what, self._total = what, total
        self._next = time.monotonic() + _PATIENCE
        self._shown = False

    def at(self, done: int) -> None:
        now = time.monotonic()
        if now >= self._next and sys.stderr is not None and sys.stderr.isatty():
            self._next, self._shown = now + _EVERY, True
            print(f"\r{self._what}: {done:,} of {self._total:,} steps", end="", file=sys.stderr, flush=True)
        if self._shown and done >= self._total:
            self._shown = False
            print(file=sys.stderr)
