"""Folds constants, applies exact identities, shares equal pure values, and cleans up branches and loops.

Works on any function and never speculates (DESIGN, rule 14): of an `If`, only integer arithmetic and comparisons of
values at hand move out, to become `and`, `or` or `select`; everything else stays behind its guard. Loads and stores
are neither shared nor forwarded, since other threads may see that memory. Dead code goes by `dce`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

from ..ir.effects import PURE
from ..ir.ops import Aggregate, Apply, Block, Constant, Extract, For, Function, If, Module, Op, Undef, Value, While
from ..ir.traverse import rebuild, with_body, with_ops
from ..ir.types import BOOL, Array, Struct, Type, element_types
from .dce import eliminate
from .identities import is_cheap
from .values import Values

_ROUNDS = 8
_MOST_PARTS = 16
_PURE = frozenset(PURE)
_MOST_SPECULATED = 16  # integer operations that are cheaper done than jumped over


def run(function: Function, module: Module) -> Function:
    if function.body.is_simple:
        return function
    body = eliminate(function.body)
    for _ in range(_ROUNDS):
        simplifier = Simplifier()
        simplified = simplifier.block(body)
        if simplified is not body or simplifier.names:
            body = eliminate(simplified, simplifier.names)
        if not simplifier.changed:
            object.__setattr__(body, "is_simple", True)
            break
    return with_body(function, body)


class _Split(NamedTuple):
    """An If whose struct results were taken apart, and what was made of each."""

    op: If
    then: Block
    orelse: Block
    parts: dict[Value, tuple[Value, ...]]


class Simplifier(Values):
    """One forward walk."""

    def block(self, block: Block, facts: dict[Value, bool] | None = None) -> Block:
        with self.scope(block.args, facts or {}):
            for op in block.ops:
                self.visit(op)
            results = tuple(map(self.use, block.results))
            return with_ops(block, self.out, results)

    def visit(self, op: Op) -> None:
        self.span = op.span
        if type(op) in _PURE:  # as most are
            value = self.pure(rebuild(op, self.use, _same))
            if value is not op.result:
                self.replace(op.result, value)
            return
        match op:
            case If():
                self.if_(op)
            case For():
                self.for_(op)
            case While():
                self.while_(op)
            case _:
                self.emit(rebuild(op, self.use, _same))

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
        ops = [op for op in (*then.ops, *orelse.ops) if not isinstance(op, Constant | Undef)]
        cheap = all(isinstance(op, Apply) and is_cheap(op) for op in ops)
        return cheap and len(ops) <= _MOST_SPECULATED and not any(_is_aggregate(v.type) for v in then.results)

    def flatten(self, cond: Value, then: Block, orelse: Block, results: tuple[Value, ...]) -> None:
        self.changed = True
        span = self.span
        for op in (*then.ops, *orelse.ops):
            self.visit(op)
        self.span = span
        for result, a, b in zip(results, then.results, orelse.results, strict=True):
            self.replace(result, self.apply("select", cond, self.use(a), self.use(b)))

    def keep_if(self, op: If, cond: Value, then: Block, orelse: Block, start: int) -> None:
        """Results that need no branch become values of their own; the rest stay."""
        split = self.split_structs(op, then, orelse)
        op, then, orelse = split.op, split.then, split.orelse
        keep: list[int] = []
        for k, result in enumerate(op.results):
            served = self.without_branch(cond, then.results[k], orelse.results[k], start)
            if served is None:
                keep.append(k)
            else:
                self.replace(result, served)
        then, orelse = (with_ops(side, side.ops, _pick(side.results, keep)) for side in (then, orelse))
        if orelse.ops and not then.ops and not keep:
            self.changed = True
            cond, then, orelse = self.apply("not", cond), orelse, then
        self.emit(_with(op, cond=cond, then=then, orelse=orelse, results=_pick(op.results, keep)))
        for whole, parts in split.parts.items():
            args = tuple(map(self.use, parts))
            self.replace(whole, self.pure(Aggregate(args, results=(Value(whole.type, whole.name),), span=op.span)))

    def split_structs(self, op: If, then: Block, orelse: Block) -> _Split:
        """Results that are small structs or arrays, one result per part: their parts are scalars to what follows."""
        parts = {v: _parts_of(v) for v in op.results if _is_small(v.type)}
        if not parts:
            return _Split(op, then, orelse, {})
        self.changed = True
        results = tuple(part for v in op.results for part in parts.get(v, (v,)))
        then = self.split_results(then, op.results, parts)
        return _Split(replace(op, results=results), then, self.split_results(orelse, op.results, parts), parts)

    def split_results(self, side: Block, results: tuple[Value, ...], parts: dict[Value, tuple[Value, ...]]) -> Block:
        ops, values = list(side.ops), []
        for result, value in zip(results, side.results, strict=True):
            if result not in parts:
                values.append(value)
                continue
            for k, part in enumerate(parts[result]):
                found = self.extracted(value, k)
                if found is None:
                    ops.append(Extract(value, k, results=(Value(part.type, part.name),), span=self.span))
                    found = ops[-1].result
                    self.define(found)
                    self.definitions[found] = ops[-1]
                values.append(found)
        return Block(side.args, tuple(ops), tuple(values))

    def without_branch(self, cond: Value, a: Value, b: Value, start: int) -> Value | None:
        if a is b:
            return a
        outer = [self.outside(v, start) for v in (a, b)]
        if None in outer:
            return None
        left, right = outer
        assert left is not None and right is not None
        undefined = any(isinstance(self.definitions.get(v), Undef) for v in (left, right))
        if left is right or left.type == BOOL or undefined:
            return self.apply("select", cond, left, right)
        return None

    def outside(self, value: Value, start: int) -> Value | None:
        """The value for use after the region that began at `start`: itself if older, a constant anew, or nothing."""
        if self.order.get(value, -1) < start:
            return value
        definition = self.definitions.get(value)
        if isinstance(definition, Undef):
            self.emit(replace(definition, results=(Value(value.type, value.name),)))
            return self.out[-1].result
        return self.constant(definition.value, value.type) if isinstance(definition, Constant) else None

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
        self.emit(_with(op, lower=lower, upper=upper, **changes))

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
        body = self.block(_select_block(op.body, forwarded, carried), self.entering(op, before))
        kept = with_ops(before, before.ops, _pick(before.results, [0, *(j + 1 for j in forwarded)]))
        self.note_unchanged(kept, body, _pick(inits, carried))
        changes: dict[str, Any] = {"inits": _pick(inits, carried), "results": _pick(op.results, forwarded)}
        self.emit(_with(op, before=kept, body=body, **changes))

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

    def entering(self, op: While, before: Block) -> dict[Value, bool]:
        """What a While's body knows of its arguments: the condition held."""
        facts = self.implied(before.results[0], True)
        handed_on = zip(op.body.args, before.results[1:], strict=True)
        return {arg: facts[value] for arg, value in handed_on if value in facts}

    def note_unchanged(self, before: Block, body: Block, inits: tuple[Value, ...]) -> None:
        handed_on = dict(zip(body.args, before.results[1:], strict=True))
        following = tuple(handed_on.get(v, v) for v in body.results)
        self.note_invariants(following, before.args, list(inits))


def _same(block: Block) -> Block:
    return block


def _with(op: Op, **changes: Any) -> Op:
    """The operation with other fields; itself where they are the same."""
    return rebuild(op, lambda value: value, _same, **changes)


def _is_aggregate(type: Type) -> bool:
    return isinstance(type, Struct | Array)


def _is_small(type: Type) -> bool:
    if isinstance(type, Struct):
        return not type.is_union and 0 < len(type.fields) <= _MOST_PARTS
    return isinstance(type, Array) and 0 < type.count <= _MOST_PARTS


def _parts_of(value: Value) -> tuple[Value, ...]:
    assert isinstance(value.type, Struct | Array)
    types = element_types(value.type)
    labels = [f.name for f in value.type.fields] if isinstance(value.type, Struct) else map(str, range(len(types)))
    return tuple(Value(t, value.name and f"{value.name}_{label}") for t, label in zip(types, labels, strict=True))


def _pick(values: tuple[Value, ...], which: list[int]) -> tuple[Value, ...]:
    return tuple(values[k] for k in which)


def _select_block(block: Block, args: list[int], results: list[int] | None) -> Block:
    kept = block.results if results is None else _pick(block.results, results)
    return with_ops(block, block.ops, kept, _pick(block.args, args))
