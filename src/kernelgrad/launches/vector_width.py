"""Launches whose threads do several neighbouring elements (see `schedule/vectorize`): which are large and aligned
enough."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ..analysis.access.affine import Shape
from ..analysis.tuning import Vectorization
from ..autodiff.accumulate.choice import Facts
from ..ir.ops import For, While
from ..ir.traverse import kinds
from ..runtime.integers import KnownLaunch
from ..schedule.vectorize.proof import find, fits
from .choice.variant import Variant

_ENOUGH = 1 << 20  # threads: with fewer, all of them are under way at once anyway


def vectorized_facts(variant: Variant, launch: KnownLaunch, known: Callable[[Any], Any]) -> Facts | None:
    """What holds for a launch whose threads do several elements each; None where they had better not."""
    threads, looped = launch.grid[0] * launch.block[0], not kinds(variant.kernel.function.body).isdisjoint((For, While))
    if not fits(launch.grid, launch.block) or (threads < _ENOUGH and not looped) or len(variant.kernels) > 1:
        return None
    vector = find_in(variant, launch, known)
    if vector is None or threads * max(1, vector.turns) < _ENOUGH:
        return None
    aligned = dict(zip((name for name, _ in launch.sizes), launch.aligned, strict=True))
    if not all(aligned[name] for name in vector.aligned if name in aligned):
        return None
    return replace(variant.options.facts, vector=vector)


def find_in(variant: Variant, launch: KnownLaunch, known: Callable[[Any], Any]) -> Vectorization | None:
    """How its threads can do several elements each, whatever the launch's size."""
    scalars = {p.name: known(p.value) for p in variant.kernel.function.params}
    return find(variant.reverse.function, Shape(launch.grid, launch.block), scalars, variant.reverse.module)
