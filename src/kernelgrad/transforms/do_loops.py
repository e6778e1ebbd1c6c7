"""Loops that test after each iteration test before it, where that is the same.

    do { ...; ++p; } while (p < end);      becomes      while (p < max(end, first + 1)) { ...; ++p; }

and `for (;;) { ...; if (++j == n) break; }` likewise. What counts, walks or strides is then seen by all who know loops
that test first. The test is one comparison of an integer that the loop carries. Where a condition around the loop says
that the first test would succeed, it stays as it is, whatever is added in an iteration; else the bound makes room for
one iteration, which only constant steps of signed numbers allow. Expects simplified IR.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from ..ir.builder import Builder
from ..ir.effects import is_clock
from ..ir.ops import Apply, Block, Builtin, Constant, Function, If, Module, Op, Value, While
from ..ir.traverse import blocks, operands, substitute, walk, with_body
from ..ir.types import Scalar, Type
from .dce import eliminate

_NEGATED = {"lt": "ge", "ge": "lt", "gt": "le", "le": "gt", "eq": "ne", "ne": "eq"}
_FLIPPED = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le", "ne": "ne"}
_MORE = {"lt": 0, "le": 1}  # `a < b + more`


def run(function: Function, module: Module) -> Function:
    body = _Loops(function.body).block(function.body, ())
    return function if body is function.body else with_body(function, eliminate(body))


@dataclass(frozen=True)
class _Linear:
    """An integer, as a constant and multiples of others, none of which wraps around."""

    const: int
    terms: tuple[tuple[Value, int], ...] = ()

    def plus(self, other: _Linear, times: int = 1) -> _Linear:
        total = dict(self.terms)
        for value, number in other.terms:
            total[value] = total.get(value, 0) + times * number
        kept = sorted(((v, n) for v, n in total.items() if n), key=lambda term: id(term[0]))
        return _Linear(self.const + times * other.const, tuple(kept))


@dataclass(frozen=True)
class _Test:
    """The loop goes on if carried value `index`, as it is then, is `fn` than `bound + more`."""

    index: int
    fn: str
    bound: Value
    more: int


class _Loops:
    def __init__(self, body: Block):
        self.definition: dict[Value, Op] = {v: op for op in walk(body) for v in op.results}

    def block(self, block: Block, facts: tuple[_Linear, ...]) -> Block:
        """`facts`: what is positive here."""
        ops: list[Op] = []
        renamed: dict[Value, Value] = {}
        for op in block.ops:
            op = self.descend(op, facts)
            self.definition |= dict.fromkeys(op.results, op)
            ops += self.loop(op, facts, renamed) if isinstance(op, While) else [op]
        same = len(ops) == len(block.ops) and all(a is b for a, b in zip(ops, block.ops, strict=True))
        return block if same else substitute(Block(block.args, tuple(ops), block.results), renamed)

    def descend(self, op: Op, facts: tuple[_Linear, ...]) -> Op:
        if isinstance(op, If):
            sides = [
                self.block(side, (*facts, *self.facts(op.cond, holds)))
                for side, holds in ((op.then, True), (op.orelse, False))
            ]
            return op if sides == [op.then, op.orelse] else replace(op, then=sides[0], orelse=sides[1])
        changed = {
            name: self.block(inner, facts)
            for name, inner in ((n, getattr(op, n, None)) for n in ("before", "body"))
            if isinstance(inner, Block)
        }
        return op if all(getattr(op, name) is inner for name, inner in changed.items()) else replace(op, **changed)  # type: ignore[arg-type]

    # ---- loops

    def loop(self, loop: While, facts: tuple[_Linear, ...], renamed: dict[Value, Value]) -> list[Op]:
        found = _after_all(loop) or self.by_flag(loop)
        test = None if found is None else self.test(found)
        bound = None if found is None or test is None else self.bound(found, test, facts)
        if found is None or test is None or bound is None:
            return [loop]
        renamed |= dict(zip(loop.results, found.outer, strict=True))
        args = tuple(Value(v.type, v.name) for v in found.body.args)
        b = Builder(loop.span)
        go = b.apply(test.fn, args[test.index], bound.value)
        before = Block(args, tuple(b.ops), (go, *args))
        new = replace(loop, inits=found.inits, before=before, body=found.body, results=found.results)
        made = [*found.ops, *bound.ops, new]
        self.definition |= {v: op for op in made for v in op.results}
        return made

    def by_flag(self, loop: While) -> _Do | None:
        """`for (;;) { ...; if (last) break; }`: a bool that starts so that the loop runs, and is set at its end."""
        before, tested = loop.before, loop.before.results[0]
        ops = before.ops
        turned = len(ops) == 1 and isinstance(ops[0], Apply) and ops[0].fn == "not" and ops[0].result is tested
        flag = ops[0].args[0] if turned and isinstance(ops[0], Apply) else tested
        if (ops and not turned) or flag not in before.args or any(v not in before.args for v in before.results[1:]):
            return None
        k = before.args.index(flag)
        first = self.definition.get(loop.inits[k])
        if not isinstance(first, Constant) or bool(first.value) is turned:
            return None
        # As the arguments of the body: what the condition passes on, and nothing else is needed.
        passed = {before.args.index(v): arg for v, arg in zip(before.results[1:], loop.body.args, strict=True)}
        args = tuple(passed.get(i, Value(v.type, v.name)) for i, v in enumerate(before.args))
        body = Block(args, loop.body.ops, loop.body.results)
        results = tuple(Value(v.type, v.name) for v in before.args)
        outer = tuple(results[before.args.index(v)] for v in before.results[1:])
        return _Do(loop.inits, body, loop.body.results[k], not turned, results, outer)

    def test(self, loop: _Do) -> _Test | None:
        """What decides, by what is carried to the next iteration."""
        condition, holds = self.definition.get(loop.goes_on), loop.holds
        while isinstance(condition, Apply) and condition.fn == "not":
            condition, holds = self.definition.get(condition.args[0]), not holds
        if not isinstance(condition, Apply) or not isinstance(condition.args[0].type, Scalar):
            return None
        fn = condition.fn if holds else _NEGATED.get(condition.fn, "")
        left, right = condition.args if fn in _FLIPPED and _is_integer(condition.args[0].type) else (None, None)
        if left is None or right is None:
            return None
        for value, bound, compared in ((left, right, fn), (right, left, _FLIPPED[fn])):
            found = self.carried(loop, value)
            if found is not None and self.is_invariant(bound, loop):
                return _Test(found[0], compared, bound, -found[1])
        return None

    def carried(self, loop: _Do, value: Value) -> tuple[int, int] | None:
        """Which carried value it will be, and how much more than that it is."""
        if value in loop.body.results:
            return loop.body.results.index(value), 0
        for k, following in enumerate(loop.body.results):
            if following.type == value.type and _is_signed(value.type):
                apart = self.linear(value).plus(self.linear(following), -1)
                if not apart.terms:
                    return k, apart.const
        return None

    def is_invariant(self, value: Value, loop: _Do) -> bool:
        inside = loop.inside
        if value not in inside:
            return True
        op = self.definition.get(value)
        movable = isinstance(op, Constant | Apply) or (isinstance(op, Builtin) and not is_clock(op))
        movable = movable and not (isinstance(op, Apply) and op.fn in ("div", "rem"))
        return op is not None and movable and all(self.is_invariant(v, loop) for v in operands(op))

    # ---- bounds

    def bound(self, loop: _Do, test: _Test, facts: tuple[_Linear, ...]) -> _Bound | None:
        """Below which the first test succeeds, too."""
        b = Builder(self.definition[loop.goes_on].span)
        first = loop.inits[test.index]
        if first.type != test.bound.type:
            return None
        bound = self.hoisted(b, test.bound, loop, {})
        bound = b.apply("add", bound, b.constant(test.more, bound.type)) if test.more else bound
        if self.succeeds(test, first, facts):
            return _Bound(bound, tuple(b.ops))
        step = self.linear(loop.body.results[test.index]).plus(_Linear(0, ((loop.body.args[test.index], 1),)), -1)
        if step.terms or not step.const or not _is_signed(first.type):
            return None
        if test.fn == "ne":  # that it starts at the bound would have it overflow
            return _Bound(bound, tuple(b.ops)) if abs(step.const) == 1 else None
        upwards = test.fn in _MORE
        if upwards != (step.const > 0):
            return None
        near = {"lt": 1, "le": 0, "gt": -1, "ge": 0}[test.fn]
        room = b.apply("add", first, b.constant(near, first.type)) if near else first
        bound = b.apply("max" if upwards else "min", bound, room)
        return _Bound(bound, tuple(b.ops))

    def hoisted(self, b: Builder, value: Value, loop: _Do, copies: dict[Value, Value]) -> Value:
        if value not in loop.inside:
            return value
        if value not in copies:
            op, copies[value] = self.definition[value], Value(value.type, value.name)
            args = {v: self.hoisted(b, v, loop, copies) for v in operands(op)}
            copy = substitute(Block((), (op,), ()), args).ops[0]
            b.add(replace(copy, results=(copies[value],)))
        return copies[value]

    def succeeds(self, test: _Test, first: Value, facts: tuple[_Linear, ...]) -> bool:
        """Whether the test would, before the first iteration."""
        far = self.linear(test.bound).plus(self.linear(first), -1).plus(_Linear(test.more))
        if test.fn == "ne":
            return not far.terms and far.const != 0
        if test.fn not in _MORE:
            far = _Linear(0).plus(far, -1)
        far = far.plus(_Linear(1 if test.fn in ("le", "ge") else 0))
        sure = [far.plus(fact, -1) for fact in (_Linear(1), *facts)]
        return any(not rest.terms and rest.const >= 0 for rest in sure)

    def facts(self, cond: Value, holds: bool) -> Iterable[_Linear]:
        """What is positive where a condition holds, or does not."""
        op = self.definition.get(cond)
        if not isinstance(op, Apply):
            return
        if op.fn == "not":
            yield from self.facts(op.args[0], not holds)
        elif op.fn in ("and", "or") and (op.fn == "and") == holds:
            for arg in op.args:
                yield from self.facts(arg, holds)
        elif op.fn in _NEGATED and _is_integer(op.args[0].type):
            fn, (left, right) = op.fn if holds else _NEGATED[op.fn], op.args
            if fn in ("gt", "ge"):
                fn, left, right = _FLIPPED[fn], right, left
            if fn in _MORE:
                yield self.linear(right).plus(self.linear(left), -1).plus(_Linear(_MORE[fn]))

    def linear(self, value: Value) -> _Linear:
        op = self.definition.get(value)
        match op:
            case Constant(number) if _is_integer(value.type) and isinstance(number, int):
                return _Linear(int(number))
            case Apply("add" | "sub" as fn, (left, right)) if _is_signed(value.type):
                return self.linear(left).plus(self.linear(right), 1 if fn == "add" else -1)
            case Apply("convert", (inner,)) if _keeps(inner.type, value.type):
                return self.linear(inner)
        return _Linear(0, ((value, 1),))


@dataclass(frozen=True)
class _Do:
    """A loop that runs its body, then goes on if `goes_on` is what `holds` says. `results`: what it carries in the
    end; `outer`: of these, what the loop's results were."""

    inits: tuple[Value, ...]
    body: Block
    goes_on: Value
    holds: bool
    results: tuple[Value, ...]
    outer: tuple[Value, ...]
    ops: tuple[Op, ...] = ()  # in front of it

    @property
    def inside(self) -> set[Value]:
        found = {v for op in walk(self.body) for v in op.results} | set(self.body.args)
        return found | {arg for op in walk(self.body) for inner in blocks(op) for arg in inner.args}


@dataclass(frozen=True)
class _Bound:
    value: Value
    ops: tuple[Op, ...]


def _after_all(loop: While) -> _Do | None:
    """`do { ... } while (...)`: all work comes before the test."""
    before, after, b = loop.before, loop.body, Builder(loop.span)
    if after.ops or not before.ops or any(v not in after.args for v in after.results):
        return None
    handed = [after.args.index(v) for v in after.results]
    only_after = [f for f in range(len(loop.results)) if f not in handed]  # what the last iteration leaves
    inits = (*loop.inits, *(b.undef(loop.results[f].type) for f in only_after))
    args = (*before.args, *(Value(loop.results[f].type, loop.results[f].name) for f in only_after))
    handed += only_after
    results = tuple(Value(v.type, v.name) for v in args)
    following = tuple(before.results[1 + f] for f in handed)
    outer = tuple(results[handed.index(f)] for f in range(len(loop.results)))
    body = Block(args, before.ops, following)
    return _Do(inits, body, before.results[0], True, results, outer, tuple(b.ops))


def _is_integer(type: Type) -> bool:
    return isinstance(type, Scalar) and type.kind in ("int", "uint") and type.bits >= 32


def _is_signed(type: Type) -> bool:
    return _is_integer(type) and isinstance(type, Scalar) and type.kind == "int"


def _keeps(old: Type, new: Type) -> bool:
    """Whether a conversion keeps every value."""
    if not (isinstance(old, Scalar) and isinstance(new, Scalar) and _is_integer(old) and _is_integer(new)):
        return False
    return old == new or (new.bits > old.bits and (new.kind == "int" or old.kind == "uint"))
