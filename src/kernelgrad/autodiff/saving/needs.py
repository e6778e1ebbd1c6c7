"""Which operations have an adjoint, and which forward values these adjoints need."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ...analysis.roots import Memory
from ...errors import UnsupportedError
from ...ir.effects import picks
from ...ir.ops import Apply, Atomic, Barrier, BarrierReduce, Block, For, If, Leave, Load, Op, Store, Value, Warp, While
from ...ir.traverse import blocks, walk
from ..calculus.activity import Activity
from ..calculus.rules import rule_for
from ..winners.winners import Winners

if TYPE_CHECKING:
    from .plan import Plan


class Needs:
    """`plan` says which operations have an adjoint, and of which the choice is kept."""

    def __init__(self, plan: Plan, memory: Memory, activity: Activity, shadow: Mapping[Value, Value], winners: Winners):
        self.plan, self.memory, self.activity, self.shadow, self.winners = plan, memory, activity, shadow, winners

    def mark(self, block: Block) -> bool:
        """Notes the operations in a block that have an adjoint; whether there are any."""
        found = False
        for op in block.ops:
            inside = [self.mark(inner) for inner in blocks(op)]
            if any(inside) or self._is_active(op):
                self.plan.reversed_ops.add(id(op))
                found = True
        return found

    def _is_active(self, op: Op) -> bool:
        if isinstance(op, Store | Atomic):
            return bool(self.memory.of(op.ptr) & self.activity.roots)
        if isinstance(op, Barrier | BarrierReduce | Leave):
            return True  # phases stay apart in reverse, and who left is not waited for
        return any(r in self.activity for r in op.results)

    def of(self, op: Op) -> list[Value]:
        if not self.plan.has_adjoint(op):
            return []
        match op:
            case Apply("select", (cond, *_)):
                return [cond]
            case Apply("convert" | "bitcast"):
                return []
            case Apply() if op.result in self.plan.choices:
                return [self.plan.choices[op.result]]
            case Apply(fn, args):
                return self._of_rule(op, fn, args)
            case Atomic(_, ptr, _) if picks(op):
                return [self._shadow_of(op, ptr), *self.winners.needs(op)]
            case Load(ptr) | Store(ptr, _) | Atomic(_, ptr, _):
                return [self._shadow_of(op, ptr)]
            case Barrier(_, args):
                return list(args)
            case Warp(_, (mask, _, *rest)):
                return [mask, *rest]
            case If(cond, _, _):
                return [cond]
            case For(lower, upper, _, _, _):
                return [lower, upper]
        return []

    def _of_rule(self, op: Apply, fn: str, args: tuple[Value, ...]) -> list[Value]:
        rule = rule_for(fn)
        if rule is None:
            raise UnsupportedError(f"'{fn}' has no derivative and an active value passes through it", op.span)
        found: list[Value] = []
        for k, arg in enumerate(args):
            if arg in self.activity and not rule.is_zero(k):
                needs = rule.needs(k)
                found += [args[j] for j in sorted(needs.args)]
                found += [op.result] if needs.result else []
        return found

    def _shadow_of(self, op: Op, ptr: Value) -> Value:
        if ptr not in self.shadow:
            raise UnsupportedError(
                "a derivative flows through a pointer whose memory is not known",
                op.span,
                "pass the pointer as a parameter",
            )
        return self.shadow[ptr]

    def inside(self, loop: For | While) -> list[Value]:
        """Everything the reverse of a loop may need from inside it: also how often it, and those in it, iterate."""
        found: list[Value] = []
        for op in (loop, *(op for inner in blocks(loop) for op in walk(inner))):
            if isinstance(op, While) and self.plan.has_adjoint(op):
                found += [op.inits[0], op.body.results[0]]
            found += self.of(op) if op is not loop else []
        return found
