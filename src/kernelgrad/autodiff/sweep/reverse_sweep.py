"""The code of a gradient: the forward sweep, and the reverse over every operation of it.

What it emits is full of local variables for adjoints and tape positions: promotion and simplification, which every
caller runs next, turn them into plain SSA.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ...analysis.machine import FULL_WARP, RESIDENT_THREADS
from ...analysis.structure import Place
from ...errors import UnsupportedError
from ...ir.builder import Builder, linear_warp
from ...ir.effects import picks
from ...ir.ops import (
    Aggregate,
    Alloca,
    Apply,
    Atomic,
    Barrier,
    BarrierReduce,
    Block,
    Extract,
    For,
    If,
    Insert,
    Leave,
    Load,
    Op,
    Param,
    Store,
    Value,
    Warp,
    While,
)
from ...ir.traverse import blocks, walk
from ...locks import cached_property
from ..accumulate.fewer_blocks import coarse, only_sums
from ..calculus.products import power_of
from ..calculus.rules import rule_for, scaled
from ..calculus.shadows import adjoint_type, shadow_name, zero_fill
from ..saving.forward_code import Copier, Rematerialized
from .adjoints import Adjoints, MemoryAdjoints, add_into, part_of, zero

if TYPE_CHECKING:
    from ..accumulate.logs import Logged, Logs
    from ..calculus.tape import Stack, Tape
    from ..prepare.prepared import Prepared
    from .finite_tests import FiniteTests


@dataclass(frozen=True)
class Number:
    """A parameter passed by value, where its adjoint goes, and where each block may leave its part of it."""

    value: Value
    adjoint: Value
    partials: Param | None


_OF_NUMBERS = {
    "atomic": "every thread has a part of it: one addition for each block",
    "partials": "every thread has a part of it: what is left here is added up after the launch",
}


def _keeps(prepared: Prepared) -> bool:
    """Whether there is a tape, or updates are logged."""
    options, plan = prepared.options, prepared.plan
    if options.mode == "split" or options.facts.inlined:
        return True
    return bool(plan.most_bits or prepared.sites) or any(plan.taped.values())


def _tests(b: Builder, prepared: Prepared) -> FiniteTests | None:
    if not prepared.options.report_nan:
        return None
    from .finite_tests import FiniteTests

    return FiniteTests(b)


class Sweep:
    """Emits the gradient's body. `b` is where code goes; scopes of available forward values nest as regions do."""

    def __init__(self, prepared: Prepared):
        facts = prepared.options.facts
        self.mode, self.alone = prepared.options.mode, facts.alone or facts.inlined
        self.meets_at_end = False
        self.shadowed, self.structure, self.memory = prepared.shadowed, prepared.structure, prepared.memory
        self.activity, self.plan, self.winners = prepared.activity, prepared.plan, prepared.winners
        self.prologue = Builder()
        self.b = Builder()
        self.kept: Tape | None = None  # the tape, where there is one
        self.logs: Logs | None = None
        if _keeps(prepared):
            from .kept import logs_of, tape_of

            self.kept = tape_of(self.prologue, prepared)
            self.logs = logs_of(self.kept, prepared)
        self.adjoints = Adjoints(self.b)
        self.tests = _tests(self.b, prepared)
        self.adjoints.tested = None if self.tests is None else self.tests.test
        self.sites = prepared.sites
        self.stores = MemoryAdjoints(self.b, self.adjoints, prepared.accumulation, prepared.kept)
        self.stores.logs = self.logs
        self.scopes: list[dict[Value, Value]] = [{}]
        axes = prepared.options.facts.coarse
        self.coarse = coarse(axes, RESIDENT_THREADS if facts.cells else None) if axes else None
        self.outside = Builder()  # what a block does once, however many it does the work of
        self.spread: frozenset[Value] = frozenset()  # adjoints of which there are copies
        self.only_sums = False  # the adjoints of numbers or of a few elements, and nothing else to write

    @property
    def tape(self) -> Tape:
        assert self.kept is not None, "nothing is kept"
        return self.kept

    @property
    def stacks(self) -> tuple[Stack, ...]:
        return tuple(self.kept.stacks.values()) if self.kept is not None else ()

    def run(self, numbers: list[Number]) -> tuple[Block, ...]:
        forward = self.augmented_forward() if self.mode == "split" else None
        numbers = [n for n in numbers if n.value in self.activity]
        self.meets_at_end = (bool(numbers) and not self.alone) or self.has_phases or bool(self.stores.cells)
        for number in numbers:
            self.adjoints.create(number.value, f"{shadow_name(number.value.name)}_sum")
        with self.b.region() as work:
            if self.mode == "joint":
                self.joint(self.structure.top)
            else:
                self.reverse_block(self.structure.top, [], {})
        self.b.span = self.shadowed.function.span
        self.add_work(work.ops, bool(numbers))
        for number in numbers:
            self.flush(number)
        start = self.tape.start_reverse() if self.mode == "split" else []
        logging = self.logs.prologue.ops if self.logs is not None else ()
        prologue = (*self.outside.ops, *self.prologue.ops, *logging)
        reverse = Block((), (*prologue, *start, *self.b.ops), ())
        if forward is None:
            return (reverse,)
        ends = self.tape.end_forward()
        return Block((), (*self.prologue.ops, *self.tape.start_forward(), *forward, *ends), ()), reverse

    def add_work(self, work: list[Op], sums: bool) -> None:
        """What a block has to do; or, if that is only sums and there are many blocks, what many of them have."""
        beside = self.mode == "split" or self.stacks or (self.logs is not None and self.logs.all)
        everything = (*self.prologue.ops, *work)
        if self.stores.cells:
            return self.add_to_cells(work, everything, bool(beside))
        updates = self.block_constant(everything)
        self.only_sums = bool(sums or updates) and not beside and only_sums(everything, updates)
        if self.coarse is not None and self.only_sums:
            self.coarse.emit(self.b, everything)
            self.prologue.ops.clear()
        else:
            self.coarse = None
            self.b.ops += work

    def add_to_cells(self, work: list[Op], everything: tuple[Op, ...], beside: bool) -> None:
        """What a block has to do, or many of them have, between clearing its cells and adding them."""
        from ..accumulate.block_cells import add_up, can_take_turns, clear

        cells = self.stores.cells.values()
        clear(self.outside, cells)
        if self.coarse is not None and not beside and can_take_turns(everything):
            self.coarse.emit(self.b, everything)
            self.prologue.ops.clear()
        else:
            self.coarse = None
            self.b.ops += work
        add_up(self.b, cells)

    def block_constant(self, ops: tuple[Op, ...]) -> set[Op]:
        """The updates of adjoints that have copies, if all updates are such, of elements that are every block's."""
        if not self.spread:
            return set()
        from ..accumulate.block_constant_sums import block_constant_updates

        return block_constant_updates(ops, self.spread)

    def augmented_forward(self) -> list[Op]:
        with self.b.region() as region:
            self.copier(effects=True).block(self.structure.top.block, taping=True)
        return region.ops

    def flush(self, number: Number) -> None:
        """Every thread has a part of a number's adjoint. All threads are here: each block adds up its own."""
        self.b.span = self.b.span.reversed().because(_OF_NUMBERS["partials" if number.partials else "atomic"])
        update = self.stores.plain if self.alone else self.stores.add_block_sum
        if number.partials is not None and self.coarse is not None:
            own = self.b.offset(number.partials.value, self.b.builtin("block_idx"))
            self.stores.each_float(own, self.adjoints.get(number.value), self.stores.store_block_sum)
        elif number.partials is not None:
            own = self.b.offset(number.partials.value, linear_warp(self.b))
            self.stores.each_float(own, self.adjoints.get(number.value), self.stores.store_warp_sum)
        else:
            self.stores.each_float(number.adjoint, self.adjoints.get(number.value), update)

    # ---- forward values in the reverse sweep

    @cached_property
    def uniform(self) -> set[Value]:
        from ...analysis.uniform import uniform_values

        return uniform_values(self.shadowed.function)

    @cached_property
    def constants(self) -> dict[Value, int]:
        from ...transforms.unroll import constants_of

        return constants_of(self.shadowed.function)

    def find(self, value: Value) -> Value | None:
        for scope in reversed(self.scopes):
            if value in scope:
                return scope[value]
        return value if self.structure.home[value].in_scope else None

    def value(self, value: Value) -> Value:
        found = self.find(value)
        assert found is not None, f"{value!r} is not available in the reverse sweep"
        return found

    # ---- blocks

    def joint(self, place: Place) -> None:
        """Forward, then reverse. A last If does both in each branch, where its values are still in scope."""
        ops = place.block.ops
        last = ops[-1] if ops else None
        fused = isinstance(last, If) and self.structure.place(last.then).kind == "joint" and self.plan.has_adjoint(last)
        copier = self.copier(effects=True)
        for op in ops[:-1] if fused else ops:
            copier.op(op, taping=True)
        self.create_adjoints(place.block)
        if fused:
            assert isinstance(last, If)
            self.joint_if(last)
        for op in reversed(ops[:-1] if fused else ops):
            self.reverse(op)

    def joint_if(self, op: If) -> None:
        sides = []
        with self.branches() as another:
            for side in (op.then, op.orelse):
                another()
                with self.b.region() as region:
                    self.joint(self.structure.place(side))
                sides.append(region.block())
        # Threads that return early are back for the meeting at the end.
        self.b.add(replace(op, then=sides[0], orelse=sides[1], exits=op.exits and not self.meets_at_end))

    def copier(self, effects: bool) -> Copier:
        return Copier(self.b, self.plan, self.find, lambda v: self.tape.push(self.b, v), effects)

    def create_adjoints(self, block: Block) -> None:
        """Zeros for what the block defines: values, and the shadows of its arrays."""
        for op in block.ops:
            shadow = self.shadowed.of.get(op.result) if isinstance(op, Alloca) else None
            memory = self.find(shadow) if shadow is not None else None
            if memory is not None:  # else nothing in the reverse uses it
                zero_fill(self.b, memory)
        for value in block.args:
            if value in self.activity:
                self.adjoints.create(value)
        for op in block.ops:
            for value in op.results:
                if value in self.activity:
                    self.adjoints.create(value)

    def reverse_block(self, place: Place, seeds: list[tuple[Value, Value]], known: dict[Value, Value]) -> None:
        """The reverse of a nested block. `seeds`: adjoints of its results; `known`: values given by its operation."""
        block = place.block
        self.scopes.append(dict(known))
        for v in reversed(self.plan.frame(block)):
            self.scopes[-1][v] = self.tape.restored(self.b, v)
        for v, outside in self.plan.exported.get(id(block), {}).items():
            self.scopes[-1][v] = self.value(outside)
        self.scopes[-1].update(Rematerialized(self.b, block, self.plan, self.find).run())
        self.create_adjoints(block)
        for value, adjoint in seeds:
            self.adjoints.add(value, adjoint)
        for op in reversed(block.ops):
            self.reverse(op)
        self.scopes.pop()

    # ---- operations

    def reverse(self, op: Op) -> None:
        if not self.plan.has_adjoint(op):
            return
        self.b.span = op.span.reversed()
        with nullcontext() if self.tests is None else self.tests.of(op):
            self.reverse_any(op)

    def reverse_any(self, op: Op) -> None:
        match op:
            case Apply():
                self.apply(op)
            case Aggregate(args):
                for k, arg in enumerate(args):
                    self.pass_on(op.result, arg, k)
            case Extract(aggregate, index):
                if aggregate in self.adjoints:
                    part = part_of(self.b, self.adjoints.variable(aggregate), index)
                    self.add_to(part, self.adjoints.get(op.result))
            case Insert(aggregate, value, index):
                self.insert(op, aggregate, value, index)
            case Load(ptr):
                self.stores.load(op, self.value(self.shadowed.of[ptr]))
            case Store(ptr, _):
                self.stores.store(op, self.value(self.shadowed.of[ptr]), self.memory.of(ptr))
            case Atomic(_, ptr, _) if picks(op):
                self.stores.winner(op, self.value(self.shadowed.of[ptr]), self.won(op))
            case Atomic(_, ptr, _):
                self.stores.atomic(op, self.value(self.shadowed.of[ptr]))
            case Barrier("block"):
                self.barrier()
            case Barrier(scope, args):
                self.b.effect(Barrier, scope, tuple(map(self.value, args)))
            case BarrierReduce("sum", value) if value in self.adjoints:
                self.barrier()
                total = self.b.emit(BarrierReduce, "sum", self.adjoints.get(op.result), type=value.type)
                self.adjoints.add(value, total)
            case BarrierReduce():
                self.barrier()
            case Leave():
                self.b.effect(Leave)
            case Warp():
                self.warp(op)
            case If():
                self.if_(op)
            case For() | While():
                self.loop(op)
            case _:
                raise UnsupportedError(
                    f"a derivative flows through '{type(op).__name__.lower()}': not supported", op.span
                )

    def won(self, op: Atomic) -> Value:
        from ..winners.global_memory import won

        return won(self.b, self.winners, self.memory, op, self.value)

    def apply(self, op: Apply) -> None:
        if self.adjoints.is_zero(op.result):
            return
        adjoint = self.adjoints.get(op.result)
        if self.tests is not None:
            self.tests.adjoint = adjoint
        match op.fn:
            case "select":
                self.select(op.args, adjoint)
            case _ if op.result in self.plan.choices:
                self.select((self.plan.choices[op.result], *op.args), adjoint)
            case "convert":
                (arg,) = op.args
                self.adjoints.add(arg, self.b.convert(adjoint, adjoint_type(arg.type)))
            case "bitcast":
                raise UnsupportedError(
                    "the bits of an active value are reinterpreted", op.span, "compute with its value"
                )
            case _ if (power := power_of(op, self.structure.definition)) is not None and power.base in self.adjoints:
                below = self.b.convert(self.value(power.below), adjoint.type)
                times = self.adjoints.get_times(op.result, float(power.exponent))
                self.adjoints.add(power.base, self.b.apply("mul", times, below))
            case _:
                self.chain(op, adjoint)

    def chain(self, op: Apply, adjoint: Value) -> None:
        rule = rule_for(op.fn)
        if rule is None:
            raise UnsupportedError(f"'{op.fn}' has no derivative and an active value passes through it", op.span)
        singular = rule.singular and not self.is_regular(op.args[0], rule.regular_from)
        for k, arg in enumerate(op.args):
            if arg not in self.adjoints or rule.is_zero(k):
                continue
            needs = rule.needs(k)
            result = self.value(op.result) if needs.result else None
            args = tuple(self.value(a) if j in needs.args else None for j, a in enumerate(op.args))
            if self.tests is not None:
                self.tests.at(args, result)
            contribution = scaled(self.b, adjoint, rule, k, result, args, singular)
            if contribution is not None:
                self.adjoints.add(arg, contribution)

    def is_regular(self, arg: Value, bound: float) -> bool:
        from ...analysis.float_bounds import at_least

        return at_least(arg, self.structure.definition) >= bound

    def select(self, args: tuple[Value, ...], adjoint: Value) -> None:
        cond, first, second = args
        chosen, nothing = self.value(cond), zero(self.b, adjoint.type)
        self.adjoints.add(first, self.b.apply("select", chosen, adjoint, nothing))
        self.adjoints.add(second, self.b.apply("select", chosen, nothing, adjoint))

    def pass_on(self, whole: Value, part: Value, index: int) -> None:
        if part in self.adjoints:
            source = part_of(self.b, self.adjoints.variable(whole), index)
            self.adjoints.add(part, self.b.load(source))

    def insert(self, op: Insert, aggregate: Value, value: Value, index: int) -> None:
        self.pass_on(op.result, value, index)
        if aggregate in self.adjoints:
            rest = self.b.insert(self.adjoints.get(op.result), zero(self.b, adjoint_type(value.type)), index)
            self.adjoints.add(aggregate, rest)

    def add_to(self, variable: Value, contribution: Value) -> None:
        add_into(self.b, variable, contribution)

    def warp(self, op: Warp) -> None:
        if not op.fn.startswith("shfl"):
            raise UnsupportedError(f"a derivative flows through '{op.fn}': not supported", op.span)
        mask, value, lane, width = op.args
        if value in self.adjoints:
            adjoint = self.adjoints.get(op.result)
            uniform, segment = lane in self.uniform, self.constants.get(width)
            operands = self.value(mask), self.value(lane), self.value(width)
            of_all = self.constants.get(mask) == FULL_WARP
            from .shuffles import Shuffle

            shuffle = Shuffle(op.fn, *operands, uniform, segment, of_all)
            self.adjoints.add(value, shuffle.adjoint(self.b, adjoint))

    # ---- control

    def if_(self, op: If) -> None:
        given = {k: self.adjoints.get(r) for k, r in enumerate(op.results) if r in self.adjoints}
        cond = self.value(op.cond)
        sides = []
        with self.branches() as another:
            for side in (op.then, op.orelse):
                another()
                with self.b.region() as region:
                    seeds = [(side.results[k], adjoint) for k, adjoint in given.items()]
                    self.reverse_block(self.structure.place(side), seeds, {})
                sides.append(region.block())
        self.b.span = op.span.reversed()
        self.b.if_(cond, sides[0], sides[1], op.exits and not self.meets_at_end)

    def loop(self, op: For | While) -> None:
        from .loops import reverse_for, reverse_while

        reverse_for(self, op) if isinstance(op, For) else reverse_while(self, op)

    def barrier(self) -> None:
        if self.logs is None:
            self.b.effect(Barrier, "block")
        else:
            self.logs.barrier(self.b)

    # ---- logs

    @property
    def has_phases(self) -> bool:
        """Whether barriers add up what was logged."""
        return self.logs is not None and self.logs.has_phases

    def branches(self) -> AbstractContextManager[Callable[[], None]]:
        """Code of which one part runs: what is called before each."""
        return self.logs.branches() if self.logs is not None else nullcontext(lambda: None)

    def repeated(self, op: Op) -> AbstractContextManager[None]:
        """The reverse of a loop."""
        return self.logs.repeated(self._logged_in(op)) if self.logs is not None else nullcontext()

    def _logged_in(self, op: Op) -> set[Logged]:
        """What the reverse of an operation logs."""
        if not self.has_phases:
            return set()
        inside = [*blocks(op), *(block for outer in blocks(op) for inner in walk(outer) for block in blocks(inner))]
        return {of for block in inside for of in self.sites.get(id(block), ())}
