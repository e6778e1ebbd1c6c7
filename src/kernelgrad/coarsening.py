"""The launcher's part in gradients of fewer blocks (autodiff/adding/coarse.py): the grid to start, and the launch's."""

from __future__ import annotations

from .autodiff.adding.coarse import blocks_for
from .known import Extents
from .launch_memory import Extent, Need, StartedBlocks, Value
from .variants import Variant


def launch_extents(variant: Variant) -> list[Need]:
    """The launch's grid, which is another than the one that is started."""
    coarse = variant.derivative.coarse
    params = () if coarse is None else coarse.extents
    role = "of the launch's grid: fewer blocks are started"
    return [Value(p.name, Extent("grid", k), role) for k, p in enumerate(params)]


def started_blocks() -> StartedBlocks:
    return StartedBlocks(blocks_for)


def started(variant: Variant, grid: Extents, block: Extents) -> Extents:
    """The grid of such a launch."""
    return grid if variant.derivative.coarse is None else (blocks_for(block), 1, 1)
