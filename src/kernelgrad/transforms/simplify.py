"""Folds constants, applies exact identities, shares equal pure values, and cleans up branches and loops.

Works on any function and never speculates (DESIGN, rule 14): of an `If`, only integer arithmetic and comparisons of
values at hand move out, to become `and`, `or` or `select`; everything else stays behind its guard. Loads and stores
are neither shared nor forwarded, since other threads may see that memory. Dead code goes by `dce`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from ..errors import UNKNOWN, Span
from ..ir.builder import result_type
from ..ir.functions import COMMUTATIVE
from ..ir.ops import (
    Aggregate,
    Apply,
    Block,
    Builtin,
    Constant,
    Extract,
    For,
    Function,
    GlobalRef,
    If,
    Insert,
    Member,
    Module,
    Offset,
    Op,
    PtrCast,
    PtrDiff,
    Undef,
    Value,
    While,
)
from ..ir.traverse import attribute_fields, operands, rebuild, with_body
from ..ir.types import BOOL, I64, Array, Scalar, Struct, Type, element_types
from .dce import eliminate
from .fold import Number, canonical, evaluate
from .identities import is_cheap, simpler

_ROUNDS = 8
_MOST_SPECULATED = 16  # integer operations that are cheaper done than jumped over
_CLOCKS = frozenset(("clock", "clock64", "globaltimer"))
_SHARED = (Constant, Apply, Aggregate, Extract, Insert, Builtin, GlobalRef, Offset, Member, PtrCast, PtrDiff)


def run(function: Function, module: Module) -> Function:
    body = eliminate(function.body)
    for _ in range(_ROUNDS):
        simplifier = _Simplifier()
        body = eliminate(simplifier.body(body), simplifier.names)
        if not simplifier.changed:
            break
    return with_body(function, body)


class _Simplifier:
    """One forward walk. A value that another one serves for is `replaced`; `facts` are conditions known here."""

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

    # ---- blocks

    def body(self, block: Block) -> Block:
        return self.block(block)

    def block(self, block: Block, facts: dict[Value, bool] | None = None) -> Block:
        with self.scope(block.args, facts or {}):
            for op in block.ops:
                self.visit(op)
            results = tuple(map(self.use, block.results))
            return Block(block.args, tuple(self.out), results)

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

    def visit(self, op: Op) -> None:
        self.span = op.span
        match op:
            case If():
                self.if_(op)
            case For():
                self.for_(op)
            case While():
                self.while_(op)
            case _ if isinstance(op, _SHARED):
                value = self.pure(rebuild(op, self.use, _same))
                if value is not op.result:
                    self.replace(op.result, value)
            case _:
                self.emit(rebuild(op, self.use, _same))

    # ---- pure operations

    def pure(self, op: Op) -> Value:
        """The value of a pure operation: an existing one where there is one, else the operation's own result."""
        found = self.shortened(op)
        if found is not None:
            return found
        key = _key(op)
        if key is None:
            self.emit(op)
        elif key not in self.available:
            self.emit(op)
            self.available[key] = op.result
            self.added.append(key)
        else:
            return self.available[key]
        return op.result

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
        return None

    def folded(self, op: Apply) -> Value | None:
        values = tuple(self.constant_of(arg) for arg in op.args)
        types = tuple(arg.type for arg in op.args if isinstance(arg.type, Scalar))
        if not isinstance(op.result.type, Scalar) or len(types) < len(values) or op.fn == "select":
            return None
        known = tuple(canonical(v, t) for v, t in zip(values, types, strict=True) if v is not None)
        numbers = tuple(v for v in known if v is not None)
        if not numbers or len(numbers) < len(values):
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

    # ---- branches

    def if_(self, op: If) -> None:
        cond = self.use(op.cond)
        known = self.constant_of(cond)
        if known is not None:
            return self.splice(op.then if known else op.orelse, op.results)
        start = len(self.order)
        then = self.block(op.then, self.implied(cond, True))
        orelse = self.block(op.orelse, self.implied(cond, False))
        self.span = op.span
        if not op.exits and op.results and self.can_flatten(then, orelse):
            self.flatten(cond, then, orelse, op.results)
        else:
            self.keep_if(op, cond, then, orelse, start)

    def splice(self, block: Block, results: tuple[Value, ...]) -> None:
        """The block's operations in place of the operation that held it."""
        self.changed = True
        for op in block.ops:
            self.visit(op)
        for result, value in zip(results, block.results, strict=True):
            self.replace(result, self.use(value))

    def implied(self, cond: Value, truth: bool) -> dict[Value, bool]:
        """What follows from the condition being true, or false."""
        facts, todo = {cond: truth}, [(cond, truth)]
        while todo:
            value, truth = todo.pop()
            op = self.definitions.get(value)
            if not isinstance(op, Apply) or op.fn not in ("not", "and", "or"):
                continue
            if op.fn == "not" or (op.fn == "and") == truth:
                parts = [(arg, truth != (op.fn == "not")) for arg in op.args]
                facts.update(parts)
                todo.extend(parts)
        return facts

    def can_flatten(self, then: Block, orelse: Block) -> bool:
        ops = [op for op in (*then.ops, *orelse.ops) if not isinstance(op, Constant)]
        cheap = all(isinstance(op, Apply) and is_cheap(op) for op in ops)
        return cheap and len(ops) <= _MOST_SPECULATED and not any(_is_aggregate(v.type) for v in then.results)

    def flatten(self, cond: Value, then: Block, orelse: Block, results: tuple[Value, ...]) -> None:
        self.changed = True
        for op in (*then.ops, *orelse.ops):
            self.visit(op)
        for result, a, b in zip(results, then.results, orelse.results, strict=True):
            self.replace(result, self.apply("select", cond, self.use(a), self.use(b)))

    def keep_if(self, op: If, cond: Value, then: Block, orelse: Block, start: int) -> None:
        """Results that need no branch become values of their own; the rest stay."""
        keep: list[int] = []
        for k, result in enumerate(op.results):
            served = self.without_branch(cond, then.results[k], orelse.results[k], start)
            if served is None:
                keep.append(k)
            else:
                self.replace(result, served)
        then = Block(then.args, then.ops, tuple(then.results[k] for k in keep))
        orelse = Block(orelse.args, orelse.ops, tuple(orelse.results[k] for k in keep))
        if orelse.ops and not then.ops and not keep:
            self.changed = True
            cond, then, orelse = self.apply("not", cond), orelse, then
        results = tuple(op.results[k] for k in keep)
        self.emit(replace(op, cond=cond, then=then, orelse=orelse, results=results))

    def without_branch(self, cond: Value, a: Value, b: Value, start: int) -> Value | None:
        if a is b:
            return a
        outer = [self.outside(v, start) for v in (a, b)]
        if None in outer:
            return None
        left, right = outer
        assert left is not None and right is not None
        if left is right or left.type == BOOL:
            return self.apply("select", cond, left, right)
        return None

    def outside(self, value: Value, start: int) -> Value | None:
        """The value for use after the region that began at `start`: itself if older, a constant anew, or nothing."""
        if self.order.get(value, -1) < start:
            return value
        constant = self.definitions.get(value)
        return self.constant(constant.value, value.type) if isinstance(constant, Constant) else None

    # ---- loops

    def for_(self, op: For) -> None:
        lower, upper = self.use(op.lower), self.use(op.upper)
        trips = self.trips(lower, upper, op.step)
        if trips == 0:
            return self.splice(Block((), (), op.inits), op.results)
        if trips == 1:
            self.replaced.update(zip(op.body.args, (lower, *map(self.use, op.inits)), strict=True))
            return self.splice(op.body, op.results)
        args = op.body.args[1:]
        inits = tuple(map(self.use, op.inits))
        keep = [k for k in range(len(args)) if not self.same(op.body.results[k], args[k], inits[k])]
        for k in set(range(len(args))) - set(keep):
            self.replace(args[k], inits[k])
            self.replace(op.results[k], inits[k])
        body = self.block(_select_block(op.body, [0, *(k + 1 for k in keep)], keep))
        self.note_invariants(body.results, body.args[1:], [inits[k] for k in keep])
        changes: dict[str, Any] = {"inits": _pick(inits, keep), "body": body, "results": _pick(op.results, keep)}
        self.emit(replace(op, lower=lower, upper=upper, **changes))

    def trips(self, lower: Value, upper: Value, step: int) -> int | None:
        """0 or 1 where a loop is known to run that often."""
        first, last = self.constant_of(lower), self.constant_of(upper)
        if first is None or last is None:
            return 0 if lower is upper else None
        count = -((first - last) // step) if step > 0 else -((last - first) // -step)
        return max(0, int(count)) if count <= 1 else None

    def same(self, following: Value, arg: Value, init: Value) -> bool:
        """Whether a carried value never changes."""
        return following is arg or self.use(following) is init

    def note_invariants(self, following: tuple[Value, ...], args: tuple[Value, ...], inits: list[Value]) -> None:
        """What only now shows as unchanging goes in the next round."""
        for value, arg, init in zip(following, args, inits, strict=True):
            self.changed |= value is arg or value is init

    def while_(self, op: While) -> None:
        inits = tuple(map(self.use, op.inits))
        carried = [k for k in range(len(inits)) if not self.never_changes(op, k, inits[k])]
        for k in set(range(len(inits))) - set(carried):
            self.changed = True
            self.replaced[op.before.args[k]] = inits[k]
        start = len(self.order)
        before = self.block(_select_block(op.before, carried, None))
        if self.constant_of(before.results[0]) == 0:
            self.replaced.update(zip(before.args, _pick(inits, carried), strict=True))
            return self.splice(Block((), before.ops, before.results[1:]), op.results)
        forwarded = self.forward(op, before, start)
        body = self.block(_select_block(op.body, forwarded, carried))
        kept = Block(before.args, before.ops, _pick(before.results, [0, *(j + 1 for j in forwarded)]))
        self.note_unchanged(kept, body, _pick(inits, carried))
        changes: dict[str, Any] = {"inits": _pick(inits, carried), "results": _pick(op.results, forwarded)}
        self.emit(replace(op, before=kept, body=body, **changes))

    def never_changes(self, op: While, k: int, init: Value) -> bool:
        following = op.body.results[k]
        if following in op.body.args:
            return op.before.results[1 + op.body.args.index(following)] is op.before.args[k]
        return self.use(following) is init

    def forward(self, op: While, before: Block, start: int) -> list[int]:
        """Which values the condition's block must hand on; those from outside and doubles need not be."""
        keep: list[int] = []
        first: dict[Value, int] = {}
        for j, value in enumerate(before.results[1:]):
            outer = self.outside(value, start)
            if outer is not None:
                self.replace(op.body.args[j], outer)
                self.replace(op.results[j], outer)
            elif value in first:
                self.replace(op.body.args[j], op.body.args[first[value]])
                self.replace(op.results[j], op.results[first[value]])
            else:
                first[value] = j
                keep.append(j)
        return keep

    def note_unchanged(self, before: Block, body: Block, inits: tuple[Value, ...]) -> None:
        handed_on = dict(zip(body.args, before.results[1:], strict=True))
        following = tuple(handed_on.get(v, v) for v in body.results)
        self.note_invariants(following, before.args, list(inits))


def _same(block: Block) -> Block:
    return block


def _is_aggregate(type: Type) -> bool:
    return isinstance(type, Struct | Array)


def _pick(values: tuple[Value, ...], which: list[int]) -> tuple[Value, ...]:
    return tuple(values[k] for k in which)


def _select_block(block: Block, args: list[int], results: list[int] | None) -> Block:
    kept = block.results if results is None else _pick(block.results, results)
    return Block(_pick(block.args, args), block.ops, kept)


def _key(op: Op) -> Any:
    """What makes two pure operations equal; None for one that never equals another."""
    if isinstance(op, Constant):
        return op.result.type, repr(op.value)
    if isinstance(op, Undef) or (isinstance(op, Builtin) and op.name in _CLOCKS):
        return None
    args: Any = operands(op)
    if isinstance(op, Apply) and op.fn in COMMUTATIVE:
        args = frozenset(args)
    kind: Any = type(op)
    return (kind, op.result.type, args, *(getattr(op, name) for name in attribute_fields(kind)))
