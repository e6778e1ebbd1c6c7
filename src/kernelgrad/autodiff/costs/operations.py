"""What a thread does for its sums, in units of a multiplication."""

from __future__ import annotations

from ...ir.functions import UNFUSED
from ...ir.ops import Apply, Block, For, If, Load
from ...ir.traverse import blocks
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
_LOAD = 4


def cost(block: Block) -> int:
    """Of a thread that makes every sum once: its loads and its arithmetic on floats."""
    total, definition = 0, {v: op for op in block.ops for v in op.results}
    for op in block.ops:
        if isinstance(op, Load):
            total += _LOAD
        elif isinstance(op, If) and not is_second_run(op, definition):
            total += max(cost(op.then), cost(op.orelse))
        elif isinstance(op, Apply) and isinstance(op.result.type, Scalar) and op.result.type.is_float:
            total += ARITHMETIC.get(op.fn, FUNCTION)
        total += sum(map(cost, blocks(op))) if isinstance(op, For) else 0
    return total
