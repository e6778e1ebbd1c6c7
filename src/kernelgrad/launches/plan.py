"""What a gradient's launches have in common that differ in addresses and floating-point numbers alone. It is found out
once; a launch that comes again only binds its arguments, looks here, and fills in addresses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from ..autodiff.calculus.shadows import SHARED_BYTES
from ..ir.ops import BLOCKS, SEGMENT
from ..ir.ops import Value as IRValue
from ..kernel import Kernel
from ..locks import cached_property, make_lock
from ..runtime.arguments import Placement, Supplied
from ..runtime.config import Launch, make_launch
from ..runtime.integers import Extents, Growing, KnownLaunch, Looking
from ..runtime.launch import BoundArguments
from ..runtime.launch_memory import LaunchMemory
from ..runtime.signature import user_params
from .choice.variant import Variant

if TYPE_CHECKING:
    from .memory.additions import Addition
    from .memory.buffers import Need, Sized
    from .memory.tape_memory import Sizes

_PLAIN = make_launch(1, 1)
_REMEMBERED = 256  # plans of a gradient


@dataclass(slots=True)
class Preparation:
    """A launch that is being prepared: `own` is filled. `bound`: the kernel's own arguments, then the adjoints."""

    launch: Launch
    bound: BoundArguments
    placement: Placement
    stream: int | None
    own: LaunchMemory


class Gathering(NamedTuple):
    """A launch that collects an adjoint, see launches/choice/gathers.py."""

    kernel: Kernel
    launch: Launch
    supplied: dict[str, Supplied]


class PlannedStep(NamedTuple):
    """A launch. `role`: a gather, a kernel of the gradient, a sum over its threads, or the kernel itself after its
    reverse. `told`: numbers that only this one is given."""

    role: Literal["gather", "kernel", "keys", "forward"]
    kernel: Kernel
    grid: Extents
    block: Extents
    takes_adjoints: bool
    told: Mapping[str, Supplied] = MappingProxyType({})


class Step(NamedTuple):
    """A launch that is ready, and what the launcher supplies it with."""

    kernel: Kernel
    bound: BoundArguments
    launch: Launch
    supplied: Mapping[str, Supplied]


class Cleared(NamedTuple):
    """Of a buffer, by its number, the bytes that are zeroed before the launch."""

    buffer: int
    start: int
    nbytes: int


Part = Callable[["LaunchPlan", Preparation], None]


class LaunchPlan:
    """`launch` stands for all that it is for."""

    def __init__(
        self,
        variant: Variant,
        launch: KnownLaunch,
        gathers: tuple[Gathering, ...] = (),
        cleared: tuple[Cleared, ...] = (),
        looked: Looking | None = None,
    ):
        self.variant, self.launch, self.gathers, self.cleared = variant, launch, gathers, cleared
        self.segment = launch.segment
        self.given, self._is_resized = launch.grid, False  # by the user, who may have launched another grid
        names = {p.name for p in user_params(variant.kernel.function)}
        self._own_buffers = sum(name.partition(".")[0] in names for name, _ in launch.sizes)
        looking = Looking(launch.answers(variant.kernel.function, segmented=True))
        self.sizes: Sizes | None = _sizes(variant, launch, looking)
        # Integers that it depends on.
        self.asked = (*looking.asked, *(looked.asked if looked is not None else ()))
        self.parts = tuple(part for is_needed, part in _PARTS if is_needed(self))
        self.kernels = kernels_in_order(variant)
        self.then: tuple[tuple[Kernel, bool], ...] = ()  # as `kernels`, but launched as the kernel is
        self.keys = _keys(variant, launch)
        self.written = written_by(variant, *(g.kernel for g in (*gathers, *self.keys)))

    @cached_property
    def reads(self) -> frozenset[str]:
        """The kernel's own parameters and variables that its launches read."""
        from .memory.saved_buffers import read_by

        others = (g.kernel for g in (*self.gathers, *self.keys))
        kernels = (*(kernel for kernel, _ in (*self.kernels, *self.then)), *others)
        names = {p.name for p in self.variant.kernel.function.params} | set(self.variant.kernel.module.globals)
        return frozenset(name for kernel in kernels for name in read_by(kernel.function, names))

    def followed_by(self, kernel: Kernel, takes_adjoints: bool, asked: Iterable[IRValue]) -> LaunchPlan:
        """With a launch after those of the variant. `asked`: the integers on which that depends."""
        self.then, self.written = ((kernel, takes_adjoints),), self.written | kernel.written
        self.asked = (*self.asked, *asked)
        return self

    def in_place_of(self, launch: KnownLaunch, asked: Iterable[IRValue]) -> LaunchPlan:
        """For a launch of another grid, of which this one's blocks are the turns (see `choice/spread_turns`), or whose
        blocks are this one's turns (see `choice/block_turns`); or with dynamic shared memory, where this one has arrays
        (see `choice/shared_parts`)."""
        self.given, self.asked = launch.grid, (*self.asked, *asked)
        self._is_resized = True
        return self

    @cached_property
    def steps(self) -> tuple[PlannedStep, ...]:
        """What is launched, in order. Gathers come first: they read adjoints that the kernel itself consumes."""
        variant, (grid, block) = self.variant, (self.launch.grid, self.launch.block)
        if self.renumbers:
            from .memory.started_grid import started

            grid, block = started(variant, grid, block)
        gathers = [PlannedStep("gather", k, own.grid, own.block, True, told) for k, own, told in self.gathers]
        kernels = [
            PlannedStep("kernel", kernel, grid, variant.started(kernel, block), takes_adjoints, self._told)
            for kernel, takes_adjoints in self.kernels
        ]
        keys = [PlannedStep("keys", k, own.grid, own.block, True, told) for k, own, told in self.keys]
        then = [PlannedStep("forward", k, self.launch.grid, self.launch.block, takes) for k, takes in self.then]
        return (*gathers, *kernels, *keys, *then)

    @cached_property
    def _told(self) -> Mapping[str, Supplied]:
        """What the gradient's own kernels are told."""
        if not self.keys:
            return MappingProxyType({})
        from .choice.exchanging import told

        return told(self.variant, self.launch)

    @property
    def renumbers(self) -> bool:
        """Whether other blocks are started than those of the launch."""
        return self.variant.derivative.coarse is not None or self.variant.options.facts.vector is not None

    @property
    def sized(self) -> Sized:
        from .memory.buffers import Sized

        launch = self.launch
        return Sized(launch.grid, launch.block, dict(launch.sizes), shared=launch.shared_bytes)

    @cached_property
    def additions(self) -> tuple[Addition, ...]:
        """What is launched after that, in order; logs are sorted and added up besides."""
        from .memory.deferred_adds import additions_after
        from .memory.interleaved import interleaved_after
        from .memory.partial_sums import sums_after
        from .memory.replicas import replicas_after

        variant, at = self.variant, self.sized
        own = (*sums_after(variant, at), *replicas_after(variant), *interleaved_after(variant))
        return (*own, *additions_after(variant, at))

    @cached_property
    def needs(self) -> tuple[Need, ...]:
        """Memory and numbers that the kernels are given besides the arguments, but for logs."""
        from .memory.buffers import Number
        from .needs import needs_of

        sizes = self.sizes
        tape = None if sizes is None else {key: Number(int(each[0])) for key, each in sizes.items()}
        return (*needs_of(self.variant, self.sized, tape, self.segment, self.launch.blocks), *self.staged)

    @cached_property
    def staged(self) -> list[Need]:
        """Memory in which threads leave what gathers are given."""
        if not self.gathers:
            return []
        from .memory.staged_values import staged_values

        return staged_values(g.kernel.function for g in self.gathers)

    def prepare(self, at: Preparation) -> list[Step]:
        """Makes what the launch needs, and gives its steps, in order."""
        given = at.bound
        if self._is_resized:
            at.launch = at.launch._replace(grid=self.launch.grid, shared_bytes=self.launch.shared_bytes)
        for part in self.parts:
            part(self, at)
        if self.cleared:
            from ..runtime.scratch import zero_bytes
        for number, start, nbytes in self.cleared:
            zero_bytes(at.bound.buffers[number].address + start, nbytes, at.placement.cuda, at.stream)
        launch, supplied = at.own.sized(at.launch), at.own.supplied
        steps = []
        for step in self.steps:
            bound = at.bound if step.role in ("kernel", "keys") else given
            bound = bound if step.takes_adjoints else self.without_adjoints(bound)
            plain = _PLAIN.on(at.stream)
            started = {"gather": plain, "kernel": launch, "keys": plain, "forward": at.launch}[step.role]
            own = {} if step.role == "forward" else {**supplied, **step.told}
            steps.append(Step(step.kernel, bound, started._replace(grid=step.grid, block=step.block), own))
        return steps

    def tape_sizes(self, launch: Launch, primal: BoundArguments, placement: Placement) -> Sizes:
        """What each thread keeps, by arithmetic or by a launch that counts."""
        if self.sizes is not None:
            return self.sizes
        from .memory.tape_memory import by_counting

        return by_counting(self.variant, launch, primal, placement, self.segment)

    def without_adjoints(self, bound: BoundArguments) -> BoundArguments:
        packed = bound.packed[: self.variant.kernel.packed_bytes]
        return bound._replace(packed=packed, buffers=bound.buffers[: self._own_buffers])


def _sizes(variant: Variant, launch: KnownLaunch, known: Looking) -> Sizes | None:
    """What each thread keeps, if anything; None where that must be counted."""
    if not (variant.stack_types or variant.logged):
        return {}
    from .memory.tape_memory import by_arithmetic

    return by_arithmetic(variant, launch, known)


def _keys(variant: Variant, launch: KnownLaunch) -> tuple[Gathering, ...]:
    """The launches after the gradient's own in which sums over its threads are taken."""
    if not variant.options.facts.exchanged:
        return ()
    from .choice.exchanging import launches

    return tuple(Gathering(*found) for found in launches(variant, launch))


def kernels_in_order(variant: Variant) -> tuple[tuple[Kernel, bool], ...]:
    """The kernels that a gradient launches, and whether they take the adjoints too. Those with winners in
    global memory (Note [Winners] in autodiff/winners/global_memory.py): the forward, the bids, the reverse."""
    if not variant.derivative.won_buffers:
        return () if variant.is_idle else tuple((kernel, True) for kernel in variant.kernels)
    forward, reverse, bid = variant.kernels
    return (forward, False), (bid, False), (reverse, True)


def written_by(variant: Variant, *others: Kernel) -> frozenset[str]:
    """The parameters through which a launch writes."""
    return frozenset(name for kernel in (*variant.kernels, *others) for name in kernel.written)


class Plans:
    """The plans of a gradient's last kinds of launches. Several threads may ask at once. Of a launch's integers only
    those count that some plan depends on."""

    def __init__(self) -> None:
        self._found: dict[KnownLaunch, LaunchPlan] = {}
        self._relevant: Growing[int] = Growing()
        self._lock = make_lock()

    def get(self, launch: KnownLaunch) -> LaunchPlan | None:
        return self._found.get(launch.only(self._relevant.parts))

    def keep(self, launch: KnownLaunch, plan: LaunchPlan, relevant: Iterable[int]) -> LaunchPlan:
        """`relevant`: the numbers of the integers that the plan depends on."""
        self._relevant.add(relevant)
        with self._lock:
            while len(self._found) >= _REMEMBERED:
                del self._found[next(iter(self._found))]  # the oldest
            self._found[launch.only(self._relevant.parts)] = plan
        return plan


# ---- the parts ----------------------------------------------------------------------------------------------------


def _spare(plan: LaunchPlan, at: Preparation) -> None:
    from .memory.argument_copies import sparing

    at.bound = sparing(plan.variant, at.bound, at.placement, at.stream, at.own)


def _double_shared(plan: LaunchPlan, at: Preparation) -> None:
    at.own.double_shared(at.launch, SHARED_BYTES, plan.variant.derivative.shared_widening)


def _shadow(plan: LaunchPlan, at: Preparation) -> None:
    from .memory.tape_memory import add_shadows

    add_shadows(plan.variant, at.bound, at.placement, at.stream, at.own)


def _sum_up(plan: LaunchPlan, at: Preparation) -> None:
    from .memory.partial_sums import add_partials, finish_partials

    add_partials(plan.variant, at.launch, at.placement, at.stream, at.own)
    finish_partials(plan.variant, at.bound, at.launch, at.placement, at.own)


def _copy(plan: LaunchPlan, at: Preparation) -> None:
    from .memory.replicas import add_copies, finish_copies

    add_copies(plan.variant, at.bound, at.placement, at.stream, at.own)
    finish_copies(plan.variant, at.bound, at.launch, at.placement, at.own)


def _interleave(plan: LaunchPlan, at: Preparation) -> None:
    from .memory.interleaved import add_interleaved, finish_interleaved

    add_interleaved(plan.variant, at.bound, at.placement, at.stream, at.own)
    finish_interleaved(plan.variant, at.bound, at.launch, at.placement, at.own)


def _defer(plan: LaunchPlan, at: Preparation) -> None:
    from .memory.deferred_adds import add_slots, finish_slots

    add_slots(plan.variant, at.launch, at.placement, at.stream, at.own)
    finish_slots(plan.variant, at.bound, at.launch, at.placement, at.own)


def _widen(plan: LaunchPlan, at: Preparation) -> None:
    from .memory.double_cells import add_wide

    add_wide(plan.variant, at.bound, at.launch, at.placement, at.stream, at.own)


def _tell_lengths(plan: LaunchPlan, at: Preparation) -> None:
    from .memory.double_cells import add_lengths

    add_lengths(plan.variant, at.bound, at.placement, at.stream, at.own)


def _renumber(plan: LaunchPlan, at: Preparation) -> None:
    from .memory.buffers import supply
    from .memory.started_grid import launch_extents
    from .memory.tape_memory import sized

    supply(launch_extents(plan.variant), sized(at.launch, at.bound), at.placement, at.stream, at.own)


def _leave(plan: LaunchPlan, at: Preparation) -> None:
    from .memory.buffers import supply
    from .memory.row_memory import row_memory
    from .memory.tape_memory import sized

    supply(row_memory(plan.variant), sized(at.launch, at.bound), at.placement, at.stream, at.own)


def _stage(plan: LaunchPlan, at: Preparation) -> None:
    from .memory.buffers import supply
    from .memory.tape_memory import sized

    supply(plan.staged, sized(at.launch, at.bound), at.placement, at.stream, at.own)


def _cut(plan: LaunchPlan, at: Preparation) -> None:
    assert plan.segment is not None
    at.own.supplied[SEGMENT] = Supplied(plan.segment)


def _count_blocks(plan: LaunchPlan, at: Preparation) -> None:
    assert plan.launch.blocks is not None
    at.own.supplied[BLOCKS] = Supplied(plan.launch.blocks)


def _keep(plan: LaunchPlan, at: Preparation) -> None:
    from .memory.tape_memory import add_tape

    variant, launch, own = plan.variant, at.launch, at.own
    sizes = plan.tape_sizes(launch, plan.without_adjoints(at.bound), at.placement)
    add_tape(variant, sizes, launch, at.placement, at.stream, own)
    if variant.derivative.logs:
        from .memory.ordered_adds import add_logs, finish_logs, logged_in

        add_logs(variant, logged_in(sizes), launch, at.placement, at.stream, own)
        finish_logs(variant, at.bound, launch, at.placement, own)


def _add_winners(plan: LaunchPlan, at: Preparation) -> None:
    from .memory import winner_memory

    winner_memory.add_memory(plan.variant, at.bound, at.placement, at.stream, at.own)


def _report(plan: LaunchPlan, at: Preparation) -> None:
    from .memory.finite_report import add_records

    add_records(plan.variant.derivative.tests, at.launch, at.placement, at.stream, at.own)


# Which plans need it. In the order of the steps before the launch; those after it come in the reverse order.
_PARTS: tuple[tuple[Callable[[LaunchPlan], Any], Part], ...] = (
    (lambda plan: plan.variant.options.report_nan, _report),
    (lambda plan: plan.variant.options.facts.unkept, _spare),
    (lambda plan: plan.variant.doubles_shared, _double_shared),
    (lambda plan: plan.variant.derivative.internal, _shadow),
    (lambda plan: plan.variant.derivative.partials, _sum_up),
    (lambda plan: plan.variant.derivative.copies, _copy),
    (lambda plan: plan.variant.options.facts.interleaved, _interleave),
    (lambda plan: plan.variant.derivative.deferred, _defer),
    (lambda plan: plan.variant.derivative.wide, _widen),
    (lambda plan: plan.variant.derivative.cells, _tell_lengths),
    (lambda plan: plan.renumbers, _renumber),
    (lambda plan: plan.variant.options.facts.exchanged, _leave),
    (lambda plan: plan.staged, _stage),
    (lambda plan: plan.segment is not None, _cut),
    (lambda plan: plan.launch.blocks is not None, _count_blocks),
    (lambda plan: plan.variant.places, _keep),
    (lambda plan: plan.variant.derivative.won_buffers, _add_winners),
)
