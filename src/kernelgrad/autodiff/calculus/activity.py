"""Activity: which values lie between the listed parameters and what the listed parameters end up holding.

A value is *varied* when it may depend on a listed input, *useful* when it may reach listed memory, active when both.
Memory is tracked by root: one that receives a varied value gives varied loads; one from which a useful load reads makes
the stores into it useful. Integers, bools and pointers are never active.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...analysis.roots import Memory, holds_pointers
from ...ir.ops import (
    Aggregate,
    Apply,
    Atomic,
    BarrierReduce,
    Block,
    Extract,
    For,
    Function,
    If,
    Insert,
    Load,
    Op,
    Store,
    Value,
    Warp,
    While,
)
from ...ir.types import Array, Scalar, Struct, Type
from .rules import rule_for


def holds_floats(type: Type) -> bool:
    """Whether a value of the type has a derivative: some float in it, not behind a pointer."""
    if isinstance(type, Scalar):
        return type.is_float
    if isinstance(type, Struct):
        return any(holds_floats(f.type) for f in type.fields)
    return isinstance(type, Array) and holds_floats(type.element)


_TRANSPARENT = ("convert", "select", "bitcast")


def passes(fn: str, k: int) -> bool:
    """Whether a derivative may pass through argument k of a function; unknown functions count, to be refused."""
    rule = None if fn in _TRANSPARENT else rule_for(fn)
    return rule is None or not rule.is_zero(k)


@dataclass(frozen=True)
class Activity:
    values: frozenset[Value]
    roots: frozenset[Value]  # memory that carries derivatives
    varied: frozenset[Value] = frozenset()
    useful: frozenset[Value] = frozenset()

    def __contains__(self, value: Value) -> bool:
        return value in self.values


def analyse(function: Function, memory: Memory, inputs: frozenset[Value], outputs: frozenset[Value]) -> Activity:
    """`inputs`, `outputs`: the listed parameters (values and roots); in kernels these are the same ones."""
    varied = _Varied(memory, inputs).run(function.body)
    useful = _Useful(memory, outputs).run(function.body)
    values = frozenset(v for v in varied.values if v in useful.values)
    return Activity(values, frozenset(varied.roots & useful.roots), frozenset(varied.values), frozenset(useful.values))


def with_shared_accesses(activity: Activity, memory: Memory, more: set[Value]) -> Activity:
    """An access that may go to one of several pieces of memory goes to their shadows: if one has one, all must."""
    roots = activity.roots | more
    accessed = [memory.of(op.ptr) for op in memory.stores]  # type: ignore[attr-defined]
    accessed += [memory.of(op.ptr) for op in memory.loads if op.result in activity]
    mixed = [found for found in accessed if len(found) > 1]
    while joined := [found for found in mixed if found & roots and not found <= roots]:
        roots = roots.union(*joined)
    return replace(activity, roots=roots)


class _Varied:
    """What depends on the inputs: forward, to a fixpoint."""

    def __init__(self, memory: Memory, inputs: frozenset[Value]):
        self.memory = memory
        # A number beside pointers in a struct is a parameter of its own here (`struct_members`).
        self.values: set[Value] = {v for v in inputs if not holds_pointers(v.type)}
        self.roots: set[Value] = {v for v in inputs if v in memory.roots}
        self.changed = True

    def run(self, body: Block) -> _Varied:
        while self.changed:
            self.changed = False
            self.block(body)
        return self

    def mark(self, value: Value) -> None:
        if value not in self.values and holds_floats(value.type):
            self.values.add(value)
            self.changed = True

    def flow(self, source: Value, target: Value) -> None:
        if source in self.values:
            self.mark(target)

    def block(self, block: Block) -> None:
        for op in block.ops:
            self.op(op)

    def op(self, op: Op) -> None:
        match op:
            case Apply(fn, args):
                for k, arg in enumerate(args):
                    if passes(fn, k):
                        self.flow(arg, op.result)
            case Aggregate(args) | Warp(_, args):
                for arg in args:
                    for result in op.results:
                        self.flow(arg, result)
            case BarrierReduce(_, value):
                self.flow(value, op.result)
            case Extract(aggregate, _):
                self.flow(aggregate, op.result)
            case Insert(aggregate, value, _):
                self.flow(aggregate, op.result)
                self.flow(value, op.result)
            case Load(ptr):
                if self.memory.of(ptr) & self.roots:
                    self.mark(op.result)
            case Store(ptr, value):
                self.store(ptr, value)
            case Atomic(_, ptr, args):
                for arg in args:
                    self.store(ptr, arg)
                if self.memory.of(ptr) & self.roots:
                    self.mark(op.result)
            case If(_, then, orelse):
                self.block(then)
                self.block(orelse)
                for a, b, result in zip(then.results, orelse.results, op.results, strict=True):
                    self.flow(a, result)
                    self.flow(b, result)
            case For(_, _, inits, _, body):
                self.loop(inits, body.args[1:], body, op.results)
            case While(inits, _, body):
                self.loop(inits, body.args, body, op.results)

    def loop(self, inits: tuple[Value, ...], args: tuple[Value, ...], body: Block, results: tuple[Value, ...]) -> None:
        for init, arg in zip(inits, args, strict=True):
            self.flow(init, arg)
        self.block(body)
        for init, arg, following, result in zip(inits, args, body.results, results, strict=True):
            self.flow(following, arg)
            self.flow(following, result)
            self.flow(init, result)

    def store(self, ptr: Value, value: Value) -> None:
        if value in self.values and not self.memory.of(ptr) <= self.roots:
            self.roots |= self.memory.of(ptr)
            self.changed = True


class _Useful:
    """What reaches the outputs: backward, to a fixpoint."""

    def __init__(self, memory: Memory, outputs: frozenset[Value]):
        self.memory = memory
        self.values: set[Value] = set()
        self.roots: set[Value] = {v for v in outputs if v in memory.roots}
        self.changed = True

    def run(self, body: Block) -> _Useful:
        while self.changed:
            self.changed = False
            for value in body.results:
                self.mark(value)
            self.block(body)
        return self

    def mark(self, value: Value) -> None:
        if value not in self.values and holds_floats(value.type):
            self.values.add(value)
            self.changed = True

    def flow(self, target: Value, source: Value) -> None:
        if target in self.values:
            self.mark(source)

    def block(self, block: Block) -> None:
        for op in reversed(block.ops):
            self.op(op)

    def op(self, op: Op) -> None:
        match op:
            case Apply(fn, args):
                for k, arg in enumerate(args):
                    if passes(fn, k):
                        self.flow(op.result, arg)
            case Aggregate(args) | Warp(_, args):
                for arg in args:
                    for result in op.results:
                        self.flow(result, arg)
            case BarrierReduce(_, value):
                self.flow(op.result, value)
            case Extract(aggregate, _):
                self.flow(op.result, aggregate)
            case Insert(aggregate, value, _):
                self.flow(op.result, aggregate)
                self.flow(op.result, value)
            case Load(ptr):
                if op.result in self.values and not self.memory.of(ptr) <= self.roots:
                    self.roots |= self.memory.of(ptr)
                    self.changed = True
            case Store(ptr, value):
                if self.memory.of(ptr) & self.roots:
                    self.mark(value)
            case Atomic(_, ptr, args):
                if op.result in self.values and not self.memory.of(ptr) <= self.roots:
                    self.roots |= self.memory.of(ptr)
                    self.changed = True
                if self.memory.of(ptr) & self.roots:
                    for arg in args:
                        self.mark(arg)
            case If(_, then, orelse):
                for a, b, result in zip(then.results, orelse.results, op.results, strict=True):
                    self.flow(result, a)
                    self.flow(result, b)
                self.block(then)
                self.block(orelse)
            case For(_, _, inits, _, body):
                self.loop(inits, body.args[1:], body, op.results)
            case While(inits, _, body):
                self.loop(inits, body.args, body, op.results)

    def loop(self, inits: tuple[Value, ...], args: tuple[Value, ...], body: Block, results: tuple[Value, ...]) -> None:
        for init, arg, following, result in zip(inits, args, body.results, results, strict=True):
            self.flow(result, following)
            self.flow(arg, following)
            self.flow(result, init)
        self.block(body)
        for init, arg in zip(inits, args, strict=True):
            self.flow(arg, init)
