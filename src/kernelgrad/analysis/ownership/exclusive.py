"""Cells of shared memory that one thread has for itself between two barriers (rule 17).

The block is played through for one launch, with the integers of all its threads (`Threads`): phase by phase,
who touches which cell, stores included. A load none of whose cells another thread touches in the same phase has a plain
update of the shadow. What cannot be played, because it depends on memory or on the block, counts as touching anything.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np

from ...ir.effects import has_barrier
from ...ir.ops import Atomic, Barrier, BarrierReduce, Block, For, Function, If, Load, Op, Store, Value, While
from ...ir.traverse import blocks, walk
from ..roots import Memory, Place, is_shared, place_of

if TYPE_CHECKING:
    from ..block_interpreter.threads import Numbers, Threads

_LONGEST = {True: 12, False: 128}  # iterations that are played one by one, of loops with barriers and without
_MOST_STEPS = 20_000


@dataclass
class _Phase:
    """What happened to each variable since the last barrier."""

    touched: dict[Value, list[tuple[Op, Numbers | None, Numbers]]] = field(default_factory=dict)

    def copy(self) -> _Phase:
        return _Phase({root: list(found) for root, found in self.touched.items()})

    def add(self, other: _Phase) -> None:
        """What is in both, from before they parted, is there once."""
        for root, found in other.touched.items():
            own = self.touched.setdefault(root, [])
            there = set(map(id, own))
            own.extend(one for one in found if id(one) not in there)


class _TooLong(Exception):
    """Playing the block takes too long."""


def exclusive_loads(function: Function, memory: Memory, active: frozenset[Value], threads: Threads) -> frozenset[Place]:
    """The reads of shared variables whose update may be plain."""
    names = {root: name for name, root in memory.global_names.items() if root in active and is_shared(root)}
    reads = {op: root for op in memory.loads for root in memory.of(op.ptr) if root in names}
    if not reads:
        return frozenset()
    play = _played(function, memory, active, threads)
    if play is None:
        return frozenset()
    contended = {place_of(op, names[root]) for op, root in reads.items() if op in play.contended}
    return frozenset(place_of(op, names[root]) for op, root in reads.items()) - contended


def conflicting_stores(
    function: Function, memory: Memory, active: frozenset[Value], threads: Threads
) -> frozenset[Op] | None:
    """The stores by which several threads may write the same cell of shared memory; None if that is not known."""
    play = _played(function, memory, active, threads)
    return None if play is None else frozenset(play.conflicting)


# The last that the same threads played: loads and stores are asked for one after the other.
_last: WeakKeyDictionary[Threads, tuple[Function, frozenset[Value], _Play | None]] = WeakKeyDictionary()


def _played(function: Function, memory: Memory, active: frozenset[Value], threads: Threads) -> _Play | None:
    """The block played through; None if that takes too long."""
    known = _last.get(threads)
    if known is None or known[0] is not function or known[1] != active:
        roots = {root for root in memory.global_names.values() if root in active and is_shared(root)}
        known = _last[threads] = function, active, _play(function, _Play(memory, roots), threads)
    return known[2]


def _play(function: Function, play: _Play, threads: Threads) -> _Play | None:
    try:
        play.block(function.body, np.ones(threads.count, bool), threads)
    except _TooLong:
        return None
    play.meet()
    return play


class _Play:
    def __init__(self, memory: Memory, roots: set[Value]):
        self.memory, self.roots = memory, roots
        self.phase = _Phase()
        self.contended: set[Op] = set()
        self.conflicting: set[Op] = set()
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
                if op not in self.conflicting and (address is None or _has_twice(address[mask])):
                    self.conflicting.add(op)
                self.phase.touched.setdefault(root, []).append((op, address, mask))

    def meet(self) -> None:
        for touched in self.phase.touched.values():
            self.judge(touched)
            self.note_conflicts(
                [(op, at, mask) for op, at, mask in touched if isinstance(op, Store) and at is not None]
            )
        self.phase = _Phase()

    def note_conflicts(self, stores: list[tuple[Op, Numbers, Numbers]]) -> None:
        """Of stores to one variable: those by which a thread writes what another writes, in whatever iteration."""
        if not all(op in self.conflicting for op, _, _ in stores):
            self.conflicting.update(_conflicting(stores))

    def judge(self, touched: list[tuple[Op, Numbers | None, Numbers]]) -> None:
        if all(op in self.contended for op, _, _ in touched):
            return
        sizes = {_size(op) for op, _, _ in touched}
        known = [(op, address, mask) for op, address, mask in touched if address is not None]
        alike = len(sizes) == 1 and len(known) == len(touched) and not any((a % min(sizes)).any() for _, a, _ in known)
        self.contended.update(_conflicting(known) if alike else (op for op, _, _ in touched))


def _has_twice(cells: Numbers) -> bool:
    ordered = np.sort(cells)
    return bool((ordered[1:] == ordered[:-1]).any())


def _conflicting(touched: list[tuple[Op, Numbers, Numbers]]) -> set[Op]:
    """Those that touch a cell which more than one thread touches."""
    cells = np.concatenate([address[mask] for _, address, mask in touched])
    owners = np.concatenate([np.flatnonzero(mask) for _, _, mask in touched])
    order = np.argsort(cells, kind="stable")
    sorted_cells, sorted_owners = cells[order], owners[order]
    starts = np.flatnonzero(np.r_[True, sorted_cells[1:] != sorted_cells[:-1]])
    several = np.minimum.reduceat(sorted_owners, starts) != np.maximum.reduceat(sorted_owners, starts)
    if not several.any():
        return set()
    conflicts = np.empty(len(cells), bool)
    conflicts[order] = np.repeat(several, np.diff(np.r_[starts, len(cells)]))
    ends = np.cumsum([np.count_nonzero(mask) for _, _, mask in touched])
    parts = np.split(conflicts, ends[:-1])
    return {op for (op, _, _), part in zip(touched, parts, strict=True) if part.any()}


def _size(op: Op) -> int:
    match op:
        case Load():
            return op.result.type.size
        case Store(_, value) | Atomic(_, _, (value, *_)):
            return value.type.size
    return 0
