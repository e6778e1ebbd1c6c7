"""Blocks that do nothing at all, by a condition that all of their threads share: `if (label[row] < 0) return;` at a
kernel's start. What holds for the others is found as if there were none such, and what they do stands in the branch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ...analysis.aliases import Aliases
from ...analysis.uniform import uniform_values
from ...ir.effects import ADDRESSES, MEETINGS, PURE, has_barrier
from ...ir.ops import Alloca, Atomic, Block, Function, If, Leave, Load, Op, Store, Value
from ...ir.traverse import blocks, clone, operands, with_body
from ...ir.types import Pointer


def within(function: Function, change: Callable[[Function], Function]) -> Function | None:
    """The function changed as if all blocks took the branch that it ends with; None where it does not end so, or where
    nothing is changed. What stands before that branch goes into it."""
    branch = _last_branch(function)
    if branch is None:
        return None
    condition = _made_of(branch.cond, function, branch)
    if condition is None or branch.cond not in uniform_values(function):
        return None
    before = function.body.ops[: function.body.ops.index(branch)]
    if not all(map(_stays_in_block(function), before)):
        return None
    taken = branch.orelse if _is_idle(branch.then) else branch.then
    given = with_body(function, Block((), (*before, *taken.ops), ()))
    changed = change(given)
    if changed is given:
        return None
    mapping: dict[Value, Value] = {}
    again = clone(Block((), condition, (branch.cond,)), mapping)
    inside, outside = Block((), changed.body.ops, ()), Block((), (), ())
    sides = (outside, inside) if _is_idle(branch.then) else (inside, outside)
    guarded = replace(branch, cond=again.results[0], then=sides[0], orelse=sides[1])
    return with_body(changed, Block((), (*again.ops, guarded), ()))


def _last_branch(function: Function) -> If | None:
    last = function.body.ops[-1] if function.body.ops else None
    if not isinstance(last, If) or last.results or not has_barrier(last):
        return None
    return last if _is_idle(last.then) != _is_idle(last.orelse) else None


def _is_idle(block: Block) -> bool:
    return all(isinstance(op, (*PURE, *ADDRESSES, Leave)) for op in block.ops)


def _made_of(cond: Value, function: Function, branch: If) -> tuple[Op, ...] | None:
    """What computes a condition, from memory that nobody writes; None where that takes more."""
    definition = {v: op for op in function.body.ops for v in op.results}
    found, wanted, aliases = set[Op](), [cond], Aliases(function)
    params = {p.value for p in function.params}
    while wanted:
        value = wanted.pop()
        if value in params:
            continue
        op = definition.get(value)
        if op is None:
            return None
        if isinstance(op, Load) and (op.volatile or aliases.root(op.ptr) not in params):
            return None
        if blocks(op) or not isinstance(op, (*PURE, *ADDRESSES, Load)):
            return None
        if op not in found:
            found.add(op)
            wanted += operands(op)
    return tuple(op for op in function.body.ops if op in found)


def _stays_in_block(function: Function) -> Callable[[Op], bool]:
    """Whether nobody outside of the block sees what an operation does."""
    aliases = Aliases(function)

    def stays(op: Op) -> bool:
        if isinstance(op, Store | Atomic):
            space = op.ptr.type.space if isinstance(op.ptr.type, Pointer) else ""
            root = aliases.root(op.ptr).type
            return space in ("shared", "local") or (isinstance(root, Pointer) and root.space in ("shared", "local"))
        inside = all(stays(inner) for block in blocks(op) for inner in block.ops)
        plain = isinstance(op, (*PURE, *ADDRESSES, *MEETINGS, Load, Alloca)) or bool(blocks(op))
        return inside and plain

    return stays
