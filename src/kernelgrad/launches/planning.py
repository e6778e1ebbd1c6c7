"""The plan of a gradient's launch: from what is known of it to the kernels that run, in one direction.

what is known (`runtime/integers`) -> plans of forms (`forms`, `choose`) -> one kernel or two (`split_launch`) -> their
code (`variant`) -> what a launch needs besides (`plan`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import starmap
from typing import TYPE_CHECKING

from ..analysis.roots import place_of
from ..autodiff.calculus.shadows import adjoint_type
from ..deep import deeply
from ..ir.ops import Barrier, BarrierReduce, For, GlobalRef, Value, Warp, While
from ..ir.traverse import kinds
from ..ir.types import Pointer
from ..locks import cached_property, compiling
from ..runtime.integers import KnownLaunch, Looking
from .choice.forms import Forms
from .choice.variant import Variant
from .plan import Cleared, Gathering, LaunchPlan

if TYPE_CHECKING:
    from ..autodiff.accumulate.choice import Facts
    from .choice.block_turns import SmallerLaunches
    from .choice.shared_parts import PartedLaunches
    from .choice.short_loops import ShortLoops
    from .choice.split_launch import InTwo, Spilled
    from .choice.spread_turns import LargerLaunches
    from .choice.thread_cells import OwnCellLaunches

_REMEMBERED = 1024  # launches


class Planner:
    """Plans the launches of one gradient."""

    def __init__(self, forms: Forms):
        self.forms = forms
        self._planners: dict[Forms, Planner] = {}
        self._others: dict[KnownLaunch, tuple[tuple[Forms, KnownLaunch] | None, tuple[Value, ...]]] = {}

    @cached_property
    def in_two(self) -> InTwo:
        from .choice.split_launch import InTwo

        return InTwo(self.forms)

    @cached_property
    def parted(self) -> PartedLaunches:
        from .choice.shared_parts import PartedLaunches

        return PartedLaunches(self.forms)

    @cached_property
    def own_cells(self) -> OwnCellLaunches:
        from .choice.thread_cells import OwnCellLaunches

        return OwnCellLaunches(self.forms)

    @cached_property
    def short_loops(self) -> ShortLoops:
        from .choice.short_loops import ShortLoops

        return ShortLoops(self.forms)

    @cached_property
    def larger(self) -> LargerLaunches:
        from .choice.spread_turns import LargerLaunches

        return LargerLaunches(self.forms)

    @cached_property
    def smaller(self) -> SmallerLaunches:
        from .choice.block_turns import SmallerLaunches

        return SmallerLaunches(self.forms)

    @compiling
    @deeply
    def plan(self, launch: KnownLaunch, spilled: Spilled | None = None) -> LaunchPlan:
        """`spilled`: what the compiler says of a kernel's local memory, on a GPU."""
        looking = Looking(launch.answers(self.forms.kernel.function))
        if self._may_share and self._cut:
            self._refuse_overlaps(launch, looking)
        if (other := self._other(launch, looking)) is not None:
            return self._in_place_of(launch, *other, looking, spilled)
        halves = self.in_two.find(launch, looking, spilled, self._wide(launch, looking)) if self._takes_long else None
        if halves is None:
            return _in_one(self.forms, launch, looking)
        plan, forward = _in_one(halves.reverse, launch, looking), self.in_two.forward(halves, launch.wanted)
        if halves.consuming is not None and plan.variant.options.facts.halves:
            if plan.variant.takes_halves(forward):
                forward = plan.variant.in_halves(forward)
            else:
                plan = _in_one(halves.reverse, launch._replace(halves=frozenset()), looking)
        return plan.followed_by(forward, halves.consuming is not None, halves.asked)

    def _other(self, launch: KnownLaunch, looking: Looking) -> tuple[Forms, KnownLaunch] | None:
        """The forms of another kernel that does the same, and the launch of that, where these are better planned."""
        if launch not in self._others:
            own = Looking(launch.answers(self.forms.kernel.function))
            if len(self._others) >= _REMEMBERED:
                self._others.clear()
            self._others[launch] = self._found_other(launch, own), tuple(own.asked)
        found, asked = self._others[launch]
        for value in asked:
            looking(value)
        return found

    def _found_other(self, launch: KnownLaunch, looking: Looking) -> tuple[Forms, KnownLaunch] | None:
        if self._has_loops and (short := self.short_loops.find(launch, looking)) is not None:
            return short, launch
        if launch.shared_bytes and (parted := self.parted.find(launch, looking)) is not None:
            return parted
        if self._may_share and (own := self.own_cells.find(launch, looking)) is not None:
            return own, launch
        if self._has_loops and (larger := self.larger.find(launch, looking)) is not None:
            forms, grid = larger
            return forms, launch._replace(grid=grid)
        return self.smaller.find(launch, looking) if self._may_be_smaller else None

    @compiling
    @deeply
    def with_tape(self, launch: KnownLaunch) -> tuple[Forms, KnownLaunch]:
        """Whose tape a launch has: the forms that it is planned with, and the launch as these have it."""
        looking = Looking(launch.answers(self.forms.kernel.function))
        if (other := self._other(launch, looking)) is not None:
            forms, own = other
            return self._planner(forms).with_tape(own)
        halves = self.in_two.find(launch, looking) if self._takes_long else None
        return (self.forms if halves is None else halves.reverse), launch

    def _planner(self, forms: Forms) -> Planner:
        return self._planners.setdefault(forms, Planner(forms))

    def _wide(self, launch: KnownLaunch, looking: Looking) -> Callable[[Forms, bool], bool] | None:
        """Whether a form loads and stores several elements at once, or keeps rows; `in_turns`: in the turns of a loop.
        What a thread does once is hidden behind a kernel that waits."""
        if not launch.ways.on_gpu:
            return None

        def is_wide(forms: Forms, in_turns: bool) -> bool:
            variant = forms.for_launch(launch)
            facts = _vectorized(variant, launch, looking)
            if facts is not None and facts.vector is not None and (facts.vector.turns or not in_turns):
                return True
            return _with_rows(forms, variant, launch, looking) is not None

        return is_wide

    def _in_place_of(
        self, launch: KnownLaunch, forms: Forms, other: KnownLaunch, looking: Looking, spilled: Spilled | None
    ) -> LaunchPlan:
        """By the plan of another launch. `forms`: of the kernel for that."""
        planner = self._planner(forms)
        plan = planner.plan(other, spilled)
        return plan.in_place_of(launch, (*looking.asked, *planner.relevant(other, plan)))

    @property
    def other_forms(self) -> Iterator[Forms]:
        """Besides its own, those whose kernels it may plan."""
        yield from self.in_two.reverses
        for forms, planner in self._planners.items():
            yield from (forms, *planner.other_forms)

    @property
    def _may_be_smaller(self) -> bool:
        return self.forms.settings.mode == "reverse"

    @cached_property
    def _has_loops(self) -> bool:
        return not kinds(self.forms.kernel.function.body).isdisjoint((For, While))

    @cached_property
    def _may_share(self) -> bool:
        """Whether there is memory that a block shares."""
        return GlobalRef in kinds(self.forms.kernel.function.body)

    @cached_property
    def _cut(self) -> tuple[str, ...]:
        """Variables in shared memory that are cut into views of different types."""
        from ..autodiff.refusals.overlapping_views import cut_variables

        return cut_variables(self.forms.kernel.function)

    def _refuse_overlaps(self, launch: KnownLaunch, looking: Looking) -> None:
        from ..analysis.access.intervals import Intervals
        from ..autodiff.refusals.overlapping_views import refuse_overlapping_views

        function, prepared = self.forms.kernel.function, self.forms.variant(launch.wanted).derivative.prepared
        active = {name for name, root in prepared.memory.global_names.items() if root in prepared.activity.roots}
        values = {p.name: p.value for p in function.params}
        intervals = Intervals(function, launch.grid, launch.block, lambda path: looking(values.get(path)))
        declared = (self.forms.kernel.module.globals[name].type.size for name in self._cut)
        nbytes = max(launch.shared_bytes, *declared)
        refuse_overlapping_views(function, (name for name in self._cut if name in active), nbytes, intervals)

    @cached_property
    def _takes_long(self) -> bool:
        """What has neither loops nor barriers takes its time for memory, of which one kernel moves less."""
        return not kinds(self.forms.kernel.function.body).isdisjoint((For, While, Barrier, BarrierReduce, Warp))

    def relevant(self, launch: KnownLaunch, plan: LaunchPlan) -> tuple[Value, ...]:
        """The integers that the plan of a launch depends on."""
        return (*self.forms.chooser(launch).relevant.parts, *plan.asked)


def _in_one(forms: Forms, launch: KnownLaunch, looking: Looking) -> LaunchPlan:
    """What is found of the launch's variant holds for that: others of its forms come from `laid_out`, which starts from
    the same kernel, its shared memory of the launch's size."""
    variant = forms.for_launch(launch)
    if launch.ways.on_gpu and variant.rows is None and (vector := _vectorized(variant, launch, looking)):
        variant = forms.laid_out(launch, vector)
    elif launch.ways.on_gpu and (rows := _with_rows(forms, variant, launch, looking)):
        variant = forms.laid_out(launch, rows)
    if launch.ways.on_gpu and (interleaved := _interleaved(forms, variant, launch, looking)):
        variant = forms.laid_out(launch, interleaved)
    in_order = forms.settings.report_nan  # which tells the operation that comes first
    if launch.ways.on_gpu and not in_order and _adds_to_slow_places(variant):
        variant = forms.laid_out(launch, replace(variant.options.facts, slow=True))
    if launch.ways.on_gpu and not in_order and _loads_in_batches(variant):
        variant = forms.laid_out(launch, replace(variant.options.facts, batched=True))
    if variant.options.facts.exchanged and (aligned := _aligned(launch)):
        variant = forms.laid_out(launch, replace(variant.options.facts, aligned=aligned))
    gathers = () if launch.ways.single else tuple(starmap(Gathering, forms.gathers(launch)))
    if launch.halves and (halves := _kept_halves(variant, gathers, launch, looking)):
        variant = forms.laid_out(launch, replace(variant.options.facts, halves=halves))
        gathers = tuple(g._replace(kernel=variant.in_halves(g.kernel)) for g in gathers)
    return LaunchPlan(variant, launch, gathers, tuple(_cleared(forms, variant, launch)), looking)


def _adds_to_slow_places(variant: Variant) -> bool:
    if variant.options.facts.vector is not None or For not in kinds(variant.reverse.function.body):
        return False
    from ..schedule.sum_over import slow_places

    return slow_places.applies_to(variant.reverse.function)


def _loads_in_batches(variant: Variant) -> bool:
    """Whether loops may load for several turns at once, of threads that do nothing else at once."""
    facts = variant.options.facts
    if facts.vector is not None or facts.rows is not None or For not in kinds(variant.reverse.function.body):
        return False
    from ..schedule.order import batched_loads

    return batched_loads.applies_to(variant.reverse.function)


def _aligned(launch: KnownLaunch) -> frozenset[str]:
    names = (name for name, _ in launch.sizes)
    return frozenset(name for name, aligned in zip(names, launch.aligned, strict=False) if aligned)


def _vectorized(variant: Variant, launch: KnownLaunch, looking: Looking) -> Facts | None:
    from .vector_width import vectorized_facts

    return vectorized_facts(variant, launch, looking)


def _kept_halves(
    variant: Variant, gathers: tuple[Gathering, ...], launch: KnownLaunch, looking: Looking
) -> frozenset[str]:
    from .kept_halves import kept_halves

    return kept_halves(variant, gathers, launch, looking)


def _with_rows(forms: Forms, variant: Variant, launch: KnownLaunch, looking: Looking) -> Facts | None:
    if kinds(variant.kernel.function.body).isdisjoint((For, While)):
        return None
    from .kept_rows import facts_with_rows

    return facts_with_rows(variant, forms.kernel.function, launch, looking)


def _interleaved(forms: Forms, variant: Variant, launch: KnownLaunch, looking: Looking) -> Facts | None:
    settings, how = forms.settings, variant.derivative.prepared.accumulation
    reads_alike = len(how.together) > 1 and len(how.atomic) > 1
    if not reads_alike or settings.mode == "split" or settings.may_alias or launch.ways.single or launch.halves:
        return None
    from .interleaving import facts_interleaved

    return facts_interleaved(variant, forms.kernel.function, launch, looking)


def _cleared(forms: Forms, variant: Variant, launch: KnownLaunch) -> Iterator[Cleared]:
    """`assign`: the adjoint starts at zero instead of what it holds. What is written anyway need not be cleared."""
    sizes, facts = forms.all_sizes(launch), variant.options.facts
    overwritten = facts.overwritten | {name for name, _ in facts.read_last}
    for name in forms.settings.assigned:
        param = variant.derivative.adjoints.get(name)
        written = _adjoint_bytes(variant, name, sizes) if name in overwritten and _writes(variant, name) else 0
        for number, (buffer, nbytes) in enumerate(launch.sizes):
            if param is not None and buffer == param.name and nbytes > written:
                share = 2 if name in facts.halves else 1  # of the bytes that floats would have
                yield Cleared(number, written // share, (nbytes - written) // share)


def _adjoint_bytes(variant: Variant, name: str, sizes: Mapping[str, int]) -> int:
    """Of the adjoint of a buffer, in which halves are floats."""
    root = next(p for p in variant.derivative.prepared.function.params if p.name == name)
    assert isinstance(root.type, Pointer)
    each = root.type.pointee
    return sizes[name] // each.size * adjoint_type(each).size if each.size else sizes[name]


def _writes(variant: Variant, name: str) -> bool:
    """Whether the code writes what was found to be written: loops in strips were not there yet when it was."""
    facts, prepared = variant.options.facts, variant.derivative.prepared
    if not facts.strips:
        return True
    loads = [op for op in prepared.memory.loads if any(root.name == name for root in prepared.memory.of(op.ptr))]
    ends = [op for op in loads if name in facts.overwritten or place_of(op, name) in facts.read_last]
    return bool(ends) and all(id(op) in prepared.accumulation.writes for op in ends)
