"""The values known so far in a forward walk: scopes, shared pure operations, folding. The lower half of `simplify`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from ..analysis.fold import Number, canonical, evaluate
from ..errors import UNKNOWN, Span
from ..ir.builder import result_type
from ..ir.effects import is_clock
from ..ir.functions import COMMUTATIVE, UNFUSED
from ..ir.ops import Aggregate, Apply, Constant, Extract, Insert, Offset, Op, PtrCast, PtrDiff, Undef, Value
from ..ir.traverse import attribute_fields, operands
from ..ir.types import BOOL, I64, Array, Scalar, Struct, Type, element_types
from .identities import simpler


class Values:
    """A value that another one serves for is `replaced`; `facts` are conditions known here."""

    def __init__(self) -> None:
        self.changed = False
        self.names: dict[Value, str] = {}  # for values that took over from a named one
        self.replaced: dict[Value, Value] = {}
        self.facts: dict[Value, bool] = {}
        self.definitions: dict[Value, Op] = {}
        self.order: dict[Value, int] = {}  # when each value was defined
        self.available: dict[Any, Value] = {}
        self.added: list[Any] = []  # keys of `available`, to be taken back where their block ends
        self.out: list[Op] = []
        self.span: Span = UNKNOWN

    # ---- what rules ask for (see identities.Maker)

    def definition_of(self, value: Value) -> Op | None:
        return self.definitions.get(value)

    def constant_of(self, value: Value) -> Number | None:
        op = self.definitions.get(value)
        return op.value if isinstance(op, Constant) else None

    def constant(self, value: Number, type: Type) -> Value:
        return self.pure(Constant(value, results=(Value(type),), span=self.span))

    def apply(self, fn: str, *args: Value, type: Type | None = None) -> Value:
        result = Value(result_type(fn, args, type))
        return self.pure(Apply(fn, args, results=(result,), span=self.span))

    # ---- scopes

    @contextmanager
    def scope(self, args: tuple[Value, ...], facts: dict[Value, bool]) -> Iterator[None]:
        out, added, known = self.out, self.added, self.facts
        self.out, self.added = [], []
        self.facts = {**known, **facts} if facts else known
        for arg in args:
            self.define(arg)
        yield
        for key in self.added:
            del self.available[key]
        self.out, self.added, self.facts = out, added, known

    def define(self, value: Value) -> None:
        self.order[value] = len(self.order)

    def emit(self, op: Op) -> None:
        self.out.append(op)
        for value in op.results:
            self.define(value)
            self.definitions[value] = op

    def use(self, value: Value) -> Value:
        value = self.replaced.get(value, value)
        if value in self.facts:
            return self.constant(self.facts[value], BOOL)
        return value

    def replace(self, value: Value, by: Value) -> None:
        self.changed = True
        self.replaced[value] = by
        if value.name is not None and by.name is None and not isinstance(self.definitions.get(by), Constant):
            self.names.setdefault(by, value.name)

    # ---- pure operations

    def pure(self, op: Op) -> Value:
        """The value of a pure operation: an existing one where there is one, else the operation's own result."""
        found = self.shortened(op)
        if found is not None:
            return found
        key = key_of(op)
        if key is None:
            self.emit(op)
        elif (same := self.available.get(key) or self.unfused(op)) is not None:
            return same
        else:
            self.emit(op)
            self.available[key] = op.result
            self.added.append(key)
        return op.result

    def unfused(self, op: Op) -> Value | None:
        """A product or sum that is there already, in the form that is never fused: it serves as well."""
        if isinstance(op, Apply) and op.fn in UNFUSED:
            return self.available.get(_applied_key(UNFUSED[op.fn], op))
        return None

    def shortened(self, op: Op) -> Value | None:
        match op:
            case Apply(_, args):
                return self.folded(op) or simpler(self, op, args)
            case Extract(aggregate, index):
                return self.extracted(aggregate, index)
            case Insert(aggregate, value, index):
                whole = self.definitions.get(aggregate)
                if isinstance(whole, Aggregate):
                    args = (*whole.args[:index], value, *whole.args[index + 1 :])
                    return self.pure(Aggregate(args, results=(Value(aggregate.type),), span=op.span))
            case Aggregate(args):
                return self.reassembled(args, op.result.type)
            case Offset(ptr, index) if self.constant_of(index) == 0:
                return ptr
            case PtrCast(ptr):
                return self.cast(op, ptr)
            case PtrDiff(left, right) if left is right:
                return self.constant(0, I64)
            case PtrDiff(left, right):
                moved = self.definitions.get(left)
                if isinstance(moved, Offset) and moved.ptr is right:
                    return self.pure(Apply("convert", (moved.index,), results=(Value(I64),), span=op.span))
        return None

    def folded(self, op: Apply) -> Value | None:
        values = tuple(map(self.constant_of, op.args))
        if not values or None in values or op.fn == "select" or not isinstance(op.result.type, Scalar):
            return None
        types = tuple(arg.type for arg in op.args if isinstance(arg.type, Scalar))
        if len(types) < len(values):
            return None
        known = tuple(canonical(v, t) for v, t in zip(values, types, strict=True) if v is not None)
        numbers = tuple(v for v in known if v is not None)
        if len(numbers) < len(values):
            return None
        value = evaluate(op.fn, numbers, types, op.result.type)
        return None if value is None else self.constant(value, op.result.type)

    def extracted(self, aggregate: Value, index: int) -> Value | None:
        while True:
            whole = self.definitions.get(aggregate)
            if isinstance(whole, Aggregate):
                return whole.args[index]
            if isinstance(whole, Undef):
                assert isinstance(aggregate.type, Struct | Array)
                self.emit(Undef(results=(Value(element_types(aggregate.type)[index]),), span=self.span))
                return self.out[-1].result
            if not isinstance(whole, Insert):
                return None
            if whole.index == index:
                return whole.value
            aggregate = whole.aggregate

    def reassembled(self, args: tuple[Value, ...], type: Type) -> Value | None:
        """A struct put together from all parts of one of the same type is that one."""
        sources = [self.definitions.get(arg) for arg in args]
        first = sources[0] if sources else None
        if not isinstance(first, Extract) or first.aggregate.type != type:
            return None
        for k, source in enumerate(sources):
            if not (isinstance(source, Extract) and source.index == k and source.aggregate is first.aggregate):
                return None
        return first.aggregate

    def cast(self, op: PtrCast, ptr: Value) -> Value | None:
        if ptr.type == op.result.type:
            return ptr
        inner = self.definitions.get(ptr)
        return self.pure(replace(op, ptr=inner.ptr)) if isinstance(inner, PtrCast) else None


def key_of(op: Op) -> Any:
    """What makes two pure operations equal; None for one that never equals another."""
    if isinstance(op, Constant):
        return op.result.type, repr(op.value)
    if isinstance(op, Apply):
        return _applied_key(op.fn, op)
    if isinstance(op, Undef) or is_clock(op):
        return None
    args: Any = operands(op)
    kind: Any = type(op)
    return (kind, op.result.type, args, *(getattr(op, name) for name in attribute_fields(kind)))


def _applied_key(fn: str, op: Apply) -> Any:
    """The key of an operation, with that function in place of its own."""
    return fn, op.result.type, frozenset(op.args) if fn in COMMUTATIVE else op.args
