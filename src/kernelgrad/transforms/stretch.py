"""Memory that a kernel cuts into parts of different types, in double precision (see `widen`).

Floats grow and integers do not, so that the parts of `char raw[]` would slide over each other. Every byte is stretched
alike instead: what lay at byte k lies at byte k times `factor`, and a number that needs fewer bytes leaves the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ..ir.builder import Builder, pointee
from ..ir.ops import Apply, Atomic, For, Function, If, Load, Op, Store, Value, While
from ..ir.traverse import walk
from ..ir.types import I64, Array, Field, Pointer, Struct, Type


class Stretched:
    """Types in memory to types in stretched memory. `wide`: what a value of a type becomes."""

    def __init__(self, wide: Callable[[Type], Type], factor: int):
        self.wide, self.factor = wide, factor
        self._structs: dict[Struct, Struct] = {}

    def __call__(self, type: Type) -> Type:
        match type:
            case Array(element, count):
                return Array(self(element), count)
            case Struct():
                return self._struct(type)
        wide, size = self.wide(type), type.size * self.factor
        return wide if wide.size == size else Array(wide, size // wide.size)  # of which the first is used

    def _struct(self, old: Struct) -> Struct:
        if old not in self._structs:
            self._structs[old] = new = Struct(f"{old.name}_stretched")
            fields = tuple(Field(f.name, self(f.type), f.offset * self.factor) for f in old.fields)
            new.define(fields, old.size * self.factor, max([old.align, *(f.type.align for f in fields)]))
        return self._structs[old]

    # ---- accesses

    def load(self, b: Builder, ptr: Value, type: Type, volatile: bool) -> Value:
        """A value of the widened `type`, from stretched memory."""
        wide = self.wide(type)
        if isinstance(type, Struct | Array):
            assert isinstance(wide, Struct | Array)
            parts = enumerate(_parts(type))
            return b.aggregate(wide, tuple(self.load(b, _part(b, ptr, k), part, volatile) for k, part in parts))
        return b.load(self.number(b, ptr), volatile)

    def store(self, b: Builder, ptr: Value, value: Value, type: Type, volatile: bool) -> None:
        if isinstance(type, Struct | Array):
            for k, part in enumerate(_parts(type)):
                self.store(b, _part(b, ptr, k), b.extract(value, k), part, volatile)
        else:
            b.store(self.number(b, ptr), value, volatile)

    def number(self, b: Builder, ptr: Value) -> Value:
        """The address of a number itself."""
        return b.decay(ptr) if isinstance(pointee(ptr), Array) else ptr

    def access(self, op: Load | Store | Atomic, value: Callable[[Value], Value]) -> tuple[list[Op], Value | None]:
        """The operations in its place, and its result."""
        b, ptr = Builder(op.span), value(op.ptr)
        match op:
            case Load(volatile=volatile):
                return b.ops, self.load(b, ptr, op.result.type, volatile)
            case Store(_, stored, volatile):
                self.store(b, ptr, value(stored), stored.type, volatile)
                return b.ops, None
            case Atomic(_, _, args):
                result = Value(self.wide(op.result.type), op.result.name)
                b.add(replace(op, ptr=self.number(b, ptr), args=tuple(map(value, args)), results=(result,)))
                return b.ops, result


def _parts(type: Struct | Array) -> list[Type]:
    return [f.type for f in type.fields] if isinstance(type, Struct) else [type.element] * type.count


def _part(b: Builder, ptr: Value, k: int) -> Value:
    return b.member(ptr, k) if isinstance(pointee(ptr), Struct) else b.offset(b.decay(ptr), b.constant(k, I64))


# ---- which pointers lead there -------------------------------------------------------------------------------------


def flowing_together(function: Function) -> list[tuple[Value, ...]]:
    """The pointers that must have one type: the sides of selects and branches, what loops carry. Null among them."""
    found: list[tuple[Value, ...]] = []
    for op in walk(function.body):
        match op:
            case Apply("select", (_, a, b)):
                found.append((op.result, a, b))
            case If(_, then, orelse):
                found += zip(op.results, then.results, orelse.results, strict=True)
            case For(_, _, inits, _, body):
                found += zip(op.results, inits, body.args[1:], body.results, strict=True)
            case While(inits, before, body):
                found += zip(inits, before.args, body.results, strict=True)
                found += zip(op.results, before.results[1:], body.args, strict=True)
    return [group for group in found if isinstance(group[0].type, Pointer)]


def closed(pointers: frozenset[Value], function: Function) -> frozenset[Value]:
    """With all that flow together with them."""
    groups, found = flowing_together(function), set(pointers)
    size = -1
    while size != len(found):
        size = len(found)
        for group in groups:
            if not found.isdisjoint(group):
                found.update(group)
    return frozenset(found)
