"""What blocks read that differ in the turn of a loop alone, where its turns are blocks (`transforms/turn_blocks`).

As turns of one thread, they find it in registers, or near by; as blocks, they read it from memory each.
"""

from __future__ import annotations

import numpy as np

from ...analysis.access.affine import Affine, Basis, Known, Part, Shape
from ...analysis.access.executions import Executions
from ...analysis.block_interpreter.threads import Numbers, Threads
from ...analysis.machine import SHARED_BYTES
from ...ir.ops import Function, Load, Op, Store
from .traffic import Counter, Sample, Traffic
from .work import rough_work


def read_again(function: Function, shape: Shape, axes: frozenset[int], known: Known) -> float:
    """Bytes of a launch, of what is more than a multiprocessor has near by. `axes`: on which the turns lie alone."""
    counter = _ReadAgain(function, shape, axes, known)
    sample = Sample(shape, counter.structure, known)
    return rough_work(counter.block(function.body, np.ones(sample.count), sample), shape).moved


class _ReadAgain(Counter):
    def __init__(self, function: Function, shape: Shape, axes: frozenset[int], known: Known):
        super().__init__(function, set(), {})
        self.sums = Executions(self.structure, shape, known)
        self.turns = frozenset[Basis](("block_idx", axis) for axis in axes)

    def op(self, op: Op, weight: Numbers, threads: Threads) -> Traffic:
        if isinstance(op, Store) or (isinstance(op, Load) and not self.is_again(op)):
            return {}
        return super().op(op, weight, threads)

    def is_again(self, op: Load) -> bool:
        places = [self.sums.address(op.ptr, root) for root in self.memory.of(op.ptr)]
        return all(place is not None and self.is_far(place) for place in places)

    def is_far(self, place: Affine) -> bool:
        """Whether a place is the same in all turns, and threads have too many of them."""
        if any(not self.turns.isdisjoint(_in(basis)) for basis in place.coefficients):
            return False
        least, most = self.sums.range(place)
        return most - least > SHARED_BYTES


def _in(basis: Basis) -> frozenset[Basis]:
    """The indices and counters of a term, which may be the quotient of a sum."""
    if not isinstance(basis, Part):
        return frozenset((basis,))
    return frozenset[Basis]().union(*map(_in, basis.of.coefficients))
