"""Note [Narrow phases]: between two barriers, often few of a block's threads do anything.

`if (t < d) s[t] += s[t + d];`, a step of a tree, and `if (t == 0) y[blockIdx.x] = s[0];` are phases that do nothing
but for a range of threadIdx.x, whose ends all threads know. The loop over threads goes through that range alone, and
nothing in it is masked: a tree takes as many trips as it adds up numbers.
"""

from __future__ import annotations

from ...ir.ops import Apply, Builtin, Function, If, Leave, Op, Value
from ...ir.traverse import walk
from .frame import Frame
from .llvm_types import i32
from .plan import Plan, is_pure
from .sections import Finder, Invariants, Middle, distinct, middle


class Narrow:
    def __init__(self, function: Function, plan: Plan):
        self.plan = plan
        self.invariants = Invariants(function, by_row=False)
        self.indices = frozenset(filter(self._is_index, self.invariants.definitions))

    def _is_index(self, value: Value) -> bool:
        match self.invariants.definitions.get(value):
            case Builtin("thread_idx", 0):
                return True
            case Apply("convert", (source,)):
                return self._is_index(source)
        return False

    def threads(self, frame: Frame, ops: list[Op]) -> Middle | None:
        """The range of threadIdx.x for which a phase of these operations does something, if it is a part."""
        branch = self._only_effect(ops)
        if branch is None:
            return None
        finder = Finder(self.invariants.definitions, self.indices, lambda v: v in frame.values)
        bounds = distinct(finder.bounds(branch.cond, True))
        return middle(frame, bounds, self.invariants, i32(0), frame.block_dim[0]) if bounds else None

    def _only_effect(self, ops: list[Op]) -> If | None:
        """The branch that is all a phase does, one that nothing is handed on from."""
        if any(self.plan.has_slot(v) for op in ops for v in op.results):
            return None
        match [op for op in ops if not is_pure(op)]:
            case [If(results=(), then=then, orelse=orelse) as branch] if all(map(is_pure, orelse.ops)):
                return None if any(isinstance(op, Leave) for op in walk(then)) else branch
        return None
