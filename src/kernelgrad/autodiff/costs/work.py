"""Estimates of what a thread does: the bytes that it moves (see `traffic`), and its loads and arithmetic on floats.

To compare forms of a gradient by. An operation's weight is the number of simple instructions that it costs about as
much as; arithmetic on integers is not counted, which compilers simplify most.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ...analysis.access.affine import Shape
from ...analysis.block_interpreter.threads import Numbers, Threads
from ...analysis.trip_counts import Amount
from ...ir.ops import Apply, Atomic, Barrier, BarrierReduce, Function, Load, Op, Store, Warp
from ...ir.types import Scalar
from .operations import ARITHMETIC, FUNCTION
from .traffic import Counter, Sample, Traffic, plus

OPERATIONS = "operations"
_LONG = 256  # iterations of a loop whose length is not known
_WEIGHTS: tuple[tuple[tuple[type[Op], ...], int], ...] = (
    ((Load, Store), 4),
    ((Atomic, Barrier, BarrierReduce, Warp), 16),
)


class Work(NamedTuple):
    """Loops whose length is not known count as long ones."""

    moved: float = 0.0
    operations: float = 0.0

    def __add__(self, other: Work) -> Work:  # type: ignore[override]
        return Work(self.moved + other.moved, self.operations + other.operations)

    def times(self, number: float) -> Work:
        return Work(self.moved * number, self.operations * number)

    def reaches(self, other: Work) -> bool:
        """Whether it is as much in any respect."""
        return any(mine >= its for mine, its in zip(self, other, strict=True))

    def exceeds(self, other: Work, part: float) -> bool:
        """Whether it is more in any respect, by more than that part."""
        return any(mine > (1 + part) * its for mine, its in zip(self, other, strict=True))


def work(function: Function, shape: Shape | None, known: Callable[[str], Any]) -> Work:
    """Of a launch, or of a thread of one that is not known. `function`: with rotated loops. `known`: the number that a
    parameter is, None where it is none."""
    counter = _Worker(function, set(), {})
    names = {p.value: p.name for p in function.params}
    sample = Sample(shape, counter.structure, lambda value: known(names[value]) if value in names else None)
    found = counter.block(function.body, np.ones(sample.count), sample)
    return rough_work(found, shape)


def rough_work(found: Traffic, shape: Shape | None) -> Work:
    """Of all threads, from what one does: the operations, and the bytes of every kind."""
    operations = _rough(found.get(OPERATIONS, Amount()))
    moved = sum(_rough(amount) for kind, amount in found.items() if kind != OPERATIONS)
    threads = 1.0 if shape is None else float(math.prod(shape.grid) * math.prod(shape.block))
    return Work(threads * moved, threads * operations)


def _rough(amount: Amount) -> float:
    return float(sum(number * _LONG ** len(names) for names, number in amount.terms))


class _Worker(Counter):
    def op(self, op: Op, weight: Numbers, threads: Threads) -> Traffic:
        found, own = super().op(op, weight, threads), weight_of(op)
        return plus(found, {OPERATIONS: Amount.of(float(weight.mean()) * own)}) if own else found


def weight_of(op: Op) -> int:
    if isinstance(op, Apply):
        is_float = isinstance(op.result.type, Scalar) and op.result.type.is_float
        return ARITHMETIC.get(op.fn, FUNCTION) if is_float else 0
    return next((weight for kinds, weight in _WEIGHTS if isinstance(op, kinds)), 0)
