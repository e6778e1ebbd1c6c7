"""Where threads write down the updates of adjoints that they must not make at once (see `ordered`).

The log of global memory grows until the launch is over, and the launcher adds up what is in it. That of a shared
variable's shadow lasts for one phase: at the next barrier the block itself adds up what its threads logged. Each cell
belongs to one thread, which goes through all of it and takes what is for its cells, in the order of threads and slots.

Logs are laid out like the tape: entry k of a thread lies at `segment + k * threads + thread`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ...ir.builder import Builder, linear_block, linear_thread, pointee
from ...ir.ops import Barrier, BarrierReduce, Param, Value
from ...ir.types import BOOL, I32, I64, U32, U64, Pointer, Scalar
from ..calculus.shadows import ZERO
from ..calculus.tape import Tape


@dataclass(frozen=True)
class Logged:
    """Floats of one type that are logged: those of global memory, or of a shared variable."""

    type: Scalar
    variable: str = ""

    @property
    def where(self) -> Scalar:
        """What says where a float goes: its address, or its number in the variable."""
        return U32 if self.variable else U64

    @property
    def size(self) -> int:
        return self.where.size + self.type.size

    @property
    def name(self) -> str:
        return f"{self.variable}_{self.type.name}" if self.variable else self.type.name


@dataclass(frozen=True)
class Log:
    of: Logged
    places: Value  # parameter: where the entries go; null addresses where nothing was logged
    values: Value  # parameter: what to add there
    capacity: Value | None  # parameter: entries per thread, the same for every block, or
    segments: Value | None  # parameter: where each block's entries begin
    filled: Value | None  # parameter, of a shared variable's: how many entries each thread has
    start: Value  # the thread's first entry
    count: Value  # variable: how many entries the thread has made

    @property
    def params(self) -> tuple[Param, ...]:
        params = [Param(self.places, "void *"), Param(self.values, "void *")]
        if self.capacity is not None:
            params.append(Param(self.capacity, "long long"))
        params += [Param(v, "void *") for v in (self.segments, self.filled) if v is not None]
        return tuple(params)


class Logs:
    """`prologue` is code at the start of the function that logs. `base`: the first cell of a shared variable's shadow,
    as a pointer to floats of a type. `pending`: what may have entries since the last barrier, where code is emitted:
    a barrier adds up no more than that."""

    def __init__(self, tape: Tape, counted: bool, wanted: Iterable[Logged]):
        self.tape, self.counted = tape, counted
        self.prologue = Builder()
        self.pending: set[Logged] = set()
        self.base: Callable[[Builder, str, Scalar], Value]
        self.all = {of: self._make(of) for of in wanted}
        self.has_phases = any(of.variable for of in self.all)

    def _make(self, of: Logged) -> Log:
        b = self.prologue
        capacity = None if self.counted else Value(I64, f"_log_capacity_{of.name}")
        segments = Value(Pointer(I64, "global"), f"_log_segments_{of.name}") if self.counted else None
        filled = Value(Pointer(I64, "global"), f"_log_filled_{of.name}") if of.variable else None
        places = Value(Pointer(of.where, "global"), f"_log_places_{of.name}")
        values = Value(Pointer(of.type, "global"), f"_log_{of.name}")
        start = self.tape.start(b, capacity, segments)
        count = b.alloca(I64, f"_logged_{of.name}")
        b.store(count, b.constant(0, I64))
        return Log(of, places, values, capacity, segments, filled, start, count)

    # ---- entries

    def append(self, b: Builder, variable: str, ptr: Value, adjoint: Value) -> None:
        """Unless there is nothing to add."""
        assert isinstance(adjoint.type, Scalar)
        of = Logged(adjoint.type, variable)
        log = self.all[of]
        self.pending.add(of)
        some = b.apply("ne", adjoint, b.constant(0.0, adjoint.type))
        with b.region() as region:
            count = b.load(log.count)
            at = self._entry(b, log, count)
            b.store(b.offset(log.places, at), self._place(b, of, ptr))
            b.store(b.offset(log.values, at), adjoint)
            b.store(log.count, b.apply("add", count, b.constant(1, I64)))
        b.if_(some, region.block())

    def take(self, b: Builder, variable: str, ptr: Value) -> None:
        """What this thread itself has logged for the cell since the last barrier is added now."""
        type = pointee(ptr)
        assert isinstance(type, Scalar)
        of = Logged(type, variable)
        if of not in self.all:
            return
        log, k = self.all[of], Value(I64, "~k")
        cell = self._place(b, of, ptr)
        with b.region() as body:
            at = self._entry(b, log, k)
            with b.region() as found:
                value = b.offset(log.values, at)
                b.store(ptr, b.apply("add", b.load(ptr), b.load(value)))
                b.store(value, b.constant(ZERO, type))
            b.if_(b.apply("eq", b.load(b.offset(log.places, at)), cell), found.block())
        b.for_(b.constant(0, I64), b.load(log.count), (), 1, body.block((k,)))

    def _entry(self, b: Builder, log: Log, k: Value) -> Value:
        return b.apply("add", log.start, b.apply("mul", k, self.tape.threads()))

    def _place(self, b: Builder, of: Logged, ptr: Value) -> Value:
        if not of.variable:
            return b.apply("address", ptr, type=U64)
        return b.convert(b.pointer_difference(ptr, self.base(b, of.variable, of.type)), U32)

    # ---- phases

    def barrier(self, b: Builder) -> None:
        """A barrier of the block, before which each thread adds up what the phase has for its cells."""
        phase = [log for of, log in self.all.items() if of.variable and of in self.pending]
        some = b.constant(False, BOOL)
        for log in phase:
            count = b.load(log.count)
            b.store(self._filled(b, log, linear_thread(b)), count)
            some = b.apply("or", some, b.apply("ne", count, b.constant(0, I64)))
        if phase:
            any_of_block = b.emit(BarrierReduce, "or", b.convert(some, I32), type=I32)
            with b.region() as adding:
                for log in phase:
                    self._add_up(b, log)
            b.if_(b.apply("ne", any_of_block, b.constant(0, I32)), adding.block())
        b.effect(Barrier, "block")
        for log in phase:
            b.store(log.count, b.constant(0, I64))
        self.pending.clear()

    @contextmanager
    def repeated(self, logged: Iterable[Logged]) -> Iterator[None]:
        """Code that runs never or again and again, and logs: the last time's entries may still be there."""
        before = set(self.pending)
        self.pending |= set(logged)
        yield
        self.pending |= before

    @contextmanager
    def branches(self) -> Iterator[Callable[[], None]]:
        """Code of which one part runs: what is called before each."""
        before, after = set(self.pending), set[Logged]()

        def another() -> None:
            after.update(self.pending)
            self.pending = set(before)

        self.pending = set()
        yield another
        self.pending |= after

    def _add_up(self, b: Builder, log: Log) -> None:
        zero, thread, k = b.constant(0, I64), Value(I64, "~thread"), Value(I64, "~k")
        me, threads = linear_thread(b), self.tape.threads()
        base, first = self.base(b, log.of.variable, log.of.type), b.apply("sub", log.start, me)
        with b.region() as of_thread:
            start, filled = b.apply("add", first, thread), b.load(self._filled(b, log, thread))
            with b.region() as of_entry:
                at = b.apply("add", start, b.apply("mul", k, threads))
                place = b.convert(b.load(b.offset(log.places, at)), I64)
                with b.region() as mine:
                    cell = b.offset(base, place)
                    b.store(cell, b.apply("add", b.load(cell), b.load(b.offset(log.values, at))))
                b.if_(b.apply("eq", b.apply("rem", place, threads), me), mine.block())
            b.for_(zero, filled, (), 1, of_entry.block((k,)))
        b.for_(zero, threads, (), 1, of_thread.block((thread,)))

    def _filled(self, b: Builder, log: Log, thread: Value) -> Value:
        assert log.filled is not None
        before = b.apply("mul", linear_block(b), self.tape.threads())
        return b.offset(log.filled, b.apply("add", before, thread))
