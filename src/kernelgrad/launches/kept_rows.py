"""Launches whose threads keep the elements of a row in registers (see `schedule/rows`): those whose loops are short."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ..analysis.access.affine import Shape
from ..autodiff.accumulate.choice import Facts
from ..ir.ops import Function, Value
from ..runtime.integers import KnownLaunch
from ..schedule.rows.proof import find
from .choice.variant import Variant
from .memory.started_grid import started


def facts_with_rows(
    variant: Variant, primal: Function, launch: KnownLaunch, known: Callable[[Any], Any]
) -> Facts | None:
    """What holds for such a launch; None where there is nothing to keep. `known`: of the primal's parameters."""
    if len(variant.kernels) > 1:
        return None
    function, own = variant.reverse.function, {p.name: p.value for p in primal.params}
    grid, block = started(variant, launch.grid, launch.block)
    block = variant.started(variant.reverse, block)
    coarse = variant.derivative.coarse
    extents = {} if coarse is None else {p.name: launch.grid[k] for k, p in enumerate(coarse.extents)}
    names = {p.value: p.name for p in function.params}

    def number(value: Value) -> Any:
        name = names.get(value, "")
        return extents[name] if name in extents else known(own[name]) if name in own else None

    rows = find(function, Shape(grid, block), number, math.prod(block))
    return None if rows is None else replace(variant.options.facts, rows=rows)
