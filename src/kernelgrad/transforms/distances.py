"""Induction variable substitution: addresses that a counted loop moves by the same each time, from its counter.

    for (i = 0; i < n; ++i) { s += a[d]; d += m; }    becomes    for (i = 0; i < n; ++i) s += a[i * m];

What is carried only to be an index goes, and its loop carries one value less: analyses see the counter and a
coefficient. In nested loops the inner ones go first: what they add up to is a step of the outer one. Repeated addition
and a product wrap around alike.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ..ir.builder import Builder
from ..ir.effects import is_clock
from ..ir.ops import Apply, Block, Builtin, Constant, For, Function, Module, Offset, Op, Value
from ..ir.traverse import blocks, descend, operands, uses, walk, with_body
from ..ir.types import I64, U64, Scalar
from .dce import eliminate


def run(function: Function, module: Module) -> Function:
    body = _Distances(function.body).block(function.body)
    return function if body is function.body else with_body(function, eliminate(body))


class _Distances:
    def __init__(self, body: Block):
        self.used = uses(body)
        self.definition: dict[Value, Op] = {v: op for op in walk(body) for v in op.results}

    def block(self, block: Block) -> Block:
        ops: list[Op] = []
        for op in block.ops:
            rebuilt = descend(op, self.block)
            ops += self.for_(rebuilt) if isinstance(rebuilt, For) else [rebuilt]
        same = len(ops) == len(block.ops) and all(a is b for a, b in zip(ops, block.ops, strict=True))
        return block if same else Block(block.args, tuple(ops), block.results)

    def for_(self, loop: For) -> list[Op]:
        steps = _Steps(loop, self.definition)
        found = {k: by for k in range(len(loop.inits)) if (by := steps.of(k)) is not None}
        if not found:
            return [loop]
        b = Builder(loop.span)
        amounts = {k: self.amount(b, steps, k, by) for k, by in found.items()}
        self.definition |= {v: op for op in b.ops for v in op.results}
        body = self.body(loop, amounts)
        kept = [k for k in range(len(loop.inits)) if k not in found]
        inits, results = (tuple(values[k] for k in kept) for values in (loop.inits, loop.results))
        b.add(replace(loop, inits=inits, body=body, results=results))
        for k, amount in amounts.items():
            if self.used.get(loop.results[k]):
                self.moved(b, loop.inits[k], _count(b, loop), amount, loop.results[k])
        self.definition |= {v: op for op in b.ops for v in op.results}
        return b.ops

    def amount(self, b: Builder, steps: _Steps, k: int, terms: list[tuple[Value, int]]) -> Value:
        """What is added to value k in one iteration, computed in front of the loop."""
        total = b.constant(0, steps.loop.inits[k].type)
        for value, sign in terms:
            total = b.apply("add" if sign > 0 else "sub", total, steps.hoisted(b, value))
        return total

    def body(self, loop: For, amounts: dict[int, Value]) -> Block:
        b, body = Builder(loop.span), loop.body
        counter, low = b.convert(body.args[0], I64), b.convert(loop.lower, I64)
        number = b.apply("sub", *((counter, low) if loop.step > 0 else (low, counter)))
        if abs(loop.step) != 1:
            number = b.apply("div", number, b.constant(abs(loop.step), I64))
        for k, by in amounts.items():
            self.moved(b, loop.inits[k], number, by, body.args[1 + k])
        self.definition |= {v: op for op in b.ops for v in op.results}
        kept = [k for k in range(len(loop.inits)) if k not in amounts]
        args = (body.args[0], *(body.args[1 + k] for k in kept))
        return Block(args, (*b.ops, *body.ops), tuple(body.results[k] for k in kept))

    def moved(self, b: Builder, start: Value, times: Value, by: Value, result: Value) -> None:
        """`result` is what starts there, after so many iterations."""
        distance = b.apply("mul", b.convert(times, start.type), by)
        b.add(Apply("add", (start, distance), results=(result,), span=b.span))


def _count(b: Builder, loop: For) -> Value:
    """How often the loop runs. Ends of 64 bits without a sign may be more than a signed number."""
    low, high = b.convert(loop.lower, I64), b.convert(loop.upper, I64)
    first, last = (low, high) if loop.step > 0 else (high, low)
    nothing, distance = b.constant(0, I64), b.apply("sub", last, first)
    if loop.lower.type == U64:
        runs = b.apply("lt" if loop.step > 0 else "gt", loop.lower, loop.upper)
        distance = b.apply("select", runs, distance, nothing)
    else:
        distance = b.apply("max", distance, nothing)
    rounded = b.apply("add", distance, b.constant(abs(loop.step) - 1, I64))
    return b.apply("div", rounded, b.constant(abs(loop.step), I64))


class _Steps:
    """What a loop adds to what it carries."""

    def __init__(self, loop: For, definition: dict[Value, Op]):
        self.loop, self.definition = loop, definition
        inside = list(walk(loop.body))
        self.inside = {v for op in inside for v in op.results} | set(loop.body.args)
        self.inside |= {arg for op in inside for inner in blocks(op) for arg in inner.args}
        self.users: dict[Value, list[Op | None]] = {}
        for user, value in _uses(loop.body):
            self.users.setdefault(value, []).append(user)
        self.copies: dict[Value, Value] = {}

    def of(self, k: int) -> list[tuple[Value, int]] | None:
        """The terms that are added to value k in each iteration; None where that is not always the same, or where the
        value is used for more than addresses."""
        arg = self.loop.body.args[1 + k]
        if not isinstance(arg.type, Scalar) or arg.type.kind not in ("int", "uint") or arg.type.bits < 32:
            return None
        terms = self.terms(self.loop.body.results[k], 1)
        rest = [(v, sign) for v, sign in terms if v is not arg]
        if len(rest) != len(terms) - 1 or (arg, 1) not in terms or not all(self.is_invariant(v) for v, _ in rest):
            return None
        return rest if self.is_index(arg) else None

    def terms(self, value: Value, sign: int) -> list[tuple[Value, int]]:
        op = self.definition.get(value)
        if value in self.inside and isinstance(op, Apply) and op.fn in ("add", "sub"):
            left, right = op.args
            return [*self.terms(left, sign), *self.terms(right, sign if op.fn == "add" else -sign)]
        return [(value, sign)]

    def is_index(self, value: Value) -> bool:
        """Whether only addresses and the next value are computed from it."""
        for user in self.users.get(value, ()):
            match user:
                case None:
                    pass  # yielded: the next value, by `of`
                case Offset(ptr, _) if ptr is not value:
                    pass
                case Apply("add" | "sub") if self.is_index(user.result):
                    pass
                case _:
                    return False
        return True

    def is_invariant(self, value: Value) -> bool:
        if value not in self.inside:
            return True
        op = self.definition.get(value)
        return op is not None and self.is_movable(op) and all(map(self.is_invariant, operands(op)))

    def is_movable(self, op: Op) -> bool:
        """Whether it can be computed in front of the loop, also if that never runs."""
        match op:
            case Constant():
                return True
            case Builtin():
                return not is_clock(op)
            case Apply("div" | "rem", (_, by)):
                known = self.definition.get(by)
                return _is_integer(op) and isinstance(known, Constant) and known.value > 0
            case Apply():
                return _is_integer(op)
        return False

    def hoisted(self, b: Builder, value: Value) -> Value:
        """The value in front of the loop."""
        if value not in self.inside:
            return value
        if value not in self.copies:
            op = self.definition[value]
            copy = Value(value.type, value.name)
            mapped = replace(op, args=tuple(self.hoisted(b, v) for v in op.args)) if isinstance(op, Apply) else op
            b.add(replace(mapped, results=(copy,)))
            self.copies[value] = copy
        return self.copies[value]


def _is_integer(op: Apply) -> bool:
    return all(isinstance(v.type, Scalar) and not v.type.is_float for v in (*op.args, op.result))


def _uses(block: Block) -> Iterator[tuple[Op | None, Value]]:
    """Who uses which value; None for what the loop's own body yields."""
    for value in block.results:
        yield None, value
    for op in walk(block):
        for value in operands(op):
            yield op, value
        for inner in blocks(op):
            for value in inner.results:
                yield op, value
