"""What is known of the launch of a gradient's own kernel, where threads do one element each: fewer blocks than the
user's may be started (`autodiff/accumulate/fewer_blocks`), with fewer rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..analysis.access.affine import Shape
from ..ir.ops import Function, Value
from ..runtime.integers import KnownLaunch
from .choice.variant import Variant
from .memory.started_grid import started


def started_shape(variant: Variant, launch: KnownLaunch) -> Shape:
    """Of the gradient's own kernel, where threads do one element each."""
    grid, block = started(variant, launch.grid, launch.block)
    return Shape(grid, variant.started(variant.reverse, block))


def numbers_in(
    function: Function, variant: Variant, primal: Function, launch: KnownLaunch, known: Callable[[Any], Any]
) -> Callable[[Value], Any]:
    """What is known of a function's parameters, by what is known of the primal's."""
    own, coarse = {p.name: p.value for p in primal.params}, variant.derivative.coarse
    extents = {} if coarse is None else {p.name: launch.grid[k] for k, p in enumerate(coarse.extents)}
    names = {p.value: p.name for p in function.params}

    def number(value: Value) -> Any:
        name = names.get(value, "")
        return extents[name] if name in extents else known(own[name]) if name in own else None

    return number
