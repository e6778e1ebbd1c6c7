"""Launches whose threads do several neighbouring elements (see `schedule/vectorize`): which are large and aligned
enough, and the grid to start."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ..analysis.access.affine import Shape
from ..analysis.tuning import Vectorization
from ..autodiff.accumulate.choice import Facts
from ..runtime.integers import Extents, KnownLaunch
from ..schedule.vectorize.proof import find, fits
from ..schedule.vectorize.rewrite import GRID
from .choice.variant import Variant
from .memory.buffers import Extent, Need, Value

_ENOUGH = 1 << 20  # threads: with fewer, all of them are under way at once anyway
_STARTED = 256  # threads of a block, so that it has registers enough


def vectorized_facts(variant: Variant, launch: KnownLaunch, known: Callable[[Any], Any]) -> Facts | None:
    """What holds for a launch whose threads do several elements each; None where they had better not."""
    if not fits(launch.grid, launch.block) or launch.grid[0] * launch.block[0] < _ENOUGH or len(variant.kernels) > 1:
        return None
    vector = find_in(variant, launch, known)
    aligned = dict(zip((name for name, _ in launch.sizes), launch.aligned, strict=True))
    if vector is None or not all(aligned[name] for name in vector.aligned if name in aligned):
        return None
    return replace(variant.options.facts, vector=vector)


def find_in(variant: Variant, launch: KnownLaunch, known: Callable[[Any], Any]) -> Vectorization | None:
    """How its threads can do several elements each, whatever the launch's size."""
    scalars = {p.name: known(p.value) for p in variant.kernel.function.params}
    return find(variant.reverse.function, Shape(launch.grid, launch.block), scalars)


def started(variant: Variant, grid: Extents, block: Extents) -> tuple[Extents, Extents]:
    """The grid and block of such a launch: each row of a block that is started does a block of the kernel's."""
    vector = variant.options.facts.vector
    if vector is None:
        return grid, block
    row = block[0] // vector.width
    most = min((_STARTED, *variant.reverse.function.launch_bounds[:1]))
    rows = max(1, most // row)
    return (-(-grid[0] // rows), 1, 1), (row, rows, 1)


def launch_blocks(variant: Variant) -> list[Need]:
    """The blocks of the launch, where others are started."""
    role = "the launch's blocks: each row of a block that is started does one"
    return [] if variant.options.facts.vector is None else [Value(GRID, Extent("grid", 0), role)]
