"""What forms of a derivative have in common that differ in how updates are added alone: activity, winners, adjoint
parameters, shadows, and what is kept for the reverse."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from ...analysis import roots as memory_analysis
from ...analysis import structure as structure_analysis
from ...analysis.access.affine import Sums
from ...analysis.ownership.private import private_roots, stores_apart, typical
from ...analysis.promises import Promises
from ...analysis.roots import Memory, holds_pointers, named_roots
from ...analysis.roots import Place as SharedPlace
from ...analysis.structure import Place, Structure
from ...errors import Span
from ...ir.builder import pointee
from ...ir.ops import Atomic, Call, For, Function, Global, Load, Module, Op, Param, Print, PtrCast, Value, Warp, While
from ...ir.traverse import kinds, operands, uses, walk
from ...ir.types import F64, I64, Pointer, Scalar
from ...locks import cached_property
from ..accumulate.parameters import AdjointParams, adjoint_params
from ..calculus import activity as activity_analysis
from ..calculus.activity import Activity
from ..calculus.shadows import SHARED_BYTES, Shadowed, add_shadows, is_dynamic
from ..saving.plan import Plan, Task, make_plan
from ..winners.winners import SharedWinners, Winners
from .options import Options, changing_roots, early_loads, promised_roots


class SharedShadows(NamedTuple):
    """The shadow of each shared variable that has one, and where those of dynamic shared memory begin. `wide`: the
    variables whose shadows are in double precision."""

    of: dict[str, Global]
    nbytes: Value
    wide: frozenset[str]

    @property
    def widening(self) -> int:
        """How often the bytes of dynamic shared memory go into those of its shadow."""
        if not self.of:
            return 1
        from ..calculus.cooperate import widening

        found = (widening(v, name in self.wide) for name, v in self.of.items() if is_dynamic(v))
        return max(found, default=1)

    @property
    def is_wide(self) -> bool:
        """Whether dynamic shared memory has a wide shadow."""
        return any(is_dynamic(v) for name, v in self.of.items() if name in self.wide)

    @property
    def params(self) -> tuple[Param, ...]:
        dynamic = any(map(is_dynamic, self.of.values()))
        return (Param(self.nbytes, "long long", variable=SHARED_BYTES),) if dynamic else ()


@dataclass
class Planned:
    """What forms of a derivative have in common that differ in how updates are added alone. `source`: the kernel in
    the form that is reversed; in `shadowed`, with the pointers to adjoints beside its own. `options`: as they suit
    it."""

    options: Options
    source: Function
    shadowed: Shadowed
    structure: Structure
    memory: Memory
    activity: Activity
    plan: Plan
    task: Task
    winners: Winners
    decided: SharedWinners
    given: AdjointParams
    shared: SharedShadows

    @property
    def function(self) -> Function:
        return self.shadowed.function

    @property
    def is_zero(self) -> bool:
        """Whether no derivative gets into memory; what atomics add to has its own."""
        memory, activity = self.memory, self.activity
        kept = any(isinstance(op, Atomic) and memory.of(op.ptr) & activity.roots for op in memory.stores)
        return not kept and not any(value in activity for op in memory.stores for value in operands(op))

    def taped_spans(self) -> set[Span]:
        return {place.owner.span for place in self.taped_loops() if place.owner is not None}

    def looped_spans(self) -> frozenset[Span]:
        """The loops that have to do with how large the tape is: those that put something on it, and those around."""
        found: set[Span] = set()
        for start in self.taped_loops():
            place: Place | None = start
            while place is not None:
                if isinstance(place.owner, For | While):
                    found.add(place.owner.span)
                place = place.parent
        return frozenset(found)

    def taped_loops(self) -> list[Place]:
        """The loop bodies (and branches in loops) that put something on the tape."""
        places = [self.structure.places[key] for key, frame in self.plan.taped.items() if frame]
        found: list[Place] = []
        for start in places:
            place: Place | None = start
            while place is not None and not isinstance(place.owner, For | While):
                place = place.parent
            if place is not None:
                found.append(place)
        return found

    def typically_owned(self, options: Options) -> TypicallyOwned:
        key = options.promises
        if key not in self._owned:
            self._owned[key] = TypicallyOwned(self, options)
        return self._owned[key]

    @cached_property
    def _owned(self) -> dict[Promises, TypicallyOwned]:
        return {}

    @cached_property
    def long_loops(self) -> tuple[frozenset[Span], frozenset[Span]]:
        """Of launches with large tapes: the loops that carry derivatives along, and those that go in strips."""
        if not any(self.plan.taped.values()):
            return frozenset(), frozenset()
        from ..saving import carried_derivatives, rerun_segments

        narrow = carried_derivatives.candidates(self.function, self.plan, self.memory, self.activity)
        return narrow, rerun_segments.candidates(self.function, self.plan) - narrow

    @cached_property
    def rescaled_loops(self) -> frozenset[Span]:
        """Of the loops that tape something, those whose sums hang on a running scale as it is in the end alone."""
        if not any(self.plan.taped.values()):
            return frozenset()
        from ..saving import rescaled_sums

        return rescaled_sums.candidates(self.source, self.taped_spans(), self.activity)


def make_planned(function: Function, module: Module, options: Options) -> Planned:
    memory = memory_analysis.analyse(function)
    if options.results:
        from ..saving import held_results

        function = held_results.arranged(function, memory, held_results.roots_of(function, options.results))
        memory = memory_analysis.analyse(function)
    activity = activity_of(function, memory, options)
    held = kinds(function.body)
    if "bitcast" in held or not _is_seen_as_declared(memory):
        from ..refusals.bits import refuse_bits

        refuse_bits(function, memory, activity)
    if PtrCast in held:
        from ..refusals.bits import refuse_odd_steps

        refuse_odd_steps(function, memory, activity)
    decided, winners = SharedWinners(function), Winners()
    if Atomic in held:
        from ..winners import global_memory, shared_memory

        decided = shared_memory.find(function, module, memory, activity)
        if decided.won:
            function, module = decided.function, decided.extended(module)
            memory = memory_analysis.analyse(function)
            activity = activity_of(function, memory, options)
        winners = Winners(global_memory.find_won_buffers(function, memory, activity, options.may_alias), decided.won)
    options = _suited(options, function, memory, winners)
    wide = _wide_roots(function, memory, activity, options.facts.wide)
    facts = options.facts
    given = adjoint_params(function, activity, options.listed, facts.copied, wide, facts.cells, facts.copies)
    shared = _shared_shadows(module, memory, activity, wide)
    in_block = frozenset(p.value for p in function.params if p.name in given.cells)
    chosen, choices = function, dict[Value, Value]()
    if not held.isdisjoint(("max", "min")):
        from ..saving.branch_bits import with_choices

        chosen, choices = with_choices(function, activity)
    doubles = (wide - in_block) | _in_double(given)
    shadowed = add_shadows(chosen, memory, activity.roots, given.pointers, shared.of, shared.nbytes, doubles, in_block)
    pointers = (*given.pointers.values(), shared.nbytes)
    task = _task(shadowed, activity, pointers, options, winners, choices)
    plan = _checked_plan(task, shadowed, options)
    plan.roomy = options.facts.roomy
    if not held.isdisjoint((Atomic, Call, Warp)):
        from ..refusals.unsupported import refuse_unsupported

        refuse_unsupported(task.function, plan, activity)
    parts = (task.structure, task.memory, activity, plan, task, winners, decided, given, shared)
    return Planned(options, function, shadowed, *parts)


def _in_double(given: AdjointParams) -> frozenset[Value]:
    """The parameters of whose adjoints each block has cells in double precision."""
    if not given.cells:
        return frozenset()
    from ..calculus.flat_numbers import flat

    wide = {own.pointer for own in given.cells.values() if flat(pointee(own.pointer)) == F64}
    return frozenset(root for root, pointer in given.pointers.items() if pointer in wide)


def _is_seen_as_declared(memory: Memory) -> bool:
    """Whether all memory is accessed as the numbers it is declared to hold: nobody takes the bits of others."""
    for op in (*memory.loads, *memory.stores):
        type = pointee(op.ptr)  # type: ignore[attr-defined]
        roots = memory.of(op.ptr)  # type: ignore[attr-defined]
        if not isinstance(type, Scalar) or any(
            not isinstance(r.type, Pointer) or r.type.pointee != type for r in roots
        ):
            return False
    return True


def _wide_roots(function: Function, memory: Memory, activity: Activity, wanted: frozenset[str]) -> frozenset[Value]:
    """The memory whose shadow is in double precision."""
    if not wanted:
        return frozenset()
    from .double_cells import wide_roots

    return wide_roots(function, memory, activity.roots, wanted)


def _shared_shadows(module: Module, memory: Memory, activity: Activity, wide: frozenset[Value]) -> SharedShadows:
    nbytes = Value(I64, SHARED_BYTES)
    if not memory.global_names:
        return SharedShadows({}, nbytes, frozenset())
    from ..calculus.cooperate import shared_shadows

    names = frozenset(name for name, root in memory.global_names.items() if root in wide)
    return SharedShadows(shared_shadows(module, memory, activity.roots, wide), nbytes, names)


def _suited(options: Options, function: Function, memory: Memory, winners: Winners) -> Options:
    """How many launches it takes, whatever was asked for."""
    if winners.buffers:
        return _apart(options, winners, memory)
    if options.mode == "reverse" and not options.may_alias and _writes_only_outputs(function, memory):
        return replace(options, mode="joint", silent=True)
    return options


def _apart(options: Options, winners: Winners, memory: Memory) -> Options:
    """Who wins is known when the whole grid has run: the reverse is a launch of its own (rule 1)."""
    if options.mode == "reverse":
        from ..winners.global_memory import refuse_alone

        refuse_alone(winners, memory)
    return replace(options, mode="split")


def activity_of(function: Function, memory: Memory, options: Options) -> Activity:
    listed = frozenset(p.value for p in function.params if p.name in options.listed)
    found = activity_analysis.analyse(function, memory, listed, listed)
    pointers = {v for v in listed if holds_pointers(v.type)}
    return activity_analysis.with_shared_accesses(found, memory, pointers)


def _task(
    shadowed: Shadowed,
    activity: Activity,
    pointers: tuple[Value, ...],
    options: Options,
    winners: Winners,
    choices: dict[Value, Value],
) -> Task:
    function, shadow = shadowed.function, shadowed.of
    memory = memory_analysis.analyse(function)
    structure = structure_analysis.analyse(function, apart=options.mode != "joint")
    for param in (*pointers, *(p.value for p in winners.params)):
        structure.home[param] = structure.launch
    changing, early = changing_roots(function, memory, options), early_loads(function, memory, options)
    alias, refill = options.may_alias, options.facts.refill
    held: dict[int, Load] = {}
    if options.silent and options.results:
        from ..saving import held_results

        held = held_results.find(structure, memory, activity, held_results.roots_of(function, options.results))
    more = (changing, early, not options.facts.stacks, held, options.facts.looks_back)
    return Task(function, structure, memory, activity, shadow, alias, refill, winners, choices, *more)


def _checked_plan(task: Task, shadowed: Shadowed, options: Options) -> Plan:
    function, memory = task.function, task.memory
    if options.mode == "split":
        from ..refusals.unsaved import split_plan

        plan = split_plan(task, shadowed.of.values(), named_roots(function, memory, options.changing))
    else:
        plan = make_plan(task)
    if options.mode == "reverse":
        from ...analysis.ownership.loads_before_stores import Before
        from ..refusals.unsaved import refuse_tape

        numbers = task.early.numbers if task.early else None
        before = Before(function, memory, options.may_alias, numbers)
        refuse_tape(plan, task.structure, before, options.facts.apart_in_turn)
    if options.silent:
        outputs = set(_outputs(memory))
        plan.silent = frozenset(id(op) for op in walk(function.body) if isinstance(op, Print) or op in outputs)
    return plan


def _outputs(memory: Memory) -> list[Op]:
    """Writes to memory that outlives the launch."""
    lasting = memory.lasting()
    return [op for op in memory.stores if memory.of(op.ptr) & lasting]  # type: ignore[attr-defined]


def _writes_only_outputs(function: Function, memory: Memory) -> bool:
    """Whether nothing that outlives the launch is both written and read: the kernel could run again."""
    used = uses(function.body)
    written = _outputs(memory)
    roots = frozenset[Value]().union(*(memory.of(op.ptr) for op in written))  # type: ignore[attr-defined]
    read = any(memory.of(load.ptr) & roots for load in memory.loads)
    return not read and not any(isinstance(op, Atomic) and used.get(op.result) for op in written)


# ---- what each thread has for itself --------------------------------------------------------------------------------


class Owned(NamedTuple):
    """`private`: the buffers and shared variables whose elements are touched by one thread each. `exclusive`: the same
    of cells between two barriers. `apart`: stores by which no two threads write the same element."""

    private: frozenset[str]
    exclusive: frozenset[SharedPlace]
    apart: frozenset[SharedPlace]


class TypicallyOwned:
    """For a launch like those that the kernel is made for."""

    def __init__(self, planned: Planned, options: Options):
        self.planned = planned
        self.sums: Sums = typical(planned.structure, planned.function, promised_roots(planned.function, options))

    @cached_property
    def private(self) -> frozenset[str]:
        at = self.planned
        return private_roots(at.memory, at.structure, at.function, at.activity.roots, self.sums)

    @cached_property
    def of_stores(self) -> tuple[frozenset[SharedPlace], frozenset[SharedPlace]]:
        return of_stores(self.planned, self.sums)


def of_stores(planned: Planned, sums: Sums) -> tuple[frozenset[SharedPlace], frozenset[SharedPlace]]:
    """`exclusive` and `apart`. Where there is shared memory, a block is played through for them."""
    of = planned.function, planned.memory
    if not planned.memory.global_names:
        return frozenset(), stores_apart(*of, planned.structure, planned.activity.roots, sums, None)
    from ...analysis.block_interpreter.threads import Threads
    from ...analysis.ownership.exclusive import exclusive_loads

    threads = Threads(sums.shape.block, planned.structure, sums.known)
    exclusive = exclusive_loads(*of, planned.activity.roots, threads)
    return exclusive, stores_apart(*of, planned.structure, planned.activity.roots, sums, threads)


def owned(planned: Planned, options: Options, usual: TypicallyOwned) -> Owned:
    """Of the launch, where that is known, else of a typical one."""
    if options.may_alias:
        return Owned(frozenset(), frozenset(), frozenset())
    facts = options.facts
    return Owned(
        usual.private if facts.private is None else facts.private,
        usual.of_stores[0] if facts.exclusive is None else facts.exclusive,
        usual.of_stores[1] if facts.apart is None else facts.apart,
    )
