"""Which way branches in loops went, in the bits of registers: where a thread goes through them a few dozen times at
most, whatever the launch, that takes no tape."""

from __future__ import annotations

from ...ir.types import BOOL
from .plan import Plan
from .tape_capacity import constant_executions

_MOST = 128  # bits: of a sorting network of 4,096 keys, say


def hold(plan: Plan) -> None:
    """Moves the plan's bools from the tape to registers, if these hold them all."""
    found = {key: {v: None for v in frame if v.type == BOOL} for key, frame in plan.taped.items()}
    found = {key: frame for key, frame in found.items() if frame}
    most = 0
    for key, frame in found.items():
        times = constant_executions(plan, key)
        if times is None or (most := most + times * len(frame)) > _MOST:
            return
    plan.bits, plan.most_bits = found, max(most, len(found))  # loops that never run have code, too
    rest = {key: {v: None for v in frame if v.type != BOOL} for key, frame in plan.taped.items()}
    plan.taped = {key: frame for key, frame in rest.items() if frame}
