"""Loads before stores: a load that stands behind a store it need not wait for moves up, as far as it can.

Compilers keep the order they are given even where `__restrict__` would let them change it, and a GPU thread that loads
behind a store to a line it has just read waits for it: on an H200 the joint gradient of an elementwise kernel took
3.7 ms as written and 0.41 ms with its loads first. Loads stay in their block, so a guard still guards them. Stores then
move behind the arithmetic that follows them: 0.41 ms instead of 0.61 where that has sines and cosines.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from heapq import heappop, heappush

from ...analysis.aliases import Aliases
from ...ir.effects import is_pure
from ...ir.ops import Atomic, Block, Function, Load, Module, Op, Store, Value
from ...ir.traverse import descend, operands, with_body
from ...transforms.access_index import Accesses

_GAP = 1 << 256  # between neighbours of an `Order` at first; each move into a gap halves it


def run(function: Function, module: Module) -> Function:
    return with_body(function, _Schedule(function).block(function.body))


class _Schedule:
    def __init__(self, function: Function):
        self.aliases = Aliases(function)
        self.writes = Accesses(self.aliases)  # of a block when all before it and inside of it are there

    def block(self, block: Block) -> Block:
        level = _Level(len(self.writes))
        for op in block.ops:
            op = descend(op, self.block)
            if isinstance(op, Load) and not op.volatile:
                self.place(op, level)
            else:
                self.writes.add(op)
                level.append(op)
            level.note_writes(op, self.writes)
        return Block(block.args, tuple(self.stores_last(level.order)), block.results)

    def stores_last(self, ops: Iterable[Op]) -> list[Op]:
        """Stores, in their order, behind the arithmetic and the loads that do not wait for them."""
        found: list[Op] = []
        waiting: list[Op] = []
        stores = Accesses(self.aliases)
        for op in ops:
            if isinstance(op, Store) and not op.volatile:
                waiting.append(op)
                stores.add(op)
                continue
            if not (is_pure(op) or self.is_free_load(op, stores, len(stores) - len(waiting))):
                found += waiting
                waiting.clear()
            found.append(op)
        return found + waiting

    def is_free_load(self, op: Op, stores: Accesses, start: int) -> bool:
        return isinstance(op, Load) and not op.volatile and stores.last(op.ptr) < start

    def place(self, load: Load, level: _Level) -> None:
        """Behind the last operation that may change what it reads, with what its address is computed from, if there is
        a store to get ahead of."""
        target, end = level.written_by(self.writes.last(load.ptr))
        level.append(load)
        if level.last_store >= end:
            moving, target = _address(level, target, load)
            level.order.move(moving, target)


class _Level:
    """The operations of a block so far, and which of them has which of the writes."""

    def __init__(self, start: int):
        self.order = Order()
        self.producer: dict[Value, Op] = {}
        self.start = start
        self.writers: list[Op] = []
        self.ends: list[int] = []  # of each one's writes
        self.last_store = -1

    def append(self, op: Op) -> None:
        self.order.append(op)
        self.producer.update((value, op) for value in op.results)

    def note_writes(self, op: Op, writes: Accesses) -> None:
        """Those that were added since."""
        before = self.ends[-1] if self.ends else self.start
        if len(writes) == before:
            return
        self.writers.append(op)
        self.ends.append(len(writes))
        stores = (k for k in range(len(writes) - 1, before - 1, -1) if isinstance(writes.ops[k], Store | Atomic))
        self.last_store = next(stores, self.last_store)

    def written_by(self, write: int) -> tuple[Op | None, int]:
        """The operation that has a write, and where those of the next begin; None for one before the block."""
        if write < self.start:
            return None, self.start
        k = bisect_right(self.ends, write)
        return self.writers[k], self.ends[k]


def _address(level: _Level, start: Op | None, load: Load) -> tuple[list[Op], Op | None]:
    """The operations behind `start` that the load's address depends on, in order, and behind what they can go: the last
    of them that must stay where it is."""
    place = level.order.place
    found: list[Op] = [load]
    seen: set[Op] = set()
    todo: list[tuple[int, Op]] = []

    def want(op: Op) -> None:
        for value in operands(op):
            producer = level.producer.get(value)
            if producer is not None and producer not in seen and place(producer) > place(start):
                seen.add(producer)
                heappush(todo, (-place(producer), producer))

    want(load)
    while todo:
        _, op = heappop(todo)
        if not is_pure(op):
            return found[::-1], op
        found.append(op)
        want(op)
    return found[::-1], start


class Order:
    """A list of operations in which some move: what comes before what is one comparison, moving one costs no scan.
    Linked, with a number for each place; None stands for the place before the first."""

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
