"""Launches whose threads keep the elements of a row in registers (see `schedule/rows`): those whose loops are short."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ..autodiff.accumulate.choice import Facts
from ..ir.ops import Function
from ..runtime.integers import KnownLaunch
from ..schedule.rows.proof import find
from .choice.variant import Variant
from .started_launch import numbers_in, started_shape


def facts_with_rows(
    variant: Variant, primal: Function, launch: KnownLaunch, known: Callable[[Any], Any]
) -> Facts | None:
    """What holds for such a launch; None where there is nothing to keep. `known`: of the primal's parameters."""
    if len(variant.kernels) > 1:
        return None
    function, shape = variant.reverse.function, started_shape(variant, launch)
    rows = find(function, shape, numbers_in(function, variant, primal, launch, known), math.prod(shape.block))
    return None if rows is None else replace(variant.options.facts, rows=rows)
