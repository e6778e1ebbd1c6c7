"""What is known of a gradient before any of its code is: activity, what is kept for the reverse, how each update is
added.

Most of it does not depend on the launch. `Derivations` has it once for all forms of one kernel's derivatives: forms
that differ in how updates are added alone share everything else.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ...analysis import roots as memory_analysis
from ...analysis.roots import Memory
from ...analysis.structure import Structure
from ...deep import deeply
from ...errors import Span
from ...ir.ops import Function, Module, Value
from ...ir.types import Struct
from ...progress import doing
from ...transforms import simplify
from ..accumulate.choice import Accumulation, plan_updates
from ..calculus.activity import Activity
from ..calculus.shadows import Shadowed
from ..saving.plan import Plan, Task
from ..winners.winners import Winners
from .normal_form import in_form, short_loops, unrolled
from .options import Options
from .planned import Planned, activity_of, make_planned, owned

if TYPE_CHECKING:
    from ..accumulate.ordered import Sites


@dataclass
class Prepared:
    """What every sweep is emitted from: a plan, and how updates are added. `sites`: of logged ones. `kept`: outputs
    whose adjoints are read and left as they are."""

    options: Options
    planned: Planned
    accumulation: Accumulation
    kept: frozenset[Value]
    sites: Sites

    def __post_init__(self) -> None:
        planned = self.planned
        self.shadowed: Shadowed = planned.shadowed
        self.function: Function = planned.function
        self.structure: Structure = planned.structure
        self.memory: Memory = planned.memory
        self.activity: Activity = planned.activity
        self.plan: Plan = planned.plan
        self.winners: Winners = planned.winners
        self.task: Task = planned.task


class Derivations:
    """The plans of one kernel's derivatives, each made once."""

    def __init__(self, function: Function, module: Module):
        self.function, self.module = function, module
        self._ready: dict[object, Function] = {}
        self._planned: dict[Options, Planned] = {}

    @doing(lambda self, options: f"planning the derivative of {self.function.name}")
    @deeply
    def planned(self, options: Options) -> Planned:
        key = options.planned
        if key not in self._planned:
            self._planned[key] = self._plan(key)
        return self._planned[key]

    @deeply
    def prepared(self, options: Options) -> Prepared:
        return _prepare(self.planned(options), options)

    def _plan(self, options: Options) -> Planned:
        """Loops that would need a tape take forms that need less of it, or none."""
        function, module = self.ready(options), self.module
        found = make_planned(function, module, options)
        nothing = frozenset[Span]()
        scaled = found.rescaled_loops
        narrow, stripped = found.long_loops if options.facts.strips else (nothing, nothing)
        narrow, stripped = narrow - scaled, stripped - scaled
        if stripped:
            from ...transforms import rotate
            from ..saving.rerun_segments import strip

            function = rotate.run(simplify.run(strip(function, stripped), module), module)
            found = make_planned(function, module, options)
        taped = found.taped_loops()
        short = short_loops(function, taped) - narrow if taped else nothing
        if short:
            function = unrolled(function, module, short)
            found = make_planned(function, module, options)
        if any(found.plan.taped.values()):
            function, found = self._settle(function, found, scaled, options)
        if narrow:
            from ..saving import carried_derivatives

            # Last: simplification knows nothing of what this says of derivatives.
            memory = memory_analysis.analyse(function)
            function = carried_derivatives.run(function, narrow, memory, activity_of(function, memory, options))
            found = make_planned(function, module, options)
        if found.options.mode != "split" and not options.facts.inlined and any(found.plan.taped.values()):
            from ..saving.bit_stack import hold

            hold(found.plan)
        return found

    def _settle(
        self, function: Function, found: Planned, scaled: frozenset[Span], options: Options
    ) -> tuple[Function, Planned]:
        """With what loops end with in place of what they had on the way, where nothing is needed of that."""
        for chosen in (scaled, frozenset[Span]()) if scaled else (scaled,):
            settled = _settled(function, chosen, found.taped_spans(), options)
            planned = found if settled is function else make_planned(settled, self.module, options)
            if planned.plan.is_sound:
                return settled, planned
        return function, found

    def ready(self, options: Options) -> Function:
        """The function in the form that reversal knows."""
        facts = options.facts
        known = facts.block, facts.passed, facts.columns, bool(facts.cells), facts.alone, facts.inlined, facts.ragged
        key = options.listed, options.mode, options.may_alias, options.deterministic, *known
        if key not in self._ready:
            self._ready[key] = in_form(self._with_members(options), self.module, options)
        return self._ready[key]

    def _with_members(self, options: Options) -> Function:
        """The function with numbers in structs that hold pointers, where they are listed, as parameters."""
        if not any(isinstance(p.type, Struct) for p in self.function.params):
            return self.function
        from ..calculus import struct_members

        return struct_members.apart(self.function, self.module, options.listed)


def _settled(function: Function, scaled: frozenset[Span], taped: set[Span], options: Options) -> Function:
    """With what loops end with in place of what they had on the way: of sums of terms by a running scale, of maxima."""
    from ..saving import last_taken, rescaled_sums

    if scaled:
        activity = activity_of(function, memory_analysis.analyse(function), options)
        function = rescaled_sums.run(function, scaled, activity)
    return last_taken.run(function, taped, activity_of(function, memory_analysis.analyse(function), options))


def _prepare(planned: Planned, options: Options) -> Prepared:
    """How updates are added, on top of what is planned."""
    options = replace(options, mode=planned.options.mode, silent=planned.options.silent)
    function, memory, structure, activity = planned.function, planned.memory, planned.structure, planned.activity
    usual = planned.typically_owned(options)
    parts = owned(planned, options, usual)
    accumulation = plan_updates(memory, structure, activity.roots, *parts, options.facts, usual.sums)
    if options.facts.alone:
        accumulation.contested.clear()
    logged: Sites = {}
    if options.deterministic:
        from ..accumulate.ordered import order_updates, sites

        alone = options.facts.alone
        accumulation = order_updates(accumulation, memory, structure, planned.plan, alone, options.may_alias)
        logged = sites(accumulation, structure, planned.plan, planned.shadowed.of)
    kept = frozenset(p.value for p in function.params if p.name in options.kept)
    return Prepared(options, planned, accumulation, kept, logged)
