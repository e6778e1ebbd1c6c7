"""Operations that a derivative flows through and that have no adjoint here: refused before any code is emitted."""

from __future__ import annotations

from ...errors import UnsupportedError
from ...ir.effects import picks
from ...ir.ops import (
    Aggregate,
    Apply,
    Atomic,
    Barrier,
    BarrierReduce,
    Extract,
    For,
    Function,
    If,
    Insert,
    Leave,
    Load,
    Op,
    Store,
    Warp,
    While,
)
from ...ir.traverse import walk
from ..calculus.activity import Activity
from ..saving.plan import Plan

_REVERSED = (
    *(Aggregate, Apply, Atomic, Barrier, BarrierReduce, Extract, For),
    *(If, Insert, Leave, Load, Store, Warp, While),
)


def refuse_unsupported(function: Function, plan: Plan, activity: Activity) -> None:
    for op in walk(function.body):
        if plan.has_adjoint(op):
            _refuse(op, activity)


def _refuse(op: Op, activity: Activity) -> None:
    if not isinstance(op, _REVERSED):
        raise _flows_through(f"'{type(op).__name__.lower()}'", op)
    if isinstance(op, Warp) and not op.fn.startswith("shfl"):
        raise _flows_through(f"'{op.fn}'", op)
    if isinstance(op, Atomic):
        if op.kind not in ("add", "sub") and not picks(op):
            raise _flows_through(f"an atomic '{op.kind}'", op)
        if op.result in activity:
            reason = "the value that an atomic operation on floats returned is used"
            raise UnsupportedError(reason, op.span, "do not use the old value")


def _flows_through(what: str, op: Op) -> UnsupportedError:
    return UnsupportedError(f"a derivative flows through {what}: not supported", op.span)
