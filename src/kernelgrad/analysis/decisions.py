"""Which floats decide: what branches, indices, trip counts and the like are computed from. For `unfused`.

Floats decide where they turn into something else, by a comparison, a conversion or the like, or where they jump or
have a kink themselves: `_DECIDES`. From there on back, through values, loops, branches, what lanes exchange, and
memory: a load has its value from the stores of the launch that may come before it.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..ir.ops import (
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
    Member,
    Op,
    Store,
    Value,
    Warp,
    While,
)
from ..ir.traverse import blocks, operands, walk
from ..ir.types import Array, Pointer, Scalar, Struct, Type
from .roots import Roots, analyse

_DECIDES = frozenset(
    "lt le gt ge eq ne isnan isinf isfinite signbit min max abs fdim saturate copysign floor ceil trunc round rint "
    "fmod remainder logb ilogb frexp_mantissa frexp_exponent atan2 nextafter".split()
)
_TURNS = frozenset("convert bitcast convert_rn convert_rd convert_ru convert_rz".split())
PASSES = frozenset(("neg", "select", "convert"))  # a product stays one


class Decisions:
    """`values`: the floats that decisions are computed from."""

    def __init__(self, function: Function):
        self.memory = analyse(function)
        self.definition = {v: op for op in walk(function.body) for v in op.results}
        self.sources: dict[Value, tuple[Value, ...]] = {}
        self.order: dict[int, int] = {}
        self.loops: dict[int, Op] = {}  # the outermost around an access to memory
        self._index(function.body, None)
        self.jumps = [op for op in walk(function.body) if isinstance(op, Apply) and op.fn in _DECIDES]
        self._written: dict[Roots, list[Store | Atomic]] = {}
        self.values: set[Value] = set()
        self._follow([v for op in walk(function.body) for v in self._decided(op)])

    def _index(self, block: Block, loop: Op | None) -> None:
        for op in block.ops:
            if isinstance(op, Load | Store | Atomic):
                self.order[id(op)] = len(self.order)
                if loop is not None:
                    self.loops[id(op)] = loop
            self.sources.update(_flows(op))
            for inner in blocks(op):
                self._index(inner, loop or (op if isinstance(op, For | While) else None))

    def _decided(self, op: Op) -> Iterable[Value]:
        """The floats that an operation itself decides by."""
        match op:
            case Apply(fn, args) if fn in _DECIDES or (fn in _TURNS and not holds_floats(op.result.type)):
                return args
            case Atomic(kind, _, args) if kind not in ("add", "sub"):
                return args
            case Warp(fn, args) if fn.startswith("match"):
                return args
            case Load() if not holds_floats(op.result.type):  # the bits of floats
                return self._stored(op)
        return ()

    def _follow(self, todo: list[Value]) -> None:
        while todo:
            value = todo.pop()
            if value not in self.values and holds_floats(value.type):
                self.values.add(value)
                todo += self._computed_from(value)

    def _computed_from(self, value: Value) -> Iterable[Value]:
        op = self.definition.get(value)
        match op:
            case Load():
                return self._stored(op)
            case Atomic():
                return (*op.args, *self._stored(op))
            case Apply() | Aggregate() | Extract() | Insert() | Warp() | BarrierReduce():
                return operands(op)
        return self.sources.get(value, ())

    def passed(self, value: Value) -> Iterable[Value]:
        """The values that a value is one of, or a part of, as they were computed."""
        op = self.definition.get(value)
        if isinstance(op, Apply):
            return op.args if op.fn in PASSES else ()
        return () if isinstance(op, Atomic | Warp | BarrierReduce) else self._computed_from(value)

    def _stored(self, read: Load | Atomic) -> list[Value]:
        """What may have been stored where an operation reads."""
        found: list[Value] = []
        for op in self._writes(self.memory.of(read.ptr)):
            if self._may_precede(op, read) and not self._are_apart(op.ptr, read.ptr):
                found += op.args if isinstance(op, Atomic) else [op.value]
        return found

    def _writes(self, roots: Roots) -> list[Store | Atomic]:
        """The stores of floats to memory that has one of those roots; dynamic shared memory may have several names."""
        if roots not in self._written:
            dynamic = any(map(_is_dynamic, roots))
            self._written[roots] = [
                op
                for op in self.memory.stores
                if isinstance(op, Store | Atomic) and any(holds_floats(v.type) for v in operands(op))
                if (found := self.memory.of(op.ptr)) & roots or (dynamic and any(map(_is_dynamic, found)))
            ]
        return self._written[roots]

    def _are_apart(self, one: Value, other: Value) -> bool:
        """Whether they are different fields of records of one type."""
        match self.definition.get(one), self.definition.get(other):
            case Member(left, k), Member(right, j):
                record = left.type.pointee if isinstance(left.type, Pointer) else None
                return left.type == right.type and k != j and isinstance(record, Struct) and not record.is_union
        return False

    def _may_precede(self, write: Op, read: Op) -> bool:
        loop = self.loops.get(id(write))
        return self.order[id(write)] < self.order[id(read)] or (loop is not None and loop is self.loops.get(id(read)))


def _is_dynamic(root: Value) -> bool:
    """Whether it is the launch's dynamic shared memory."""
    type = root.type.pointee if isinstance(root.type, Pointer) else None
    return isinstance(type, Array) and type.count == 0


def _flows(op: Op) -> Iterable[tuple[Value, tuple[Value, ...]]]:
    """What the results of control flow, and the arguments of its blocks, have their values from."""
    match op:
        case If(_, then, orelse):
            yield from zip(op.results, zip(then.results, orelse.results, strict=True), strict=True)
        case For(_, _, inits, _, body):
            for k, both in enumerate(zip(inits, body.results, strict=True)):
                yield from ((body.args[k + 1], both), (op.results[k], both))
        case While(inits, before, body):
            yield from zip(before.args, zip(inits, body.results, strict=True), strict=True)
            for k, forwarded in enumerate(before.results[1:]):
                yield from ((body.args[k], (forwarded,)), (op.results[k], (forwarded,)))


def holds_floats(type: Type) -> bool:
    match type:
        case Scalar():
            return type.is_float
        case Struct():
            return any(holds_floats(f.type) for f in type.fields)
        case Array():
            return holds_floats(type.element)
    return False
