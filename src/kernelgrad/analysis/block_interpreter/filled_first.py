"""Whether all that a block reads of its shared memory it has written itself before, decided for one launch.

Then it matters to nobody what was there before: blocks that one after the other have the same memory, and turns of a
loop that fill it anew, may as well have some each. Writes count only where they surely happen, reads wherever they may.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set

import numpy as np

from ...ir.ops import Atomic, For, Function, If, Load, Op, Store, Value, While
from ...ir.traverse import blocks, walk
from ..access.affine import Known
from ..roots import Memory
from ..structure import Structure, analyse, is_rotated
from ..uniform import uniform_values
from .threads import Numbers, Threads

_ACCESSES = (Load, Store, Atomic)
_MOST_OPERATIONS = 1 << 15  # that are played


def is_filled_first(
    function: Function, memory: Memory, sizes: Mapping[Value, int], block: tuple[int, int, int], known: Known
) -> bool:
    """`sizes`: of the shared variables, in bytes, by their roots. While loops are rotated. What the whole block writes
    before anything reads it is written: between the one and the other it waits, or the kernel has a race."""
    filling = _Filling(memory, analyse(function, apart=False), sizes, uniform_values(function))
    threads = Threads(block, filling.structure, known)
    return filling.ops(function.body.ops, np.ones(threads.count, bool), threads, sure=True)


class _Filling:
    """`written`: the bytes of each variable that have been. `uniform`: what all threads of a block compute alike."""

    def __init__(self, memory: Memory, structure: Structure, sizes: Mapping[Value, int], uniform: Set[Value]):
        self.memory, self.structure, self.uniform = memory, structure, uniform
        self.written = {root: np.zeros(nbytes, bool) for root, nbytes in sizes.items()}
        self.left = _MOST_OPERATIONS

    def ops(self, ops: Iterable[Op], mask: Numbers, threads: Threads, sure: bool) -> bool:
        return all(self.op(op, mask, threads, sure) for op in ops)

    def op(self, op: Op, mask: Numbers, threads: Threads, sure: bool) -> bool:
        """False if it reads what may not have been written, or if that takes too long to find. `sure`: the threads in
        the mask come here for sure."""
        self.left -= 1
        if self.left < 0:
            return False
        match op:
            case Load() | Store() | Atomic():
                return self.access(op, mask, threads, sure)
            case If():
                return self.branch(op, mask, threads, sure)
            case For() | While():
                return self.loop(op, mask, threads, sure)
        return True

    def branch(self, op: If, mask: Numbers, threads: Threads, sure: bool) -> bool:
        """Where the block goes one way as a whole, it comes by all that is on it; behind, either may have been it."""
        chosen = threads.value(op.cond)
        if chosen is not None:
            sides = (op.then.ops, mask & chosen), (op.orelse.ops, mask & ~chosen)
            return all(self.ops(ops, taken, threads, sure) for ops, taken in sides)
        before = {root: cells.copy() for root, cells in self.written.items()}
        together = sure and op.cond in self.uniform
        if not self.ops(op.then.ops, mask, threads, together):
            return False
        then, self.written = self.written, before
        if not self.ops(op.orelse.ops, mask, threads, together):
            return False
        self.written = {root: cells & then[root] for root, cells in self.written.items()}
        return True

    def loop(self, op: For | While, mask: Numbers, threads: Threads, sure: bool) -> bool:
        """Of one that touches no shared memory, nothing is asked."""
        inside = (inner for block in blocks(op) for inner in walk(block))
        if not any(isinstance(inner, _ACCESSES) and self.shared(inner) for inner in inside):
            return True
        if isinstance(op, While) and not is_rotated(op):
            return False
        turns = threads.iterations(op, mask)
        return all(self.ops(op.body.ops, turn.mask, turn.threads, sure and turn.sure) for turn in turns)

    def shared(self, op: Load | Store | Atomic) -> frozenset[Value]:
        return self.memory.of(op.ptr) & self.written.keys()

    def access(self, op: Load | Store | Atomic, mask: Numbers, threads: Threads, sure: bool) -> bool:
        roots = self.shared(op)
        if not roots:
            return True
        at, size = threads.address(op.ptr), (op.value if isinstance(op, Store) else op.result).type.size
        if at is None or len(self.memory.of(op.ptr)) > 1:
            return isinstance(op, Store) or all(self.written[root].all() for root in roots)
        (root,) = roots
        cells, at = self.written[root], at[mask]
        if at.size and (at.min() < 0 or at.max() + size > len(cells)):
            return False
        reached = np.add.outer(at, np.arange(size))
        if not isinstance(op, Store):
            return bool(cells[reached].all())
        if sure:
            cells[reached] = True
        return True
