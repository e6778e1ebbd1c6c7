"""What rows leave for the launch in which they are summed over, and what is computed again there: a minimum cut.

What is wanted of a row is computed, in steps, from what cannot be had again: results of loops, memory that was
overwritten. Loads of inputs and arithmetic cost little beside memory: each value is an edge as wide as it has bytes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from ...autodiff.saving.costs import effort
from ...autodiff.saving.max_flow import Network
from ...ir.effects import is_pure
from ...ir.ops import Builtin, Load, Value
from ...ir.traverse import operands
from .row_exchange import Dependence, can_be_left

_LOST, _NEEDED = "lost", "needed"
_INDICES = frozenset(("thread_idx", "block_idx", "block_dim", "grid_dim", "warp_size"))


def left_by_rows(wanted: Collection[Value], known: Dependence) -> tuple[Value, ...] | None:
    """None where something would have to be left that cannot be."""
    inputs = _inputs(wanted, known)
    efforts = {v: effort(known.definition.get(v)) for v in inputs}
    unit = 1 + sum(efforts.values())
    endless = unit * (1 + sum(v.type.size for v in inputs))
    network = Network()
    for value, found in inputs.items():
        front, back = (value, 0), (value, 1)
        network.add(front, back, value.type.size * unit if _can_be_left(value, known) else endless)
        network.add(_LOST, front, endless if found is None else efforts[value])
        if value in wanted:
            network.add(back, _NEEDED, endless)
        for operand in found or ():
            network.add((operand, 1), front, endless)
    lost = network.source_side(_LOST, _NEEDED)
    cut = tuple(v for v in inputs if (v, 0) in lost and (v, 1) not in lost)
    return cut if all(_can_be_left(v, known) for v in cut) else None


def _inputs(wanted: Iterable[Value], known: Dependence) -> dict[Value, tuple[Value, ...] | None]:
    """From what values are computed; None of those that cannot be again."""
    found: dict[Value, tuple[Value, ...] | None] = {}
    todo = list(wanted)
    while todo:
        value = todo.pop()
        if value in found:
            continue
        found[value] = () if value in known.params else _made_of(value, known)
        todo += found[value] or ()
    return found


def _made_of(value: Value, known: Dependence) -> tuple[Value, ...] | None:
    op = known.definition.get(value)
    if isinstance(op, Builtin):
        return () if op.name in _INDICES else None
    if is_pure(op) or (isinstance(op, Load) and known.is_input(op)):
        return operands(op)
    return None


def _can_be_left(value: Value, known: Dependence) -> bool:
    """Before the loop."""
    return value not in known.inside and can_be_left(value)
