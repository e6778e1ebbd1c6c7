"""Launches whose threads keep the elements of a row from one loop over it to the next (see `schedule/rows`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from ..analysis.machine import SHARED_BYTES
from ..autodiff.accumulate.choice import Facts
from ..ir.ops import Function, GlobalRef
from ..ir.traverse import walk
from ..runtime.devices import least_shared_bytes
from ..runtime.integers import KnownLaunch
from ..schedule.rows.proof import find
from .choice.variant import Variant
from .started_launch import numbers_in, started_shape

_OF_HELPERS = 8 << 10  # shared memory that sums over a block may declare for themselves


def facts_with_rows(
    variant: Variant, primal: Function, launch: KnownLaunch, known: Callable[[Any], Any]
) -> Facts | None:
    """What holds for such a launch; None where there is nothing to keep. `known`: of the primal's parameters."""
    if len(variant.kernels) > 1:
        return None
    function, shape = variant.reverse.function, started_shape(variant, launch)
    numbers = numbers_in(function, variant, primal, launch, known)
    rows = find(function, shape, numbers, partial(_shared_left, variant, launch))
    return None if rows is None else replace(variant.options.facts, rows=rows)


def _shared_left(variant: Variant, launch: KnownLaunch) -> int:
    """Bytes of a block's shared memory that the derivative does not use."""
    module, own = variant.reverse.module, launch.shared_bytes
    names = {op.name for op in walk(variant.reverse.function.body) if isinstance(op, GlobalRef)}
    fixed = sum(g.type.size for g in module.globals.values() if g.name in names and g.space == "shared")
    dynamic = own * (1 + variant.derivative.shared_widening)
    return max(0, min(SHARED_BYTES, least_shared_bytes()) - fixed - dynamic - _OF_HELPERS)
