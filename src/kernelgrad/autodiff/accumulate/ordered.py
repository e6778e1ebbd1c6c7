"""Gradients that are bitwise the same from run to run: no adjoint depends on the order in which threads come by.

What would be added atomically is logged instead (`logs`), and added up in a fixed order: in global memory after the
launch, in shared memory at the next barrier.

After the launch is too late for a thread that still wants to see the sum: the reverse of a store to the same buffer.
Such reads are refused, unless the thread that reads an element writes it too: no other can be there then, and the
update is plain.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import takewhile

from ...analysis.loop_counts import BuiltinValue, Known, trip_count
from ...analysis.roots import Memory
from ...analysis.structure import Place, Structure
from ...errors import UnsupportedError
from ...ir.builder import pointee
from ...ir.ops import Alloca, Atomic, Barrier, BarrierReduce, For, Load, Op, Store, Value, While
from ...ir.traverse import blocks, walk
from ...ir.types import Array, Pointer, Scalar, Struct, Type, element_types
from ..saving import tape_capacity
from ..saving.plan import Plan
from .choice import Accumulation
from .logs import Logged

Sites = Mapping[int, Mapping[Logged, int]]  # by block: the floats that one run of it logs


# ---- which updates are logged -------------------------------------------------------------------------------------


def order_updates(
    found: Accumulation, memory: Memory, structure: Structure, plan: Plan, alone: bool, may_alias: bool
) -> Accumulation:
    """The accumulation plan without atomics."""
    return _Ordering(found, memory, structure, plan, may_alias).run(alone)


class _Ordering:
    def __init__(self, found: Accumulation, memory: Memory, structure: Structure, plan: Plan, may_alias: bool):
        self.found, self.memory, self.structure, self.plan = found, memory, structure, plan
        self.may_alias = may_alias
        self.order = {id(op): number for number, op in enumerate(walk(structure.top.block))}
        self.places = {id(op): place for place in structure.places.values() for op in place.block.ops}
        self.variables = {root: name for name, root in memory.global_names.items()}

    def run(self, alone: bool) -> Accumulation:
        reasons = dict(self.found.reasons)
        logged: dict[int, str] = {}
        for load in self.memory.loads:
            if not self.found.is_atomic(load) or not self.plan.has_adjoint(load):
                continue
            if alone:
                reasons[id(load)] = "there is one thread"
            elif self.writes_too(load):
                reasons[id(load)] = "the thread writes the element too"
            else:
                logged[id(load)] = self.variable(load)
                reasons[id(load)] = "other threads may read the element too"
        taken = {id(op): found for op in self.memory.stores if (found := self.taken(op, logged))}
        return replace(
            self.found, atomic=set(), together=set(), deferred={}, logged=logged, taken=taken, reasons=reasons
        )

    def writes_too(self, load: Load) -> bool:
        """Whether the thread stores to the same address with no barrier between: others that touched it would race."""
        op: Op = load
        place = self.places[id(load)]
        while not self.may_alias and place.parent is not None:
            ops = place.block.ops
            at = ops.index(op)
            for side in (ops[at + 1 :], ops[:at][::-1]):
                phase = takewhile(lambda op: not _meets(op), side)
                if any(isinstance(op, Store) and op.ptr is load.ptr for op in phase):
                    return True
            if place.owner is None or _meets(place.owner):
                break
            op, place = place.owner, place.parent  # what stands around it runs in any case
        return False

    def variable(self, load: Load) -> str:
        """The shared variable that is read; "" for global memory."""
        roots = self.memory.of(load.ptr)
        shared = [root for root in roots if isinstance(root.type, Pointer) and root.type.space == "shared"]
        local = any(isinstance(self.structure.definition.get(root), Alloca) for root in roots)
        if local or (shared and len(roots) > 1):
            raise UnsupportedError(
                f"a read through a pointer into one of several pieces of memory ({_names(roots)}), not all of them"
                " global, has no deterministic gradient",
                load.span,
                "read from each in a branch of its own",
            )
        if not shared:
            self.refuse_read_back(load)
            return ""
        self.refuse_warps(load)
        return self.variables[shared[0]]

    # ---- what is refused

    def refuse_warps(self, load: Load) -> None:
        """The reverse of a barrier of a warp would have to add up what the warp logged: only a block does."""
        for op in walk(self.structure.top.block):
            if isinstance(op, Barrier) and op.scope == "warp":
                raise UnsupportedError(
                    f"several threads may read one cell of '{_names(self.memory.of(load.ptr))}' between two barriers,"
                    " and a warp meets by itself: its adjoint would be summed in no fixed order",
                    load.span,
                    "leave deterministic=True away, or meet with __syncthreads()",
                )

    def refuse_read_back(self, load: Load) -> None:
        """A store that may come before the read wants the element's adjoint in the same launch."""
        for store in self.memory.stores:
            if self.plan.has_adjoint(store) and self.touches(store, load) and self.may_precede(store, load):
                raise UnsupportedError(
                    f"'{_names(self.memory.of(load.ptr))}' is written before it is read here, perhaps by several"
                    " threads: the sum of its adjoints would be needed in the same launch, where it has no fixed order",
                    load.span,
                    "leave deterministic=True away, or write and read in two kernels",
                )

    def touches(self, store: Op, load: Load) -> bool:
        assert isinstance(store, Store | Atomic)
        roots = self.memory.of(store.ptr)
        if self.may_alias:
            return not all(isinstance(self.structure.definition.get(r), Alloca) for r in roots)
        return bool(roots & self.memory.of(load.ptr))

    def may_precede(self, first: Op, second: Op) -> bool:
        """In program order, or in an earlier iteration of a loop around both."""
        if self.order[id(first)] < self.order[id(second)]:
            return True
        return bool(set(self.loops_around(first)) & set(self.loops_around(second)))

    def loops_around(self, op: Op) -> Iterator[int]:
        place: Place | None = self.places[id(op)]
        while place is not None:
            if isinstance(place.owner, For | While):
                yield id(place.owner)
            place = place.parent

    # ---- cells that a thread writes and reads between two barriers

    def taken(self, store: Op, logged: dict[int, str]) -> tuple[str, ...]:
        """The shared variables in whose phases the reverse of a store must look for entries of its own thread."""
        assert isinstance(store, Store | Atomic)
        if not self.plan.has_adjoint(store):
            return ()
        names = {self.variables[root] for root in self.memory.of(store.ptr) if root in self.variables}
        loads = (load for load in self.memory.loads if logged.get(id(load)) in names)
        return tuple(sorted({logged[id(load)] for load in loads if self.may_precede(store, load)}))


def _meets(op: Op) -> bool:
    """Whether threads meet in it."""
    return isinstance(op, Barrier | BarrierReduce) or any(_meets(inner) for block in blocks(op) for inner in block.ops)


def _names(roots: frozenset[Value]) -> str:
    return ", ".join(sorted(root.name or "?" for root in roots))


# ---- how much is logged -------------------------------------------------------------------------------------------


def sites(found: Accumulation, structure: Structure, plan: Plan, shadow: Mapping[Value, Value]) -> Sites:
    """What the reverse of each block logs."""
    counts: dict[int, Counter[Logged]] = {}
    for key, place in structure.places.items():
        for op in place.block.ops:
            if isinstance(op, Load) and found.is_logged(op) and plan.has_adjoint(op):
                variable, floats = found.logged[id(op)], _floats(pointee(shadow[op.ptr]))
                counts.setdefault(key, Counter()).update(Logged(type, variable) for type in floats)
    return counts


def _floats(type: Type) -> Iterator[Scalar]:
    if isinstance(type, Struct | Array):
        for part in element_types(type):
            yield from _floats(part)
    elif isinstance(type, Scalar) and type.is_float:
        yield type


def logs_of(sites: Sites) -> tuple[Logged, ...]:
    return tuple(dict.fromkeys(of for counts in sites.values() for of in counts))


def by_arithmetic(sites: Sites, structure: Structure, known: Known, builtin: BuiltinValue) -> dict[Logged, int] | None:
    """Entries per thread, or None where a trip count is not known before the launch."""
    found: Counter[Logged] = Counter()
    for key, counts in sites.items():
        for of, count in counts.items():
            place = structure.places[key]
            times = _executions(place, bool(of.variable), lambda loop: trip_count(loop, structure, known, builtin))
            if times is None:
                return None
            found[of] += times * count
    return found


def _executions(place: Place, phase: bool, trips: Callable[[For | While], int | None]) -> int | None:
    """How often a block runs; for a phase, between two barriers."""
    times, current = 1, place
    while current.parent is not None:
        if isinstance(current.owner, For | While):
            # Every iteration empties the phase, at a barrier that stands in the body itself.
            if phase and any(isinstance(op, Barrier) and op.scope == "block" for op in current.block.ops):
                return times
            count = trips(current.owner)
            if count is None:
                return None
            times *= count
        current = current.parent
    return times


def is_known_before(sites: Sites, structure: Structure) -> bool:
    """Whether every trip count that matters follows from scalar arguments and the launch."""
    return by_arithmetic(sites, structure, tape_capacity.arguments_as_ones(structure), lambda name, axis: 1) is not None
