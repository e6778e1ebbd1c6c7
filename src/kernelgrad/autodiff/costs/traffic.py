"""Estimates of the bytes that a thread moves to and from global memory, counted from the code.

Without a launch the counts are formulas of loop lengths. With one, some of its threads are played through with their
integers: guards and loop lengths are known then, but for what depends on memory. An atomic update counts as a read and
a write, as `+=` does. Where it is not known which branch is taken, the larger one counts.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...analysis import roots as memory_analysis
from ...analysis import structure as structure_analysis
from ...analysis.access.affine import Known, Shape
from ...analysis.block_interpreter.threads import Numbers, Threads
from ...analysis.structure import Place, Structure
from ...analysis.trip_counts import Amount, Trips
from ...ir.ops import Atomic, Block, Builtin, For, Function, If, Load, Op, Store, Value, While
from ...ir.types import Pointer
from ...transforms.masks import is_second_run
from ..calculus.tape import leaf_types
from ..saving.plan import Plan

READ, WRITTEN, ATOMIC, TAPE = KINDS = ("read", "written", "atomic", "tape")
Traffic = dict[str, Amount]
_SAMPLES = 512  # threads that are played
_GOLDEN = 0.6180339887498949  # whose multiples, modulo 1, are spread evenly
_LONGEST = 4096  # iterations of a loop that are played


def traffic(
    function: Function, tape: set[str], shape: Shape | None, scalars: dict[str, Any], unknown: dict[str, str]
) -> Traffic:
    """Bytes per thread, by kind. `tape`: the parameters that lead to it. `function`: with rotated loops. `unknown`: is
    filled with the names of loops whose length is not known."""
    counter = Counter(function, tape, unknown)
    values = {p.value: scalars[p.name] for p in function.params if p.name in scalars}
    threads = Sample(shape, counter.structure, values.get)
    return counter.block(function.body, np.ones(threads.count), threads)


def tape_per_thread(plan: Plan, function: Function, unknown: dict[str, str]) -> Amount:
    """The tape's bytes: what each run of a block keeps, as often as the loops around it run until it is used."""
    trips, total = Trips(function, plan.structure), Amount()
    trips.unknown = unknown
    for key, frame in plan.taped.items():
        kept = sum(type.size for value in frame for type in leaf_types(value.type))
        total += Amount.of(kept) * _frames(plan.structure.places[key], plan, trips)
    return total


def _frames(place: Place | None, plan: Plan, trips: Trips) -> Amount:
    times = Amount.of(1)
    while place is not None:
        if isinstance(place.owner, For | While):
            times *= trips.of(place.owner)
            if id(place.owner) in plan.rerun:
                return times
        place = place.parent
    return times


class Sample(Threads):
    """Some threads of the grid; without a launch, one of which nothing is known."""

    def __init__(
        self, shape: Shape | None, structure: Structure, known: Known, given: dict[Value, Numbers | None] | None = None
    ):
        super().__init__((1, 1, 1), structure, known, given)
        self.launched = shape
        if shape is None:
            return
        per_block, blocks = math.prod(shape.block), math.prod(shape.grid)
        count = min(_SAMPLES, per_block * blocks)
        # Not at equal distances: along rows whose length divides them, all would be at the same place.
        within = np.arange(count) * _GOLDEN % 1.0
        linear = ((np.arange(count) + within) * (per_block * blocks / count)).astype(np.int64)
        self.block, self.count = shape.block, count
        self.indices = _axes(linear % per_block, shape.block)
        self.blocks = _axes(linear // per_block, shape.grid)

    def _evaluate(self, value: Value) -> Numbers | None:
        op = self.structure.definition.get(value)
        match op:
            case Builtin() if self.launched is None:
                return None
            case Builtin("block_idx", axis):
                return self.blocks[axis]
            case Builtin("grid_dim", axis) if self.launched is not None:
                return self._constant(self.launched.grid[axis])
        return super()._evaluate(value)

    def _with(self, given: dict[Value, Numbers | None]) -> Sample:
        return Sample(self.launched, self.structure, self.known, given)


def _axes(linear: Numbers, extents: tuple[int, int, int]) -> tuple[Numbers, Numbers, Numbers]:
    width, height, _ = extents
    return linear % width, linear // width % height, linear // (width * height)


class Counter:
    def __init__(self, function: Function, tape: set[str], unknown: dict[str, str]):
        self.structure = structure_analysis.analyse(function, apart=False)
        self.memory = memory_analysis.analyse(function)
        self.trips = Trips(function, self.structure)
        self.trips.unknown = unknown
        self.tape = {p.value for p in function.params if p.name in tape}

    def block(self, block: Block, weight: Numbers, threads: Threads) -> Traffic:
        """`weight`: how often each thread is here."""
        total: Traffic = {}
        for op in block.ops:
            total = plus(total, self.op(op, weight, threads))
        return total

    def op(self, op: Op, weight: Numbers, threads: Threads) -> Traffic:
        match op:
            case Load():
                return self.access(op.ptr, READ, op.result.type.size, weight)
            case Store():
                return self.access(op.ptr, WRITTEN, op.value.type.size, weight)
            case Atomic():
                return self.access(op.ptr, ATOMIC, 2 * op.args[0].type.size, weight)
            case If():
                return self.branches(op, weight, threads)
            case For():
                return self.counted(op, weight, threads)
            case While():
                return self.open(op, weight, threads)
        return {}

    def access(self, ptr: Value, kind: str, size: int, weight: Numbers) -> Traffic:
        roots = self.memory.of(ptr)
        if roots and all(isinstance(r.type, Pointer) and r.type.space in _NEAR for r in roots):
            return {}
        return {TAPE if roots <= self.tape else kind: Amount.of(float(weight.mean()) * size)}

    def branches(self, op: If, weight: Numbers, threads: Threads) -> Traffic:
        if is_second_run(op, self.structure.definition):
            return {}
        chosen = threads.value(op.cond)
        if chosen is not None:
            return plus(self.block(op.then, weight * chosen, threads), self.block(op.orelse, weight * ~chosen, threads))
        return max((self.block(side, weight, threads) for side in (op.then, op.orelse)), key=_rough)

    def counted(self, loop: For, weight: Numbers, threads: Threads) -> Traffic:
        lower, upper = threads.value(loop.lower), threads.value(loop.upper)
        given: dict[Value, Numbers | None] = {**threads.given, **dict.fromkeys(loop.body.args)}
        if lower is None or upper is None:
            return self.repeated(loop, weight, threads, given)
        trips = np.maximum(0, -((lower - upper) // loop.step))
        given[loop.body.args[0]] = lower + loop.step * (np.maximum(trips - 1, 0) // 2)  # the one in the middle
        return self.block(loop.body, weight * trips, threads._with(given))

    def open(self, loop: While, weight: Numbers, threads: Threads) -> Traffic:
        given: dict[Value, Numbers | None] = {**threads.given, **dict.fromkeys(loop.body.args)}
        played = _played(loop, weight, threads)
        if played is None:
            return self.repeated(loop, weight, threads, given)
        trips, last = played
        threads.given.update(zip(loop.results, last, strict=True))
        return self.block(loop.body, weight * trips, threads._with(given))

    def repeated(
        self, loop: For | While, weight: Numbers, threads: Threads, given: dict[Value, Numbers | None]
    ) -> Traffic:
        once = self.block(loop.body, weight, threads._with(given))
        return {kind: amount * self.trips.of(loop) for kind, amount in once.items()}


_NEAR = ("local", "shared", "constant")


def _played(loop: While, weight: Numbers, threads: Threads) -> tuple[Numbers, list[Numbers | None]] | None:
    """How often each thread goes round, and what the loop carries at the end; None where memory has a say."""
    state = [threads.value(v) for v in loop.inits]
    trips, running = np.zeros(len(weight), np.int64), weight > 0
    for _ in range(_LONGEST):
        if state[0] is None:
            return None
        running = running & state[0]
        if not running.any():
            return trips, state
        trips = trips + running
        inner = threads._with({**threads.given, **dict(zip(loop.body.args, state, strict=True))})
        following = [inner.value(v) for v in loop.body.results]
        state = [_chosen(running, new, old) for new, old in zip(following, state, strict=True)]
    return None


def _chosen(running: Numbers, new: Numbers | None, old: Numbers | None) -> Numbers | None:
    return None if new is None or old is None else np.where(running, new, old)


def plus(one: Traffic, other: Traffic) -> Traffic:
    return {kind: one.get(kind, Amount()) + other.get(kind, Amount()) for kind in (*one, *other)}


def _rough(found: Traffic) -> float:
    return sum(amount.rough for amount in found.values())
