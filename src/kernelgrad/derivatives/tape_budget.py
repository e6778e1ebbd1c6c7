"""How launches keep their tapes within a budget: by loops in segments (`saving/checkpoint`), of which length."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import LaunchError
from ..runtime.arguments import Placement
from ..runtime.config import Launch
from ..runtime.launch import BoundArguments

if TYPE_CHECKING:
    from .gradient import Gradient

LARGE_TAPE = 1 << 30  # bytes: what is meant where nobody says how much there may be


def segment_for(gradient: Gradient, launch: Launch, bound: BoundArguments, placement: Placement) -> int | None:
    """How long the segments must be for the tape to keep to the budget; None where it does without any. Where no budget
    is given, very large tapes are made smaller if that saves half of them: to run loops again costs time."""
    budget = gradient.settings.tape_budget
    if budget is None:
        plain = gradient.bytes_foreseen(launch, bound, placement)
        if plain <= LARGE_TAPE:
            return None
        segment, needed = _shortest(gradient, launch, bound, placement, LARGE_TAPE)
        return segment if 2 * needed <= plain else None
    if gradient.bytes_needed(launch, bound, placement) <= budget:
        return None
    segment, needed = _shortest(gradient, launch, bound, placement, budget)
    if needed <= budget:
        return segment
    log = " and the log of deterministic=True need" if gradient.settings.deterministic else " needs"
    raise LaunchError(
        f"{gradient.kernel.name}: the tape{log} {needed:,} bytes even with its loops checkpointed, over the budget"
        f" of {budget:,}; launch fewer threads at a time or allow more"
    )


def _shortest(
    gradient: Gradient, launch: Launch, bound: BoundArguments, placement: Placement, budget: int
) -> tuple[int, int]:
    """The first of growing lengths with which the tape keeps to a budget, or else takes least, and what it takes."""
    best: tuple[int, int] | None = None
    for exponent in range(3, 40):
        segment = 1 << exponent
        needed = gradient.checkpointed.bytes_needed(launch, bound, placement, segment)
        if needed <= budget:
            return segment, needed
        if best is not None and needed > best[1]:
            break
        best = segment, needed
    assert best is not None
    return best
