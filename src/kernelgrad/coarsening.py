"""The launcher's part in gradients of fewer blocks (autodiff/adding/coarse.py): the grid to start, and the launch's."""

from __future__ import annotations

from .autodiff.adding.coarse import blocks_for
from .runtime.arguments import Supplied
from .runtime.config import Launch
from .runtime.own import Own
from .variants import Variant


def add_grid(variant: Variant, launch: Launch, own: Own) -> None:
    coarse = variant.derivative.coarse
    if coarse is not None:
        own.grid = (blocks_for(launch.block), 1, 1)
        for param, extent in zip(coarse.extents, launch.grid, strict=False):  # the others are 1
            own.supplied[param.name] = Supplied(extent)
