"""Launches of fewer blocks (see `autodiff/accumulate/fewer_blocks`): the grid to start, and the launch's."""

from __future__ import annotations

from ...autodiff.accumulate.fewer_blocks import blocks_for
from ...runtime.integers import Extents
from ..choice.variant import Variant
from .buffers import Extent, Need, StartedBlocks, Value


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
