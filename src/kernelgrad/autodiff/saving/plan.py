"""The plan: for every forward value that the reverse sweep needs, where it gets it.

- still in scope (the function's own block, and the last If's branches): use it;
- recomputed: entering the reverse of a block, the pure slice of its forward that its reverse needs is run again;
- exported: a value of a branch outside loops that cannot be recomputed becomes a result of its If;
- in bits of registers: in loops, which way branches went, where that is a few dozen times at most (`bit_stack`);
- taped: in loops, what is carried from iteration to iteration, and what cannot be recomputed, or what is computed from
  these, where that is smaller (`min_cut`).

A loop inside another loop is *rerun* where that is possible: its carried values are not taped by the forward sweep, but
by a second run of the loop just before it is reversed. So the tape holds one level of iterations at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ...analysis.roots import Memory, Roots
from ...analysis.structure import Structure
from ...errors import UnsupportedError
from ...ir.effects import picks
from ...ir.ops import (
    Apply,
    Atomic,
    Barrier,
    BarrierReduce,
    Block,
    For,
    Function,
    If,
    Leave,
    Load,
    Op,
    Store,
    Value,
    Warp,
    While,
)
from ...ir.traverse import blocks, walk
from ..calculus.activity import Activity
from ..calculus.rules import rule_for
from ..winners.winners import Winners

if TYPE_CHECKING:
    from ...analysis.cycles import Cycle
    from ...analysis.induction import Induction
    from ...analysis.ownership.loads_before_stores import Early
    from ...analysis.tiles import Tile


@dataclass(frozen=True)
class Task:
    """What is to be planned. `shadow`: of pointers. `choices`: of maxima and minima, by their results. `changing`:
    memory that may hold something else when the reverse runs, and of which there is no copy. `early`: loads of what
    memory held before the kernel, where the reverse finds that again, if it does at all. `reruns`: whether loops
    may be run again before their reverse, which fills the tape then. `held`: see `held_results`. `looks_back`: tiles
    that are filled again by what earlier iterations left."""

    function: Function
    structure: Structure
    memory: Memory
    activity: Activity
    shadow: dict[Value, Value]
    may_alias: bool = False
    refill: bool = True
    winners: Winners = field(default_factory=Winners)
    choices: dict[Value, Value] = field(default_factory=dict)
    changing: Roots = frozenset()
    early: Early | None = None
    reruns: bool = True
    held: Mapping[int, Load] = field(default_factory=dict)
    looks_back: frozenset[str] = frozenset()


@dataclass
class Plan:
    structure: Structure
    needed: dict[int, dict[Value, None]] = field(default_factory=dict)  # block -> values its reverse needs, in order
    taped: dict[int, dict[Value, None]] = field(default_factory=dict)  # block -> its frame on the tape
    bits: dict[int, dict[Value, None]] = field(default_factory=dict)  # block -> its bools in registers of the thread
    most_bits: int = 0  # that are in registers at once
    exported: dict[int, dict[Value, Value]] = field(default_factory=dict)  # block -> value -> result of its If
    rerun: set[int] = field(default_factory=set)  # loops run again before their reverse
    counts: dict[int, Value] = field(default_factory=dict)  # While -> its number of iterations, a value of its block
    counted_again: set[int] = field(default_factory=set)  # While loops whose reverse finds their number of iterations
    reversed_ops: set[int] = field(default_factory=set)  # operations that have an adjoint
    silent: frozenset[int] = frozenset()  # operations that the forward sweep leaves out
    held: Mapping[int, Load] = field(default_factory=dict)  # operations whose results are loaded instead
    inductions: dict[Value, Induction | Cycle] = field(default_factory=dict)  # loop arguments known in every iteration
    choices: dict[Value, Value] = field(default_factory=dict)  # of maxima and minima that are kept, by their results
    refilled: dict[int, list[Tile]] = field(default_factory=dict)  # block -> tiles filled again before its reverse
    numbers: dict[int, Value] = field(default_factory=dict)  # loop -> the number of the iteration that is reversed
    lost: dict[Value, None] = field(default_factory=dict)  # what adjoints need, or come from, and cannot be had again
    instead: dict[Value, None] = field(default_factory=dict)  # taped to save bytes, though it could be recomputed
    roomy: bool = False  # the tape has room for as many iterations as loops have at most, where more is not known
    is_sound: bool = True  # nothing is kept that is something else in the reverse (see `in_reverse`)
    # What of an operation must run to get some of its values again: nothing else of it may, since that could read what
    # was overwritten since and, with it, read out of bounds or loop forever.
    slice_of: Callable[..., set[Value]] = lambda values, op, inner=frozenset(): set()
    wanted_of: Callable[[For | While], list[Value]] = lambda loop: []  # what the reverse of a loop may need from inside

    def has_adjoint(self, op: Op) -> bool:
        return id(op) in self.reversed_ops

    def frame(self, block: Block) -> dict[Value, None]:
        """What each run of a block saves."""
        return {**self.taped.get(id(block), {}), **self.bits.get(id(block), {})}


# ---- what adjoints need ---------------------------------------------------------------------------------------------


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
                found += conditions_of(op)
            found += self.of(op) if op is not loop else []
        return found


def conditions_of(loop: While) -> list[Value]:
    """That there is a first iteration, and another one."""
    return [loop.inits[0], loop.body.results[0]]


# ---- the plan of a task ---------------------------------------------------------------------------------------------


def make_plan(task: Task) -> Plan:
    if all(place.in_scope for place in task.structure.places.values()):
        return _in_scope(task)
    from .planner import smallest_plan

    return smallest_plan(task)


def _in_scope(task: Task) -> Plan:
    """Where the reverse of every block runs in its scope, everything that it needs is there."""
    plan = Plan(task.structure, held=task.held)
    needs = Needs(plan, task.memory, task.activity, task.shadow, task.winners)
    needs.mark(task.function.body)
    for op in walk(task.function.body):
        needs.of(op)  # or it is an error
    return plan
