"""Which of its arguments a maximum or minimum took, which way a branch went. Where the reverse cannot compute what was
compared again, keeping the choice takes a bool instead of two floats."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...ir.builder import Builder
from ...ir.ops import Apply, Block, Constant, For, Function, If, Op, Value, While
from ...ir.traverse import blocks, descend, walk, with_body
from ..calculus.activity import Activity

if TYPE_CHECKING:
    from .planner import Planner

_FIRST = {"max": "ge", "min": "le"}  # when the first argument is taken, as in `rules`


def with_choices(function: Function, activity: Activity) -> tuple[Function, dict[Value, Value]]:
    """The function with the choice behind each active maximum and minimum, and these by the operation's result. What
    nobody needs of them is dropped with other dead code."""
    found: dict[Value, Value] = {}

    def block(b: Block) -> Block:
        ops: list[Op] = []
        for op in b.ops:
            ops.append(descend(op, block))
            if isinstance(op, Apply) and op.fn in _FIRST and op.result in activity:
                ops += _choice(op, found)
        return b if ops == list(b.ops) else Block(b.args, tuple(ops), b.results)

    return with_body(function, block(function.body)), found


def _choice(op: Apply, found: dict[Value, Value]) -> list[Op]:
    b = Builder(op.span)
    first, second = op.args
    found[op.result] = b.apply("or", b.apply(_FIRST[op.fn], first, second), b.apply("isnan", second))
    return b.ops


class Choices:
    """The planner's part in this. `of`: the choices of maxima and minima, by their results."""

    def __init__(self, planner: Planner, of: dict[Value, Value]):
        self.planner, self.of = planner, of
        self.kept: set[Value] = set()
        self.late: list[Value] = []
        self.lost: dict[Value, bool] = {}

    def choose(self) -> None:
        """Those that depend on what would have to be kept."""
        for op in walk(self.planner.function.body):
            choice = self._choice(op) if self.planner.plan.has_adjoint(op) else None
            if choice is not None and self.is_lost(choice):
                self.kept.add(choice)
                self.planner.compared.add(choice)
                if isinstance(op, Apply) and op.result in self.of:
                    self.planner.plan.choices[op.result] = choice

    def _choice(self, op: Op) -> Value | None:
        match op:
            case If(cond, _, _) | Apply("select", (cond, *_)):
                return cond
            case Apply():
                return self.of.get(op.result)
        return None

    def is_lost(self, value: Value) -> bool:
        """Whether something that a value is computed from cannot be had again in the reverse."""
        if value not in self.lost:
            self.lost[value] = self._is_lost(value)
        return self.lost[value]

    def _is_lost(self, value: Value) -> bool:
        structure = self.planner.structure
        place, op = structure.home[value], structure.definition.get(value)
        if place.in_scope:
            return False
        if op is not None:
            from .in_reverse import sources

            kept = self.planner.must_keep(value, op, place)
            return kept or (not blocks(op) and any(map(self.is_lost, sources(op, structure))))
        owner = place.owner
        if not isinstance(owner, For | While) or (isinstance(owner, For) and value is place.block.args[0]):
            return False
        from ...analysis import induction

        return induction.find(owner, value, structure) is None

    def puts_off(self, value: Value) -> bool:
        """Whether a value is a choice: what was compared may turn out to be needed anyway."""
        if value in self.kept:
            self.late.append(value)
        return value in self.kept

    def need(self) -> None:
        """When everything else that is needed is known."""
        for choice in self.late:
            if self.is_had(choice):
                self.planner.compared.discard(choice)
            self.planner.need(choice)

    def is_had(self, value: Value) -> bool:
        structure = self.planner.structure
        place, op = structure.home[value], structure.definition.get(value)
        if place.in_scope or value in self.planner.plan.needed.get(id(place.block), {}):
            return True
        from .in_reverse import sources

        return isinstance(op, Apply | Constant) and all(map(self.is_had, sources(op, structure)))
