"""Finds `while` loops that read better as `for`: one variable is stepped at the end and dies with the loop."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ...ir.ops import Apply, Block, Builtin, Constant, Op, Value, While
from ...ir.traverse import operands, walk
from .conversions import is_free

if TYPE_CHECKING:
    from .folding import Folding


def stepped_state(op: While, folding: Folding, uses: Mapping[Value, int]) -> int | None:
    """Which carried value the header of a `for` can hold. `op.before` has been folded, and what follows the loop."""
    if op.before.results[1:] != op.before.args or any(map(folding.is_written, op.before.ops)):
        return None
    tested = set(folding.leaves(op.before.results[0]))
    defined = _defined(op)
    for k, (arg, stepped) in enumerate(zip(op.before.args, op.body.results, strict=True)):
        local = not folding.is_used(op.results[k]) and uses.get(stepped) == 1
        if arg in tested and local and _is_step(stepped, op.body.args[k], op.body, defined, uses):
            return k
    return None


def _defined(op: While) -> dict[Value, Op | None]:
    """The values that exist only inside the loop, with the operations of its body that compute them."""
    inside: dict[Value, Op | None] = dict.fromkeys((*op.before.args, *op.body.args))
    for block in (op.before, op.body):
        for inner in walk(block):
            inside.update(dict.fromkeys(inner.results))
    inside.update((result, inner) for inner in op.body.ops for result in inner.results)
    return inside


def _is_step(value: Value, arg: Value, body: Block, defined: dict[Value, Op | None], uses: Mapping[Value, int]) -> bool:
    """Whether `value` is computed from `arg` and what the loop does not change, in one expression."""
    root = defined.get(value)
    return isinstance(root, Apply) and value not in body.args and _depends(root, arg, defined, uses) == {arg}


def _depends(op: Op, arg: Value, defined: dict[Value, Op | None], uses: Mapping[Value, int]) -> set[Value]:
    """The loop's own values that an expression needs; a value of its own variable counts as one."""
    found: set[Value] = set()
    for operand in operands(op):
        inner = defined.get(operand)
        if operand not in defined or isinstance(inner, Constant | Builtin):
            continue
        if isinstance(inner, Apply) and operand.name is None and (uses.get(operand) == 1 or is_free(inner)):
            found |= _depends(inner, arg, defined, uses)
        else:
            found.add(operand)
    return found
