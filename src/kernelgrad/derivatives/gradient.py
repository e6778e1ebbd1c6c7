"""The gradient of a kernel as a Python object. It plans and compiles what launches ask for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from .. import requests
from ..errors import ArgumentError, LaunchError
from ..kernel import Kernel, stream_of
from ..launches.plan import LaunchPlan, Plans, Preparation, Step
from ..launches.planning import Planner
from ..locks import cached_property, compiling
from ..runtime.arguments import Placement
from ..runtime.config import Launch, Launchers, make_launch
from ..runtime.integers import KnownLaunch, Ways, integers_of, known_launch
from ..runtime.launch import BoundArguments, Executable
from ..runtime.launch_memory import LaunchMemory
from ..runtime.recording import is_recorded
from ..runtime.signature import user_params
from .asked.settings import Settings
from .differentiated import Differentiated, compiled

if TYPE_CHECKING:
    from ..launches.choice.split_launch import Spilled
    from ..launches.choice.variant import Variant
    from ..launches.memory.half_adjoints import Half
    from ..runtime.replay import Replays


class BoundPlan(NamedTuple):
    """The plan of a launch, and its arguments and adjoints. `own`: memory that was made for these."""

    plan: LaunchPlan
    bound: BoundArguments
    placement: Placement
    own: LaunchMemory


class Planned(NamedTuple):
    """What a launch gets. `gradient`: the one that runs, perhaps with its loops checkpointed. `primal`: the kernel's
    own arguments."""

    gradient: Gradient
    plan: LaunchPlan
    launch: Launch
    primal: BoundArguments
    placement: Placement


class Gradient(Differentiated):
    """The gradient of a kernel: `g[grid, block](*arguments, *adjoints)`."""

    def __init__(self, kernel: Kernel, settings: Settings):
        self._launchers: Launchers[None] = Launchers(self._launch, kernel.name)
        self._binders: dict[tuple[str, ...], Kernel] = {}
        super().__init__(kernel, settings)
        self._plans, self.planner = Plans(), Planner(self.forms)
        self._was_launched = False

    def __repr__(self) -> str:
        asked = self.settings.described
        return f"<gradient {self.signature}{f'; {asked}' if asked else ''}>"

    def _repr_html_(self) -> str:
        from ..runtime.notebook import gradient_html

        return gradient_html(repr(self), self.source)

    @property
    def compiled(self) -> tuple[Executable, ...]:
        return (*super().compiled, *(e for forms in self.planner.other_forms for e in compiled(forms)))

    @cached_property
    def checkpointed(self) -> Gradient:
        """The same gradient with its loops in segments, for launches whose tape would exceed the budget."""
        from ..autodiff.saving import checkpoint

        taped = self.variant().derivative.prepared.planned.looped_spans()
        function = checkpoint.run(self.kernel.function, self.kernel.module, taped)
        module = replace(self.kernel.module, functions={function.name: function})
        kernel = Kernel(function.name, module, self.kernel.variable)
        return Gradient(kernel, replace(self.settings, tape_budget=None))

    def __getitem__(self, key: Any) -> Callable[..., None]:
        return self._launchers[key]

    def launch(
        self, *, grid: Any, block: Any, shared: Any = 0, stream: Any = None, args: Sequence[Any] = (), **adjoints: Any
    ) -> None:
        """The keyword form of `g[grid, block, shared, stream](*args, **adjoints)`."""
        self._launch(
            make_launch(grid, block, shared, stream, of=self.kernel.name), requests.arguments("launch", args), adjoints
        )

    def execute_kernel(
        self, grid: Any, block: Any, *args: Any, shared: Any = None, stream: Any = None, **adjoints: Any
    ) -> None:
        """Runs the kernel and its gradient. After block, both or neither: shared_bytes, stream."""
        named = sum(name in self._expected.own for name in adjoints)
        expected = len(self._expected.own) - named + (0 if adjoints else len(self.settings.shown))
        if len(args) == expected + 2:
            if shared is not None or stream is not None:
                raise ArgumentError("shared and stream are given twice: by position and by name")
            shared, stream, *args = args  # type: ignore[assignment]
        self._launch(make_launch(grid, block, shared or 0, stream, of=self.kernel.name), tuple(args), adjoints)

    def execute(self, *args: Any, **keywords: Any) -> None:
        raise LaunchError(
            f"{self.kernel.name} is a kernel: use execute_kernel(grid, block, ...), or g[grid, block](...)"
        )

    @cached_property
    def source(self) -> str:
        """The gradient as CUDA C++ that plain nvcc compiles."""
        variant = self.variant()
        return "\n".join(map(variant.source, range(len(variant.kernels))))

    def source_for(
        self, grid: Any, block: Any, *args: Any, shared: Any = 0, on_gpu: bool = False, **adjoints: Any
    ) -> str:
        """What runs in a launch, as CUDA C++: every kernel in order, and before each what its launch is like, what is
        supplied to it besides the arguments, and what it assumes. With or without the adjoints. `on_gpu`: what would
        run on a GPU, for arrays that are not there."""
        from ..launches.text import text_of

        return text_of(self.planned(make_launch(grid, block, shared, of=self.kernel.name), args, adjoints, on_gpu).plan)

    @compiling
    def explain(self, grid: Any = None, block: Any = None, *args: Any, shared: Any = 0, **adjoints: Any) -> str:
        """Every accumulation and every taped value: where, how, why; and the bytes that threads move. With a launch and
        its arguments, with or without the adjoints: of the variant that this launch gets, in numbers."""
        from ..explain.report import explain_any, explain_launch

        if grid is None:
            return explain_any(self)
        if block is None:
            raise ArgumentError("explain: give a launch as a whole, explain(grid, block, *arguments), or nothing of it")
        return explain_launch(self, grid, block, shared, args, adjoints)

    def tape_bytes(self, grid: Any, block: Any, *args: Any, shared: Any = 0, **adjoints: Any) -> int:
        """The size of the tape that this launch would use; nothing is launched but, where needed, a count."""
        from ..launches.memory.tape_memory import tape_bytes

        launch = make_launch(grid, block, shared, of=self.kernel.name)
        args, _ = self._expected.placed(args, adjoints)
        bound, placement = self.kernel.bind(args[: len(user_params(self.kernel.function))])
        segment = self.segment(launch, bound, placement)
        if segment is not None:
            return self.checkpointed.bytes_needed(launch, bound, placement, segment)
        forms, known = self.planner.with_tape(self._known(launch, bound, placement))
        own = launch._replace(grid=known.grid, shared_bytes=known.shared_bytes)
        return tape_bytes(forms.for_launch(known), own, bound, placement)

    def bytes_needed(
        self, launch: Launch, bound: BoundArguments, placement: Placement, segment: int | None = None
    ) -> int:
        from ..launches.memory.tape_memory import tape_bytes

        forms, known = self.planner.with_tape(self._known(launch, bound, placement, segment))
        own = launch._replace(grid=known.grid, shared_bytes=known.shared_bytes)
        return tape_bytes(forms.for_launch(known), own, bound, placement, segment)

    def _known(
        self, launch: Launch, bound: BoundArguments, placement: Placement, segment: int | None = None
    ) -> KnownLaunch:
        """Of a launch that wants every adjoint."""
        ways = self.ways(placement, False, False)
        return known_launch(self.kernel.function, self.settings.listed, launch, bound, ways, segment)

    def segment(self, launch: Launch, bound: BoundArguments, placement: Placement) -> int | None:
        """How long the segments of checkpointed loops are; None where the tape needs none."""
        if self.settings.tape_budget is None and not self.tapes:
            return None
        from .tape_budget import segment_for

        return segment_for(self, launch, bound, placement)

    def bytes_foreseen(self, launch: Launch, bound: BoundArguments, placement: Placement) -> int:
        """What the tape takes, where that is known without a count; else 0."""
        from ..launches.memory.tape_memory import by_arithmetic, tape_total

        forms, known = self.planner.with_tape(self._known(launch, bound, placement))
        variant = forms.for_launch(known)
        sizes = by_arithmetic(variant, launch, integers_of(variant.kernel.function).known(bound.packed, None))
        return 0 if sizes is None else tape_total(sizes, launch)

    def check(
        self, grid: Any, block: Any, *args: Any, shared: Any = 0, seed: int | None = None, **adjoints: Any
    ) -> Any:
        """Runs the gradient on the CPU, watched, as `kernel.check` does for a kernel; also tells broken promises."""
        from .kept_promises import broken_results

        launch = make_launch(grid, block, shared, of=self.kernel.name)
        steps, placement, own = self._prepare(launch, args, adjoints)
        promises, seed = self.settings.promises, requests.seed(seed)
        broken = broken_results(self.kernel, self.settings, launch, self.separate(args, adjoints)[0])
        reports = [
            kernel.check_bound(launch, bound, placement, supplied, seed, promises)
            for kernel, bound, launch, supplied in steps
        ]
        own.finish()
        return replace(reports[-1], findings=(*broken, *(f for report in reports for f in report.findings)))

    def buffers_read(self, launch: Launch, args: tuple[Any, ...]) -> frozenset[str] | None:
        """The kernel's parameters and variables that such a launch reads; None where that is not known. `args`: with
        adjoints of the right sizes."""
        own_args, adjoints = self.separate(args, {})
        wanted, own = tuple([name for name, adjoint in adjoints.items() if adjoint is not None]), LaunchMemory()
        adjoints = self._in_float(adjoints, launch, own, ())
        bound, placement = self._binder(wanted).bind((*own_args, *[adjoints[n] for n in wanted]))
        ways = self.ways(placement, False, False)
        known = known_launch(self.kernel.function, wanted, launch, bound, ways)
        plan = self._plan(known, bound, _spilled(placement))
        return plan.reads if plan.sizes is not None or not plan.variant.places else None

    def _launch(self, launch: Launch, args: tuple[Any, ...], keywords: Mapping[str, Any]) -> None:
        if self._was_launched and not keywords and self.replays.launch(launch, args):
            return
        if is_recorded(self, launch, args, keywords):
            return
        self._launch_plainly(launch, args, keywords)
        self._was_launched = True

    @cached_property
    @compiling
    def replays(self) -> Replays:
        """Launches that come again."""
        from ..runtime.replay import Replays

        others = len(self.settings.shown)
        return Replays(self.kernel.function, others, self._launch_plainly, True, self.kernel.is_plain)

    def _launch_plainly(
        self, launch: Launch, args: tuple[Any, ...], keywords: Mapping[str, Any] = MappingProxyType({})
    ) -> None:
        if keywords:
            args, keywords = self._expected.placed(args, keywords)
        target, segment = self.within_budget(launch, args)
        steps, placement, own = target._prepare(launch, args, keywords, segment, watched=False)
        for kernel, bound, launched, _ in steps:
            kernel.require_arrays(launched, bound)
        for kernel, bound, launched, supplied in steps:
            kernel.run(launched, bound, placement, supplied)
        own.finish()

    def check_arguments(self, launch: Launch, args: tuple[Any, ...]) -> None:
        """What a launch would say of its arguments."""
        plan, bound, _, own = self.bind_plan(launch, args, {}, watched=False)
        self.check_overlap(plan.variant, bound, own, plan.written)

    def within_budget(self, launch: Launch, args: tuple[Any, ...]) -> tuple[Gradient, int | None]:
        """This gradient, or the checkpointed one with a length for its segments."""
        if self.settings.tape_budget is None and not self.tapes:
            return self, None
        bound, placement = self.kernel.bind(args[: len(user_params(self.kernel.function))])
        segment = self.segment(launch, bound, placement)
        return (self, None) if segment is None else (self.checkpointed, segment)

    def _prepare(
        self,
        launch: Launch,
        args: tuple[Any, ...],
        keywords: Mapping[str, Any],
        segment: int | None = None,
        single: bool = False,
        watched: bool = True,
    ) -> tuple[list[Step], Placement, LaunchMemory]:
        """`single`: one kernel is to do it all. `watched`: who runs it looks at what a GPU would do."""
        plan, bound, placement, own = self.bind_plan(launch, args, keywords, segment, single, watched)
        self.check_overlap(plan.variant, bound, own, plan.written)
        stream = stream_of(launch, placement)
        return plan.prepare(Preparation(launch.on(stream), bound, placement, stream, own)), placement, own

    def bind_plan(
        self,
        launch: Launch,
        args: tuple[Any, ...],
        keywords: Mapping[str, Any],
        segment: int | None = None,
        single: bool = False,
        watched: bool = True,
    ) -> BoundPlan:
        """The launch's plan; nothing is made for it yet but what its arguments need."""
        own_args, adjoints = self.separate(args, keywords)
        self.check_members(own_args, adjoints)
        wanted = tuple([name for name, adjoint in adjoints.items() if adjoint is not None])
        own = LaunchMemory()
        adjoints, halves = self._bound_as_floats(adjoints, launch, own)
        bound, placement = self._binder(wanted).bind((*own_args, *[adjoints[n] for n in wanted]))
        if any(buffer.is_part for buffer in bound.buffers):
            from ..runtime.reach import reaching

            bound = reaching(self.kernel.function, launch, bound)
        ways = self.ways(placement, single, watched)
        known = known_launch(self.kernel.function, wanted, launch, bound, ways, segment, _names(halves))
        plan = self._plan(known, bound, _spilled(placement))
        if halves:
            bound = self._settled(plan.variant, bound, halves, launch, own, placement)
        if placement.cuda is not None:
            self.check_alignment(self.variant(wanted, self.usual), bound)
        return BoundPlan(plan, bound, placement, own)

    def _settled(
        self,
        variant: Variant,
        bound: BoundArguments,
        halves: tuple[Half, ...],
        launch: Launch,
        own: LaunchMemory,
        placement: Placement,
    ) -> BoundArguments:
        """With copies in float of the halves that the plan does not take as they are."""
        from ..launches.memory.half_adjoints import HalfAdjoints

        names = {name: p.name for name, p in variant.derivative.adjoints.items()}
        adjoints = HalfAdjoints(variant.binder.function, names)
        stay = variant.options.facts.halves
        return adjoints.settle(bound, halves, stay, self.settings.kept, launch, own, placement)

    def planned(
        self, launch: Launch, args: tuple[Any, ...], keywords: Mapping[str, Any], on_gpu: bool = False
    ) -> Planned:
        """What a launch gets. Adjoints that are not given are taken to be like their arguments. `on_gpu`: there, also
        if the arrays are not."""
        args, keywords = self._expected.placed(args, keywords)
        own = len(user_params(self.kernel.function))
        target, segment = self.within_budget(launch, args[:own])
        return target._planned(launch, args, keywords, segment, on_gpu)

    def _planned(
        self,
        launch: Launch,
        args: tuple[Any, ...],
        keywords: Mapping[str, Any],
        segment: int | None,
        on_gpu: bool,
    ) -> Planned:
        function, wanted = self.kernel.function, self.settings.listed
        own_args, copies = args[: len(user_params(function))], LaunchMemory()
        primal, placement = self.kernel.bind(own_args)
        halves: tuple[Half, ...] = ()
        bound = None
        if keywords or len(args) != len(own_args):
            adjoints, halves = self._bound_as_floats(self.separate(args, keywords)[1], launch, copies)
            wanted = tuple(name for name, adjoint in adjoints.items() if adjoint is not None)
            bound, _ = self._binder(wanted).bind((*own_args, *[adjoints[n] for n in wanted]))
        if not wanted:
            raise ArgumentError(f"{self.kernel.name}: no adjoint is wanted, so there is nothing to explain")
        there = Placement(0) if on_gpu and placement.cuda is None else placement
        ways = self.ways(there, False, False)
        known = known_launch(function, wanted, launch, bound or primal, ways, segment, _names(halves))
        known = known if bound is not None else self.forms.with_adjoints(known)
        return Planned(self, self._plan(known, bound, _spilled(placement)), launch, primal, placement)

    def _binder(self, wanted: tuple[str, ...]) -> Kernel:
        """All variants take the same arguments of the user's."""
        if wanted not in self._binders:
            self._binders[wanted] = self.variant(wanted, self.usual).binder
        return self._binders[wanted]

    def _plan(self, known: KnownLaunch, bound: BoundArguments | None, spilled: Spilled | None = None) -> LaunchPlan:
        plan = self._plans.get(known)
        if plan is None:
            if bound is not None:
                self.check_sizes(self.variant(known.wanted), bound)
            plan = self.planner.plan(known, spilled)
            relevant = integers_of(self.kernel.function).numbers(self.planner.relevant(known, plan))
            self._plans.keep(known, plan, relevant)
        return plan

    def ways(self, placement: Placement, single: bool, watched: bool) -> Ways:
        on_gpu, single = placement.cuda is not None, single or self.settings.report_nan
        return Ways(single, not (on_gpu or watched), on_gpu and not single)


def _names(halves: tuple[Half, ...]) -> frozenset[str]:
    return frozenset([half.name for half in halves])


def _spilled(placement: Placement) -> Spilled | None:
    return partial(Kernel.local_bytes, device=placement.cuda) if placement.cuda is not None else None
