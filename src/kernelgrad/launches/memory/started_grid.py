"""Launches that start another grid than the user's: fewer blocks that do the work of many (`autodiff/accumulate/
fewer_blocks`), or threads that do several neighbouring elements (`schedule/vectorize`). What is started, and what the
kernel is told of the launch's own."""

from __future__ import annotations

from ...autodiff.accumulate.fewer_blocks import Coarse
from ...runtime.integers import Extents
from ...schedule.vectorize.rewrite import GRID
from ..choice.variant import Variant
from .buffers import Extent, Need, StartedBlocks, Value

_STARTED = 256  # threads of a block whose threads do several elements, so that it has registers enough


def launch_extents(variant: Variant) -> list[Need]:
    """The launch's grid, which is another than the one that is started."""
    coarse = variant.derivative.coarse
    params = () if coarse is None else coarse.extents
    role = "of the launch's grid: fewer blocks are started"
    found: list[Need] = [Value(p.name, Extent("grid", k), role) for k, p in enumerate(params)]
    if variant.options.facts.vector is not None:
        role = "the launch's blocks: each row of a block that is started does one"
        found.append(Value(GRID, Extent("grid", 0), role))
    return found


def started_blocks(coarse: Coarse) -> StartedBlocks:
    return StartedBlocks(coarse.blocks_for)


def started(variant: Variant, grid: Extents, block: Extents) -> tuple[Extents, Extents]:
    """The grid and block of such a launch."""
    if variant.derivative.coarse is not None:
        grid = (variant.derivative.coarse.blocks_for(block), 1, 1)
    vector = variant.options.facts.vector
    if vector is None:
        return grid, block
    # Each row of a block that is started does a block of the kernel's.
    row = block[0] // vector.width
    most = min((_STARTED, *variant.reverse.function.launch_bounds[:1]))
    rows = max(1, most // row)
    return (-(-grid[0] // rows), max(1, vector.turns), 1), (row, rows, 1)
