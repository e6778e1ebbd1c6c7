"""The forms of a derivative for launches that are not there yet: any launch of a kernel, or any with a given grid and
block. What needs numbers to be proved, such as the arguments, does not hold."""

from __future__ import annotations

from dataclasses import replace

from ..autodiff.calculus.shadows import is_dynamic
from ..ir.ops import Barrier, Warp
from ..ir.traverse import kinds
from ..runtime.integers import Extents, KnownLaunch, integers_of
from .choice.forms import Forms
from .choice.variant import Variant
from .memory.tape_expressions import tape_elements


def form_for_any(forms: Forms) -> Variant:
    """Right in every launch: no element is taken to be one thread's alone."""
    facts = replace(
        forms.usual,
        private=frozenset(),
        exclusive=frozenset(),
        apart=frozenset(),
        refill=False,
        apart_in_turn=False,
        ragged=_parts_ragged_warps(forms),
        unkept=frozenset(forms.settings.kept),
        unheld=frozenset(forms.settings.promises.results),
    )
    return forms.variant(None, facts)


def _parts_ragged_warps(forms: Forms) -> bool:
    function = forms.kernel.function
    if kinds(function.body).isdisjoint((Warp, Barrier)):
        return False
    from ..transforms import converge

    return converge.is_needed(function, whole_rows=False)


def form_for_shape(forms: Forms, grid: Extents, block: Extents) -> Variant:
    """Right in launches of this shape, whatever the arguments are."""
    launch = shape_alone(forms, grid, block)
    facts = forms.chooser(launch).find(launch, {}, ()).facts
    sized = not any(map(is_dynamic, forms.kernel.module.globals.values()))  # how much is filled is not known else
    wide, refill = _in_kernel(facts.wide, forms), facts.refill and sized
    facts = replace(facts, apart_in_turn=False, wide=wide, refill=refill)
    plain = forms.variant(None, replace(facts, strips=False))
    # Loops go in strips where else a launch would have to count what they keep.
    counted = facts.strips and tape_elements(plain.derivative.prepared.plan) is None
    return forms.variant(None, facts) if counted else plain


def _in_kernel(wide: frozenset[str], forms: Forms) -> frozenset[str]:
    """What is wide in the kernel itself: doubles for a parameter take its size."""
    return wide - {p.name for p in forms.kernel.function.params}


def shape_alone(forms: Forms, grid: Extents, block: Extents) -> KnownLaunch:
    """A launch of which nothing else is known."""
    unknown: tuple[int, ...] = (None,) * len(integers_of(forms.kernel.function)._values)  # type: ignore[assignment]
    return KnownLaunch(forms.settings.listed, grid, block, 0, unknown, (), ())
