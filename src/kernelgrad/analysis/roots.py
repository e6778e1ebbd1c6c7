"""Where pointers come from, and which memory a function writes.

A root is the value that names a piece of memory: a pointer parameter, a struct parameter (for the pointers inside it),
an `Alloca`, a `GlobalRef`. A pointer whose origin is lost (loaded from memory) has the root UNKNOWN, and those of every
pointer that the function itself puts into memory.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from ..ir.ops import (
    Aggregate,
    Alloca,
    Apply,
    Atomic,
    Extract,
    For,
    Function,
    GlobalRef,
    If,
    Insert,
    Load,
    Member,
    Offset,
    Op,
    PtrCast,
    Store,
    Value,
    While,
)
from ..ir.traverse import walk
from ..ir.types import U8, Array, Pointer, Scalar, Struct, Type

UNKNOWN = Value(U8, "unknown memory")

Roots = frozenset[Value]
Place = tuple[str, str]  # a variable, and where in the source it is read or stored
_NONE: Roots = frozenset()
_NESTING = frozenset((If, For, While))


def holds_pointers(type: Type) -> bool:
    if isinstance(type, Pointer):
        return True
    if isinstance(type, Struct):
        return any(holds_pointers(f.type) for f in type.fields)
    return isinstance(type, Array) and holds_pointers(type.element)


def leads_on(type: Type) -> bool:
    """Whether there are pointers behind the pointers in a value of the type."""
    if isinstance(type, Pointer):
        return holds_pointers(type.pointee)
    if isinstance(type, Struct):
        return any(leads_on(f.type) for f in type.fields)
    return isinstance(type, Array) and leads_on(type.element)


@dataclass
class Memory:
    """The roots of every pointer (or pointer-holding value) of a function, and what it writes and reads."""

    roots: dict[Value, Roots] = field(default_factory=dict)
    global_names: dict[str, Value] = field(default_factory=dict)  # one root per module variable
    stores: list[Op] = field(default_factory=list)  # Store and Atomic
    loads: list[Load] = field(default_factory=list)
    escaped: Roots = _NONE  # of the pointers that are stored

    def of(self, pointer: Value) -> Roots:
        return self.roots.get(pointer, _NONE)

    def written(self) -> Roots:
        """Roots that a store or atomic may write."""
        return _NONE.union(*{self.of(op.ptr) for op in self.stores})  # type: ignore[attr-defined]

    def lasting(self) -> Roots:
        """Roots that outlive the launch: all but local and shared memory."""
        return frozenset(r for found in set(self.roots.values()) for r in found if not _is_of_launch(r))


def is_shared(root: Value) -> bool:
    return isinstance(root.type, Pointer) and root.type.space == "shared"


def place_of(op: Op, name: str) -> Place:
    return name, str(op.span)


def _is_of_launch(root: Value) -> bool:
    return isinstance(root.type, Pointer) and root.type.space in ("local", "shared")


def named_roots(function: Function, memory: Memory, names: Collection[str]) -> Roots:
    """The memory of parameters and module variables."""
    by_name = {p.name: p.value for p in function.params if p.value in memory.roots} | memory.global_names
    return frozenset(by_name[name] for name in names if name in by_name)


def analyse(function: Function) -> Memory:
    memory = Memory()
    for param in function.params:
        if holds_pointers(param.type):
            memory.roots[param.value] = frozenset((param.value,))
    ops = list(walk(function.body))
    changed = True
    while changed:  # loops feed roots back to their arguments
        changed = _follow(ops, memory)
    for op in ops:
        if isinstance(op, Store | Atomic):
            memory.stores.append(op)
        elif isinstance(op, Load):
            memory.loads.append(op)
    return memory


def _follow(ops: list[Op], memory: Memory) -> bool:
    """Once over all operations; whether that was of use."""
    changed = False
    for op in ops:
        if type(op) not in _NESTING and len(op.results) == 1 and type(op.result.type) is Scalar:
            continue  # most operations: a number, which leads nowhere
        for target, sources in _flows(op, memory):
            found = memory.of(target).union(*sources)
            if found != memory.of(target):
                memory.roots[target] = found
                changed = True
        if isinstance(op, Store) and not memory.of(op.value) <= memory.escaped:
            memory.escaped |= memory.of(op.value)
            changed = True
    return changed


def _flows(op: Op, memory: Memory) -> Iterable[tuple[Value, list[Roots]]]:
    """(value, roots that flow into it) for each pointer an operation defines."""
    match op:
        case Alloca():
            yield op.result, [frozenset((op.result,))]
        case GlobalRef(name):
            yield op.result, [frozenset((memory.global_names.setdefault(name, op.result),))]
        case Offset(ptr, _) | Member(ptr, _) | PtrCast(ptr):
            yield op.result, [memory.of(ptr)]
        case Extract(aggregate, _):
            if holds_pointers(op.result.type):
                yield op.result, [memory.of(aggregate)]
        case Insert(aggregate, value, _):
            yield op.result, [memory.of(aggregate), memory.of(value)]
        case Apply(_, args) | Aggregate(args):
            if holds_pointers(op.result.type):
                yield op.result, [memory.of(a) for a in args]
        case Load() | Atomic():
            if holds_pointers(op.result.type):
                yield op.result, [frozenset((UNKNOWN,)), memory.escaped]
        case If(_, then, orelse):
            for k, result in enumerate(op.results):
                yield result, [memory.of(then.results[k]), memory.of(orelse.results[k])]
        case For(_, _, inits, _, body):
            for k, result in enumerate(op.results):
                both = [memory.of(inits[k]), memory.of(body.results[k])]
                yield body.args[k + 1], both
                yield result, both
        case While(inits, before, body):
            for k, arg in enumerate(before.args):
                yield arg, [memory.of(inits[k]), memory.of(body.results[k])]
            for k, forwarded in enumerate(before.results[1:]):
                yield body.args[k], [memory.of(forwarded)]
                yield op.results[k], [memory.of(forwarded)]
