"""Sums of many adjoints in straight code: an analysis, for Note [Careful loops] in `masks`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..ir.ops import Apply, Block, Op, Value
from ..ir.traverse import blocks, free_values, operands

_LONG = 8  # additions
_MOST = 8  # sums that are looked at together


@dataclass(frozen=True)
class LongSums:
    """`ops`: in order, all that the sums are made with and that nothing else uses. `roots`: the sums."""

    ops: tuple[Apply, ...]
    roots: tuple[Value, ...]


def long_sums(block: Block, is_part: Callable[[Apply], bool]) -> LongSums | None:
    """`is_part`: whether an operation may belong to a sum. None where there are none, or where some are used before
    others are complete."""
    parts = {op.result: op for op in block.ops if isinstance(op, Apply) and is_part(op)}
    sums = [op for op in parts.values() if op.fn in ("add", "sub")]
    if len(sums) < _LONG:
        return None
    order = {op: k for k, op in enumerate(block.ops)}
    users = _users(block)
    own = set(parts.values())
    ends = {op for op in sums if any(user not in own for user in users.get(op.result, ()))}
    members = _behind({op for op in ends if _additions(op, parts) >= _LONG}, parts)
    found = sorted(members, key=order.__getitem__)
    roots = [op.result for op in found if any(user not in members for user in users.get(op.result, ()))]
    if not 0 < len(roots) <= _MOST:
        return None
    last = order[found[-1]]
    later = all(user is None or order[user] > last for v in roots for user in users[v] if user not in members)
    return LongSums(tuple(found), tuple(roots)) if later else None


def _users(block: Block) -> dict[Value, list[Op | None]]:
    """None for the block's results."""
    found: dict[Value, list[Op | None]] = {}
    for op in block.ops:
        for value in (*operands(op), *(v for inner in blocks(op) for v in free_values(inner))):
            found.setdefault(value, []).append(op)
    for value in block.results:
        found.setdefault(value, []).append(None)
    return found


def _behind(ends: set[Apply], parts: dict[Value, Apply]) -> set[Apply]:
    found, todo = set(ends), list(ends)
    while todo:
        for value in todo.pop().args:
            if value in parts and parts[value] not in found:
                found.add(parts[value])
                todo.append(parts[value])
    return found


def _additions(end: Apply, parts: dict[Value, Apply]) -> int:
    return sum(op.fn in ("add", "sub") for op in _behind({end}, parts))
