"""Cells of shared memory that one thread has for itself between two barriers (rule 17).

The block is played through for one launch, with the integers of all its threads (`coverage.Threads`): phase by phase,
who touches which cell, stores included. A load none of whose cells another thread touches in the same phase has a plain
update of the shadow. What cannot be played, because it depends on memory or on the block, counts as touching anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from ..ir.ops import Atomic, Barrier, BarrierReduce, Block, For, Function, If, Load, Op, Store, Value, While
from ..ir.traverse import blocks, walk
from ..ir.types import Pointer
from ..transforms.predicate import has_barrier
from .coverage import Numbers, Threads
from .roots import Memory

Place = tuple[str, str]  # a variable, and where in the source it is read or stored
_LONGEST = {True: 12, False: 128}  # iterations that are played one by one, of loops with barriers and without
_MOST_STEPS = 20_000


@dataclass
class _Phase:
    """What happened to each variable since the last barrier."""

    touched: dict[Value, list[tuple[Op, Numbers | None, Numbers]]] = field(default_factory=dict)

    def copy(self) -> _Phase:
        return _Phase({root: list(found) for root, found in self.touched.items()})

    def add(self, other: _Phase) -> None:
        for root, found in other.touched.items():
            self.touched.setdefault(root, []).extend(found)


class _TooLong(Exception):
    """Playing the block takes too long."""


def exclusive_loads(function: Function, memory: Memory, active: frozenset[Value], threads: Threads) -> frozenset[Place]:
    """The reads of shared variables whose update may be plain."""
    names = {root: name for name, root in memory.global_names.items() if root in active and is_shared(root)}
    reads = {op: root for op in memory.loads for root in memory.of(op.ptr) if root in names}
    if not reads:
        return frozenset()
    play = _Play(memory, set(names))
    try:
        play.block(function.body, np.ones(threads.count, bool), threads)
    except _TooLong:
        return frozenset()
    play.meet()
    contended = {place_of(op, names[root]) for op, root in reads.items() if op in play.contended}
    return frozenset(place_of(op, names[root]) for op, root in reads.items()) - contended


def crowded_stores(
    function: Function, memory: Memory, active: frozenset[Value], threads: Threads
) -> frozenset[Op] | None:
    """The stores by which several threads may write the same cell of shared memory; None if that is not known."""
    roots = {root for root in memory.global_names.values() if root in active and is_shared(root)}
    play = _Play(memory, roots)
    try:
        play.block(function.body, np.ones(threads.count, bool), threads)
    except _TooLong:
        return None
    play.meet()
    return frozenset(play.crowded)


def place_of(op: Op, name: str) -> Place:
    return name, str(op.span)


def is_shared(root: Value) -> bool:
    return isinstance(root.type, Pointer) and root.type.space == "shared"


class _Play:
    def __init__(self, memory: Memory, roots: set[Value]):
        self.memory, self.roots = memory, roots
        self.phase = _Phase()
        self.contended: set[Op] = set()
        self.crowded: set[Op] = set()
        self.steps = 0

    def block(self, block: Block, mask: Numbers, threads: Threads) -> None:
        if not mask.any():  # nobody is here: no barrier is met either
            return
        for op in block.ops:
            match op:
                case Load() | Store() | Atomic():
                    self.touch(op, mask, threads)
                case Barrier("block") | BarrierReduce():
                    self.meet()
                case If():
                    self.if_(op, mask, threads)
                case For() | While() if self.matters(op):
                    self.loop(op, mask, threads)

    def if_(self, op: If, mask: Numbers, threads: Threads) -> None:
        chosen = threads.value(op.cond)
        sides = ((op.then, chosen), (op.orelse, None if chosen is None else ~chosen))
        ways = [partial(self.block, side, mask if here is None else mask & here, threads) for side, here in sides]
        if chosen is None and has_barrier(op):
            self.either(*ways)
        else:
            for way in ways:
                way()

    def either(self, *ways: Callable[[], None]) -> None:
        """One of these happens, and only the barriers of that one part the phases: afterwards, either may have been."""
        before, after = self.phase, _Phase()
        for way in ways:
            self.phase = before.copy()
            way()
            after.add(self.phase)
        self.phase = after

    def matters(self, loop: For | While) -> bool:
        return has_barrier(loop) or any(
            isinstance(op, Load | Store | Atomic) and self.memory.of(op.ptr) & self.roots
            for inner in blocks(loop)
            for op in walk(inner)
        )

    def loop(self, loop: For | While, mask: Numbers, threads: Threads) -> None:
        meets = has_barrier(loop)
        for iteration in threads.iterations(loop, mask, _LONGEST[meets]):
            once = partial(self.block, loop.body, iteration.mask, iteration.threads)
            if iteration.sure or not meets:
                once()
            else:  # never, or more than once: the end of one iteration meets the beginning of the next
                self.either(lambda: None, once)
                self.either(lambda: None, once)

    def touch(self, op: Load | Store | Atomic, mask: Numbers, threads: Threads) -> None:
        self.steps += 1
        if self.steps > _MOST_STEPS:
            raise _TooLong
        found = self.memory.of(op.ptr) & self.roots
        for root in found:
            known = len(self.memory.of(op.ptr)) == 1 and mask.any()
            address = threads.address(op.ptr) if known else None
            if mask.any():
                if address is None or len(np.unique(address[mask])) < mask.sum():
                    self.crowded.add(op)
                self.phase.touched.setdefault(root, []).append((op, address, mask))

    def meet(self) -> None:
        for touched in self.phase.touched.values():
            self.judge(touched)
            self.crowd([(op, at, mask) for op, at, mask in touched if isinstance(op, Store) and at is not None])
        self.phase = _Phase()

    def crowd(self, stores: list[tuple[Op, Numbers, Numbers]]) -> None:
        """Of stores to one variable: those by which a thread writes what another writes, in whatever iteration."""
        if stores:
            owners = np.concatenate([np.flatnonzero(mask) for _, _, mask in stores])
            crowded = _crowded(np.concatenate([at[mask] for _, at, mask in stores]), owners)
            self.crowded.update(op for op, at, mask in stores if np.isin(at[mask], crowded).any())

    def judge(self, touched: list[tuple[Op, Numbers | None, Numbers]]) -> None:
        sizes = {_size(op) for op, _, _ in touched}
        alike = len(sizes) == 1 and all(a is not None and not (a % min(sizes)).any() for _, a, _ in touched)
        if not alike:
            self.contended.update(op for op, _, _ in touched)
            return
        cells = np.concatenate([address[mask] for _, address, mask in touched if address is not None])
        owners = np.concatenate([np.flatnonzero(mask) for _, _, mask in touched])
        crowded = _crowded(cells, owners)
        for op, address, mask in touched:
            if address is not None and np.isin(address[mask], crowded).any():
                self.contended.add(op)


def _crowded(cells: Numbers, owners: Numbers) -> Numbers:
    """The cells that more than one thread touches."""
    order = np.argsort(cells, kind="stable")
    cells, owners = cells[order], owners[order]
    starts = np.flatnonzero(np.r_[True, cells[1:] != cells[:-1]]) if len(cells) else np.zeros(0, int)
    if not len(starts):
        return cells
    several = np.minimum.reduceat(owners, starts) != np.maximum.reduceat(owners, starts)
    return cells[starts[several]]


def _size(op: Op) -> int:
    match op:
        case Load():
            return op.result.type.size
        case Store(_, value) | Atomic(_, _, (value, *_)):
            return value.type.size
    return 0


def is_exclusive(op: Load | Store, names: Iterable[str], places: frozenset[Place]) -> bool:
    return all(place_of(op, name) in places for name in names)
