"""What it takes to compute something again, in simple operations, roughly: those cost nothing beside a tape."""

from __future__ import annotations

from ...ir.functions import GIVEN, ONLY_IN_REVERSE, UNFUSED
from ...ir.ops import Apply, For, Op, While
from ...ir.types import Scalar

_SIMPLE = ONLY_IN_REVERSE.union(
    GIVEN,
    "add sub mul fma neg abs min max select convert bitcast copysign floor ceil trunc rint saturate fdim".split(),
    UNFUSED.values(),
)
_FUNCTIONS = {**dict.fromkeys("div rem sqrt rsqrt exp exp2 log log2".split(), 8), "pow": 40}
_OTHER, _LOOP = 20, 100


def effort(op: Op | None) -> int:
    if isinstance(op, For | While):
        return _LOOP
    if not isinstance(op, Apply) or op.fn in _SIMPLE or op.fn.startswith("fast_"):
        return 0
    is_float = isinstance(op.result.type, Scalar) and op.result.type.is_float
    return _FUNCTIONS.get(op.fn, _OTHER if is_float else 0)
