"""Makes the plan: from what the adjoints need, back to what must be kept."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Set

from ...analysis.structure import Place
from ...ir.functions import REPLACED
from ...ir.ops import Apply, Atomic, Block, For, Function, If, Op, Value, While
from ...ir.traverse import blocks, kinds, operands, walk
from ...ir.types import I64
from .branch_bits import Choices
from .plan import Needs, Plan, Task, conditions_of
from .recompute import Again, Refills, choose_tiles


def smallest_plan(task: Task) -> Plan:
    """Of two plans the one with the smaller tape: what cannot be had again is kept, or what is computed from it."""
    planner = Planner(task)
    found = planner.run()
    if any(found.taped.values()):
        from .min_cut import smaller

        asked, altered = planner.asked, planner.altered
        found = smaller(found, planner.inputs_of, asked, lambda saved: Planner(task, saved).run(), altered)
    found.lost = {value: None for value, inputs in planner.inputs_of.items() if inputs is None}
    return found


def _altered(function: Function) -> Collection[Value]:
    """What must not be kept: see `in_reverse`."""
    if kinds(function.body).isdisjoint(REPLACED):
        return ()
    from .in_reverse import altered

    return altered(function.body)


class Planner:
    """`saved`: values to be kept wherever they are needed. `asked`: values that adjoints need; `inputs_of`: from what
    these, and those in turn, are recomputed; None where they are kept. `compared`: values of which not a bit may
    change."""

    def __init__(self, task: Task, saved: Collection[Value] = ()):
        self.function, self.structure, self.memory = task.function, task.structure, task.memory
        self.winners, self.saved, self.reruns = task.winners, saved, task.reruns
        early = task.early.loads if task.early is not None else frozenset[int]()
        self.again = Again(task.structure, task.memory, task.may_alias, task.changing, early)
        self.again.held = task.held
        self.plan = Plan(
            task.structure, slice_of=lambda values, op, inner=frozenset(): self.again.trace(values, op, inner).seen
        )
        self.plan.held = task.held
        self.needs = Needs(self.plan, task.memory, task.activity, task.shadow, task.winners)
        self.plan.wanted_of = self.needs.inside
        choose_tiles(self.again, task.refill, task.looks_back)
        self.plan.numbers = self.again.numbers
        self.refills = Refills(self.again, self.plan.refilled)
        self.choices = Choices(self, task.choices)
        self.compared: set[Value] = set()
        self.altered = _altered(task.function)
        self.asked: dict[Value, None] = {}
        self.inputs_of: dict[Value, tuple[Value, ...] | None] = {}

    def run(self) -> Plan:
        self.needs.mark(self.function.body)
        self.choose_compared()
        self.choices.choose()
        if self.reruns:
            self.choose_reruns(self.structure.top)
        self.require(self.function.body)
        self.choices.need()
        self.require_tiles()
        self.keep_choices()
        return self.plan

    def choose_compared(self) -> None:
        """Operands that are compared with memory, where computing them again may round differently: a compiler may
        fuse a product and a sum in one launch and not in another."""
        for op in walk(self.function.body) if self.winners.buffers else ():
            if self.winners.won_buffer(op, self.memory) is not None:
                assert isinstance(op, Atomic)
                if not self.is_repeatable(op.args[0]):
                    self.compared.add(op.args[0])

    def is_repeatable(self, value: Value) -> bool:
        from ..winners.global_memory import is_repeatable

        return is_repeatable(value, self.structure.definition.get, self.again.is_untiled)

    # ---- loops

    def choose_reruns(self, place: Place) -> None:
        for op in place.block.ops:
            if (
                isinstance(op, For | While)
                and place.in_loop
                and self.plan.has_adjoint(op)
                and not self.again.trace(self.needs.inside(op), op).bad
                and not self._has_winners(op)
            ):
                self.plan.rerun.add(id(op))
            for inner in blocks(op):
                self.choose_reruns(self.structure.place(inner))

    def _has_winners(self, loop: For | While) -> bool:
        """Running it again would write over a tape that is read twice (Note [Winners])."""
        inside = (op for inner in blocks(loop) for op in walk(inner))
        return bool(self.winners.buffers) and any(self.winners.won_buffer(op, self.memory) is not None for op in inside)

    # ---- choices

    def keep_choices(self) -> None:
        """Where a branch or a loop puts something on the tape, its reverse must go the same way. A condition computed
        again may round differently, since compilers fuse products and sums as they like: such a one is kept."""
        found = True
        while found:  # what is kept is one more thing on the tape
            found = False
            framed = self.framed_blocks()
            for op in walk(self.function.body):
                if isinstance(op, If | For) and self.plan.has_adjoint(op) and any(id(b) in framed for b in blocks(op)):
                    choices = (op.cond,) if isinstance(op, If) else (op.lower, op.upper)
                    for value in choices:
                        found = self.keep_choice(value) or found

    def keep_choice(self, value: Value) -> bool:
        """True if this made a difference."""
        place = self.structure.home[value]
        kept = self.plan.taped.get(id(place.block), {})
        if not place.in_loop or value in kept or value not in self.plan.needed.get(id(place.block), {}):
            return False
        if self.is_repeatable(value):
            return False
        self.keep(value, place)
        return True

    def framed_blocks(self) -> set[int]:
        """Blocks that leave something on the tape; what a rerun loop puts there, its reverse takes at once."""
        framed: set[int] = set()

        def visit(block: Block) -> bool:
            nested = [(id(op) not in self.plan.rerun and visit(inner)) for op in block.ops for inner in blocks(op)]
            if any(nested) or self.plan.taped.get(id(block)):
                framed.add(id(block))
            return id(block) in framed

        visit(self.function.body)
        return framed

    # ---- requirements, closed under recomputation

    def require(self, block: Block) -> None:
        for op in block.ops:
            if not self.plan.has_adjoint(op):
                continue
            for value in self.needs.of(op):
                if not self.choices.puts_off(value):
                    self.need(value)
            if isinstance(op, While):
                self.need_count(op)
            if isinstance(op, For | While) and id(op) in self.plan.rerun:
                # Not everything it carries: a rerun is only for what its reverse needs.
                bounds = (op.lower, op.upper) if isinstance(op, For) else ()
                self.need_slice((*bounds, *self.needs.inside(op)), op)
            for inner in blocks(op):
                self.require(inner)

    def require_tiles(self) -> None:
        for values, op, tile in self.refills.needed():
            if op is not None:
                self.need_slice(values, op, tile.inner)
            else:
                for value in values:
                    self.need(value)

    def need_slice(self, wanted: Iterable[Value], op: Op, inner: Set[int] = frozenset()) -> None:
        for value in self.slice_inputs(wanted, op, inner):
            self.need(value)

    def slice_inputs(self, wanted: Iterable[Value], op: Op, inner: Set[int] = frozenset()) -> tuple[Value, ...]:
        found = self.again.trace(wanted, op, inner)
        self.refills.note(found.seen)
        return tuple(found.outside)

    def need_count(self, loop: While) -> None:
        """The number of iterations of a while loop, known when it has run."""
        place = self.structure.home[loop.results[0]]
        if id(loop) in self.plan.rerun or id(loop) in self.plan.counts:
            return
        if place.in_loop and self.again.is_countable(loop):
            self.plan.counted_again.add(id(loop))
            self.need_slice(conditions_of(loop), loop)
            return
        count = Value(I64, "~trips")
        self.plan.counts[id(loop)] = count
        self.structure.home[count] = place
        self.keep(count, place)

    def need(self, value: Value) -> None:
        self.asked[value] = None
        self.follow(value)

    def follow(self, value: Value) -> None:
        place = self.structure.home[value]
        if place.in_scope:
            return
        if value in self.plan.needed.setdefault(id(place.block), {}):
            return
        self.plan.needed[id(place.block)][value] = None
        inputs = None if value in self.saved else self.inputs(value, place)
        self.inputs_of[value] = inputs
        if inputs is None:
            self.keep(value, place)
        for found in inputs or ():
            self.follow(found)

    def inputs(self, value: Value, place: Place) -> tuple[Value, ...] | None:
        """What a value is recomputed from; None where it must be kept."""
        op = self.structure.definition.get(value)
        if op is None:
            return self.argument_inputs(value, place)
        if id(op) in self.again.held:
            return tuple(operands(self.again.held[id(op)]))
        if self.must_keep(value, op, place):
            return None
        if isinstance(op, If | For | While):
            return self.slice_inputs([value], op)
        self.refills.note([value])
        if isinstance(op, Apply) and op.fn in REPLACED:
            from .in_reverse import replacement

            return (replacement(op, self.structure),)
        return tuple(operands(op))

    def must_keep(self, value: Value, op: Op, place: Place) -> bool:
        if value in self.compared or self.again.is_source(op, place):
            return True
        return isinstance(op, If | For | While) and self.again.trace([value], op).bad

    def argument_inputs(self, arg: Value, place: Place) -> tuple[Value, ...] | None:
        from ...analysis import induction

        owner = place.owner
        if isinstance(owner, For) and arg is place.block.args[0]:
            return (owner.lower,)
        found = induction.find(owner, arg, self.structure) if isinstance(owner, For | While) else None
        if found is None:
            return None
        self.plan.inductions[arg] = found
        return found.needs

    def keep(self, value: Value, place: Place) -> None:
        """The value must be saved: on the tape inside loops, as a result of its If outside."""
        if place.in_scope:
            return
        self.plan.is_sound = self.plan.is_sound and value not in self.altered
        if place.in_loop:
            self.plan.taped.setdefault(id(place.block), {})[value] = None
            self.plan.needed.setdefault(id(place.block), {})[value] = None
            return
        assert place.parent is not None
        results = self.plan.exported.setdefault(id(place.block), {})
        if value not in results:
            results[value] = outside = Value(value.type, value.name)
            self.structure.home[outside] = place.parent
            self.plan.needed.setdefault(id(place.block), {})[value] = None
            if not place.parent.in_scope:
                self.plan.needed.setdefault(id(place.parent.block), {})[outside] = None
            self.keep(outside, place.parent)
