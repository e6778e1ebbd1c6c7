"""What the code of a launch does, counted: by it a plan is judged without a device.

Counted as `costs/traffic` counts bytes, in the code that the backend gets: of threads that are played through.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..analysis.access.affine import Basis, Part, Shape, Sums
from ..analysis.access.executions import executions
from ..analysis.block_interpreter.threads import Numbers, Threads
from ..analysis.machine import WARP
from ..analysis.trip_counts import Amount
from ..autodiff.costs.traffic import ATOMIC, KINDS, TAPE, Counter, Sample, Traffic
from ..backends.cuda.neighbours import ROWS, neighbours
from ..ir.ops import Atomic, Barrier, BarrierReduce, Block, Function, If, Op, Warp
from ..ir.traverse import walk
from ..ir.types import Pointer
from ..launches.memory.buffers import Value as Given
from ..launches.memory.tape_memory import tape_total
from ..transforms import rotate

if TYPE_CHECKING:
    from ..derivatives.gradient import Planned

_ADDS, _BARRIERS, _LANES, _SHARED = "atomics", "barriers", "shuffles", "shared"


@dataclass(frozen=True)
class Counts:
    """Of all launches together: `atomics` to global memory and what `warps` exchange, by all threads; `barriers` that a
    thread meets; `moved`: bytes to and from global memory; `tape`: its bytes; `shared`: atomics to shared memory. Loops
    whose length depends on memory are taken to be long alike: then `is_rough`."""

    atomics: float
    barriers: float
    shuffles: float
    moved: float
    tape: int
    is_rough: bool
    shared: float = 0.0


def counts(planned: Planned) -> Counts:
    plan, scalars = planned.plan, planned.gradient.scalars(planned.primal, planned.plan.segment)
    tape = {p.name for kept in plan.variant.places for p in kept.params}
    total = dict.fromkeys((*KINDS, _ADDS, _BARRIERS, _LANES, _SHARED), 0.0)
    is_rough = False
    numbers = {need.name: need.value.value(plan.sized) for need in plan.needs if isinstance(need, Given)}
    for step in plan.steps:
        threads = math.prod(step.grid) * math.prod(step.block)
        told = {**scalars, **numbers, **{name: given.value for name, given in step.told.items()}}
        module = step.kernel.cpu_module if plan.launch.ways.on_cpu else step.kernel.cuda_module
        function = rotate.run(module.functions[step.kernel.name], module)
        for kind, amount in _Counter(function, tape, {}).all(function, Shape(step.grid, step.block), told).items():
            is_rough = is_rough or bool(amount.names)
            total[kind] += amount.rough * (1 if kind == _BARRIERS else threads)
    kept = tape_total(plan.tape_sizes(planned.launch, planned.primal, planned.placement), planned.launch)
    moved = sum(total[kind] for kind in KINDS) + sum(nbytes for _, _, nbytes in plan.cleared)
    return Counts(total[_ADDS], total[_BARRIERS], total[_LANES], moved, kept, is_rough, total[_SHARED])


class _Counter(Counter):
    def all(self, function: Function, shape: Shape, scalars: dict[str, Any]) -> Traffic:
        values = {p.value: scalars[p.name] for p in function.params if p.name in scalars}
        threads = Sample(shape, self.structure, values.get)
        self.sums = executions(Sums(self.structure, shape, values.get))
        self.in_rows = {op for group in neighbours(function) if len(group.adds) in ROWS for op in group.adds}
        return self.block(function.body, np.ones(threads.count), threads)

    def op(self, op: Op, weight: Numbers, threads: Threads) -> Traffic:
        once = Amount.of(float(weight.mean()))
        match op:
            case Barrier() | BarrierReduce():
                return {_BARRIERS: once}
            case Warp():
                return {_LANES: once}
            case Atomic():
                return self._atomic(op, super().op(op, weight, threads), once)
        return super().op(op, weight, threads)

    def branches(self, op: If, weight: Numbers, threads: Threads) -> Traffic:
        """What has no cell of the block is added elsewhere (see `block_cells`): that is rare."""
        inside = threads.value(op.cond) is None and _adds_to(op.then, "shared") and _adds_to(op.orelse, "global")
        return self.block(op.then, weight, threads) if inside else super().branches(op, weight, threads)

    def _atomic(self, op: Atomic, found: Traffic, once: Amount) -> Traffic:
        """Of lanes that are all at one place, one adds for all; in rows, each for some."""
        kind = _ADDS
        if not found.keys() & {ATOMIC, TAPE}:
            assert isinstance(op.ptr.type, Pointer)
            kind = _SHARED
            if op.ptr.type.space != "shared":
                return found
        if not op.together or not self.is_uniform(op):
            return {**found, kind: once}
        exchanged = 1.0 if op in self.in_rows else math.log2(WARP)
        part = {moved: amount.times(1 / WARP) for moved, amount in found.items()}
        return {**part, kind: once.times(1 / WARP), _LANES: once.times(exchanged)}

    def is_uniform(self, op: Atomic) -> bool:
        addresses = [self.sums.address(op.ptr, root) for root in self.memory.of(op.ptr)]
        return all(a is not None and not any(_moves(b) for b in a.coefficients) for a in addresses)


def _adds_to(block: Block, space: str) -> bool:
    atomics = [op.ptr.type for op in walk(block) if isinstance(op, Atomic)]
    return bool(atomics) and all(isinstance(type, Pointer) and type.space == space for type in atomics)


def _moves(basis: Basis) -> bool:
    """Whether neighbouring threads have different ones."""
    return any(map(_moves, basis.of.coefficients)) if isinstance(basis, Part) else basis == ("thread_idx", 0)
