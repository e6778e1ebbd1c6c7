"""Gradients that are bitwise the same from run to run: no adjoint depends on the order in which threads come by.

An update of global memory that would be atomic is written down instead: which element, how much (`Log`). After the
launch the launcher sorts what was logged and adds it up in the order of blocks, slots and threads (`ordering.py`).
That is too late for a thread of the same launch that still wants to see the sum: the reverse of a store. Such reads are
refused, unless the thread that reads an element writes it too: no other can be there then, and the update is plain.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from ..errors import UnsupportedError
from ..ir.builder import Builder, pointee
from ..ir.ops import Alloca, Atomic, For, Load, Op, Param, Store, Value, While
from ..ir.traverse import walk
from ..ir.types import I64, U64, Array, Pointer, Scalar, Struct, Type
from ..transforms.predicate import has_barrier
from . import capacity
from .accumulate import Accumulation
from .plan import Plan
from .roots import Memory
from .shadows import adjoint_type
from .structure import Place, Structure
from .tape import Tape, part_types

Sites = Mapping[int, Mapping[Scalar, int]]  # by block: the floats that one run of it logs


@dataclass(frozen=True)
class Logged:
    """What a log holds: where a float goes, and the float."""

    type: Scalar

    @property
    def size(self) -> int:
        return U64.size + self.type.size


@dataclass(frozen=True)
class Log:
    """Laid out like the tape: entry k of a thread lies at `segment + k * threads + thread`."""

    of: Logged
    addresses: Value  # parameter: the entries' elements; null where nothing was logged
    values: Value  # parameter: what to add to them
    capacity: Value | None  # parameter: entries per thread, the same for every block, or
    segments: Value | None  # parameter: where each block's entries begin
    position: Value  # variable: where the next entry goes

    @property
    def params(self) -> tuple[Param, ...]:
        params = [Param(self.addresses, "unsigned long long *"), Param(self.values, "void *")]
        if self.capacity is not None:
            params.append(Param(self.capacity, "long long"))
        if self.segments is not None:
            params.append(Param(self.segments, "long long *"))
        return tuple(params)


class Logs:
    """One log per type of float; `prologue` is code at the start of the function that logs."""

    def __init__(self, tape: Tape, counted: bool):
        self.tape, self.counted = tape, counted
        self.prologue = Builder()
        self.logs: dict[Scalar, Log] = {}

    def append(self, b: Builder, ptr: Value, adjoint: Value) -> None:
        """Unless there is nothing to add."""
        assert isinstance(adjoint.type, Scalar)
        log, threads = self._log(adjoint.type), self.tape.threads()
        some = b.apply("ne", adjoint, b.constant(0.0, adjoint.type))
        with b.region() as region:
            at = b.load(log.position)
            b.store(b.offset(log.addresses, at), b.apply("address", ptr, type=U64))
            b.store(b.offset(log.values, at), adjoint)
            b.store(log.position, b.apply("add", at, threads))
        b.if_(some, region.block())

    def _log(self, type: Scalar) -> Log:
        if type not in self.logs:
            b, name = self.prologue, type.name
            capacity = None if self.counted else Value(I64, f"_log_capacity_{name}")
            segments = Value(Pointer(I64, "global"), f"_log_segments_{name}") if self.counted else None
            position = b.alloca(I64, f"_logged_{name}")
            b.store(position, self.tape.start(b, capacity, segments))
            addresses = Value(Pointer(U64, "global"), f"_log_addresses_{name}")
            values = Value(Pointer(type, "global"), f"_log_{name}")
            self.logs[type] = Log(Logged(type), addresses, values, capacity, segments, position)
        return self.logs[type]


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

    def run(self, alone: bool) -> Accumulation:
        reasons = dict(self.found.reasons)
        logged: set[int] = set()
        for load in self.memory.loads:
            if not self.found.is_atomic(load) or not self.plan.has_adjoint(load):
                continue
            if alone:
                reasons[id(load)] = "there is one thread"
            elif self.writes_too(load):
                reasons[id(load)] = "the thread writes the element too"
            else:
                self.refuse_shared(load)
                self.refuse_read_back(load)
                reasons[id(load)] = "other threads may read the element too"
                logged.add(id(load))
        return replace(self.found, atomic=set(), together=set(), logged=logged, reasons=reasons)

    def writes_too(self, load: Load) -> bool:
        """Whether the thread stores to the same address with no barrier between: others that touched it would race."""
        if self.may_alias:
            return False
        ops = self.places[id(load)].block.ops
        at = ops.index(load)
        for step in (1, -1):
            for op in ops[at + step :: step] if at + step >= 0 else ():
                if has_barrier(op):
                    break
                if isinstance(op, Store) and op.ptr is load.ptr:
                    return True
        return False

    def refuse_shared(self, load: Load) -> None:
        roots = self.memory.of(load.ptr)
        if any(isinstance(r.type, Pointer) and r.type.space == "shared" for r in roots):
            raise UnsupportedError(
                f"several threads may read one cell of '{_names(roots)}' between two barriers: its adjoint would be"
                " summed in no fixed order",
                load.span,
                "leave deterministic=True away, or read a cell by one thread between two barriers",
            )
        if any(isinstance(self.structure.definition.get(r), Alloca) for r in roots):
            raise UnsupportedError(
                "a read from a local array or from memory that threads share has no deterministic gradient",
                load.span,
                "read from each in a branch of its own",
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


def _names(roots: frozenset[Value]) -> str:
    return ", ".join(sorted(root.name or "?" for root in roots))


# ---- how much is logged -------------------------------------------------------------------------------------------


def sites(found: Accumulation, structure: Structure, plan: Plan) -> Sites:
    """What the reverse of each block logs."""
    counts: dict[int, Counter[Scalar]] = {}
    for key, place in structure.places.items():
        for op in place.block.ops:
            if isinstance(op, Load) and found.is_logged(op) and plan.has_adjoint(op):
                counts.setdefault(key, Counter()).update(_floats(adjoint_type(pointee(op.ptr))))
    return counts


def _floats(type: Type) -> Iterator[Scalar]:
    if isinstance(type, Struct | Array):
        for part in part_types(type):
            yield from _floats(part)
    elif isinstance(type, Scalar) and type.is_float:
        yield type


def by_arithmetic(
    sites: Sites, structure: Structure, known: capacity.Known, builtin: capacity.BuiltinValue
) -> dict[Logged, int] | None:
    """Entries per thread, or None where a trip count is not known before the launch."""
    found: Counter[Logged] = Counter()
    for key, counts in sites.items():
        times = _executions(structure.places[key], lambda loop: capacity.trip_count(loop, structure, known, builtin))
        if times is None:
            return None
        for type, count in counts.items():
            found[Logged(type)] += times * count
    return found


def _executions(place: Place, trips: Callable[[For | While], int | None]) -> int | None:
    times, current = 1, place
    while current.parent is not None:
        if isinstance(current.owner, For | While):
            count = trips(current.owner)
            if count is None:
                return None
            times *= count
        current = current.parent
    return times


def is_known_before(sites: Sites, structure: Structure) -> bool:
    """Whether every trip count that matters follows from scalar arguments and the launch."""
    return by_arithmetic(sites, structure, capacity.arguments_as_ones(structure), lambda name, axis: 1) is not None
