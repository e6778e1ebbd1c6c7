"""Launches whose threads add to several adjoints at the same places, as those of coordinates in arrays of their own:
whether one array for all of them is worth a launch that adds up what it holds (see `schedule/interleave`)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ..analysis import structure as structure_analysis
from ..autodiff.accumulate.choice import Facts
from ..ir.ops import Function
from ..runtime.integers import KnownLaunch
from ..schedule.interleave import MOST, Groups, Loops, adds_by_index, width_of
from ..schedule.rows.turns import TurnSums
from .choice.variant import Variant
from .started_launch import numbers_in, started_shape

_UNKNOWN = 8  # turns of a loop
_FEWEST = 1 << 22  # additions of a launch that are worth another one
_EACH = 4  # additions to an element that are worth passing over all of them
_MOST_BYTES = 1 << 30  # of memory for that
_FLOAT = 4


def facts_interleaved(
    variant: Variant, primal: Function, launch: KnownLaunch, known: Callable[[Any], Any]
) -> Facts | None:
    """What holds for such a launch; None where no adds share an index. `known`: of the primal's parameters."""
    if len(variant.kernels) > 1 or not (found := adds_by_index(variant.reverse.function)):
        return None
    shape, function = started_shape(variant, launch), variant.reverse.function
    structure = structure_analysis.analyse(function, apart=False)
    turns = TurnSums(structure, shape, numbers_in(function, variant, primal, launch, known))
    threads, lengths = math.prod(shape.grid) * math.prod(shape.block), _lengths(variant, launch)
    additions: Counter[tuple[str, ...]] = Counter()
    for at_index in found:
        names = [name for name in sorted(at_index.adds) if name in lengths]
        for group in (tuple(names[k : k + MOST]) for k in range(0, len(names), MOST)):
            additions[group] += threads * _turns(turns, at_index.loops)
    groups = tuple(_apart(additions, lengths))
    return replace(variant.options.facts, interleaved=groups) if groups else None


def _lengths(variant: Variant, launch: KnownLaunch) -> dict[str, int]:
    """The elements of adjoints that are whole arrays: of a part of one, a kernel may reach more."""
    sizes, adjoints = dict(launch.sizes), variant.derivative.adjoints
    whole = {p.name for name, p in adjoints.items() if name not in launch.parts and p.name not in launch.parts}
    return {name: sizes[name] // _FLOAT for name in whole if sizes.get(name)}


def _turns(turns: TurnSums, loops: Loops) -> int:
    counts = (turns.count(loop) for loop in loops)
    return math.prod(_UNKNOWN if count is None else turns.turns(count)[1] for count in counts)


def _apart(additions: Counter[tuple[str, ...]], lengths: dict[str, int]) -> Groups:
    """Groups that pay, each adjoint in one; those with most additions first."""
    chosen, taken = list[tuple[str, ...]](), set[str]()
    for group, count in additions.most_common():
        longest = max((lengths[name] for name in group), default=0)
        pays = count >= max(_FEWEST, _EACH * longest) and longest * width_of(group) * _FLOAT <= _MOST_BYTES
        if len(group) > 1 and pays and taken.isdisjoint(group):
            chosen.append(group)
            taken.update(group)
    return chosen
