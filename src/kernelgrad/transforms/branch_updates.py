"""Updates of shared memory that follow a branch move into it, where one of its sides adds nothing.

    if (swapped) { a = d[i]; d[i] = 0; } else a = 0;      becomes      if (swapped) { a = d[i]; d[i] = 0; d[j] += a; }
    d[j] += a;

This is what the reverse of a branch that exchanges two cells looks like: a thread that did not goes on. Only where
the branch stores to the same array, so that its threads go apart there anyway, and where nothing that stays behind
touches memory in between. What the other side adds is -0.0, which changes no number.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

from ..ir.effects import is_pure
from ..ir.ops import (
    Apply,
    Block,
    Constant,
    Function,
    GlobalRef,
    If,
    Load,
    Member,
    Module,
    Offset,
    Op,
    PtrCast,
    Store,
    Value,
)
from ..ir.traverse import blocks, descend, operands, uses, walk, with_body, with_ops
from ..ir.types import Pointer


def run(function: Function, module: Module) -> Function:
    return with_body(function, _Updates(function).block(function.body))


class _Update(NamedTuple):
    """`result`: which of a branch's is added."""

    load: Load
    add: Apply
    store: Store
    result: int


class _Following:
    """What follows a branch: `early`, addresses that may come before it; `updates` that move into it; what `stays`;
    `end`: the first operation that is not looked at."""

    def __init__(self, branch: If, end: int):
        self.early, self.updates, self.stays = list[Op](), list[_Update](), list[Op]()
        self.end, self.made = end, set(branch.results)

    def take(self, op: Op) -> None:
        if is_pure(op) and self.made.isdisjoint(operands(op)):
            self.early.append(op)
        else:
            self.stays.append(op)
            self.made.update(op.results)

    def move(self, update: _Update) -> bool:
        """False where a load that stays would see what is stored, or the address is known behind the branch alone."""
        own = (update.load, update.add)
        stays = [op for op in self.stays if op not in own]
        if len(stays) != len(self.stays) - 2 or any(isinstance(op, Load) for op in stays):
            return False
        if update.store.ptr in self.made:
            return False
        self.stays = stays
        self.updates.append(update)
        return True


class _Updates:
    def __init__(self, function: Function):
        self.used = uses(function.body)
        self.definition = {v: op for op in walk(function.body) for v in op.results}

    def block(self, block: Block) -> Block:
        ops, done = [descend(op, self.block) for op in block.ops], list[Op]()
        k = 0
        while k < len(ops):
            op = ops[k]
            k += 1
            found = self.following(op, ops, k) if isinstance(op, If) and op.results else None
            if found is not None and isinstance(op, If):
                done += found.early
                op = self.extended(op, found.updates)
                ops[k : found.end] = found.stays
            done.append(op)
        return with_ops(block, done)

    def following(self, branch: If, ops: list[Op], start: int) -> _Following | None:
        """As far as the last update."""
        found, best = _Following(branch, start), None
        for k in range(start, len(ops)):
            op = ops[k]
            if isinstance(op, Store):
                update = self.update(op, branch)
                if update is None or not found.move(update):
                    break
                found.end = k + 1
                best = found
            elif (isinstance(op, Load) and not op.volatile) or (is_pure(op) and not blocks(op)):
                found.take(op)
            else:
                break
        return best and self.up_to_end(best, ops)

    def up_to_end(self, found: _Following, ops: list[Op]) -> _Following:
        """Without what comes after the last update."""
        after = set(ops[found.end :])
        found.early = [op for op in found.early if op not in after]
        found.stays = [op for op in found.stays if op not in after]
        return found

    def update(self, store: Store, branch: If) -> _Update | None:
        add = self.definition.get(store.value)
        if store.volatile or not isinstance(add, Apply) or add.fn != "add" or not self.is_only(add):
            return None
        for value, added in (add.args, add.args[::-1]):
            load = self.definition.get(value)
            same = isinstance(load, Load) and not load.volatile and load.ptr is store.ptr and self.is_only(load)
            if same and added in branch.results and isinstance(load, Load):
                result = branch.results.index(added)
                return _Update(load, add, store, result) if self.side(branch, result, store.ptr) else None
        return None

    def is_only(self, op: Op) -> bool:
        return self.used.get(op.result, 0) == 1

    def side(self, branch: If, result: int, ptr: Value) -> Block | None:
        """The side that adds something, if the other does not, and if it stores to the array as well."""
        sides = [side for side in (branch.then, branch.orelse) if not self.is_nothing(side.results[result])]
        if len(sides) != 1 or not (isinstance(ptr.type, Pointer) and ptr.type.space == "shared"):
            return None
        roots = [self.root(op.ptr) for op in sides[0].ops if isinstance(op, Store)]
        return sides[0] if self.root(ptr) in roots else None

    def is_nothing(self, value: Value) -> bool:
        op = self.definition.get(value)
        return isinstance(op, Constant) and op.value == 0 and math.copysign(1, op.value) < 0

    def root(self, ptr: Value) -> Value | str:
        op = self.definition.get(ptr)
        while isinstance(op, Offset | Member | PtrCast):
            ptr = op.ptr
            op = self.definition.get(ptr)
        return op.name if isinstance(op, GlobalRef) else ptr

    def extended(self, branch: If, updates: list[_Update]) -> If:
        """The branch with updates at the ends of its sides."""
        then, orelse = branch.then, branch.orelse
        for update in updates:
            side = then if not self.is_nothing(then.results[update.result]) else orelse
            longer = Block(side.args, (*side.ops, *_again(update, side.results[update.result])), side.results)
            then, orelse = (longer, orelse) if side is then else (then, longer)
        return replace(branch, then=then, orelse=orelse)


def _again(update: _Update, added: Value) -> tuple[Op, ...]:
    load = replace(update.load, results=(Value(update.load.result.type, update.load.result.name),))
    total = Value(update.add.result.type, update.add.result.name)
    add = replace(update.add, args=(load.result, added), results=(total,))
    return load, add, replace(update.store, value=total)
