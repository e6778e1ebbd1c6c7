"""Reverse mode: a kernel's gradient as one function that runs it forward, then backward.

`Derivation` has what is prepared (`prepare`: shadows, activity, plan); its code is emitted (`sweep.Sweep`) when it is
asked for, once.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..analysis.passed import meets
from ..analysis.roots import holds_pointers, place_of
from ..deep import deeply
from ..ir.functions import ONLY_IN_REVERSE
from ..ir.ops import Block, Function, Global, Module, Param, Store, Value
from ..ir.traverse import clone, closed, kinds
from ..ir.types import Pointer, Struct
from ..locks import cached_property
from ..progress import COUNTS, doing
from .accumulate.parameters import is_number, partial_sums
from .prepare.options import Mode, Options
from .prepare.planned import Planned
from .prepare.prepared import Derivations, Prepared
from .sweep.reverse_sweep import Number, Sweep
from .winners.winners import WonBuffer

if TYPE_CHECKING:
    from .accumulate.block_cells import Cells
    from .accumulate.deferred import Slots
    from .accumulate.fewer_blocks import Coarse
    from .accumulate.logs import Log
    from .accumulate.replicas import Copies
    from .calculus.tape import Stack
    from .sweep.finite_tests import FiniteTests


@dataclass(frozen=True)
class Emitted:
    """The code. `functions`: one, or for a split the augmented forward and the reverse; with winners in global memory
    three: augmented forward, reverse, and the one that bids. `logs`: where updates are logged, parameters of the
    reverse. `stacks`: the tape's parameters, which follow those in every function. `coarse`: of launches that start
    fewer blocks. `only_sums`: nothing but adjoints of numbers, or of a few elements, is written. `frame`: the bytes of
    a tape that is passed in one piece. `tests`: those of `report_nan=True`."""

    functions: tuple[Function, ...]
    logs: tuple[Log, ...]
    stacks: tuple[Stack, ...]
    coarse: Coarse | None
    only_sums: bool
    frame: int = 0
    tests: FiniteTests | None = None


@dataclass
class Derivation:
    """`adjoints`: for each listed parameter, in order, the parameter that takes its adjoint. `internal`: shadows of
    unlisted buffers through which derivatives flow, by the buffer's name. `partials`: where each warp leaves its sum
    of a number's adjoint. `shared`: the shadow of each shared variable that has one. `wide`: doubles that stand for the
    adjoint of a parameter. `cells`: of each block. `deferred`: where additions are left that follow the launch.
    `shared_widening`: how often the bytes of dynamic shared memory go into its shadow's."""

    prepared: Prepared

    def __post_init__(self) -> None:
        COUNTS.derivations += 1
        planned = self.prepared.planned
        self.adjoints, self.internal = planned.given.adjoints, planned.given.internal
        self.copies: dict[str, Copies] = planned.given.copies
        self.wide: dict[str, Param] = planned.given.wide
        self.shared_widening: int = planned.shared.widening
        self.shared: dict[str, Global] = {**planned.shared.of, **planned.decided.variables}
        self.cells: dict[str, Cells] = planned.given.cells
        self.deferred: dict[int, Slots] = _deferred(self.prepared)
        self.shared |= {own.variable.name: own.variable for own in self.cells.values()}
        params = {p.name: p for p in planned.source.params}
        self.numbers = {name: p for name, p in self.adjoints.items() if is_number(params[name])}
        sums = partial_sums(self.numbers, params, planned.activity) if self.prepared.options.partials else {}
        self.partials: dict[str, Param] = sums

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
    def won_buffers(self) -> tuple[WonBuffer, ...]:
        return tuple(self.prepared.winners.buffers.values())

    @property
    def shared_params(self) -> tuple[Param, ...]:
        return self.prepared.planned.shared.params

    def marked(self, params: Iterable[Param], kept: tuple[Stack | Log | Slots, ...] = ()) -> tuple[Param, ...]:
        """Parameters with what compilers may assume of them. `kept`: where threads keep something for themselves."""
        adjoints = {**self.adjoints, **self.internal, **self.wide}
        own = _own_memory(self.prepared.planned.source, self.prepared, adjoints, kept)
        # The launcher has checked that no two buffers overlap (rule 12), unless the user said they may.
        alias = self.prepared.options.may_alias
        return tuple(replace(_restricted(p, alias), own=p.value in own) for p in params)

    # ---- the code

    @cached_property
    @doing(lambda self: f"deriving {self.prepared.planned.source.name}")
    @deeply
    def emitted(self) -> Emitted:
        COUNTS.emissions += 1
        emitter = Sweep(self.prepared)
        _fill_first(emitter, self.prepared.planned)
        emitter.stores.deferred = self.deferred
        return _assembled(self, emitter)

    @property
    def functions(self) -> tuple[Function, ...]:
        return self.emitted.functions

    @property
    def logs(self) -> tuple[Log, ...]:
        return self.emitted.logs

    @property
    def stacks(self) -> tuple[Stack, ...]:
        return self.emitted.stacks

    @property
    def coarse(self) -> Coarse | None:
        return self.emitted.coarse

    @property
    def only_sums(self) -> bool:
        return self.emitted.only_sums

    @property
    def tests(self) -> FiniteTests | None:
        """Of `report_nan=True`."""
        return self.emitted.tests if self.prepared.options.report_nan else None


def gradient(function: Function, module: Module, options: Options) -> Derivation:
    """Of a function that is differentiated once; `Derivations` is for several forms."""
    return Derivation(Derivations(function, module).prepared(options))


def _deferred(prepared: Prepared) -> dict[int, Slots]:
    if not prepared.accumulation.deferred:
        return {}
    from .accumulate.deferred import slots_of

    found = prepared.accumulation.deferred
    reads = [op for op in prepared.memory.loads if prepared.plan.has_adjoint(op)]
    return slots_of(reads, found, prepared.planned.given.adjoints)


def _fill_first(emitter: Sweep, planned: Planned) -> None:
    """What must be in memory before the sweeps."""
    shared, given, facts = planned.shared, planned.given, planned.options.facts
    if shared.of or planned.decided.bids:
        from .calculus import cooperate
        from .winners import shared_memory

    if shared.of:
        threads = None if facts.block is None else math.prod(facts.block)
        cooperate.zero_shared(emitter.prologue, shared.of, shared.nbytes, threads, shared.is_wide)
        if emitter.logs is not None:
            emitter.logs.base = lambda b, name, type: cooperate.shadow_cells(b, shared.of[name], shared.nbytes, type)
    if planned.decided.bids:
        shared_memory.fill_bids(emitter.prologue, planned.decided.bids, cooperate.fill_together)
    for own in given.copies.values():
        own.emit(emitter.outside)
    emitter.stores.cells = given.cells
    emitter.spread = frozenset(own.pointer for own in given.copies.values())


def _assembled(derivation: Derivation, emitter: Sweep) -> Emitted:
    """The functions: bodies and parameters."""
    prepared = derivation.prepared
    planned, options, winners = prepared.planned, prepared.options, prepared.winners
    function, given, partials = planned.source, planned.given, derivation.partials
    params = {p.name: p for p in function.params}
    numbers = derivation.numbers.items()
    bodies = emitter.run([Number(params[n].value, p.value, partials.get(n)) for n, p in numbers])
    stacks = emitter.stacks
    logs = tuple(emitter.logs.all.values()) if emitter.logs is not None else ()
    tape = (*(emitter.kept.params if emitter.kept is not None else ()), *planned.shared.params)
    ordered = (*partials.values(), *(p for log in logs for p in log.params))
    ordered += tuple(p for own in given.copies.values() for p in own.params)
    slots = tuple(derivation.deferred.values())
    ordered += tuple(p for own in slots for p in own.params)
    ordered += tuple(given.wide.values())
    ordered += tuple(own.length for own in given.cells.values())
    if emitter.coarse is not None:
        ordered += emitter.coarse.extents
    if emitter.tests is not None:
        ordered += (emitter.tests.memory,)
    whole = (*function.params, *given.adjoints.values(), *given.internal.values(), *ordered, *tape)
    shapes: dict[Mode, tuple[tuple[str, tuple[Param, ...]], ...]] = {
        "joint": (("_grad", whole),),
        "reverse": (("_grad", whole),),
        "split": (("_forward", (*function.params, *tape)), ("_reverse", (*whole, *winners.params))),
    }
    kept: tuple[Stack | Log | Slots, ...] = (*stacks, *(log for log in logs if not log.of.variable), *slots)
    functions = tuple(
        _function(function, suffix, derivation.marked(parameters, kept), body, options)
        for (suffix, parameters), body in zip(shapes[options.mode], bodies, strict=True)
    )
    if winners.buffers:
        functions = (*functions, _bidding(prepared))
    frame = emitter.kept.nbytes if emitter.kept is not None else 0
    return Emitted(functions, logs, stacks, emitter.coarse, emitter.only_sums, frame, emitter.tests)


def _bidding(prepared: Prepared) -> Function:
    from .winner_sweep import WinnerSweep

    sweep = WinnerSweep(prepared)
    body = sweep.body()
    tape = (p for stack in sweep.stacks for p in stack.params)
    params = (*prepared.function.params, *tape, *prepared.winners.params)
    shared = tuple(replace(_restricted(p, prepared.options.may_alias), own=False) for p in params)
    return _function(prepared.function, "_claim", shared, body, prepared.options)


def _own_memory(
    primal: Function, prepared: Prepared, adjoints: Mapping[str, Param], kept: tuple[Stack | Log | Slots, ...]
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
    if len(touching) != 1 or not isinstance(touching[0], Store):
        return False
    return place_of(touching[0], param.name) in plan.apart


def _function(
    primal: Function,
    suffix: str,
    params: tuple[Param, ...],
    body: Block,
    options: Options,
) -> Function:
    """The two functions of a split share forward values, so each gets a copy of its own."""
    if not kinds(body).isdisjoint(ONLY_IN_REVERSE):
        from .saving.carried_derivatives import erased

        body = erased(body)
    body = clone(closed(body, (p.value for p in params)), {})
    function = replace(primal, name=primal.name + suffix, shown=primal.called, params=params, body=body)
    if any(isinstance(p.type, Struct) for p in params):
        from .calculus import struct_members

        function = struct_members.bound(function, primal)
    if options.facts.block is None:
        return function
    from ..transforms.block_shape import with_extents

    return with_extents(function, options.facts.block)


def _restricted(param: Param, may_alias: bool) -> Param:
    return param if may_alias or not isinstance(param.type, Pointer) else replace(param, restrict=True)
