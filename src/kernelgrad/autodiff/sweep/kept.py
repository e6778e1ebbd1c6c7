"""Where a sweep keeps what its reverse needs, and writes down updates that come later: the tape, and logs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...ir.builder import Builder
from ..accumulate.logs import Logs
from ..calculus.tape import Tape

if TYPE_CHECKING:
    from ..prepare.prepared import Prepared


def tape_of(prologue: Builder, prepared: Prepared) -> Tape:
    """In memory that the launcher provides, or that the thread has."""
    if not prepared.options.facts.inlined:
        counted = _is_tape_counted(prepared)
        return Tape(prologue, prepared.options.mode == "split", counted, prepared.plan.most_bits)
    from ..calculus.thread_tapes import ArenaTape, BoundedTape, FrameTape, LocalTape
    from ..saving.tape_capacity import constant_sizes

    if prepared.options.facts.arena:
        return ArenaTape(prologue, (v for frame in prepared.plan.taped.values() for v in frame))
    if prepared.options.facts.stacks:
        return BoundedTape(prologue)
    sizes = constant_sizes(prepared.plan)
    if prepared.options.mode != "split":
        return LocalTape(prologue, sizes.elements)
    return FrameTape(prologue, sizes.elements, sizes.in_loops, list(sizes.values))


def _is_tape_counted(prepared: Prepared) -> bool:
    """Whether only a launch that counts tells how much each block keeps."""
    if not any(prepared.plan.taped.values()):
        return False
    from ..saving.tape_capacity import is_known_before

    return not is_known_before(prepared.plan)


def logs_of(tape: Tape, prepared: Prepared) -> Logs | None:
    if not prepared.sites:
        return None
    from ..accumulate.ordered import is_known_before, logs_of

    return Logs(tape, not is_known_before(prepared.sites, prepared.structure), logs_of(prepared.sites))
