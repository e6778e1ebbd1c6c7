"""Which integers have one bit at most: powers of two, halved and doubled, also along loops. Rewrites nothing."""

from __future__ import annotations

from ..ir.ops import Apply, Builtin, Constant, Function, Op, Value
from ..ir.traverse import control_flows, walk
from ..ir.types import Scalar

_MOVES = ("shl", "shr", "convert")


def single_bits(function: Function) -> set[Value]:
    """Optimistic: all integers have one bit until a reason shows otherwise, and reasons spread until nothing changes.
    Parameters do not."""
    ops = list(walk(function.body))
    found = {r for op in ops for r in (*op.results, *(v for v, _ in control_flows(op))) if _is_integer(r)}
    found -= {p.value for p in function.params}
    while True:
        before = len(found)
        for op in ops:
            flows = list(control_flows(op))
            found -= {v for v, sources in flows if not found.issuperset(sources)}
            if not flows and op.results and op.results[0] in found and not _has_one(op, found):
                found.discard(op.results[0])
        if len(found) == before:
            return found


def _has_one(op: Op, found: set[Value]) -> bool:
    match op:
        case Constant(value):
            return isinstance(value, int) and value >= 0 and value & (value - 1) == 0
        case Builtin("warp_size"):
            return True
        case Apply("mul" | "div", args):
            return found.issuperset(args)
        case Apply(fn, (value, *_)) if fn in _MOVES:
            return value in found
        case Apply("select", (_, one, other)):
            return found.issuperset((one, other))
    return False


def _is_integer(value: Value) -> bool:
    return isinstance(value.type, Scalar) and not value.type.is_float
