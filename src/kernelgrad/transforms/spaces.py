"""Infers which space generic pointers point into.

Before: pointers that C++ declares without a space are "generic", made so by casts. After: a pointer all of whose
sources agree on a space has that space, through members, offsets, casts, selects, branches and loops; the casts that
only forgot the space are gone. Where a generic pointer is demanded (stored in memory, put in a struct), a cast remains.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..errors import UNKNOWN, Span
from ..ir.ops import (
    Aggregate,
    Apply,
    Atomic,
    Block,
    Call,
    Constant,
    For,
    Function,
    If,
    Insert,
    Member,
    Module,
    Offset,
    Op,
    Print,
    PtrCast,
    PtrDiff,
    Store,
    Undef,
    Value,
    While,
)
from ..ir.traverse import blocks, rebuild, with_body
from ..ir.types import Pointer, Space, Type

_COMPARISONS = frozenset(("lt", "le", "gt", "ge", "eq", "ne"))


def run(function: Function, module: Module) -> Function:
    spaces = _Inference(function).spaces
    changed = any(isinstance(v.type, Pointer) and v.type.space != space for v, space in spaces.items())
    return with_body(function, _Retyping(spaces).function(function.body)) if changed else function


class _Inference:
    """`spaces` maps pointers to their space: absent while nothing is known, "generic" where sources differ."""

    def __init__(self, function: Function):
        self.spaces: dict[Value, Space] = {}
        self.anything: set[Value] = set()  # null and undefined pointers, which fit any space
        self.changed = True
        for param in function.params:
            self.declared(param.value)
        while self.changed:
            self.changed = False
            self.block(function.body)

    def block(self, block: Block) -> None:
        for op in block.ops:
            if not isinstance(op, While | For):
                for inner in blocks(op):
                    self.block(inner)
            self.visit(op)

    def visit(self, op: Op) -> None:
        match op:
            case Constant() | Undef():
                self.anything.update(op.results)
            case PtrCast(ptr):
                self.flow(op.result, ptr)
            case Offset(ptr) | Member(ptr):
                self.flow(op.result, ptr)
            case Apply("select", (_, a, b)):
                self.flow(op.result, a, b)
            case If(_, then, orelse):
                self.flow_all(op.results, then.results, orelse.results)
            case For(_, _, inits, _, body):
                self.flow_all(body.args[1:], inits, body.results)
                self.block(body)
                self.flow_all(op.results, inits, body.results)
            case While(inits, before, body):
                self.flow_all(before.args, inits, body.results)
                self.block(before)
                self.flow_all(body.args, before.results[1:])
                self.block(body)
                self.flow_all(op.results, before.results[1:])
            case _:
                for result in op.results:
                    self.declared(result)

    def declared(self, value: Value) -> None:
        if isinstance(value.type, Pointer):
            self.set(value, value.type.space)

    def flow_all(self, targets: tuple[Value, ...], *sources: tuple[Value, ...]) -> None:
        for target, *values in zip(targets, *sources, strict=True):
            self.flow(target, *values)

    def flow(self, target: Value, *sources: Value) -> None:
        if not isinstance(target.type, Pointer):
            return None
        if target.type.space != "generic":
            return self.set(target, target.type.space)
        for source in sources:
            space = self.spaces.get(source)
            if space is not None:
                self.set(target, space)

    def set(self, value: Value, space: Space) -> None:
        old = self.spaces.get(value)
        new: Space = space if old in (None, space) else "generic"
        if new != old:
            self.spaces[value] = new
            self.changed = True


class _Retyping:
    def __init__(self, spaces: dict[Value, Space]):
        self.spaces = spaces
        self.replaced: dict[Value, Value] = {}
        self.empty: dict[Value, Op] = {}  # null and undefined pointers, made anew where a type is demanded
        self.out: list[Op] = []
        self.span: Span = UNKNOWN

    def function(self, body: Block) -> Block:
        return self.block(body, tuple(v.type for v in body.results))

    def type_of(self, value: Value) -> Type:
        if isinstance(value.type, Pointer) and value in self.spaces:
            return Pointer(value.type.pointee, self.spaces[value])
        return value.type

    def define(self, value: Value) -> Value:
        type = self.type_of(value)
        if type == value.type:
            return value
        self.replaced[value] = fresh = Value(type, value.name)
        return fresh

    def use(self, value: Value) -> Value:
        return self.replaced.get(value, value)

    def fit(self, value: Value, type: Type) -> Value:
        """The value as one of this type: only the space may differ."""
        value = self.use(value)
        if value.type == type:
            return value
        result = Value(type, value.name)
        if value in self.empty:
            self.out.append(replace(self.empty[value], results=(result,)))
        else:
            self.out.append(PtrCast(value, results=(result,), span=self.span))
        return result

    def fit_all(self, values: tuple[Value, ...], like: tuple[Value, ...]) -> tuple[Value, ...]:
        return tuple(self.fit(v, self.type_of(t)) for v, t in zip(values, like, strict=True))

    def block(self, block: Block, types: tuple[Type, ...]) -> Block:
        """`types` are those demanded of the results."""
        outer, self.out = self.out, []
        args = tuple(map(self.define, block.args))
        for op in block.ops:
            self.span = op.span
            self.visit(op)
        results = tuple(self.fit(v, t) for v, t in zip(block.results, types, strict=True))
        rebuilt = Block(args, tuple(self.out), results)
        self.out = outer
        return rebuilt

    def visit(self, op: Op) -> None:
        match op:
            case PtrCast(ptr) if self.use(ptr).type == self.type_of(op.result):
                self.replaced[op.result] = self.use(ptr)
            case Constant() | Undef():
                self.emit(op)
                self.empty[op.result] = op
            case Apply("select", (cond, *arms)):
                type = self.type_of(op.result)
                self.emit(op, args=(self.use(cond), *(self.fit(v, type) for v in arms)))
            case Apply(fn, args) if fn in _COMPARISONS and len({self.use(v).type for v in args}) > 1:
                self.emit(op, args=tuple(self.fit(v, v.type) for v in args))
            case PtrDiff(left, right) if self.use(left).type != self.use(right).type:
                self.emit(op, left=self.fit(left, left.type), right=self.fit(right, right.type))
            case Store(_, value) | Insert(_, value):
                self.emit(op, value=self.fit(value, value.type))
            case Aggregate(args) | Call(_, args) | Print(_, args) | Atomic(_, _, args):
                self.emit(op, args=tuple(self.fit(v, v.type) for v in args))
            case If() | For() | While():
                self.control(op)
            case _:
                self.emit(op)

    def control(self, op: If | For | While) -> None:
        results = self.types(op.results)
        match op:
            case If(_, then, orelse):
                self.emit(op, then=self.block(then, results), orelse=self.block(orelse, results))
            case For(_, _, inits, _, body):
                inits = self.fit_all(inits, op.results)
                self.emit(op, inits=inits, body=self.block(body, results))
            case While(inits, before, body):
                inits = self.fit_all(inits, before.args)
                condition = before.results[0].type
                rebuilt = self.block(before, (condition, *results))
                self.emit(op, inits=inits, before=rebuilt, body=self.block(body, self.types(before.args)))

    def types(self, values: tuple[Value, ...]) -> tuple[Type, ...]:
        return tuple(map(self.type_of, values))

    def emit(self, op: Op, **changes: Any) -> None:
        rebuilt = rebuild(op, self.use, lambda b: b, **changes)
        self.out.append(replace(rebuilt, results=tuple(map(self.define, op.results))) if op.results else rebuilt)
