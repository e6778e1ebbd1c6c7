"""Numbers of all threads of a block, told apart: two that have the same id are the same number, bit for bit.

A value that is not looked into has one id for each thread. Sums and choices of others have an id for each pair that is
combined; what an addition of nothing leaves unchanged keeps its id.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...ir.ops import Value

Ids = Any  # an array of int64, one for each thread or cell; NOBODY where there is none
NOTHING = 0  # -0.0, to which anything may be added
NOBODY = -1
COMBINED = frozenset(("add", "max", "min", "select", "ge", "le", "or", "isnan"))


@dataclass(frozen=True)
class Leaf:
    """What thread `thread` has as `value`; what nobody knows, without a value."""

    value: Value | None
    thread: int


@dataclass(frozen=True)
class Number:
    """The same everywhere. Told apart by its text: 0.0 is not -0.0, 1.0 is not true."""

    number: float | bool = field(compare=False)
    text: str


@dataclass(frozen=True)
class Total:
    """What all threads added to a cell between two barriers: the number of the sum."""

    number: int


@dataclass(frozen=True)
class Combined:
    fn: str
    args: tuple[int, ...]


Term = Leaf | Number | Total | Combined


class Terms:
    def __init__(self, threads: int):
        self.threads = threads
        self._starts: list[int] = [0]
        self._ranges: list[Term | Value | None] = [Number(-0.0, "-0.0")]
        self._end = 1
        self._leaves: dict[Value, Ids] = {}
        self._known: dict[Term, int] = {Number(-0.0, "-0.0"): NOTHING}
        self.work = 0

    def leaves(self, value: Value) -> Ids:
        """The value of each thread."""
        if value not in self._leaves:
            self._leaves[value] = self._range(value, self.threads)
        return self._leaves[value]

    def unknown(self, count: int) -> Ids:
        return self._range(None, count)

    def number(self, number: float | bool) -> int:
        return self.one(Number(number, repr(number)))

    def one(self, term: Term) -> int:
        if term not in self._known:
            self._known[term] = int(self._range(term, 1)[0])
        return self._known[term]

    def combined(self, fn: str, *args: int) -> int:
        if fn == "add" and NOTHING in args:
            return args[1] if args[0] == NOTHING else args[0]
        if fn == "select" and args[1] == args[2]:
            return args[1]
        return self.one(Combined(fn, args))

    def all_combined(self, fn: str, args: list[Ids], mask: Any) -> Ids:
        found = np.full(self.threads, NOBODY)
        self.work += int(mask.sum())
        for thread in np.flatnonzero(mask):
            found[thread] = self.combined(fn, *(int(a[thread]) for a in args))
        return found

    def __getitem__(self, id: int) -> Term:
        k = bisect_right(self._starts, id) - 1
        entry = self._ranges[k]
        return Leaf(entry, id - self._starts[k]) if entry is None or isinstance(entry, Value) else entry

    def _range(self, entry: Term | Value | None, count: int) -> Ids:
        start = self._end
        self._starts.append(start)
        self._ranges.append(entry)
        self._end += count
        return np.arange(start, self._end)
