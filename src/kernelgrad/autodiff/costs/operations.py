"""What a thread does for its sums, in units of a multiplication."""

from __future__ import annotations

from collections.abc import Callable

from ...ir.functions import UNFUSED
from ...ir.ops import Apply, Block, For, If, Load
from ...ir.types import Scalar
from ...transforms.masks import is_second_run

ARITHMETIC = {
    "div": 8,
    "add": 1,
    "sub": 1,
    "mul": 1,
    "neg": 1,
    "fma": 1,
    "select": 1,
    "convert": 1,
    "masked": 0,
    **dict.fromkeys(UNFUSED.values(), 1),
}
FUNCTION = 16  # any other
LOAD = 4


def cost(block: Block, times: Callable[[For], float] = lambda _: 1, integer: float = 0) -> float:
    """Of a thread that makes every sum once, or so many `times`: its loads and its arithmetic on floats. `integer`:
    what other arithmetic counts for."""
    definition = {v: op for op in block.ops for v in op.results}
    total = 0.0
    for op in block.ops:
        if isinstance(op, Load):
            total += LOAD
        elif isinstance(op, If) and not is_second_run(op, definition):
            total += max(cost(op.then, times, integer), cost(op.orelse, times, integer))
        elif isinstance(op, Apply) and isinstance(op.result.type, Scalar):
            total += ARITHMETIC.get(op.fn, FUNCTION) if op.result.type.is_float else integer
        elif isinstance(op, For):
            total += times(op) * cost(op.body, times, integer)
    return total
