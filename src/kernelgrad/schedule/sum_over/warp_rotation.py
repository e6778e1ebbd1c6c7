"""Warp rotation: sums that go round the lanes, of the adjoints of elements that all lanes read in the same iteration.

    for (k = 0; k < 32; ++k) ... atomicAdd(&_d_s[k], v)

In iteration k all lanes add to one element. Here each lane starts elsewhere, lane l at iteration l, and the sums
travel: after every step each lane hands its sum to the lane before it, which is about to run the iteration that the sum
is of. After 32 steps the sum of iteration l is back in lane l, which adds it: one atomic for 32 iterations of 32 lanes,
and one shuffle for each iteration. Nothing is computed twice and nothing waits.

Short bodies are unrolled, all 32 steps of them. There lane l runs iteration l ^ step, and which lane has the sum next
is known: nothing is left of the work that finds out where to read.

The lanes must agree on the element, all of a warp must be there, and iterations must not mind their order: what the
loop carries are sums themselves. Rows shorter than a warp have rings of their own.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from ...analysis.access.banks import stay_together
from ...analysis.access.block_affine import BlockAffine
from ...analysis.aliases import Aliases
from ...analysis.block_interpreter.lanes import (
    Recomputed,
    Trips,
    Update,
    added,
    copy_block,
    from_counter,
    is_free_of_order,
    rewrite_loops,
    trips_of,
    updates,
)
from ...analysis.machine import WARP
from ...analysis.uniform import uniform_values
from ...autodiff.calculus.shadows import ZERO
from ...ir.builder import Builder
from ...ir.ops import Apply, Atomic, Block, For, Function, If, Module, Op, Value, Warp, While
from ...ir.traverse import uses, walk, with_body
from ...ir.types import I32, U32
from ...transforms.unroll import constants_of
from .exclusive_cells import BlockFacts

_SHORTEST = 4  # iterations: below, the ring's own work is more than what it saves
_MOST_UNROLLED = 4096  # operations: beyond, the code takes longer to fetch than to run
_ROW = frozenset((("thread_idx", 1), ("thread_idx", 2)))


def run(
    function: Function, width: int, module: Module | None = None, block: tuple[int, int, int] | None = None
) -> Function:
    """`width`: a power of two that rows of the block's threads are multiples of. `module`, `block`: with the variables
    that it uses, and the shape, where that is known."""
    if width < _SHORTEST:
        return function
    uniform = uniform_values(function)
    rings = _Rings(function, width, uniform)
    if module is not None and block is not None:
        rings.known = BlockFacts(module, block, width, rings.definition, rings.aliases, uniform)
    return with_body(function, rewrite_loops(function.body, uniform, rings.change))


def is_unrolled(function: Function) -> bool:
    """Whether steps of a ring are known when the code is compiled."""
    loops = (op for op in walk(function.body) if isinstance(op, For) and op.unroll == 0)
    return any(isinstance(op, Warp) for loop in loops for op in walk(loop.body))


class _Rings:
    def __init__(self, function: Function, width: int, uniform: set[Value]):
        self.width, self.uniform = width, uniform
        self.alike = uniform_values(function, _ROW)
        self.aliases = Aliases(function)
        self.definition = {v: op for op in walk(function.body) for v in op.results}
        self.constants = constants_of(function)
        self.known: BlockFacts | None = None

    def change(self, loop: For, behind: tuple[Op, ...], before: list[Op]) -> list[Op] | None:
        trips = trips_of(loop, self.constants)
        width = self.width if trips.number is None else min(self.width, _power_above(trips.number))
        chosen = [u for u in updates(loop) if self.is_shared_by_lanes(u, loop)]
        if not chosen or width < _SHORTEST or not is_free_of_order(loop, self.aliases):
            return None
        if not _carries_sums(loop) or not self.can_turn(loop, width):
            return None
        names = [u.sum_name(self.aliases) for u in chosen]
        ring = _Unrolled if self.can_unroll(loop, width) else _Ring
        plain = set[int]() if self.known is None else self.known.own(loop, chosen, trips, behind, before)
        return ring(loop, trips, width, self.width, chosen, names, from_counter(loop, self.definition), plain).ops()

    def can_unroll(self, loop: For, width: int) -> bool:
        inside = list(walk(loop.body))
        plain = not any(isinstance(op, For | While) for op in inside)
        return plain and len(inside) * width <= _MOST_UNROLLED and self.can_turn(loop, width, np.bitwise_xor)

    def is_shared_by_lanes(self, update: Update, loop: For) -> bool:
        """Whether the lanes add to one element, another one in every iteration."""
        sums = BlockAffine(self.definition, self.uniform, loop.body.args[0])
        address = sums.address(update.ptr)
        moves = address is None or address.slope(loop.body.args[0]) != 0
        return update.ptr in self.alike and moves and from_counter(loop, self.definition).is_possible(update.ptr)

    def can_turn(self, loop: For, width: int, turn: Any = np.add) -> bool:
        """Whether lanes that are in different iterations still read memory together."""
        return stay_together(loop, BlockAffine(self.definition, self.uniform, loop.body.args[0]), width, turn)


def _power_above(number: int) -> int:
    return 1 << max(0, number - 1).bit_length()


def _carries_sums(loop: For) -> bool:
    """Whether everything that the loop carries is only added to: then the order of its iterations does not matter."""
    used = uses(loop.body)
    definition = {v: op for op in walk(loop.body) for v in op.results}

    def ways(value: Value, arg: Value) -> int | None:
        """How often the sum that ends in a value uses the argument; None where it is no sum of it."""
        if value is arg:
            return 1
        if used.get(value) != 1:
            return None
        match definition.get(value):
            case Apply("add", (left, right)):
                found = [w for w in (ways(left, arg), ways(right, arg)) if w is not None]
                return found[0] if len(found) == 1 else None
            case Apply("sub", (left, _)):
                return ways(left, arg)
            case If() as op:
                at = op.results.index(value)
                one, other = ways(op.then.results[at], arg), ways(op.orelse.results[at], arg)
                return None if one is None or other is None else one + other
        return None

    return all(
        following is arg or ways(following, arg) == used.get(arg)
        for arg, following in zip(loop.body.args[1:], loop.body.results, strict=True)
    )


class _Ring:
    """Emits one loop. `width`: lanes of a ring; `row`: lanes that agree on the elements, those of several rings.
    `plain`: updates whose cells belong to the lane that adds."""

    def __init__(
        self,
        loop: For,
        trips: Trips,
        width: int,
        row: int,
        chosen: list[Update],
        names: list[str],
        recomputed: Recomputed,
        plain: set[int],
    ):
        self.loop, self.trips, self.width, self.row, self.plain = loop, trips, width, row, plain
        self.chosen, self.names, self.recomputed = chosen, names, recomputed
        self.b = Builder(loop.span)
        self.whole = trips.number is not None and trips.number % width == 0

    def ops(self) -> list[Op]:
        b, trips = self.b, self.trips
        count = trips.count(b)
        thread = b.apply("and", b.builtin("thread_idx", 0), b.constant(self.width - 1, U32))
        lane, following = b.convert(thread, trips.type), b.convert(b.apply("add", thread, b.constant(1, U32)), I32)
        first = Value(trips.type, "~first")
        carried = tuple(Value(v.type, v.name) for v in self.loop.body.args[1:])
        with b.region() as chunk:
            sums = [b.alloca(u.value.type, name) for u, name in zip(self.chosen, self.names, strict=True)]
            for u, total in zip(self.chosen, sums, strict=True):
                b.store(total, b.constant(ZERO, u.value.type))
            results = self.steps(first, lane, following, count, carried, sums)
            self.add(b.apply("add", first, lane), count, sums)
        block = chunk.block((first, *carried), results)
        zero = b.constant(0, trips.type)
        b.add(For(zero, count, self.loop.inits, self.width, block, results=self.loop.results, span=self.loop.span))
        return b.ops

    def steps(
        self, first: Value, lane: Value, following: Value, count: Value, carried: tuple[Value, ...], sums: list[Value]
    ) -> tuple[Value, ...]:
        """As many iterations as there are lanes in the ring, each lane from its own on."""
        b, type = self.b, self.trips.type
        step, inner = Value(type, "~step"), tuple(Value(v.type, v.name) for v in carried)
        with b.region() as body:
            iteration = b.apply("add", first, self.turned(step, lane))
            with b.region() as work:
                results = self.iteration(iteration, inner, dict(zip(map(_key, self.chosen), sums, strict=True)))
            if self.whole:
                b.ops += work.ops
            else:
                runs, idle = b.apply("lt", iteration, count), Block((), (), inner)
                results = b.if_(runs, work.block((), results), idle)
            for total in sums:
                b.store(total, self.handed_on(b.load(total), step, following))
        last = b.constant(self.width, type)
        return b.for_(b.constant(0, type), last, carried, 1, body.block((step, *inner), results), self.unroll)

    unroll: int | None = None

    def turned(self, step: Value, lane: Value) -> Value:
        """Which iteration a lane runs, of as many as there are lanes."""
        return self.b.apply("and", self.b.apply("add", step, lane), self.b.constant(self.width - 1, step.type))

    def handed_on(self, total: Value, step: Value, following: Value) -> Value:
        """The sum of the lane that has run the iteration before this lane's next."""
        b = self.b
        args = (b.constant(2**WARP - 1, U32), total, following, b.constant(self.width, I32))
        return b.emit(Warp, "shfl_idx", args, type=total.type)

    def iteration(self, number: Value, carried: tuple[Value, ...], sums: dict[int, Value]) -> tuple[Value, ...]:
        counter = self.trips.counter(self.b, number)
        mapping = dict(zip(self.loop.body.args, (counter, *carried), strict=True))
        guards = {id(u.guarded): u for u in self.chosen if u.guarded is not None}
        copied = copy_block(self.loop.body, mapping, partial(_summed, guards, sums, mapping))
        self.b.ops += copied.ops
        return copied.results

    def add(self, iteration: Value, count: Value, sums: list[Value]) -> None:
        """Each lane adds the sum of one iteration; of several rings, the first does it for all."""
        b = self.b
        totals = [self.over_rings(b.load(total)) for total in sums]
        with b.region() as work:
            mapping = {self.loop.body.args[0]: self.trips.counter(b, iteration)}
            for u, total in zip(self.chosen, totals, strict=True):
                ptr = self.recomputed.emit(b, u.ptr, mapping)
                if _key(u) in self.plain:
                    b.store(ptr, b.apply("add", b.load(ptr), total))
                else:
                    add_atomically(b, u.atomic, ptr, total)
        wanted = [] if self.whole else [b.apply("lt", iteration, count)]
        if self.width < self.row:
            place = b.apply("and", b.builtin("thread_idx", 0), b.constant(self.row - 1, U32))
            wanted.append(b.apply("lt", place, b.constant(self.width, U32)))
        if not wanted:
            b.ops += work.ops
        else:
            b.if_(wanted[0] if len(wanted) == 1 else b.apply("and", *wanted), work.block())

    def over_rings(self, total: Value) -> Value:
        b, distance = self.b, self.width
        while distance < self.row:
            args = (b.constant(2**WARP - 1, U32), total, b.constant(distance, I32), b.constant(WARP, I32))
            total = b.apply("add", total, b.emit(Warp, "shfl_xor", args, type=total.type))
            distance *= 2
        return total


class _Unrolled(_Ring):
    """Steps that are known when the code is compiled."""

    unroll = 0

    def turned(self, step: Value, lane: Value) -> Value:
        return self.b.apply("xor", step, lane)

    def handed_on(self, total: Value, step: Value, following: Value) -> Value:
        b = self.b
        change = b.apply("xor", step, b.apply("add", step, b.constant(1, step.type)))
        mask = b.convert(b.apply("and", change, b.constant(self.width - 1, step.type)), I32)
        args = (b.constant(2**WARP - 1, U32), total, mask, b.constant(self.width, I32))
        return b.emit(Warp, "shfl_xor", args, type=total.type)


def add_atomically(b: Builder, atomic: Atomic, ptr: Value, value: Value) -> None:
    """Unless there is nothing to add."""
    some = b.apply("ne", value, b.constant(0.0, value.type))
    made = replace(atomic, ptr=ptr, args=(value,), together=False, results=(Value(value.type),))
    b.add(If(some, Block((), (made,), ()), Block((), (), ()), span=b.span))


def _key(update: Update) -> int:
    return id(update.atomic)


def _summed(
    guards: dict[int, Update], sums: dict[int, Value], mapping: dict[Value, Value], op: Op, copy: Op
) -> list[Op]:
    """The copy of an operation, or for a chosen update the addition to its sum."""
    update = guards.get(id(op))
    if update is not None:
        value, total = mapping.get(update.value, update.value), sums[_key(update)]
    elif id(op) in sums:
        assert isinstance(copy, Atomic)
        value, total = copy.args[0], sums[id(op)]
    else:
        return [copy]
    return added(total, value, op)
