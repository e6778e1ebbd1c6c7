"""What the kernels of a derivative are given besides the arguments: one description, as data. A launch evaluates it,
the host functions of `transpile` are its text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..autodiff.calculus.shadows import SHARED_BYTES
from ..ir.ops import BLOCKS, SEGMENT
from .memory import started_grid
from .memory.buffers import Expression, Need, Number, SharedBytes, Sized, Value
from .memory.deferred_adds import slots
from .memory.double_cells import cell_lengths, wide_adjoints
from .memory.partial_sums import partial_sums
from .memory.replicas import replicas
from .memory.row_memory import row_memory
from .memory.tape_memory import shadows, tape_needs
from .memory.winner_memory import winner_needs

if TYPE_CHECKING:
    from .choice.variant import Variant

_ALIGN = 16


def needs_of(
    variant: Variant,
    at: Sized,
    tape: Mapping[Any, Expression] | None,
    segment: int | None = None,
    blocks: int | None = None,
) -> tuple[Need, ...]:
    """But for logs. `tape`: elements of each stack for each thread; None where a launch counts them. `at`: the launch,
    where that decides which memory there is. `blocks`: see `KnownLaunch`."""
    own = SharedBytes().rounded_up(_ALIGN) * _ALIGN
    shared = [Value(SHARED_BYTES, own, "where shadows begin")]
    segments = [] if segment is None else [Value(SEGMENT, Number(segment), "iterations")]
    turns = [] if blocks is None else [Value(BLOCKS, Number(blocks), "of the kernel's launch: fewer are started")]
    return (
        *(shared if variant.doubles_shared else ()),
        *shadows(variant),
        *partial_sums(variant, at),
        *replicas(variant),
        *_side_by_side(variant),
        *slots(variant, at),
        *wide_adjoints(variant),
        *cell_lengths(variant),
        *row_memory(variant),
        *started_grid.launch_extents(variant),
        *segments,
        *turns,
        *tape_needs(variant, tape),
        *winner_needs(variant),
    )


def _side_by_side(variant: Variant) -> list[Need]:
    if not variant.options.facts.interleaved:
        return []
    from .memory.interleaved import interleaved

    return interleaved(variant)
