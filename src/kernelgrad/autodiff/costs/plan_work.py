"""Estimates of what a gradient's kernel will do, by its plan: before any of its code is emitted.

The forward sweep runs the kernel's operations, the reverse runs some of them again (`executed`) and then the adjoint of
each: updates of shadow memory as they are to be added, and the partials of functions. In the units of `work`.
"""

from __future__ import annotations

from collections import Counter as Multiset
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from ...analysis.access.affine import Shape
from ...analysis.access.executions import Executions
from ...analysis.block_interpreter.threads import Numbers, Threads
from ...analysis.machine import WARP
from ...analysis.trip_counts import Amount, Trips
from ...deep import deeply
from ...ir.builder import Builder
from ...ir.ops import Apply, Atomic, Barrier, BarrierReduce, Block, For, If, Load, Op, Store, Value, Warp, While
from ...ir.types import Scalar
from ..calculus.rules import rule_for, scaled
from ..calculus.tape import leaf_types
from ..prepare.prepared import Prepared
from .executed import Executed
from .traffic import ATOMIC, READ, TAPE, WRITTEN, Counter, Sample, Traffic, plus
from .work import OPERATIONS, Work, rough_work, weight_of

_CHOICES = ("select", "min", "max", "fmin", "fmax")
_ACCESS, _TOGETHER = 4, 16  # operations, as in `work`


def planned_work(prepared: Prepared, shape: Shape | None, known: Callable[[Any], Any]) -> Work:
    """Of a launch of one kernel, or of a thread of one that is not known. `known`: the number that a parameter is."""
    return rough_work(planned_traffic(prepared, shape, known), shape)


@deeply
def planned_traffic(
    prepared: Prepared, shape: Shape | None, known: Callable[[Any], Any], merging: bool = False
) -> Traffic:
    """The same of a thread, with its bytes by what is done to them. `merging`: lanes of a warp that add to the same
    element do so once."""
    counter = _PlanCounter(prepared)
    if merging and shape is not None:
        counter.sums = Executions(counter.structure, shape, known)
    sample = Sample(shape, counter.structure, known)
    found = counter.block(prepared.function.body, np.ones(sample.count), sample)
    return plus(found, _numbers(prepared))


def _numbers(prepared: Prepared) -> Traffic:
    """The adjoints of numbers, which a block adds up at its end."""
    values = [p.value for p in prepared.function.params if p.name in prepared.options.listed]
    sizes = [v.type.size for v in values if v in prepared.activity]
    return {WRITTEN: Amount.of(sum(sizes)), OPERATIONS: Amount.of((_TOGETHER + _ACCESS) * len(sizes))}


class _PlanCounter(Counter):
    def __init__(self, prepared: Prepared):
        self.prepared, self.plan, self.tape = prepared, prepared.plan, set()
        self.structure, self.memory, self.activity = prepared.structure, prepared.memory, prepared.activity
        self.trips = Trips(prepared.function, prepared.structure)
        self.executed = Executed(prepared)
        self.sums: Executions | None = None  # where lanes that add to the same element count once
        self.uses: Multiset[Value] = Multiset()
        for op in self.structure.definition.values():
            if isinstance(op, Apply) and self.plan.has_adjoint(op):
                self.uses.update(arg for arg in op.args if arg in self.activity)

    def block(self, block: Block, weight: Numbers, threads: Threads) -> Traffic:
        found = super().block(block, weight, threads)
        sizes = [t.size for value in self.plan.taped.get(id(block), {}) for t in leaf_types(value.type)]
        often = 2 * float(weight.mean())
        kept = {TAPE: Amount.of(often * sum(sizes)), OPERATIONS: Amount.of(often * _ACCESS * len(sizes))}
        return plus(found, kept) if sizes else found

    def op(self, op: Op, weight: Numbers, threads: Threads) -> Traffic:
        if isinstance(op, If | For | While):
            return super().op(op, weight, threads)
        times = (id(op) in self.executed.forward and id(op) not in self.plan.silent) + self.executed.again[id(op)]
        found: Traffic = {}
        if times:
            found = plus(super().op(op, weight * times, threads), _operations(weight, times * _cost(op)))
        return plus(found, self.adjoint(op, weight)) if self.plan.has_adjoint(op) else found

    # ---- adjoints

    def adjoint(self, op: Op, weight: Numbers) -> Traffic:
        match op:
            case Load():
                return self.update(op, weight)
            case Store():
                return self.taken(op, weight)
            case Atomic():
                return self.touched(op.ptr, op.args[0].type.size, weight, READ)
            case Barrier() | BarrierReduce() | Warp():
                return _operations(weight, _cost(op))
            case Apply():
                return _operations(weight, self.chain(op))
        return {}

    def update(self, op: Load, weight: Numbers) -> Traffic:
        how, size = self.prepared.accumulation, op.result.type.size
        if id(op) in how.gathered:
            return {}
        if how.is_logged(op) or id(op) in how.deferred:
            return plus(self.touched(op.ptr, size, weight, WRITTEN), self.touched(op.ptr, 8, weight, WRITTEN))
        if how.is_atomic(op):
            return self.touched(op.ptr, 2 * size, weight / WARP if self.is_merged(op) else weight, ATOMIC)
        if id(op) in how.writes:
            return self.touched(op.ptr, size, weight, WRITTEN)
        return self.touched(op.ptr, size, weight, READ, WRITTEN)

    def is_merged(self, op: Load) -> bool:
        if self.sums is None or id(op) not in self.prepared.accumulation.together:
            return False
        return all(self.sums.address(op.ptr, root) is not None for root in self.memory.of(op.ptr))

    def taken(self, op: Store, weight: Numbers) -> Traffic:
        """The adjoint of what was stored, which is then zero."""
        size, found = op.value.type.size, {}
        kept = self.memory.of(op.ptr) & self.prepared.kept
        if op.value in self.activity:
            found = self.touched(op.ptr, size, weight, READ)
        return found if kept else plus(found, self.touched(op.ptr, size, weight, WRITTEN))

    def touched(self, ptr: Value, size: int, weight: Numbers, *kinds: str) -> Traffic:
        found: Traffic = {}
        for kind in kinds:
            cost = _TOGETHER if kind == ATOMIC else _ACCESS
            found = plus(found, plus(self.access(ptr, kind, size, weight), _operations(weight, cost)))
        return found

    def chain(self, op: Apply) -> float:
        """The products with partials, and the sums of what a value gets from several."""
        active = [k for k, arg in enumerate(op.args) if arg in self.activity]
        sums = sum(1 - 1 / self.uses[op.args[k]] for k in active)
        if op.fn in _CHOICES or op.fn == "convert":
            return sums + len(active)
        types = tuple(arg.type for arg in op.args)
        return sums + sum(_partial(op.fn, k, types, op.result.type) for k in active)


def _cost(op: Op) -> int:
    """Barriers count nothing: most of them stand in trees, of which finished code has next to none."""
    return 0 if isinstance(op, Barrier) else weight_of(op)


def _operations(weight: Numbers, number: float) -> Traffic:
    return {OPERATIONS: Amount.of(float(weight.mean()) * number)} if number else {}


@lru_cache(1024)
def _partial(fn: str, k: int, types: tuple[Any, ...], type: Any) -> int:
    """What it takes to multiply an adjoint by a partial."""
    rule = rule_for(fn)
    if rule is None or not isinstance(type, Scalar) or rule.is_zero(k):
        return 0
    b = Builder()
    scaled(b, Value(type), rule, k, Value(type), tuple(Value(t) for t in types), False)
    return sum(map(weight_of, b.ops))
