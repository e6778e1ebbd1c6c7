"""Assignments that happen at once in the IR, put in an order in which none destroys what another still reads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .syntax import Expr
from .variables import Variable


@dataclass(eq=False)
class Copy:
    target: Variable
    value: Expr
    reads: frozenset[Variable]


@dataclass(eq=False)
class Save:
    """Evaluate `copy`'s value into a temporary first, and assign it from there."""

    copy: Copy


def in_sequence(copies: list[Copy]) -> Iterator[Copy | Save]:
    """The copies in a safe order; where they form a cycle (`a, b = b, a`), one is saved before the others run."""
    waiting = list(copies)
    while waiting:
        ready = next((c for c in waiting if not _is_read(c.target, waiting, c)), None)
        if ready is not None:
            waiting.remove(ready)
            yield ready
        else:
            blocking = next(c for c in waiting if c.reads)
            yield Save(blocking)
            blocking.reads = frozenset()


def _is_read(target: Variable, copies: list[Copy], but: Copy) -> bool:
    return any(target in c.reads for c in copies if c is not but)
