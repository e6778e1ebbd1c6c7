"""Which values have a tangent in forward mode: those that may depend on a listed parameter.

Pointers count as well: one that may point into memory with tangents is active, its tangent is the shadow pointer. So a
struct of floats and pointers, a pointer kept in memory, a swapped pointer are all like any other value. Integers never
are. Memory is tracked by root (see `roots`); a local or shared variable becomes active with the first store of an
active value, a parameter or a module variable by being listed, and only so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ...analysis import roots
from ...analysis.roots import UNKNOWN, Roots
from ...errors import UnsupportedError
from ...ir.ops import (
    Aggregate,
    Alloca,
    Apply,
    Atomic,
    BarrierReduce,
    Block,
    Extract,
    For,
    Function,
    GlobalRef,
    If,
    Insert,
    Load,
    Member,
    Module,
    Offset,
    Op,
    PtrCast,
    Store,
    Value,
    Warp,
    While,
)
from ...ir.traverse import blocks, walk
from ...ir.types import Array, Pointer, Scalar, Struct, Type
from .rules import forward_rule_for


def has_tangent(type: Type) -> bool:
    """Whether values of the type can have one: a float or a pointer, or something that holds either."""
    match type:
        case Scalar():
            return type.is_float
        case Struct(fields=fields):
            return any(has_tangent(f.type) for f in fields)
        case Array(element):
            return has_tangent(element)
        case Pointer():
            return True


class ForwardActivity:
    """`values` and `roots` that have tangents, to a fixpoint."""

    def __init__(self, function: Function, module: Module, listed: Iterable[Value | str]):
        """`listed`: parameters by value, module variables by name."""
        self.function, self.module = function, module
        self.memory = roots.analyse(function)
        self.definitions = {v: op for op in walk(function.body) for v in op.results}
        self.escaped = self._escaped()
        wanted = {self.memory.global_names.get(v) if isinstance(v, str) else v for v in listed}
        self.roots: set[Value] = {v for v in wanted if v is not None}
        self.values: set[Value] = {v for v in self.roots if v not in self.definitions}
        self._changed = True
        while self._changed:
            self._changed = False
            self._block(function.body)
        self._check_lost()

    def __contains__(self, value: Value) -> bool:
        return value in self.values

    def may_lack_shadow(self, ptr: Value) -> bool:
        """Whether an active pointer may also point to memory without tangents: then its shadow is null."""
        return not self._roots(ptr) <= self.roots

    # ---- memory

    def _roots(self, ptr: Value) -> Roots:
        found = self.memory.of(ptr)
        return found | self.escaped if UNKNOWN in found else found

    def _escaped(self) -> Roots:
        """Where a pointer loaded from memory may point, of what the function knows."""
        stored = (op.value for op in self.memory.stores if isinstance(op, Store))
        return frozenset[Value]().union(*map(self.memory.of, stored))

    def _store(self, ptr: Value, value: Value) -> None:
        if value in self.values:
            private = {root for root in self._roots(ptr) if self._is_private(root)}
            self._changed |= not private <= self.roots
            self.roots |= private

    def _is_private(self, root: Value) -> bool:
        """Memory that begins and ends with the kernel, so that its tangent needs no listing."""
        definition = self.definitions.get(root)
        if isinstance(definition, GlobalRef):
            return self.module.globals[definition.name].space == "shared"
        return isinstance(definition, Alloca)

    def _check_lost(self) -> None:
        """A value that goes into unlisted memory and comes back would lose its derivative on the way."""
        for store, root in self._lost():
            for load in self.memory.loads:
                if root in self._roots(load.ptr) and has_tangent(load.result.type):
                    what = "memory whose address was loaded" if root is UNKNOWN else f"'{root.name}'"
                    raise UnsupportedError(
                        f"a value that depends on the listed parameters is stored in {what}, which is not listed, and "
                        f"read again (line {load.span.line})",
                        store.span,
                        f"list {what} as well, with zeros as its tangent",
                    )

    def _lost(self) -> Iterator[tuple[Op, Value]]:
        """Stores of active values, and the memory without tangents where they may go."""
        for op in self.memory.stores:
            assert isinstance(op, Store | Atomic)
            values = (op.value,) if isinstance(op, Store) else op.args
            if not any(v in self.values for v in values):
                continue
            for param in self.function.params:  # in this order, so that the error is always the same
                if param.value in self._roots(op.ptr) - self.roots:
                    yield op, param.value
            for root in self.memory.global_names.values():
                if root in self._roots(op.ptr) - self.roots:
                    yield op, root
            if UNKNOWN in self._roots(op.ptr) and op.ptr not in self.values:
                yield op, UNKNOWN

    # ---- values

    def _mark(self, value: Value) -> None:
        if value not in self.values and has_tangent(value.type):
            self.values.add(value)
            self._changed = True

    def _flow(self, targets: Iterable[Value], *sources: Iterable[Value]) -> None:
        for target, *values in zip(targets, *sources, strict=True):
            if any(v in self.values for v in values):
                self._mark(target)

    def _block(self, block: Block) -> None:
        for op in block.ops:
            self._before(op)
            for inner in blocks(op):
                self._block(inner)
            self._after(op)

    def _before(self, op: Op) -> None:
        """What enters loops."""
        match op:
            case For(_, _, inits, _, body):
                self._flow(body.args[1:], inits, body.results)
            case While(inits, before, body):
                self._flow(before.args, inits, body.results)
                self._flow(body.args, before.results[1:])

    def _after(self, op: Op) -> None:
        match op:
            case Apply("select", (_, a, b)):
                self._flow(op.results, (a,), (b,))
            case Apply(fn, args):
                if any(a in self.values and may_pass(fn, k) for k, a in enumerate(args)):
                    self._mark(op.result)
            case Alloca():
                if op.result in self.roots:
                    self._mark(op.result)
            case GlobalRef(name):
                if self.memory.global_names[name] in self.roots:
                    self._mark(op.result)
            case Aggregate(args) | Warp(_, args):
                if any(a in self.values for a in args):
                    self._mark(op.results[0])
            case BarrierReduce("sum" | "tree_add" | "tree_max" | "tree_min", value):
                self._flow(op.results, (value,))
            case Insert(aggregate, value, _):
                self._flow(op.results, (aggregate,), (value,))
            case Extract(source, _) | Offset(source, _) | Member(source, _) | PtrCast(source) | Load(source):
                self._flow(op.results, (source,))
            case Store(ptr, value):
                self._store(ptr, value)
            case Atomic(_, ptr, args):
                for value in args:
                    self._store(ptr, value)
                self._flow(op.results, (ptr,))
            case If(_, then, orelse):
                self._flow(op.results, then.results, orelse.results)
            case For(_, _, inits, _, body):
                self._flow(body.args[1:], inits, body.results)
                self._flow(op.results, inits, body.results)
            case While(inits, before, body):
                self._flow(before.args, inits, body.results)
                self._flow(op.results, before.results[1:])


def may_pass(fn: str, k: int) -> bool:
    """Whether a tangent may pass through argument k; unknown functions count, to be refused."""
    rule = forward_rule_for(fn)
    return rule is None or not rule.is_zero(k)
