"""The split form: an augmented forward that returns a tape, and a reverse that consumes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

from ..autodiff.calculus.shadows import SHARED_BYTES
from ..errors import ArgumentError, LaunchError
from ..kernel import Kernel, stream_of
from ..launches.choice.variant import Variant
from ..launches.memory import winner_memory
from ..launches.memory.deferred_adds import add_slots, finish_slots
from ..launches.memory.double_cells import add_wide
from ..launches.memory.half_adjoints import in_float
from ..launches.memory.ordered_adds import Entries, add_logs, finish_logs, logged_in
from ..launches.memory.partial_sums import add_partials, finish_partials
from ..launches.memory.replicas import add_copies, finish_copies
from ..launches.memory.saved_buffers import Choice, Saved, save, saved_names
from ..launches.memory.tape_memory import add_shadows, add_tape, elements, tape_total
from ..launches.plan import written_by
from ..locks import cached_property
from ..runtime.arguments import Placement
from ..runtime.buffer_checks import check_overlap
from ..runtime.config import Launch, make_launch, parse_launch
from ..runtime.findings import CheckReport, Finding
from ..runtime.integers import Ways, integers_of, known_launch
from ..runtime.launch import BoundArguments
from ..runtime.launch_memory import LaunchMemory
from ..runtime.reach import reaching
from ..runtime.recording import refuse_while_recording
from ..runtime.scratch import Asked, asking
from .differentiated import Differentiated
from .kept_promises import Promised, same_numbers, same_sizes

_REMEMBERED = 256  # kinds of launches
_KEPT = "may change: kept is a copy of it, or on the tape what is read of it, whichever is fewer bytes for the launch"


@dataclass
class Tape:
    """What a forward launch leaves for its reverse: used once, with the same launch shape, then freed. `saved`: what
    buffers held. `promised`: in check mode, what those held that are not to change. `findings`: of check mode."""

    forward: Forward
    launch: Launch
    placement: Placement
    variant: Variant
    numbers: bytes
    sizes: dict[str, int]
    own: LaunchMemory
    logged: Entries  # what the reverse will log
    saved: Saved
    promised: Promised | None = None
    findings: tuple[Finding, ...] = ()
    used: bool = False

    @property
    def name(self) -> str:
        return self.forward.kernel.name

    @property
    def nbytes(self) -> int:
        return sum(memory.nbytes for memory in self.own.kept) + self.saved.nbytes

    @property
    def report(self) -> CheckReport:
        """What check mode found in the forward launch."""
        return CheckReport(self.name, self.findings)

    def check(self, forward: Forward, launch: Launch, primal: BoundArguments) -> None:
        """That it is of that kernel, launch and numbers."""
        name = forward.kernel.name
        if self.used:
            raise LaunchError(f"{name}: this tape was used already; run the forward again")
        if not self.forward.is_like(forward):
            other = "another kernel of that name, or other options" if self.name == name else self.name
            raise LaunchError(f"{name}: this tape belongs to {other}")
        if _shape(self.launch) != _shape(launch):
            raise LaunchError(f"{name}: the tape was written with {_shape(self.launch)}, not {_shape(launch)}")
        same_numbers(forward.kernel.function, self.numbers, primal.packed)
        same_sizes(forward.kernel.function, self.sizes, {buffer.name: buffer.nbytes for buffer in primal.buffers})

    def take(self, launch: Launch, placement: Placement) -> Tape:
        """What it holds, for the launch of the reverse; this one is used then, and holds nothing."""
        taken = replace(self, launch=launch, placement=placement)
        copies = [copy.memory for copy in self.saved.buffers.values()]
        for memory in (*self.own.kept, *copies, *self.saved.variables.values()):
            memory.follow(stream_of(launch, placement))
        self.own, self.saved, self.used = LaunchMemory(), Saved(), True
        return taken

    def again(self) -> Tape:
        """Another of the same contents: one reverse uses up one tape."""
        own = copy(self.own)
        own.supplied, own.kept, own.after = dict(own.supplied), list(own.kept), list(own.after)
        return replace(self, own=own)

    def __repr__(self) -> str:
        return f"<tape of {self.name}, {'used' if self.used else f'{self.nbytes:,} bytes'}>"


class Forward(Differentiated):
    """`tape = forward[grid, block](*arguments)`: runs the kernel and keeps what its reverse needs."""

    def __repr__(self) -> str:
        return f"<augmented forward of {self.kernel!r}>"

    def _repr_html_(self) -> str:
        from ..runtime.notebook import gradient_html

        return gradient_html(repr(self), self.source)

    def __getitem__(self, key: Any) -> Callable[..., Tape]:
        launch = parse_launch(key, self.kernel.name)
        return lambda *args, **keywords: self._launch(launch, args, keywords)

    @cached_property
    def source(self) -> str:
        return self.variant().source(0)

    def is_like(self, other: Forward) -> bool:
        """Whether tapes of one are tapes of the other."""
        if self is other:
            return True
        return self.settings == other.settings and self.kernel.ir == other.kernel.ir

    def explain(self) -> str:
        """What the reverse does and why, what is on the tape, and what is kept of buffers that may change."""
        from ..explain.report import explain_any

        kept = [f"  '{name}' {_KEPT}" for name in sorted(saved_names(self.variant()))]
        return "\n".join([explain_any(self), *(["", "between the two launches:", *kept] if kept else [])])

    def check(self, grid: Any, block: Any, *args: Any, shared: Any = 0, seed: int | None = None) -> Tape:
        """Runs the forward on the CPU, watched. `reverse.check` with the tape reports on both launches, and on promises
        of what is unchanged."""
        return self._launch(make_launch(grid, block, shared, of=self.kernel.name), args, {}, watched=True, seed=seed)

    def _launch(
        self,
        launch: Launch,
        args: tuple[Any, ...],
        keywords: Mapping[str, Any],
        watched: bool = False,
        seed: int | None = None,
    ) -> Tape:
        refuse_while_recording("a split, which has no second order here,")
        tape, bound = self.prepare(launch, args, keywords)
        if watched:
            primal, placement = self.kernel.bind(args, keywords)
            tape.promised = Promised.of(self.kernel, self.settings.changing, primal, placement)
        self.start(tape, bound, watched, seed)
        return tape

    def prepare(
        self, launch: Launch, args: tuple[Any, ...], keywords: Mapping[str, Any], asked: Asked | None = None
    ) -> tuple[Tape, BoundArguments]:
        """The tape of a launch, and with which arguments it is started. `asked`: is told how many bytes are about to be
        kept."""
        primal, placement = self.kernel.bind(args, keywords)
        variant = self._variant_of(launch, primal, placement)
        kernel = variant.kernels[0]
        bound, placement = kernel.bind(args)
        bound = reaching(self.kernel.function, launch, bound)
        if not self.settings.may_alias:
            check_overlap(kernel.function, bound, kernel.written, self.kernel.of_variables)
        own = LaunchMemory()
        stream = stream_of(launch, placement)
        sizes = elements(variant, launch, bound, placement)
        with asking(asked):
            add_tape(variant, sizes, launch, placement, stream, own)
            saved = save(variant.kernel, self._saved_of(variant), bound, placement, stream)
            winner_memory.add_memory(variant, bound, placement, stream, own)
        if variant.doubles_shared:
            own.double_shared(launch, SHARED_BYTES, variant.derivative.shared_widening)
        given = {buffer.name: buffer.nbytes for buffer in primal.buffers}
        tape = Tape(self, launch, placement, variant, primal.packed, given, own, logged_in(sizes), saved)
        return tape, bound

    def start(self, tape: Tape, bound: BoundArguments, watched: bool = False, seed: int | None = None) -> None:
        """What was prepared."""
        variant, placement, own, saved = tape.variant, tape.placement, tape.own, tape.saved
        tape.findings = self.run(tape, variant.kernels[0], bound, {}, watched, seed)
        if variant.derivative.won_buffers:
            old, supplied = saved.in_place_of(bound), {**own.supplied, **saved.supplied}
            variant.kernels[2].run(own.sized(tape.launch), old, placement, supplied, saved.constants)
            winner_memory.keep_results(variant, placement, stream_of(tape.launch, placement), own)

    def run(
        self,
        tape: Tape,
        kernel: Kernel,
        bound: BoundArguments,
        constants: Mapping[str, bytes],
        watched: bool,
        seed: int | None,
    ) -> tuple[Finding, ...]:
        """Launches one of the tape's kernels."""
        launch, own = tape.own.sized(tape.launch), tape.own
        if not watched:
            kernel.run(launch, bound, tape.placement, own.supplied, constants)
            return ()
        promises = self.settings.promises
        return kernel.check_bound(launch, bound, tape.placement, own.supplied, seed, promises).findings

    # ---- what is taped, and what is copied (Note [Saving])

    @cached_property
    def _choices(self) -> dict[int, Choice]:
        return {}

    @cached_property
    def _taped(self) -> dict[Any, frozenset[str]]:
        return {}

    @cached_property
    def _saved(self) -> dict[int, frozenset[str]]:
        return {}

    def _saved_of(self, variant: Variant) -> frozenset[str]:
        if id(variant) not in self._saved:
            self._saved[id(variant)] = saved_names(variant)
        return self._saved[id(variant)]

    def _variant_of(self, launch: Launch, primal: BoundArguments, placement: Placement) -> Variant:
        listed = self.settings.listed
        ways = Ways(on_cpu=placement.cuda is None)
        variant = self.forms.for_launch(known_launch(self.kernel.function, listed, launch, primal, ways))
        facts = variant.options.facts

        def count(names: frozenset[str]) -> int:
            counted = self.variant(listed, replace(facts, taped=names))
            return tape_total(elements(counted, launch, primal, placement), launch)

        integers = integers_of(self.kernel.function)
        sizes = tuple(buffer[:3:2] for buffer in primal.buffers)
        key = id(variant), launch.grid, launch.block, integers.read(primal.packed), sizes
        if key not in self._taped:
            choice = self._choices.setdefault(id(variant), Choice(variant))
            if len(self._taped) >= _REMEMBERED:
                self._taped.clear()
            self._taped[key] = choice.taped(launch, integers.known(primal.packed), self._sizes(primal), count)
        taped = self._taped[key]
        return self.variant(listed, replace(facts, taped=taped)) if taped else variant

    def _sizes(self, primal: BoundArguments) -> dict[str, int]:
        """The bytes of buffers and variables, by the parameter."""
        found = {name: variable.type.size for name, variable in self.kernel.module.globals.items()}
        for buffer in primal.buffers:
            name = buffer.name.partition(".")[0]
            found[name] = found.get(name, 0) + buffer.nbytes
        return found


class Reverse:
    """`reverse[grid, block](tape, *arguments, *adjoints)`: multiplies the adjoints by the transposed Jacobian."""

    def __init__(self, forward: Forward):
        self.forward = forward

    def __repr__(self) -> str:
        return f"<reverse {self.forward.signature}>"

    def _repr_html_(self) -> str:
        from ..runtime.notebook import gradient_html

        return gradient_html(repr(self), self.source)

    def __getitem__(self, key: Any) -> Callable[..., None]:
        launch = parse_launch(key, self.forward.kernel.name)

        def run(tape: Any = None, *args: Any, **adjoints: Any) -> None:
            self._launch(launch, tape, args, adjoints)

        return run

    @cached_property
    def source(self) -> str:
        return self.forward.variant().source(1)

    def check(
        self, grid: Any, block: Any, tape: Tape, *args: Any, shared: Any = 0, seed: int | None = None, **adjoints: Any
    ) -> CheckReport:
        """Runs the reverse on the CPU, watched; `tape` is of `forward.check`. What that found is reported too, and
        buffers that changed since, though they were promised not to."""
        findings = self._launch(
            make_launch(grid, block, shared, of=self.forward.kernel.name), tape, args, adjoints, watched=True, seed=seed
        )
        return CheckReport(self.forward.kernel.name, findings)

    def _launch(
        self,
        launch: Launch,
        tape: Any,
        args: tuple[Any, ...],
        keywords: Mapping[str, Any],
        watched: bool = False,
        seed: int | None = None,
    ) -> tuple[Finding, ...]:
        forward, copies = self.forward, LaunchMemory()
        primal, bound, placement = self._bind(launch, tape, args, keywords, copies)
        found: tuple[Finding, ...] = tape.findings
        if tape.promised is not None:
            found = (*tape.promised.broken(forward.kernel, primal, placement), *found)
        taken = tape.take(launch, placement)
        bound = taken.saved.in_place_of(bound)
        taken.own.supplied |= taken.saved.supplied
        self._supply(taken, primal, bound)
        kernel = taken.variant.kernels[1]
        found += forward.run(taken, kernel, bound, taken.saved.constants, watched, seed)
        taken.own.finish()
        copies.finish()
        return found

    def _bind(
        self, launch: Launch, tape: Any, args: tuple[Any, ...], keywords: Mapping[str, Any], copies: LaunchMemory
    ) -> tuple[BoundArguments, BoundArguments, Placement]:
        """The kernel's own arguments, and those with the adjoints; all that can be wrong with them is known then."""
        forward, name = self.forward, self.forward.kernel.name
        if not isinstance(tape, Tape):
            raise ArgumentError(
                f"{name}: the first argument is the tape that the forward returned, got {type(tape).__name__}"
            )
        own_args, adjoints = forward.separate(args, keywords)
        missing = [n for n, adjoint in adjoints.items() if adjoint is None]
        if missing:
            raise ArgumentError(
                f"{name}: the reverse of a split needs every adjoint; list fewer parameters than {missing}"
            )
        forward.check_members(own_args, adjoints)
        primal, _ = forward.kernel.bind(own_args)
        tape.check(forward, launch, primal)
        adjoints = in_float(forward.kernel.function, adjoints, launch, copies, forward.settings.kept)
        bound, placement = tape.variant.kernels[1].bind((*own_args, *adjoints.values()))
        forward.check_sizes(tape.variant, bound)
        if placement.cuda is not None:
            forward.check_alignment(tape.variant, bound)
        forward.check_overlap(tape.variant, bound, copies, written_by(tape.variant))
        return primal, bound, placement

    @staticmethod
    def _supply(tape: Tape, primal: BoundArguments, bound: BoundArguments) -> None:
        """What the reverse needs besides the tape."""
        variant, launch, placement, own = tape.variant, tape.launch, tape.placement, tape.own
        stream = stream_of(launch, placement)
        add_shadows(variant, primal, placement, stream, own)
        add_partials(variant, launch, placement, stream, own)
        add_copies(variant, bound, placement, stream, own)
        add_slots(variant, launch, placement, stream, own)
        add_wide(variant, bound, launch, placement, stream, own)
        finish_partials(variant, bound, launch, placement, own)
        finish_copies(variant, bound, launch, placement, own)
        finish_slots(variant, bound, launch, placement, own)
        add_logs(variant, tape.logged, launch, placement, stream, own)
        finish_logs(variant, bound, launch, placement, own)
        if variant.doubles_shared:
            own.double_shared(launch, SHARED_BYTES, variant.derivative.shared_widening)


def _shape(launch: Launch) -> str:
    shared = f" and {launch.shared_bytes} bytes of shared memory" if launch.shared_bytes else ""
    return f"grid {launch.grid} and block {launch.block}{shared}"
