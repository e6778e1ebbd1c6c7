"""Which values are adjoints, or tangents: all that comes out of memory that holds such. An analysis.

No function of a number's is an adjoint: those come from shadows alone, and from what was computed from them. A pointer
that was loaded (the tape's) is one to adjoints where an adjoint is added or stored, or a zero where one was taken.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..ir.ops import (
    Alloca,
    Atomic,
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
from ..ir.traverse import operands, walk
from ..ir.types import Array, Pointer
from .roots import analyse


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
