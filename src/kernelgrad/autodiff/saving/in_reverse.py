"""What the reverse has for values that the forward sweep computed otherwise: see `at_end` in `ir/functions`.

Inside the reverse of a loop's body, `at_end(v, arg)` is what the loop carries as `arg` when it ends, and
`in_reverse(v, r, arg)` is r. Where the loop as a whole runs again, both are v, as in the first run.
"""

from __future__ import annotations

from ...analysis.structure import Structure
from ...ir.ops import Apply, Op, Value
from ...ir.traverse import operands
from .forward_sweep import carried_args


def is_replaced(op: Op | None) -> bool:
    return isinstance(op, Apply) and op.fn in ("at_end", "in_reverse")


def loop_argument(op: Op) -> Value:
    """Of the loop in whose reverse a value is replaced."""
    assert isinstance(op, Apply)
    return op.args[-1]


def replacement(op: Op, structure: Structure) -> Value:
    """What stands for the value in the reverse of the loop's body."""
    assert isinstance(op, Apply)
    if op.fn == "in_reverse":
        return op.args[1]
    loop = structure.home[loop_argument(op)].owner
    return loop.results[carried_args(loop).index(loop_argument(op))]  # type: ignore[arg-type, union-attr]


def sources(op: Op, structure: Structure) -> tuple[Value, ...]:
    """What an operation is computed from in the reverse of the block that it stands in."""
    return (replacement(op, structure),) if is_replaced(op) else tuple(operands(op))
