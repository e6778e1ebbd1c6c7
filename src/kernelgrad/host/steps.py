"""What a recording consists of: launches, copies, fills, and points at which an adjoint is wanted.

A step says which memory it reads and writes and what its reverse reads again; it runs, and is run again if need be.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Literal

from ..errors import ArgumentError, TapeError, UnsupportedError
from ..ir.layout import leaves, param_layout
from ..kernel import Kernel
from ..runtime.arrays import ArrayView, DType, mark_written
from ..runtime.buffer_checks import are_apart
from ..runtime.config import Launch
from ..runtime.launch import Buffer
from ..runtime.reach import known, reaches
from ..runtime.recording import TRACE, unrecorded
from ..runtime.scratch import Asked
from ..runtime.signature import user_params
from ..runtime.streams import stream_handle
from ..runtime.tracing import LiveNumber
from . import transfers
from .arguments import Frozen, Number, adjoints_of, freeze, number_dtype
from .device_prints import DevicePrint
from .kernel_facts import Form, facts_of
from .memory_map import Cell, Span
from .segments import ALL, Pattern

if TYPE_CHECKING:
    from .shadow_memory import ShadowMemory

_DUMMY = 1 << 12  # an address for adjoints that are only looked at


class Step:
    """`exact_bytes`: what must be saved of memory it overwrites for the reverses up to its own. `logged`: what it
    wrote, where it must not run again. `prints`: of what its reverse reads. `counted`: its arrays the writes to which
    somebody counts."""

    name = ""
    reads: tuple[Span, ...] = ()
    writes: tuple[Span, ...] = ()
    reread: tuple[Span, ...] = ()
    idle: tuple[Span, ...] = ()  # that it gets, and neither reads nor writes
    numbers: tuple[Number, ...] = ()
    varies: str | None = None
    device: int | None = None
    stream: int | None = None
    tape_bytes = 0
    rewrites = False  # whether its reverse writes what it wrote
    looks_back = False  # whether its reverse reads what it gets as the step left it
    writes_all = False  # of what it writes and does not read
    is_opaque = True  # it may read more than `reads` says

    def __init__(self) -> None:
        self.exact_bytes = 0
        self.logged: Any = None
        self.prints: tuple[tuple[str, int, int, int], ...] = ()
        self.device_prints: tuple[DevicePrint, ...] = ()
        self.counted: tuple[tuple[ArrayView, Span], ...] = ()

    @property
    def arrays(self) -> Iterable[tuple[ArrayView, Span]]:
        """Those that it gets, and where they are."""
        return ()

    def prepare(self, asked: Asked) -> None:
        """Makes the tape of the launch, if it has one; `asked` is told how many bytes are about to be made."""

    def run(self) -> None:
        """The first time."""
        self.run_again(self.stream)

    def run_again(self, stream: int | None) -> None:
        raise NotImplementedError

    def forget(self) -> None:
        """What it keeps: it will not be reversed any more."""
        self.logged = None

    def is_counted(self, span: Span) -> bool:
        """Whether somebody counts the writes to a span."""
        return False

    def writes_outside(self, cell: Cell) -> bool:
        """Whether it may write there and nobody passed it."""
        return False

    def stored(self, cell: Cell) -> Hashable:
        """Which elements there it stores to, see beginnings.py; None where nobody knows."""
        return None

    def stores_to(self, cell: Cell) -> Pattern:
        """The same for whoever runs it again, `ALL` if it stores to all of it: see segments.py."""
        return None

    def reverse(self, shadows: ShadowMemory, keep: bool) -> None:
        """Adjoints of what it wrote become adjoints of what it read."""
        raise NotImplementedError


class ArgumentStep(Step):
    """A launch: of a kernel, or of a derivative of one. `spans`: where its arrays are, by their paths. `versions`: of
    module variables that the host alone changes. `live`: numbers that are read from memory when it runs."""

    frozen: Frozen
    spans: dict[str, Span]

    def __init__(self, kernel: Kernel, launch: Launch, args: tuple[Any, ...], keywords: Mapping[str, Any]):
        super().__init__()
        self.bound, self.placement = kernel.bind(args, keywords)
        self.kernel, self.facts, self.name = kernel, facts_of(kernel), kernel.name
        self.device = self.placement.cuda
        if self.device is not None:
            given = stream_handle(launch.stream) if launch.stream is not None else self.placement.stream()
            self.stream = given or 0
            self._given = launch.stream  # lives as long as this
            launch = launch.on(self.stream)
        self.launch = launch
        self.is_opaque = self.facts.unknown_load is not None
        self.versions: dict[str, int] = {}
        self.live: tuple[LiveNumber, ...] = ()

    @property
    def arrays(self) -> Iterable[tuple[ArrayView, Span]]:
        return ((array, self.spans[path]) for path, array in self.frozen.views.items() if path in self.spans)

    def is_counted(self, span: Span) -> bool:
        array = self.frozen.views.get(span.name)
        return array is not None and array.versioned

    def bits_read(self, holds: Callable[[Span], bool]) -> Span | None:
        """The first buffer of integers of which it makes floats, and that holds bits of such."""
        return next((span for span in self._named(self.facts.bits.made) if holds(span)), None)

    def bits_written(self, holds: Callable[[Span], bool]) -> list[Span]:
        """Where it keeps bits of floats, or moves them to."""
        traffic = self.facts.bits
        origins = {span.name for span in self._named({name for name, _ in traffic.moved}) if holds(span)}
        moved = {to for name, to in traffic.moved if name in map(root_of, origins)}
        return self._named(traffic.kept | moved)

    def _named(self, names: Iterable[str]) -> list[Span]:
        return [span for span in self.spans.values() if root_of(span.name) in names]

    def refuse_bits(self, span: Span) -> TapeError:
        problem = f"makes floating-point numbers of '{span.name}', where an earlier step kept the bits of such"
        return TapeError(f"{self.name} {problem}: their derivative would be lost; keep them as what they are")

    def find_idle(self) -> tuple[Span, ...]:
        used = {span.name for span in (*self.reads, *self.writes)}
        return tuple([span for name, span in self.spans.items() if name not in used])

    def tell(self, recorded: tuple[Number, ...], moved: tuple[Number, ...]) -> None:
        """The numbers that `recorded` 0-d arrays were passed for are those that `moved` ones hold when it runs."""
        self.tell_alike(moved, _live_numbers(self.kernel, recorded, moved))

    def tell_alike(self, numbers: tuple[Number, ...], live: tuple[LiveNumber, ...]) -> None:
        """The same of what another launch of the kernel is told."""
        self.numbers, self.live = numbers, live
        self.reads = (*self.reads, *[Span(n.path, n.array.address, n.array.nbytes, None) for n in numbers])
        self.reread += tuple([Span("number", n.array.address, n.array.nbytes, None) for n in live])

    def telling(self) -> AbstractContextManager[None]:
        trace = TRACE.get()
        return trace.telling(self.kernel.function, self.live) if trace is not None else nullcontext()

    def check_variables(self) -> None:
        for name, version in self.versions.items():
            if self.kernel.variable(name).version != version:
                raise TapeError(f"{self.name}: variable '{name}' was assigned to after a recorded launch that uses it")


class LaunchStep(ArgumentStep):
    def __init__(self, kernel: Kernel, launch: Launch, args: tuple[Any, ...], keywords: Mapping[str, Any]):
        super().__init__(kernel, launch, args, keywords)
        launch = self.launch
        self.reach = reaches(kernel.function, launch, self.bound)
        self.frozen: Frozen = freeze(kernel, args, {name: self.around(name) for name in self.reach})
        self.numbers = self.frozen.numbers
        self.spans = {b.name: Span(b.name, b.address, b.nbytes, self.device) for b in self.bound.buffers if b.nbytes}
        self.versions = self._add_variables()
        numbers = [Span(n.path, n.array.address, n.array.nbytes, None) for n in self.numbers]
        loads, stores = self.wide("loads"), self.wide("stores")
        self.reads = (*[s for s in loads if root_of(s.name) in self.facts.reads], *numbers)
        self.writes = tuple([s for s in stores if _is_in(s.name, self.facts.writes)])
        self.idle = self.find_idle()
        self.varies = self.facts.varies
        self.may_alias = self._find_alias()
        self.form: Form = self.facts.form(self.may_alias)
        self.tape: Any = None
        self._prepared: Any = None
        self.bits_problem: TapeError | None = None  # found while it is recorded
        self.reread = self._find_reread()
        self.rewrites = self.form.kind == "joint"

    @classmethod
    def again(cls, step: LaunchStep, args: tuple[Any, ...], numbers: tuple[Number, ...]) -> LaunchStep:
        """The same launch with other arrays. `numbers`: the 0-d arrays that were passed for some of them."""
        made = cls(step.kernel, step.launch, args, {})
        made.tell(step.numbers, numbers)
        return made

    def around(self, name: str) -> tuple[int, int]:
        """What the launch may touch before and behind what was passed."""
        return known(name, self.reach[name].both) if name in self.reach else (0, 0)

    def wide(self, how: Literal["loads", "stores", "both"]) -> list[Span]:
        """The memory that is passed, and what around it the launch may touch."""
        if not self.reach:
            return list(self.spans.values())
        return [
            _widened(span, getattr(self.reach[span.name], how)) if span.name in self.reach else span
            for span in self.spans.values()
        ]

    def _deciders(self) -> tuple[Hashable, ...] | None:
        """What decides where it stores; None where memory does, or a number that may be another when it runs again."""
        deciding = self.facts.deciding
        if deciding is None or any(_is_in(n.path, deciding.names) for n in self.numbers):
            return None
        packed, launch = self.bound.packed, self.launch
        numbers = tuple([packed[at : at + size] for at, size in deciding.places])
        nulls = tuple([any(packed[at : at + size]) for at, size in deciding.pointers])
        return self.kernel, launch.grid, launch.block, launch.shared_bytes, numbers, nulls

    @property
    def coverage_kind(self) -> Hashable:
        """Launches that store to all of a buffer, or do not, alike: see coverage.py."""
        sizes = tuple([(span.name, span.address - self.spans[span.name].address, span.nbytes) for span in self.writes])
        deciders = self._deciders()
        return None if deciders is None else (deciders, sizes, self.device is None)

    def stored(self, cell: Cell) -> Hashable:
        places = tuple([(span.name, self.spans[span.name].address) for span in self._writes_at(cell)])
        deciders = self._deciders()
        return None if deciders is None else (*deciders, places)

    def _writes_at(self, cell: Cell) -> list[Span]:
        return [s for s in self.writes if s.address < cell.end and cell.start < s.address + s.nbytes]

    def stores_to(self, cell: Cell) -> Pattern:
        covered = self.facts.covered.get(self.coverage_kind, ())
        return ALL if any(span.name in covered for span in self._writes_at(cell)) else self.stored(cell)

    def _find_alias(self) -> bool:
        buffers = [b for b in self.bound.buffers if b.nbytes]
        if self.reach:
            wide = [_widened(self.spans[b.name], self.around(b.name)) for b in buffers]
            buffers = [b._replace(address=s.address, nbytes=s.nbytes) for b, s in zip(buffers, wide, strict=True)]
        variables = [self.spans[name] for name in self.facts.variables]
        return not are_apart((*buffers, *(Buffer(s.name, s.address, s.nbytes) for s in variables)))

    def writes_outside(self, cell: Cell) -> bool:
        """Whether it may write there and nobody passed it."""
        return bool(self.reach) and not any(
            span.address <= cell.start and cell.end <= span.address + span.nbytes for span in self.spans.values()
        )

    def _add_variables(self) -> dict[str, int]:
        """Where module variables are; the versions of those that the host alone changes."""
        versions = {}
        for name in self.facts.variables:
            variable = self.kernel.variable(name)
            versions[name] = variable.version
            on_host = self.device is None
            address = (
                variable.host_address() if on_host else variable.device_address(self.device or 0, self.stream or 0)
            )
            self.spans[name] = Span(name, address, variable.type.size, self.device)
        return versions

    def _find_reread(self) -> tuple[Span, ...]:
        facts, form = self.facts, self.form
        try:
            names = facts.reread(form, self.launch, self.bound, self.device, self.frozen.args, self._dummy_adjoints)
        except UnsupportedError:
            self.form = facts.use_instead(self.may_alias)
            names = facts.reads
        return tuple([s for s in self.wide("loads") if root_of(s.name) in names])

    def use_tape(self) -> bool:
        """Has the launch keep what its reverse needs; whether it can."""
        form = self.facts.tape_form(self.may_alias)
        if form is None:
            return False
        self.form, self.reread, self.rewrites = form, (), False
        return True

    def _dummy_adjoints(self) -> tuple[Any, ...]:
        """Such as the reverse will get, but for their addresses."""

        def shadow(span: Span, dtype: DType) -> ArrayView:
            return transfers.raw(span.address, span.nbytes, dtype, span.device)._replace(around=self.around(span.name))

        def number(path: str, type: Any) -> ArrayView:
            return transfers.raw(_DUMMY, type.size, number_dtype(type), self.device)

        return self._adjoints(shadow, number)

    def _adjoints(self, shadow: Any, number: Any) -> tuple[Any, ...]:
        return adjoints_of(self.kernel, self.facts.listed, self.frozen, self.spans, shadow, number)

    def forget(self) -> None:
        super().forget()
        self.tape = None

    # ---- forward

    def prepare(self, asked: Asked) -> None:
        if self.form.forward is not None:
            with unrecorded(), self.telling():
                self.tape, self._prepared = self.form.forward.prepare(self.launch, self.frozen.args, {}, asked)
            self.tape_bytes = self.tape.nbytes

    def run(self) -> None:
        if self.form.forward is None:
            with self.telling():
                self.kernel.run(self.launch, self.bound, self.placement, {})
            return
        with unrecorded(), self.telling():
            self.form.forward.start(self.tape, self._prepared)
        self._prepared = None
        if self.bound.mutated:
            mark_written(self.bound.mutated)

    def run_again(self, stream: int | None) -> None:
        """Nobody is told that tensors were written: they will hold again what they hold."""
        self.check_variables()
        with self.telling():
            self.kernel.run(self.launch.on(stream), self.bound._replace(mutated=()), self.placement, {})

    # ---- reverse

    def reverse(self, shadows: ShadowMemory, keep: bool) -> None:
        if not shadows.is_active(self.writes):
            return
        if self.form.problem is not None:
            raise self.form.problem
        if self.bits_problem is not None:
            raise self.bits_problem
        self._check_writes(shadows)
        self.check_variables()
        if self.form.kind == "none":
            return
        adjoints = self._adjoints(
            lambda span, dtype: shadows.view(span, dtype, self.around(span.name)),
            lambda path, type: shadows.number(self, path, type),
        )
        with self.telling():
            self._launch_reverse(adjoints, shadows.stream_on(self.device), keep)
        shadows.activate([s for s in self.wide("both") if s.name in self.facts.floats])
        shadows.settle(self)

    def _launch_reverse(self, adjoints: tuple[Any, ...], stream: int | None, keep: bool) -> None:
        launch = self.launch
        if self.form.reverse is not None:
            tape, self.tape = self.tape, self.tape.again() if keep else None
            self.form.reverse[launch.grid, launch.block, launch.shared_bytes, stream](
                tape, *self.frozen.args, *adjoints
            )
            return
        assert self.form.gradient is not None
        self.form.gradient.execute_kernel(
            launch.grid, launch.block, *self.frozen.args, *adjoints, shared=launch.shared_bytes, stream=stream
        )

    def _check_writes(self, shadows: ShadowMemory) -> None:
        for span in self.writes:
            if span.name not in self.facts.floats and not shadows.is_zero(span):
                raise TapeError(
                    f"{self.name}: '{span.name}' is no buffer of floating-point numbers, but holds some that have an"
                    " adjoint by then: what integers write has no derivative"
                )


class WritingStep(Step):
    """Writes all of `target`."""

    target: ArrayView
    writes_all = True
    is_opaque = False

    @property
    def arrays(self) -> Iterable[tuple[ArrayView, Span]]:
        return ((self.target, self.writes[0]),)

    def run(self) -> None:
        self.run_again(self.stream)
        if self.target.versioned:
            mark_written((self.target.owner,))

    def stores_to(self, cell: Cell) -> Pattern:
        return ALL


class CopyStep(WritingStep):
    name = "copy"

    def __init__(self, target: ArrayView, source: ArrayView, stream: int | None):
        super().__init__()
        self.target, self.source, self.stream = target, source, stream
        self.writes, self.reads = (_span("target", target),), (_span("source", source),)
        self.device = self.writes[0].device if self.writes[0].device is not None else self.reads[0].device
        if meet(self.writes[0], self.reads[0]):
            raise ArgumentError("copy: the two arrays share memory")

    @property
    def arrays(self) -> Iterable[tuple[ArrayView, Span]]:
        return ((self.target, self.writes[0]), (self.source, self.reads[0]))

    def run_again(self, stream: int | None) -> None:
        transfers.move(self.target.address, self.source.address, self.target.nbytes, self.device, stream)

    def reverse(self, shadows: ShadowMemory, keep: bool) -> None:
        (target,), (source,) = self.writes, self.reads
        if not shadows.is_active(self.writes):
            return
        of_target = shadows.view(target, self.target.dtype)
        of_source = shadows.view(source, self.source.dtype)
        shadows.add(of_source, of_target)
        shadows.clear(target)
        shadows.activate((source,))


class FillStep(WritingStep):
    name = "fill"

    def __init__(self, target: ArrayView, pattern: bytes, stream: int | None):
        super().__init__()
        self.target, self.pattern, self.stream = target, pattern, stream
        self.writes = (_span("array", target),)
        self.device = self.writes[0].device

    def run_again(self, stream: int | None) -> None:
        transfers.fill(self.target.address, self.target.nbytes, self.pattern, self.device, stream)

    def reverse(self, shadows: ShadowMemory, keep: bool) -> None:
        shadows.clear(self.writes[0])


class WatchStep(Step):
    """A point whose adjoint is wanted: `tape.grad` of it."""

    name = "watch"
    is_opaque = False

    def __init__(self, array: Any, view: ArrayView):
        super().__init__()
        self.array, self.view = array, view
        self.reads = (_span("array", view),)
        self.result: Any = None

    @property
    def arrays(self) -> Iterable[tuple[ArrayView, Span]]:
        return ((self.view, self.reads[0]),)

    def run_again(self, stream: int | None) -> None:
        pass

    def reverse(self, shadows: ShadowMemory, keep: bool) -> None:
        if self.reads[0].device is None:
            shadows.settle_all()  # later launches may have been given numbers that lie there
        self.result = shadows.copy_of(self.array, self.view)


def _span(name: str, array: ArrayView) -> Span:
    return Span(name, array.address, array.nbytes, array.device[1] if isinstance(array.device, tuple) else None)


def _live_numbers(kernel: Kernel, recorded: tuple[Number, ...], moved: tuple[Number, ...]) -> tuple[LiveNumber, ...]:
    """Those whose memory is the program's own: they may be another number in each call."""
    params = zip(user_params(kernel.function), param_layout(kernel.function)[0], strict=False)
    places = {path: (at, leaf.size) for p, start in params for path, at, leaf in leaves(p.type, p.name, start)}
    pairs = zip(recorded, moved, strict=True)
    return tuple([LiveNumber(*places[n.path], n.array) for old, n in pairs if old.array.address != n.array.address])


def _widened(span: Span, around: tuple[int, int]) -> Span:
    before, behind = around
    if not before and not behind:
        return span
    return Span(span.name, span.address - before, before + span.nbytes + behind, span.device)


def root_of(name: str) -> str:
    return name.partition(".")[0].partition("[")[0]


def _is_in(path: str, names: frozenset[str]) -> bool:
    return any(path == name or path.startswith((f"{name}.", f"{name}[")) for name in names)


def meet(a: Span, b: Span) -> bool:
    return a.address < b.address + b.nbytes and b.address < a.address + a.nbytes
