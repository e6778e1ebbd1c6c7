"""Which values are adjoints, or tangents: all that comes out of memory that holds such. An analysis.

No function of a number's is an adjoint: those come from shadows alone, and from what was computed from them. A pointer
that was loaded (the tape's) is one to adjoints where an adjoint is added or stored, or a zero where one was taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ..ir.effects import PURE
from ..ir.ops import (
    Alloca,
    Apply,
    Atomic,
    Block,
    Constant,
    For,
    Function,
    GlobalRef,
    If,
    Load,
    Member,
    Offset,
    Op,
    PtrCast,
    Store,
    Value,
    While,
)
from ..ir.traverse import blocks, free_values, operands, walk
from ..ir.types import Array, Pointer
from .roots import analyse

_OF_OPERANDS = frozenset((*PURE, Load)) - {GlobalRef}


def adjoint_values(function: Function, memory: frozenset[str]) -> set[Value]:
    """`memory`: the parameters and variables that hold adjoints, and the sizes that such memory lies behind. Arrays of
    the function's own hold some where one is stored."""
    search = _Search(function, memory)
    while search.grows():
        pass
    return search.found


class _Search:
    def __init__(self, function: Function, memory: frozenset[str]):
        self.ops = list(walk(function.body))
        self.pointers = analyse(function)
        self.local = {op.result for op in self.ops if isinstance(op, Alloca)}
        self.variables = {root: name for name, root in self.pointers.global_names.items()}
        self.memory = set(memory)
        self.found = {p.value for p in function.params if p.name in memory}
        self.zeros = {op.result for op in self.ops if isinstance(op, Constant) and not op.value}
        self.loaded = _loaded_pointers(self.ops)

    def grows(self) -> bool:
        before = len(self.found), len(self.memory)
        for op in self.ops:
            self.visit(op)
        return before != (len(self.found), len(self.memory))

    def visit(self, op: Op) -> None:
        if type(op) in _OF_OPERANDS:  # as most are
            if not self.found.isdisjoint(operands(op)):
                self.found.update(op.results)
            return
        match op:
            case If(_, then, orelse):
                self.flow(op.results, then.results, orelse.results)
            case For(_, _, inits, _, body):
                self.flow(body.args[1:], inits, body.results)
                self.flow(op.results, inits, body.results)
            case While(inits, before, body):
                self.flow(before.args, inits, body.results)
                self.flow(body.args, before.results[1:])
                self.flow(op.results, before.results[1:])
            case GlobalRef(name):
                self.found.update(op.results if name in self.memory else ())
            case Store(ptr, value):
                self.keep(ptr, (value,))
            case Atomic(_, ptr, args):
                self.keep(ptr, args)
                self.flow(op.results, (ptr,))
            case _ if any(v in self.found for v in operands(op)):
                self.found.update(op.results)

    def flow(self, to: Iterable[Value], *sources: Iterable[Value]) -> None:
        for target, *values in zip(to, *sources, strict=True):
            if any(v in self.found for v in values):
                self.found.add(target)

    def keep(self, ptr: Value, values: Iterable[Value]) -> None:
        """Memory that an adjoint is stored to. Of dynamic shared memory a part is for numbers: there, pointers tell."""
        values = tuple(values)
        if ptr in self.loaded and any(v in self.found or v in self.zeros for v in values):
            self.found.add(self.loaded[ptr])
        if not any(v in self.found for v in values):
            return
        for root in self.pointers.of(ptr):  # several, where the pointer was chosen
            if root in self.local:
                self.found.add(root)
            elif root in self.variables and not _is_dynamic(root):
                self.memory.add(self.variables[root])


def _loaded_pointers(ops: list[Op]) -> dict[Value, Value]:
    """Pointers that were loaded and those that were made of them: which one it was."""
    found: dict[Value, Value] = {}
    for op in ops:
        match op:
            case Load() if isinstance(op.result.type, Pointer):
                found[op.result] = op.result
            case Offset(ptr, _) | Member(ptr, _) | PtrCast(ptr) if ptr in found:
                found[op.result] = found[ptr]
    return found


def _is_dynamic(root: Value) -> bool:
    type = root.type.pointee if isinstance(root.type, Pointer) else None
    return isinstance(type, Array) and type.count == 0


# ---- long sums ------------------------------------------------------------------------------------------------------


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
