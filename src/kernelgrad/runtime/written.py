"""Which of a kernel's pointers it writes through.

Every value is traced to its roots: the parameter (or the member of a struct parameter) that a pointer came from, or
the local variable it points to. A store or an atomic writes the roots of its address. Pointers kept in local variables
are found by what was stored there; those kept in other memory are any that ever escaped to memory.

A pointer that the kernel loads from the user's memory (`float **rows`) has no root here: what it writes is not the
array that was passed. Where nothing is known at all, every pointer that may be written counts as written.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..deep import deeply
from ..ir.ops import (
    Alloca,
    Apply,
    Atomic,
    Block,
    Call,
    Constant,
    Extract,
    For,
    Function,
    GlobalRef,
    If,
    Load,
    Member,
    Offset,
    Op,
    Store,
    Undef,
    Value,
    While,
)
from ..ir.traverse import operands, walk
from ..ir.types import BOOL, Array, Pointer, Struct, Type, element_types
from .signature import user_params


@dataclass(frozen=True)
class Origin:
    """A parameter or a member of one, `s.p`; or memory that is nobody's argument (path "")."""

    path: str
    type: Type


_MEMORY = Origin("", BOOL)  # a module variable, or a pointer that was loaded from memory
Root = Origin | Value  # a Value is an Alloca's result
Roots = frozenset[Root]
_NOTHING: Roots = frozenset()


@deeply
def written_params(function: Function) -> frozenset[str]:
    """The pointers that the kernel may write through: "p", "s.p" for a member, or "s" for all pointers in a struct."""
    trace = Trace(function)
    written: set[str] = set()
    for address in _addresses_written(function.body):
        roots = trace.roots(address)
        if not roots:
            return _all_writable(function)
        written |= {root.path for root in roots if isinstance(root, Origin)}
    names = {p.name for p in user_params(function)}
    return frozenset(path for path in written if path.partition(".")[0].partition("[")[0] in names)


def _addresses_written(body: Block) -> list[Value]:
    found: list[Value] = []
    for op in walk(body):
        match op:
            case Store() | Atomic():
                found.append(op.ptr)
            case Call():
                found += [arg for arg in op.args if holds_pointer(arg.type)]
            case _:
                pass
    return found


def _all_writable(function: Function) -> frozenset[str]:
    return frozenset(p.name for p in user_params(function) if holds_pointer(p.type) and not p.const)


def holds_pointer(type: Type) -> bool:
    match type:
        case Pointer():
            return True
        case Struct():
            return any(holds_pointer(field.type) for field in type.fields)
        case Array():
            return holds_pointer(type.element)
        case _:
            return False


class Trace:
    """The roots of every value of a function, found by going over its body until nothing is added."""

    def __init__(self, function: Function):
        self._roots: dict[Value, Roots] = {}
        self._kept: dict[Value, Roots] = {}  # by Alloca: what was stored there
        self._escaped: Roots = frozenset((_MEMORY,))
        self._changed = True
        for param in function.params:
            if holds_pointer(param.type):
                self._roots[param.value] = frozenset((Origin(param.name, param.type),))
        while self._changed:
            self._changed = False
            self._visit(function.body)

    def roots(self, value: Value) -> Roots:
        return self._roots.get(value, _NOTHING)

    def _add(self, value: Value, roots: Roots) -> None:
        known = self.roots(value)
        if not roots <= known:
            self._roots[value] = known | roots
            self._changed = True

    def _flow(self, sources: tuple[Value, ...], targets: tuple[Value, ...]) -> None:
        for source, target in zip(sources, targets, strict=True):
            self._add(target, self.roots(source))

    def _visit(self, block: Block) -> None:
        for op in block.ops:
            match op:
                case If():
                    self._branch(op)
                case For() | While():
                    self._loop(op)
                case Store():
                    self._store(op.ptr, self.roots(op.value))
                case Atomic():
                    self._store(op.ptr, self._union(op.args))
                    self._add(op.result, self._loaded(op.result, op.ptr))
                case _:
                    for result in op.results:
                        self._add(result, self._derived(op, result))

    def _branch(self, op: If) -> None:
        for side in (op.then, op.orelse):
            self._visit(side)
            if side.results:
                self._flow(side.results, op.results)

    def _loop(self, op: For | While) -> None:
        if isinstance(op, For):
            carried, entry = op.body.args[1:], op.body
            self._flow(op.inits, op.results)
            self._flow(op.body.results, op.results)
        else:
            carried, entry = op.before.args, op.before
            self._flow(op.before.results[1:], op.body.args)
            self._flow(op.before.results[1:], op.results)
        self._flow(op.inits, carried)
        self._flow(op.body.results, carried)
        if entry is not op.body:
            self._visit(entry)
        self._visit(op.body)

    def _derived(self, op: Op, result: Value) -> Roots:
        match op:
            case Alloca():
                return frozenset((result,))
            case GlobalRef() | Constant() | Undef() if isinstance(result.type, Pointer):
                return frozenset((_MEMORY,))  # a store to null or to nothing writes no argument either
            case Load():
                return self._loaded(result, op.ptr)
            case Offset() | Member():
                return self.roots(op.ptr)
            case Extract():
                parts = (_part(root, op) for root in self.roots(op.aggregate))
                return frozenset(part for part in parts if part is not None)
            case Apply() if result.type == BOOL:
                return _NOTHING
            case _:
                return self._union(operands(op))

    def _union(self, values: tuple[Value, ...]) -> Roots:
        return frozenset(root for value in values for root in self.roots(value))

    def _store(self, ptr: Value, roots: Roots) -> None:
        if not roots:
            return
        for root in self.roots(ptr):
            if isinstance(root, Value):
                kept = self._kept.get(root, _NOTHING)
                self._changed |= not roots <= kept
                self._kept[root] = kept | roots
            else:
                self._changed |= not roots <= self._escaped
                self._escaped |= roots

    def _loaded(self, result: Value, ptr: Value) -> Roots:
        """Numbers are traced too where they can hold an address that was stored as one."""
        found: set[Root] = set()
        for root in self.roots(ptr):
            found |= self._kept.get(root, _NOTHING) if isinstance(root, Value) else self._escaped
        return frozenset(found) if holds_pointer(result.type) else frozenset(found - {_MEMORY})


def _part(root: Root, op: Extract) -> Root | None:
    """The member's own path if the aggregate is a parameter itself, or a member of one, and not just made with it.
    None if that member holds no pointer."""
    if isinstance(root, Value) or root.type != op.aggregate.type or not isinstance(root.type, Struct | Array):
        return root
    type = element_types(root.type)[op.index]
    suffix = f".{root.type.fields[op.index].name}" if isinstance(root.type, Struct) else f"[{op.index}]"
    return Origin(root.path + suffix, type) if holds_pointer(type) else None
