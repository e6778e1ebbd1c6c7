"""A line about what takes long: on stderr, where that is a terminal, from the third second on, gone at the end. And how
often something was derived and emitted in this process: what tests of launches look at."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import ParamSpec, TypeVar

from .locks import make_lock

P = ParamSpec("P")
R = TypeVar("R")

_AFTER = 2.0  # seconds
_EVERY = 0.5
_CLEAR = "\r\033[K"


def doing(describe: Callable[P, str]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """For a function that may take long: what it does, said from its arguments."""

    def around(work: Callable[P, R]) -> Callable[P, R]:
        @wraps(work)
        def run(*args: P.args, **keywords: P.kwargs) -> R:
            if not _is_terminal():
                return work(*args, **keywords)
            with _line.told(describe(*args, **keywords)):
                return work(*args, **keywords)

        return run

    return around


def _is_terminal() -> bool:
    try:
        return sys.stderr is not None and sys.stderr.isatty()
    except ValueError:  # it is closed
        return False


class _Line:
    """Of all that is being done, the innermost is told."""

    def __init__(self) -> None:
        self._lock = make_lock()
        self._doing: list[list[str]] = []  # each a list of its own, since one may be there twice
        self._timer: threading.Timer | None = None
        self._shown = False

    @contextmanager
    def told(self, what: str) -> Iterator[None]:
        entry = [what]
        with self._lock:
            self._doing.append(entry)
            if self._timer is None:
                self._timer = threading.Timer(_AFTER, self._show)
                self._timer.daemon = True
                self._timer.start()
            elif self._shown:
                self._print()
        try:
            yield
        finally:
            self._end(entry)

    def _end(self, entry: list[str]) -> None:
        with self._lock:
            self._doing = [other for other in self._doing if other is not entry]
            if self._doing:
                return
            if self._timer is not None:
                self._timer.cancel()
            if self._shown:
                _write(_CLEAR)
            self._timer, self._shown = None, False

    def _show(self) -> None:
        with self._lock:
            if self._doing:
                self._shown = True
                self._print()

    def _print(self) -> None:
        (what,) = self._doing[-1]
        _write(f"{_CLEAR}kernelgrad: {what} ...")


def _write(text: str) -> None:
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except (OSError, ValueError):  # nobody looks any more
        return


_line = _Line()


class Steps:
    """How many of so many steps are done, said every half second; gone at the end, be it an error."""

    def __init__(self, what: str, total: int):
        self._what, self._total, self._done = what, total, 0
        self._next = time.monotonic() + _AFTER
        self._shown = False

    def __enter__(self) -> Steps:
        return self

    def __exit__(self, *_: object) -> None:
        if self._shown:
            self._shown = False
            _write(_CLEAR)

    def at(self, done: int) -> None:
        self._done = done
        self.still()

    def still(self) -> None:
        """What takes time, and is none of the steps."""
        now = time.monotonic()
        if now >= self._next and _is_terminal():
            self._next, self._shown = now + _EVERY, True
            _write(f"{_CLEAR}kernelgrad: {self._what}: {self._done:,} of {self._total:,} steps")


# ---- how often ------------------------------------------------------------------------------------------------------


@dataclass
class Counts:
    """`derivations`: plans of a form. `emissions`: forms whose code was emitted. `finished`: functions that went
    through the passes after that."""

    derivations: int = 0
    emissions: int = 0
    finished: int = 0

    def reset(self) -> None:
        self.derivations = self.emissions = self.finished = 0


COUNTS = Counts()
