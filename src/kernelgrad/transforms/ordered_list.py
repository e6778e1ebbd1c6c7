"""A list of operations in which some move: what comes before what is one comparison, moving one costs no scan."""

from __future__ import annotations

from collections.abc import Iterator

from ..ir.ops import Op

_GAP = 1 << 256  # between neighbours at first; each move into a gap halves it


class Order:
    """Linked, with a number for each place; None stands for the place before the first."""

    def __init__(self) -> None:
        self._next: dict[Op | None, Op | None] = {None: None}
        self._previous: dict[Op | None, Op | None] = {None: None}  # of None, the last one
        self._place: dict[Op | None, int] = {None: 0}

    def __iter__(self) -> Iterator[Op]:
        op = self._next[None]
        while op is not None:
            yield op
            op = self._next[op]

    def place(self, op: Op | None) -> int:
        return self._place[op]

    def append(self, op: Op) -> None:
        self._insert(op, self._previous[None])

    def move(self, ops: list[Op], behind: Op | None) -> None:
        """To right behind another, in this order."""
        for op in ops:
            before, after = self._previous[op], self._next[op]
            self._next[before], self._previous[after] = after, before
        for op in ops:
            self._insert(op, behind)
            behind = op

    def _insert(self, op: Op, behind: Op | None) -> None:
        after = self._next[behind]
        if after is not None and self._place[after] - self._place[behind] < 2:
            self._renumber(after)
        low = self._place[behind]
        self._place[op] = low + _GAP if after is None else (low + self._place[after]) // 2
        self._next[behind], self._previous[op] = op, behind
        self._next[op], self._previous[after] = after, op

    def _renumber(self, first: Op) -> None:
        op: Op | None = first
        place = self._place[self._previous[first]]
        while op is not None:
            place += _GAP
            self._place[op] = place
            op = self._next[op]
