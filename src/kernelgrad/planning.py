"""The plan of a gradient's launch: from what is known of it to the kernels that run, in one direction.

what is known (`known`) -> plans of forms (`forms`, `launch_choice`) -> one kernel or two (`in_two`) -> their code
(`variants`) -> what a launch needs besides (`plans`).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import starmap

from .forms import Forms
from .in_two import InTwo, Spilled
from .ir.ops import Value
from .known import KnownLaunch, Looking
from .locks import compiling
from .plans import Cleared, Gathering, LaunchPlan
from .quads import facts_in_quads
from .variants import Variant


class Planner:
    """Plans the launches of one gradient."""

    def __init__(self, forms: Forms):
        self.forms, self.in_two = forms, InTwo(forms)

    @compiling
    def plan(self, launch: KnownLaunch, spilled: Spilled | None = None) -> LaunchPlan:
        """`spilled`: what the compiler says of a kernel's local memory, on a GPU."""
        looking = Looking(launch.answers(self.forms.kernel.function))
        halves = self.in_two.find(launch, looking, spilled)
        if halves is None:
            return _in_one(self.forms, launch, looking)
        plan = _in_one(halves.reverse, launch, looking)
        forward = self.in_two.forward(halves, launch.wanted)
        return plan.followed_by(forward, halves.consuming is not None, halves.asked)

    def relevant(self, launch: KnownLaunch, plan: LaunchPlan) -> tuple[Value, ...]:
        """The integers that the plan of a launch depends on."""
        return (*self.forms.chooser(launch).relevant.parts, *plan.asked)


def _in_one(forms: Forms, launch: KnownLaunch, looking: Looking) -> LaunchPlan:
    variant = forms.for_launch(launch)
    if launch.ways.on_gpu and (quads := facts_in_quads(variant, launch, looking)):
        variant = forms.variant(launch.wanted, quads)
    gathers = () if launch.ways.single else tuple(starmap(Gathering, forms.gathers(launch)))
    return LaunchPlan(variant, launch, gathers, tuple(_cleared(forms, variant, launch)), looking)


def _cleared(forms: Forms, variant: Variant, launch: KnownLaunch) -> Iterator[Cleared]:
    """`assign`: the adjoint starts at zero instead of what it holds. What is written anyway need not be cleared."""
    sizes = dict(launch.sizes)
    for name in forms.settings.assigned:
        param = variant.derivative.adjoints.get(name)
        written = sizes[name] if name in variant.options.facts.overwritten else 0
        for number, (buffer, nbytes) in enumerate(launch.sizes):
            if param is not None and buffer == param.name and nbytes > written:
                yield Cleared(number, written, nbytes - written)
