"""Reverse mode: a kernel's gradient as one function that runs it forward, then backward.

`gradient` prepares (shadows, activity, plan); `sweep.Sweep` emits.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from ..deep import deeply
from ..errors import Span
from ..ir.effects import has_barrier
from ..ir.ops import Atomic, Block, For, Function, Global, Module, Op, Param, Print, Store, Value, While
from ..ir.traverse import clone, closed, uses, walk
from ..ir.types import I64, Pointer
from ..progress import doing
from ..transforms import cas_loops, invariant, predicate, promote, simplify
from ..transforms.passed import meets
from ..transforms.unroll import constants_of, unroll
from . import activity as activity_analysis
from . import converge, cooperate, members, rotate, shared_winners
from . import roots as memory_analysis
from . import structure as structure_analysis
from .activity import Activity
from .adding.accumulate import USUAL, Accumulation, Facts, plan_updates
from .adding.affine import Sums
from .adding.apart import stores_apart
from .adding.coarse import Coarse
from .adding.crowds import Copies
from .adding.exclusive import Place as SharedPlace
from .adding.exclusive import exclusive_loads, place_of
from .adding.private import private_roots, typical
from .adding.wide import wide_roots
from .bits import refuse_bits
from .claiming import ClaimSweep
from .keeping import along
from .keeping.before import Before
from .keeping.choices import with_choices
from .keeping.coverage import Threads
from .keeping.plan import Plan
from .keeping.planner import Task, make_plan
from .keeping.refusals import refuse_shadow_pointers, refuse_tape
from .keeping.strips import candidates, strip
from .keeping.tape import Stack
from .logs import Log
from .ordered import Sites, order_updates, sites
from .parameters import AdjointParams, adjoint_params, is_number, partial_sums
from .passing import refuse_waiting
from .roots import UNKNOWN, Memory, holds_pointers, leads_on, named_roots
from .shadows import Shadowed, add_shadows, is_dynamic
from .shared_winners import SharedWinners
from .structure import Place, Structure
from .sweep import Number, Sweep
from .tuning.shapes import is_short, with_extents, with_shape
from .winners import Claim, Winners, find_claims, refuse_alone

Mode = Literal["joint", "split", "reverse"]


@dataclass(frozen=True)
class Options:
    """`listed`: the parameters to differentiate. `kept`: pure outputs whose adjoint is read and left as it is.

    joint: forward and reverse in one function. split: two functions with a tape between them. reverse: the reverse
    alone, on buffers that hold what they held before the kernel (rule 6). A kernel that writes nothing but outputs runs
    forward then too, but for those writes: `silent`.
    """

    listed: tuple[str, ...]
    kept: tuple[str, ...] = ()
    mode: Mode = "joint"
    may_alias: bool = False
    facts: Facts = USUAL
    silent: bool = False
    deterministic: bool = False
    unique: tuple[str, ...] = ()  # buffers that hold no value twice, as the user promises
    changing: frozenset[str] = frozenset()  # buffers that may hold something else when the reverse of a split runs

    @property
    def partials(self) -> bool:
        """Whether each block leaves its sum of a number's adjoint for a finishing step."""
        return self.facts.partials or (self.deterministic and not self.facts.alone)


@dataclass
class Gradient:
    """`functions`: one, or for a split the augmented forward and the reverse. `adjoints`: for each listed parameter, in
    order, the parameter that takes its adjoint. `internal`: shadows of unlisted buffers through which derivatives
    flow, by the buffer's name. `partials`: where each warp leaves its sum of a number's adjoint. `logs`: where updates
    are logged, parameters of the reverse. `stacks`: the tape's parameters, which follow those in every function.
    `shared`: the shadow of each shared variable that has one. `coarse`: of launches that start fewer blocks.
    `only_sums`: nothing but adjoints of numbers, or of a few elements, is written. `wide`: doubles that stand for the
    adjoint of a parameter."""

    functions: tuple[Function, ...]
    adjoints: dict[str, Param]
    internal: dict[str, Param]
    partials: dict[str, Param]
    copies: dict[str, Copies]
    logs: tuple[Log, ...]
    stacks: tuple[Stack, ...]
    shared: dict[str, Global]
    prepared: Prepared
    coarse: Coarse | None
    only_sums: bool
    wide: dict[str, Param]
    shared_widening: int  # how often the bytes of dynamic shared memory go into those of its shadow

    @property
    def sums(self) -> bool:
        """Whether all threads add to the adjoint of a number."""
        values = {p.name: p.value for p in self.prepared.function.params}
        numbers = [values[n] for n in self.adjoints if not holds_pointers(values[n].type)]
        return any(v in self.prepared.activity for v in numbers)

    @property
    def logged(self) -> frozenset[str]:
        """The parameters to whose adjoints something is added by way of a log."""
        memory, plan = self.prepared.memory, self.prepared.accumulation
        names = {p.value: p.name for p in self.prepared.function.params}
        roots = (memory.of(load.ptr) for load in memory.loads if plan.logged.get(id(load)) == "")
        return frozenset(names[root] for found in roots for root in found if root in names)

    @property
    def claims(self) -> tuple[Claim, ...]:
        """With claims there are three functions: augmented forward, reverse, and the one that claims."""
        return tuple(self.prepared.winners.claims.values())


@dataclass
class Prepared:
    """What every sweep is emitted from."""

    options: Options
    shadowed: Shadowed
    structure: Structure
    memory: Memory
    activity: Activity
    plan: Plan
    accumulation: Accumulation
    kept: frozenset[Value]
    winners: Winners
    sites: Sites  # of logged updates
    task: Task  # what the plan was made for

    @property
    def function(self) -> Function:
        return self.shadowed.function

    def taped_spans(self) -> set[Span]:
        return {place.owner.span for place in self.taped_loops() if place.owner is not None}

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


@doing(lambda function, *_: f"deriving {function.name}")
@deeply
def gradient(function: Function, module: Module, options: Options) -> Gradient:
    """The gradient; loops that would need a tape take forms that need less of it, or none."""
    function = _ready(members.apart(function, module, options.listed), module, options)
    found = _differentiate(function, module, options)
    narrow, stripped = long_loops(found.prepared) if options.facts.strips else (frozenset[Span](), frozenset[Span]())
    if stripped:
        function = rotate.run(simplify.run(strip(function, stripped), module), module)
        found = _differentiate(function, module, options)
    short = _short_loops(function, found.prepared) - narrow
    if short:
        function = _unrolled(function, module, short)
        found = _differentiate(function, module, options)
    if narrow:
        # Last: simplification knows nothing of what this says of derivatives.
        memory = memory_analysis.analyse(function)
        function = along.run(function, narrow, memory, _activity(function, memory, options))
        found = _differentiate(function, module, options)
    return found


def _ready(function: Function, module: Module, options: Options) -> Function:
    """The function in the form that reversal knows."""
    cooperate.check(function)
    function = cas_loops.run(function, module)
    if options.facts.block is not None:
        function = with_shape(function, module, options.facts.block, options.mode == "reverse")
    refuse_waiting(function)
    meets_at_end = not options.facts.alone and any(is_number(p) for p in function.params if p.name in options.listed)
    # What is logged at a barrier of the block belongs to all of its threads (see `logs`): none may be gone.
    meets_at_end = meets_at_end or (options.deterministic and any(map(has_barrier, function.body.ops)))
    if predicate.is_needed(function, meets_at_end):
        # The body of a do-while loop is its condition, barriers included, until the loop is rotated.
        function = simplify.run(predicate.run(rotate.run(function, module), module), module)
    function = rotate.run(invariant.run(function, module), module)
    return converge.run(function, module, whole_rows=not options.facts.ragged)


def _short_loops(function: Function, prepared: Prepared) -> frozenset[Span]:
    """Loops of constant length that would need a tape, and unrolled need none."""
    constants = constants_of(function)
    taped = {place.owner for place in prepared.taped_loops()}
    short = {op.span for op in walk(function.body) if isinstance(op, For | While) and is_short(op, constants)}
    return frozenset(loop.span for loop in taped if isinstance(loop, For | While) and loop.span in short)


def _unrolled(function: Function, module: Module, chosen: frozenset[Span]) -> Function:
    constants = constants_of(function)
    unrolled = unroll(function, lambda loop: loop.span in chosen and is_short(loop, constants))
    # Simplification drops what a loop carries in vain, its condition too: hence rotated again.
    promoted = promote.run(unrolled, module)  # arrays whose indices are constants now
    return rotate.run(simplify.run(promoted, module), module)


def long_loops(prepared: Prepared) -> tuple[frozenset[Span], frozenset[Span]]:
    """Of launches with large tapes: the loops that carry derivatives along, and those that go in strips."""
    narrow = along.candidates(prepared.function, prepared.plan, prepared.memory, prepared.activity)
    return narrow, candidates(prepared.function, prepared.plan) - narrow


def _differentiate(function: Function, module: Module, options: Options) -> Gradient:
    memory = memory_analysis.analyse(function)
    activity = _activity(function, memory, options)
    refuse_bits(function, memory, activity)
    decided = shared_winners.find(function, module, memory, activity)
    if decided.won:
        function, module = decided.function, decided.extended(module)
        memory = memory_analysis.analyse(function)
        activity = _activity(function, memory, options)
    winners = Winners(find_claims(function, memory, activity, options.may_alias), decided.won)
    options = _suited(options, function, memory, winners)
    wide = wide_roots(function, memory, activity.roots, options.facts.wide)
    given = adjoint_params(function, activity, options.listed, options.facts.copied, wide)
    shadows = cooperate.shared_shadows(module, memory, activity.roots, wide)
    names = {name for name, root in memory.global_names.items() if root in wide}
    shared = SharedShadows(shadows, Value(I64, cooperate.SHARED_BYTES), frozenset(names))
    chosen, choices = with_choices(function, activity)
    shadowed = add_shadows(chosen, memory, activity.roots, given.pointers, shared.of, shared.nbytes, wide)
    pointers = (*given.pointers.values(), shared.nbytes)
    prepared = _prepare(shadowed, activity, pointers, options, winners, choices)
    emitter = Sweep(prepared)
    _fill_first(emitter, shared, decided, given, options.facts)
    return _assembled(function, prepared, emitter, given, shared, decided)


class SharedShadows(NamedTuple):
    """The shadow of each shared variable that has one, and where those of dynamic shared memory begin. `wide`: the
    variables whose shadows are in double precision."""

    of: dict[str, Global]
    nbytes: Value
    wide: frozenset[str]

    @property
    def widening(self) -> int:
        """How often the bytes of dynamic shared memory go into those of its shadow."""
        found = (cooperate.widening(v, name in self.wide) for name, v in self.of.items() if is_dynamic(v))
        return max(found, default=1)

    @property
    def is_wide(self) -> bool:
        """Whether dynamic shared memory has a wide shadow."""
        return any(is_dynamic(v) for name, v in self.of.items() if name in self.wide)

    @property
    def params(self) -> tuple[Param, ...]:
        dynamic = any(map(is_dynamic, self.of.values()))
        return (Param(self.nbytes, "long long", variable=cooperate.SHARED_BYTES),) if dynamic else ()


def _suited(options: Options, function: Function, memory: Memory, winners: Winners) -> Options:
    """How many launches it takes, whatever was asked for."""
    if winners.claims:
        return _apart(options, winners, memory)
    if options.mode == "reverse" and not options.may_alias and _writes_only_outputs(function, memory):
        return replace(options, mode="joint", silent=True)
    return options


def _fill_first(
    emitter: Sweep, shared: SharedShadows, decided: SharedWinners, given: AdjointParams, facts: Facts
) -> None:
    """What must be in memory before the sweeps."""
    if shared.of:
        threads = None if facts.block is None else math.prod(facts.block)
        cooperate.zero_shared(emitter.prologue, shared.of, shared.nbytes, threads, shared.is_wide)
        emitter.logs.base = lambda b, name, type: cooperate.shadow_cells(b, shared.of[name], shared.nbytes, type)
    shared_winners.fill_bids(emitter.prologue, decided.bids, cooperate.fill_together)
    for own in given.copies.values():
        own.emit(emitter.outside)
    emitter.spread = frozenset(own.pointer for own in given.copies.values())


def _assembled(
    function: Function,
    prepared: Prepared,
    emitter: Sweep,
    given: AdjointParams,
    shared: SharedShadows,
    decided: SharedWinners,
) -> Gradient:
    """The functions: bodies and parameters."""
    options, winners = prepared.options, prepared.winners
    params = {p.name: p for p in function.params}
    numbers = {name: p for name, p in given.adjoints.items() if is_number(params[name])}
    partials = partial_sums(numbers, params, prepared.activity) if options.partials else {}
    bodies = emitter.run([Number(params[n].value, p.value, partials.get(n)) for n, p in numbers.items()])
    stacks, logs = tuple(emitter.tape.stacks.values()), tuple(emitter.logs.all.values())
    tape = (*(p for stack in stacks for p in stack.params), *shared.params)
    ordered = (*partials.values(), *(p for log in logs for p in log.params))
    ordered += tuple(p for own in given.copies.values() for p in own.params)
    ordered += tuple(given.wide.values())
    if emitter.coarse is not None:
        ordered += emitter.coarse.extents
    whole = (*function.params, *given.adjoints.values(), *given.internal.values(), *ordered, *tape)
    shapes: dict[Mode, tuple[tuple[str, tuple[Param, ...]], ...]] = {
        "joint": (("_grad", whole),),
        "reverse": (("_grad", whole),),
        "split": (("_forward", (*function.params, *tape)), ("_reverse", (*whole, *winners.params))),
    }
    kept: tuple[Stack | Log, ...] = (*stacks, *(log for log in logs if not log.of.variable))
    own = _own_memory(function, prepared, {**given.adjoints, **given.internal, **given.wide}, kept)
    functions = tuple(
        _function(function, suffix, parameters, body, options, own)
        for (suffix, parameters), body in zip(shapes[options.mode], bodies, strict=True)
    )
    if winners.claims:
        functions = (*functions, _claiming(prepared))
    variables = {**shared.of, **decided.variables}
    parts = (partials, given.copies, logs, stacks, variables, prepared, emitter.coarse, emitter.only_sums)
    return Gradient(functions, given.adjoints, given.internal, *parts, given.wide, shared.widening)


def _apart(options: Options, winners: Winners, memory: Memory) -> Options:
    """Who wins is known when the whole grid has run: the reverse is a launch of its own (rule 1)."""
    if options.mode == "reverse":
        refuse_alone(winners, memory)
    return replace(options, mode="split")


def _claiming(prepared: Prepared) -> Function:
    sweep = ClaimSweep(prepared)
    body = sweep.body()
    tape = (p for stack in sweep.tape.stacks.values() for p in stack.params)
    params = (*prepared.function.params, *tape, *prepared.winners.params)
    return _function(prepared.function, "_claim", params, body, prepared.options)


def _own_memory(
    primal: Function, prepared: Prepared, adjoints: Mapping[str, Param], kept: tuple[Stack | Log, ...]
) -> frozenset[Value]:
    """The parameters through which no thread passes another a value (rule 21): what threads keep for themselves;
    buffers whose elements are one thread's each, and their adjoints; all of the kernel's own, if its threads never
    meet."""
    alone = prepared.options.facts.alone or not meets(primal)
    names = {p.name for p in primal.params if alone or _is_one_threads(p, prepared)}
    found = [p.value for p in primal.params if p.name in names]
    found += [p.value for name, p in adjoints.items() if name in names]
    return frozenset((*found, *(p.value for each in kept for p in each.params)))


def _is_one_threads(param: Param, prepared: Prepared) -> bool:
    """Whether each element of a buffer is touched by one thread alone: by all the proofs there are, or since there is
    but one store that keeps its threads apart."""
    memory, plan = prepared.memory, prepared.accumulation
    if param.name in plan.private:
        return True
    touching = [op for op in (*memory.loads, *memory.stores) if param.value in memory.of(op.ptr)]  # type: ignore[attr-defined]
    return len(touching) == 1 and isinstance(touching[0], Store) and place_of(touching[0], param.name) in plan.apart


def _function(
    primal: Function,
    suffix: str,
    params: tuple[Param, ...],
    body: Block,
    options: Options,
    own: frozenset[Value] = frozenset(),
) -> Function:
    """The two functions of a split share forward values, so each gets a copy of its own."""
    # The launcher has checked that no two buffers overlap (rule 12), unless the user said they may.
    params = tuple(replace(_restricted(p, options.may_alias), own=p.value in own) for p in params)
    body = clone(closed(along.erased(body), (p.value for p in params)), {})
    made = replace(primal, name=primal.name + suffix, shown=primal.called, params=params, body=body)
    function = members.bound(made, primal)
    return function if options.facts.block is None else with_extents(function, options.facts.block)


def _activity(function: Function, memory: Memory, options: Options) -> Activity:
    listed = frozenset(p.value for p in function.params if p.name in options.listed)
    found = activity_analysis.analyse(function, memory, listed, listed)
    pointers = {v for v in listed if holds_pointers(v.type)}
    return activity_analysis.with_shared_accesses(found, memory, pointers)


def _prepare(
    shadowed: Shadowed,
    activity: Activity,
    pointers: tuple[Value, ...],
    options: Options,
    winners: Winners,
    choices: dict[Value, Value],
) -> Prepared:
    function, shadow = shadowed.function, shadowed.of
    memory = memory_analysis.analyse(function)
    structure = structure_analysis.analyse(function, apart=options.mode != "joint")
    for param in (*pointers, *(p.value for p in winners.params)):
        structure.home[param] = structure.launch
    changing, early = changing_roots(function, memory, options), early_loads(function, memory, options)
    alias, refill = options.may_alias, options.facts.refill
    task = Task(function, structure, memory, activity, shadow, alias, refill, winners, choices, changing, early)
    plan = make_plan(task)
    if options.mode == "reverse":
        refuse_tape(plan, structure, Before(function, memory, options.may_alias))
    elif options.mode == "split":
        refuse_shadow_pointers(plan, structure, shadowed.of.values())
    if options.silent:
        outputs = set(_outputs(memory))
        plan.silent = frozenset(id(op) for op in walk(function.body) if isinstance(op, Print) or op in outputs)
    sums = typical(structure, function, unique_roots(function, options))
    private, exclusive, apart = _own(function, memory, structure, activity, options, sums)
    accumulation = plan_updates(memory, structure, activity.roots, private, exclusive, apart, options.facts, sums)
    if options.facts.alone:
        accumulation.contested.clear()
    if options.deterministic:
        alone = options.facts.alone
        accumulation = order_updates(accumulation, memory, structure, plan, alone, options.may_alias)
    logged = sites(accumulation, structure, plan, shadow)
    kept = frozenset(p.value for p in shadowed.function.params if p.name in options.kept)
    return Prepared(options, shadowed, structure, memory, activity, plan, accumulation, kept, winners, logged, task)


def changing_roots(function: Function, memory: Memory, options: Options) -> frozenset[Value]:
    """The memory that may change before the reverse runs, and of which no copy is kept: the launcher has none of what
    is behind pointers that memory holds."""
    behind = any(leads_on(root.type) for root in named_roots(function, memory, options.changing))
    taped = named_roots(function, memory, options.changing & options.facts.taped)
    return taped | {UNKNOWN} if behind else taped


def early_loads(function: Function, memory: Memory, options: Options) -> frozenset[int]:
    """Loads of what buffers held before the kernel, where the reverse finds that: in the buffers themselves if it runs
    alone, else in copies."""
    if options.mode == "joint":
        return frozenset()
    copied = named_roots(function, memory, options.changing - options.facts.taped)
    old = memory.lasting() | {UNKNOWN} if options.mode == "reverse" else copied
    loads = (op for op in memory.loads if memory.of(op.ptr) and memory.of(op.ptr) <= old)
    before = Before(function, memory, options.may_alias)
    return frozenset(id(op) for op in loads if before.store_before(op) is None)


def unique_roots(function: Function, options: Options) -> frozenset[Value]:
    """The buffers that the user promises something of, unless others may share their memory."""
    return frozenset(p.value for p in function.params if p.name in options.unique and not options.may_alias)


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


def _own(
    function: Function, memory: Memory, structure: Structure, activity: Activity, options: Options, sums: Sums
) -> tuple[frozenset[str], frozenset[SharedPlace], frozenset[SharedPlace]]:
    """What each thread has for itself, of the launch or of a typical one: buffers, cells of shared memory, and what it
    stores."""
    if options.may_alias:
        return frozenset(), frozenset(), frozenset()
    private, exclusive, apart = options.facts.private, options.facts.exclusive, options.facts.apart
    threads = Threads(sums.shape.block, structure, sums.known)
    if private is None:
        private = private_roots(memory, structure, function, activity.roots, sums)
    if exclusive is None:
        exclusive = exclusive_loads(function, memory, activity.roots, threads)
    if apart is None:
        apart = stores_apart(function, memory, structure, activity.roots, sums, threads)
    return private, exclusive, apart


def _restricted(param: Param, may_alias: bool) -> Param:
    return param if may_alias or not isinstance(param.type, Pointer) else replace(param, restrict=True)
