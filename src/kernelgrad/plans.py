"""What a gradient's launches have in common that differ in addresses and floating-point numbers alone. It is found out
once; a launch that comes again only binds its arguments, looks here, and fills in addresses."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from . import claims
from .argument_copies import sparing
from .autodiff.cooperate import SHARED_BYTES
from .autodiff.keeping import checkpoint
from .coarsening import add_grid
from .crowds import add_copies, finish_copies
from .finishing import add_partials, finish_partials
from .hidden import Sizes, add_shadows, add_tape, by_arithmetic, by_counting
from .ir.ops import Value
from .kernels import Kernel
from .known import Growing, Looking, integers_of
from .locks import cached_property, make_lock
from .ordering import add_logs, finish_logs, logged_in
from .quads import add_rows
from .runtime.arguments import Placement, Supplied
from .runtime.config import Launch
from .runtime.launch import BoundArguments
from .runtime.own import Own
from .runtime.scratch import zero_bytes
from .saving import read_by
from .variants import Variant
from .widening import add_wide

_REMEMBERED = 256  # plans of a gradient


@dataclass(slots=True)
class Preparation:
    """A launch that is being prepared: `own` is filled. `bound`: the kernel's own arguments, then the adjoints."""

    launch: Launch
    bound: BoundArguments
    placement: Placement
    stream: int | None
    own: Own


class Gathering(NamedTuple):
    """A launch that collects an adjoint, see gathers.py."""

    kernel: Kernel
    launch: Launch
    supplied: dict[str, Supplied]


class Cleared(NamedTuple):
    """Of a buffer, by its number, the bytes that are zeroed before the launch."""

    buffer: int
    start: int
    nbytes: int


Part = Callable[["LaunchPlan", Preparation], None]


class LaunchPlan:
    """`launch` and `primal` stand for all that it is for. `segment`: the length of a checkpointed loop's segments."""

    def __init__(
        self,
        variant: Variant,
        launch: Launch,
        primal: BoundArguments,
        gathers: tuple[Gathering, ...] = (),
        cleared: tuple[Cleared, ...] = (),
        segment: int | None = None,
        looked: Looking | None = None,
    ):
        self.variant, self.gathers, self.cleared, self.segment = variant, gathers, cleared, segment
        self._own_buffers = len(primal.buffers)
        looking = Looking(integers_of(variant.kernel.function).known(primal.packed, segment))
        self.sizes: Sizes | None = by_arithmetic(variant, launch, looking)
        # Integers that it depends on.
        self.asked = (*looking.asked, *(looked.asked if looked is not None else ()))
        self.parts = tuple(part for is_needed, part in _PARTS if is_needed(self))
        self.kernels = claims.kernels_in_order(variant)
        self.then: tuple[tuple[Kernel, bool], ...] = ()  # as `kernels`, but launched as the kernel is
        self.written = written_by(variant, *(g.kernel for g in gathers))

    @cached_property
    def reads(self) -> frozenset[str]:
        """The kernel's own parameters and variables that its launches read."""
        kernels = (*(kernel for kernel, _ in (*self.kernels, *self.then)), *(g.kernel for g in self.gathers))
        names = {p.name for p in self.variant.kernel.function.params} | set(self.variant.kernel.module.globals)
        return frozenset(name for kernel in kernels for name in read_by(kernel.function, names))

    def followed_by(self, kernel: Kernel, takes_adjoints: bool, asked: Iterable[Value]) -> LaunchPlan:
        """With a launch after those of the variant. `asked`: the integers on which that depends."""
        self.then, self.written = ((kernel, takes_adjoints),), self.written | kernel.written
        self.asked = (*self.asked, *asked)
        return self

    def prepare(self, at: Preparation) -> list[claims.Step]:
        """Makes what the launch needs, and gives its steps, in order."""
        given = at.bound
        for part in self.parts:
            part(self, at)
        for number, start, nbytes in self.cleared:
            zero_bytes(at.bound.buffers[number].address + start, nbytes, at.placement.cuda, at.stream)
        launch, supplied = at.own.sized(at.launch), at.own.supplied
        # They come first: they read adjoints that the kernel itself consumes.
        steps = [
            claims.Step(kernel, given, gathering.on(at.stream), {**supplied, **told})
            for kernel, gathering, told in self.gathers
        ]
        for kernel, takes_adjoints in self.kernels:
            bound = at.bound if takes_adjoints else self.without_adjoints(at.bound)
            started = launch._replace(block=self.variant.started(kernel, launch.block))
            steps.append(claims.Step(kernel, bound, started, supplied))
        for kernel, takes_adjoints in self.then:
            steps.append(claims.Step(kernel, given if takes_adjoints else self.without_adjoints(given), at.launch, {}))
        return steps

    def without_adjoints(self, bound: BoundArguments) -> BoundArguments:
        packed = bound.packed[: self.variant.kernel.packed_bytes]
        return bound._replace(packed=packed, buffers=bound.buffers[: self._own_buffers])


def written_by(variant: Variant, *others: Kernel) -> frozenset[str]:
    """The parameters through which a launch writes."""
    return frozenset(name for kernel in (*variant.kernels, *others) for name in kernel.written)


class Plans:
    """The plans of a gradient's last kinds of launches. Several threads may ask at once. `integers` are a launch's;
    only those count that some plan depends on."""

    def __init__(self) -> None:
        self._found: dict[Any, LaunchPlan] = {}
        self._relevant: Growing[int] = Growing()
        self._lock = make_lock()

    def get(self, kind: Any, integers: tuple[int, ...]) -> LaunchPlan | None:
        return self._found.get(self._key(kind, integers))

    def keep(self, kind: Any, integers: tuple[int, ...], plan: LaunchPlan, relevant: Iterable[int]) -> LaunchPlan:
        """`relevant`: the numbers of the integers that the plan depends on."""
        self._relevant.add(relevant)
        with self._lock:
            while len(self._found) >= _REMEMBERED:
                del self._found[next(iter(self._found))]  # the oldest
            self._found[self._key(kind, integers)] = plan
        return plan

    def _key(self, kind: Any, integers: tuple[int, ...]) -> tuple[Any, ...]:
        return kind, tuple([integers[k] for k in self._relevant.parts])


# ---- the parts ----------------------------------------------------------------------------------------------------


def _spare(plan: LaunchPlan, at: Preparation) -> None:
    at.bound = sparing(plan.variant, at.bound, at.placement, at.stream, at.own)


def _double_shared(plan: LaunchPlan, at: Preparation) -> None:
    at.own.double_shared(at.launch, SHARED_BYTES, plan.variant.derivative.shared_widening)


def _shadow(plan: LaunchPlan, at: Preparation) -> None:
    add_shadows(plan.variant, at.bound, at.placement, at.stream, at.own)


def _sum_up(plan: LaunchPlan, at: Preparation) -> None:
    add_partials(plan.variant, at.launch, at.placement, at.stream, at.own)
    finish_partials(plan.variant, at.bound, at.launch, at.placement, at.own)


def _copy(plan: LaunchPlan, at: Preparation) -> None:
    add_copies(plan.variant, at.bound, at.placement, at.stream, at.own)
    finish_copies(plan.variant, at.bound, at.launch, at.placement, at.own)


def _widen(plan: LaunchPlan, at: Preparation) -> None:
    add_wide(plan.variant, at.bound, at.launch, at.placement, at.stream, at.own)


def _coarsen(plan: LaunchPlan, at: Preparation) -> None:
    add_grid(plan.variant, at.launch, at.own)


def _in_rows(plan: LaunchPlan, at: Preparation) -> None:
    add_rows(plan.variant, at.launch, at.own)


def _cut(plan: LaunchPlan, at: Preparation) -> None:
    assert plan.segment is not None
    at.own.supplied[checkpoint.SEGMENT] = Supplied(plan.segment)


def _keep(plan: LaunchPlan, at: Preparation) -> None:
    variant, launch, own = plan.variant, at.launch, at.own
    sizes = plan.sizes
    if sizes is None:
        sizes = by_counting(variant, launch, plan.without_adjoints(at.bound), at.placement, plan.segment)
    add_tape(variant, sizes, launch, at.placement, at.stream, own)
    if variant.derivative.logs:
        add_logs(variant, logged_in(sizes), launch, at.placement, at.stream, own)
        finish_logs(variant, at.bound, launch, at.placement, own)


def _claim(plan: LaunchPlan, at: Preparation) -> None:
    claims.add_memory(plan.variant, at.bound, at.placement, at.stream, at.own)


# Which plans need it. In the order of the steps before the launch; those after it come in the reverse order.
_PARTS: tuple[tuple[Callable[[LaunchPlan], Any], Part], ...] = (
    (lambda plan: plan.variant.options.facts.unkept, _spare),
    (lambda plan: plan.variant.doubles_shared, _double_shared),
    (lambda plan: plan.variant.derivative.internal, _shadow),
    (lambda plan: plan.variant.derivative.partials, _sum_up),
    (lambda plan: plan.variant.derivative.copies, _copy),
    (lambda plan: plan.variant.derivative.wide, _widen),
    (lambda plan: plan.variant.derivative.coarse is not None, _coarsen),
    (lambda plan: plan.variant.options.facts.quads is not None, _in_rows),
    (lambda plan: plan.segment is not None, _cut),
    (lambda plan: plan.variant.places, _keep),
    (lambda plan: plan.variant.derivative.claims, _claim),
)
