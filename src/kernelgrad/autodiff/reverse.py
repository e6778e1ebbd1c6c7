"""Reverse mode: a kernel's gradient as one function that runs it forward, then backward.

`gradient` prepares (shadows, activity, plan); `sweep.Sweep` emits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from ..errors import Span, UnsupportedError
from ..ir.ops import (
    Atomic,
    Block,
    For,
    Function,
    Global,
    Module,
    Op,
    Param,
    Print,
    Value,
    While,
)
from ..ir.traverse import clone, closed, uses, walk
from ..ir.types import I64, Pointer
from ..transforms import cas_loops, invariant, predicate, promote, simplify
from ..transforms.unroll import constants_of, unroll
from . import activity as activity_analysis
from . import cooperate, rotate, shared_winners
from . import roots as memory_analysis
from . import structure as structure_analysis
from .accumulate import USUAL, Accumulation, Facts, plan_updates
from .activity import Activity
from .affine import Sums
from .apart import stores_apart
from .bits import refuse_bits
from .choices import with_choices
from .claiming import ClaimSweep
from .coarse import Coarse
from .coverage import Threads
from .crowds import Copies, spread
from .exclusive import Place as SharedPlace
from .exclusive import exclusive_loads
from .logs import Log
from .ordered import Sites, order_updates, sites
from .passing import refuse_waiting
from .plan import Plan, make_plan, refuse_shadow_pointers, refuse_tape
from .private import private_roots, typical
from .roots import Memory, holds_pointers
from .shadows import Shadowed, add_shadows, adjoint_c_type, adjoint_type, is_dynamic, shadow_name
from .shapes import is_short, with_extents, with_shape
from .strips import candidates, strip
from .structure import Place, Structure
from .sweep import Number, Sweep
from .tape import Stack
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
    `only_sums`: nothing but adjoints of numbers, or of a few elements, is written."""

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


def gradient(function: Function, module: Module, options: Options) -> Gradient:
    """The gradient; short loops of constant length that would need a tape are unrolled and need none."""
    cooperate.check(function)
    function = cas_loops.run(function, module)
    if options.facts.block is not None:
        function = with_shape(function, module, options.facts.block, options.mode == "reverse")
    refuse_waiting(function)
    meets_at_end = not options.facts.alone and any(_is_number(p) for p in function.params if p.name in options.listed)
    # What is logged at a barrier of the block belongs to all of its threads (see `logs`): none may be gone.
    meets_at_end = meets_at_end or (options.deterministic and any(map(predicate.has_barrier, function.body.ops)))
    if predicate.is_needed(function, meets_at_end):
        # The body of a do-while loop is its condition, barriers included, until the loop is rotated.
        function = simplify.run(predicate.run(rotate.run(function, module), module), module)
    function = rotate.run(invariant.run(function, module), module)
    found = _differentiate(function, module, options)
    if options.facts.strips:
        stripped = strip(function, candidates(found.prepared.function, found.prepared.plan))
        function = rotate.run(simplify.run(stripped, module), module)
        found = _differentiate(function, module, options)
    constants = constants_of(function)
    taped = {place.owner for place in found.prepared.taped_loops()}
    short = {op.span for op in walk(function.body) if isinstance(op, For | While) and is_short(op, constants)}
    chosen = {loop.span for loop in taped if isinstance(loop, For | While)} & short
    if not chosen:
        return found
    unrolled = unroll(function, lambda loop: loop.span in chosen and is_short(loop, constants))
    # Simplification drops what a loop carries in vain, its condition too: hence rotated again.
    promoted = promote.run(unrolled, module)  # arrays whose indices are constants now
    return _differentiate(rotate.run(simplify.run(promoted, module), module), module, options)


def _differentiate(function: Function, module: Module, options: Options) -> Gradient:
    params = {p.name: p for p in function.params}
    memory = memory_analysis.analyse(function)
    activity = _activity(function, memory, params, options)
    refuse_bits(function, memory, activity)
    decided = shared_winners.find(function, module, memory, activity)
    if decided.won:
        function, module = decided.function, decided.extended(module)
        memory = memory_analysis.analyse(function)
        activity = _activity(function, memory, params, options)
    winners = Winners(find_claims(function, memory, activity, options.may_alias), decided.won)
    if winners.claims:
        options = _apart(options, winners, memory)
    elif options.mode == "reverse" and not options.may_alias and _writes_only_outputs(function, memory):
        options = replace(options, mode="joint", silent=True)
    adjoints = {name: _adjoint_param(params[name], params) for name in options.listed}
    unlisted = [p for p in function.params if p.value in activity.roots and p.name not in adjoints]
    _refuse_unlisted_structs(unlisted, function)
    internal = {p.name: _adjoint_param(p, params) for p in unlisted}
    pointers = {params[n].value: p.value for n, p in {**adjoints, **internal}.items() if _is_pointer(params[n])}
    copies = {n: spread(p) for n, p in adjoints.items() if n in options.facts.copied}
    pointers |= {params[n].value: own.pointer for n, own in copies.items()}
    shared = cooperate.shared_shadows(module, memory, activity.roots)
    shared_bytes = Value(I64, cooperate.SHARED_BYTES)
    chosen, choices = with_choices(function, activity)
    shadowed = add_shadows(chosen, memory, activity.roots, pointers, shared, shared_bytes)
    prepared = _prepare(shadowed, activity, (*pointers.values(), shared_bytes), options, winners, choices)
    emitter = Sweep(prepared)
    if shared:
        threads = None if options.facts.block is None else math.prod(options.facts.block)
        cooperate.zero_shared(emitter.prologue, shared, shared_bytes, threads)
        emitter.logs.base = lambda b, name, type: cooperate.shadow_cells(b, shared[name], shared_bytes, type)
    shared_winners.fill_bids(emitter.prologue, decided.bids, cooperate.fill_together)
    for own in copies.values():
        own.emit(emitter.outside)
    emitter.spread = frozenset(own.pointer for own in copies.values())
    numbers = {n: p for n, p in adjoints.items() if _is_number(params[n])}
    partials = _partials(numbers, params, activity, options)
    bodies = emitter.run([Number(params[n].value, p.value, partials.get(n)) for n, p in numbers.items()])
    stacks = tuple(emitter.tape.stacks.values())
    tape = tuple(p for s in stacks for p in s.params)
    if any(map(is_dynamic, shared.values())):
        tape = (*tape, Param(shared_bytes, "long long", variable=cooperate.SHARED_BYTES))
    logs = tuple(emitter.logs.all.values())
    ordered = (*partials.values(), *(p for log in logs for p in log.params))
    ordered += tuple(p for own in copies.values() for p in own.params)
    if emitter.coarse is not None:
        ordered += emitter.coarse.extents
    whole = (*function.params, *adjoints.values(), *internal.values(), *ordered, *tape)
    shapes: dict[Mode, tuple[tuple[str, tuple[Param, ...]], ...]] = {
        "joint": (("_grad", whole),),
        "reverse": (("_grad", whole),),
        "split": (("_forward", (*function.params, *tape)), ("_reverse", (*whole, *winners.params))),
    }
    functions = tuple(
        _function(function, suffix, parameters, body, options)
        for (suffix, parameters), body in zip(shapes[options.mode], bodies, strict=True)
    )
    if winners.claims:
        functions = (*functions, _claiming(prepared))
    variables = {**shared, **decided.variables}
    parts = (partials, copies, logs, stacks, variables, prepared, emitter.coarse, emitter.only_sums)
    return Gradient(functions, adjoints, internal, *parts)


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


def _function(primal: Function, suffix: str, params: tuple[Param, ...], body: Block, options: Options) -> Function:
    """The two functions of a split share forward values, so each gets a copy of its own."""
    # The launcher has checked that no two buffers overlap (rule 12), unless the user said they may.
    params = tuple(_restricted(p, options.may_alias) for p in params)
    body = clone(closed(body, (p.value for p in params)), {})
    function = replace(primal, name=primal.name + suffix, params=params, body=body)
    return function if options.facts.block is None else with_extents(function, options.facts.block)


def _activity(function: Function, memory: Memory, params: dict[str, Param], options: Options) -> Activity:
    listed = frozenset(params[name].value for name in options.listed)
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
    alias, refill = options.may_alias, options.facts.refill
    plan = make_plan(function, structure, memory, activity, shadow, alias, refill, winners, choices)
    if options.mode == "reverse":
        refuse_tape(plan, structure)
    elif options.mode == "split":
        refuse_shadow_pointers(plan, structure, shadowed.of.values())
    if options.silent:
        plan.silent = frozenset(id(op) for op in walk(function.body) if isinstance(op, Print) or op in _outputs(memory))
    sums = typical(structure, function, unique_roots(function, options))
    private, exclusive, apart = _own(function, memory, structure, activity, options, sums)
    accumulation = plan_updates(memory, structure, activity.roots, private, exclusive, apart, options.facts, sums)
    if options.facts.alone:
        accumulation.contested.clear()
    if options.deterministic:
        alone = options.facts.alone
        accumulation = order_updates(accumulation, memory, structure, plan, alone, options.may_alias)
    logged = sites(accumulation, structure, plan)
    kept = frozenset(p.value for p in shadowed.function.params if p.name in options.kept)
    return Prepared(options, shadowed, structure, memory, activity, plan, accumulation, kept, winners, logged)


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


def _is_pointer(param: Param) -> bool:
    """A pointer, or a struct that holds some: its shadow is of its own type."""
    return holds_pointers(param.type)


def _is_number(param: Param) -> bool:
    """Passed by value: every thread has a part in its adjoint."""
    return not holds_pointers(param.type)


def _partials(
    adjoints: dict[str, Param], params: dict[str, Param], activity: Activity, options: Options
) -> dict[str, Param]:
    if not options.partials:
        return {}
    found = {}
    for name, param in adjoints.items():
        if params[name].value in activity:
            found[name] = Param(Value(param.type, f"_sums_{name}"), param.c_type)
    return found


def _refuse_unlisted_structs(params: list[Param], function: Function) -> None:
    for param in params:
        if not isinstance(param.type, Pointer):
            reason = f"a derivative flows through the pointers in '{param.name}', which is not listed"
            raise UnsupportedError(reason, function.span, f"list '{param.name}' too")


def _adjoint_param(param: Param, taken: dict[str, Param]) -> Param:
    type = param.type if _is_pointer(param) else Pointer(param.type, "global")
    name = shadow_name(param.name) or "_d"
    while name in taken:
        name = f"_{name}"
    c_type = adjoint_c_type(param.c_type)
    return Param(
        Value(adjoint_type(type), name), c_type if _is_pointer(param) else f"{c_type} *", False, param.restrict
    )
