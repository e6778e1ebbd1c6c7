"""The launcher's part in gradients whose threads do several neighbouring elements (see transforms/quads.py): which
launches are large and aligned enough, and the grid to start."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .autodiff.adding.accumulate import Facts
from .autodiff.adding.quads import fits
from .runtime.arguments import Supplied
from .runtime.config import Launch
from .runtime.launch import BoundArguments
from .runtime.own import Own
from .transforms.machine import VECTOR_BYTES
from .transforms.quads import GRID
from .variants import Variant

_ENOUGH = 1 << 20  # threads: with fewer, all of them are under way at once anyway
_STARTED = 256  # threads of a block, so that it has registers enough


def facts_in_quads(
    variant: Variant, launch: Launch, known: Callable[[Any], Any], bound: BoundArguments
) -> Facts | None:
    """What holds for a launch whose threads do several elements each; None where they had better not."""
    if not fits(launch.grid, launch.block) or launch.grid[0] * launch.block[0] < _ENOUGH:
        return None
    facts = variant.facts_in_quads(launch, known)
    if facts is None or facts.quads is None:
        return None
    aligned = facts.quads.aligned
    return facts if all(b.address % VECTOR_BYTES == 0 for b in bound.buffers if b.name in aligned) else None


def add_rows(variant: Variant, launch: Launch, own: Own) -> None:
    """Each row of a block that is started does a block of the launch."""
    quads = variant.options.facts.quads
    if quads is None:
        return
    row = launch.block[0] // quads.width
    most = min((_STARTED, *variant.reverse.function.launch_bounds[:1]))
    rows = max(1, most // row)
    own.block = (row, rows, 1)
    own.grid = (-(-launch.grid[0] // rows), 1, 1)
    own.supplied[GRID] = Supplied(launch.grid[0])
