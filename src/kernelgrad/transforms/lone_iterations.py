"""Loops of which one iteration does something, without the loop.

    for (k ...) { is_last = k == last;  _d_x[k] += is_last ? _d_top : -0;  _d_top = is_last ? -0 : _d_top; }

is the reverse of a running maximum: all others add nothing to what they read, and hand on what they got. What is left
is the iteration `last`, if there is one. Where the test is of `a + step * k`, in fewer bits, the loop's own bounds must
show that none of its values comes round: then one k at most is left, and in that one the test is made again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from ..ir.builder import Builder
from ..ir.effects import is_pure
from ..ir.ops import Apply, Atomic, Block, Constant, For, Function, If, Load, Module, Op, Store, Value
from ..ir.traverse import blocks, descend, substitute, uses, walk, with_body, with_ops
from ..ir.types import BOOL, I64, Pointer, Scalar
from . import simplify

_FEW = 8  # iterations: so few are not worth a division


def run(function: Function, module: Module) -> Function:
    definition = {v: op for op in walk(function.body) for v in op.results}
    body = _block(function.body, definition, uses(function.body))
    return function if body is function.body else simplify.run(with_body(function, body), module)


def _block(block: Block, definition: dict[Value, Op], used: dict[Value, int]) -> Block:
    ops: list[Op] = []
    for op in block.ops:
        op = descend(op, lambda inner: _block(inner, definition, used))
        found = _Loop(op, definition, used).lone() if isinstance(op, For) else None
        ops += [op] if found is None else found
    return with_ops(block, ops)


@dataclass
class _Linear:
    """A constant, and multiples of values, as numbers that do not wrap."""

    const: int = 0
    terms: dict[Value, int] = field(default_factory=dict)

    def plus(self, other: _Linear, times: int = 1) -> _Linear:
        terms = dict(self.terms)
        for value, factor in other.terms.items():
            terms[value] = terms.get(value, 0) + factor * times
        return _Linear(self.const + other.const * times, {v: n for v, n in terms.items() if n})


class _Loop:
    def __init__(self, loop: For, definition: dict[Value, Op], used: dict[Value, int]):
        self.loop, self.definition, self.used = loop, definition, used
        self.inside = {v: op for op in loop.body.ops for v in op.results}

    def lone(self) -> list[Op] | None:
        """What stands for the loop, if one iteration does all that there is to do."""
        loop = self.loop
        if abs(loop.step) != 1 or loop.unroll == 0 or self.is_short():
            return None
        for op in loop.body.ops:
            if isinstance(op, Apply) and op.fn == "eq" and self.is_idle_but(op.result):
                for value, wanted in (op.args, op.args[::-1]):
                    b = Builder(loop.span)
                    if not self.varies(wanted) and (k := self.solved(b, value, wanted)) is not None:
                        return self.emitted(b, k, {op.result: b.constant(True, BOOL)} if k is wanted else {})
        return None

    def is_short(self) -> bool:
        ends = [self.definition.get(v) for v in (self.loop.lower, self.loop.upper)]
        numbers = [int(op.value) for op in ends if isinstance(op, Constant)]
        return len(numbers) == 2 and abs(numbers[0] - numbers[1]) <= _FEW

    def varies(self, value: Value) -> bool:
        return value in self.inside or value in self.loop.body.args

    # ---- whether nothing happens

    def is_idle_but(self, when: Value) -> bool:
        """Whether an iteration does nothing unless a test holds."""
        body, carried = self.loop.body, self.loop.body.args[1:]
        handed = all(self.is_same(v, arg, when) for v, arg in zip(body.results, carried, strict=True))
        effects = [op for op in body.ops if not is_pure(op) and not isinstance(op, Load)]
        reads = all(not op.volatile for op in body.ops if isinstance(op, Load))
        return handed and reads and bool(effects) and all(self.is_nothing(op, when) for op in effects)

    def is_same(self, value: Value, arg: Value, when: Value) -> bool:
        """Whether a value is the argument, unless the test holds."""
        if value is arg:
            return True
        op = self.inside.get(value)
        match op:
            case Apply("select", (test, _, other)) if test is when:
                return self.is_same(other, arg, when)
            case Apply("add", (left, right)):
                return any(self.is_same(a, arg, when) and self.is_no_number(b, when) for a, b in _both(left, right))
            case If(test, _, orelse) if test is when:
                return self.is_same(orelse.results[op.results.index(value)], arg, when)
        return False

    def is_no_number(self, value: Value, when: Value) -> bool:
        """Whether it is what added to any number leaves it as it is, unless the test holds."""
        op = self.inside.get(value, self.definition.get(value))
        match op:
            case Constant(number):
                return isinstance(number, float) and number == 0.0 and math.copysign(1.0, number) < 0
            case Apply("select", (test, _, other)) if test is when:
                return self.is_no_number(other, when)
            case If(test, _, orelse) if test is when:
                return self.is_no_number(orelse.results[op.results.index(value)], when)
        return False

    def is_nothing(self, op: Op, when: Value) -> bool:
        match op:
            case Store(ptr, value, volatile=False):
                return self.is_memory(ptr) and self.is_kept(ptr, value, when)
            case Atomic("add", ptr, (value,)):
                return self.is_memory(ptr) and self.is_no_number(value, when) and not self.used.get(op.result)
            case If(test, _, orelse, exits=False) if test is when:
                inner = [o for b in blocks(op) for o in walk(b)]
                quiet = all(is_pure(o) for o in orelse.ops)
                return quiet and all(is_pure(o) or isinstance(o, Load | Store | Atomic) for o in inner)
        return False

    def is_memory(self, ptr: Value) -> bool:
        """Not a thread's own, which may be registers."""
        return isinstance(ptr.type, Pointer) and ptr.type.space in ("global", "shared")

    def is_kept(self, ptr: Value, value: Value, when: Value) -> bool:
        """Whether what is stored is what was there. Between the two nothing else happens."""
        op = self.inside.get(value)
        if not isinstance(op, Apply) or op.fn != "add":
            return False
        for old, more in _both(*op.args):
            read = self.inside.get(old)
            if isinstance(read, Load) and read.ptr is ptr and self.is_no_number(more, when):
                return True
        return False

    # ---- which iteration it is

    def solved(self, b: Builder, value: Value, wanted: Value) -> Value | None:
        """The only k for which a value may be what is wanted."""
        counter = self.loop.body.args[0]
        if value is counter:
            return wanted
        sum_ = self.linear(value)
        step = 0 if sum_ is None else sum_.terms.get(counter, 0)
        if sum_ is None or step < 1 or counter.type != I64 or not isinstance(wanted.type, Scalar):
            return None
        start = _Linear(sum_.const, {v: n for v, n in sum_.terms.items() if v is not counter})
        if any(self.varies(v) for v in start.terms) or not self.fits(start, step, value.type):
            return None
        apart = b.convert(wanted, I64)
        for term, factor in start.terms.items():
            product = b.apply("mul", b.convert(term, I64), b.constant(factor, I64))
            apart = b.apply("sub", apart, product)
        apart = b.apply("sub", apart, b.constant(start.const, I64))
        return b.apply("div", apart, b.constant(step, I64))

    def linear(self, value: Value) -> _Linear | None:
        """What an integer is the wrapped form of."""
        op = self.definition.get(value)
        match op:
            case Constant(number) if isinstance(number, int):
                return _Linear(number)
            case Apply("add" | "sub" as fn, (left, right)) if value.type == I64:
                parts = self.linear(left), self.linear(right)
                if parts[0] is not None and parts[1] is not None:
                    return parts[0].plus(parts[1], 1 if fn == "add" else -1)
            case Apply("mul", (left, right)) if value.type == I64:
                for a, factor in _both(left, right):
                    by, of = self.definition.get(factor), self.linear(a)
                    if isinstance(by, Constant) and of is not None:
                        return _Linear().plus(of, int(by.value))
            case Apply("convert", (inner,)) if _is_integer(inner) and _is_integer(value):
                if inner.type == I64:
                    return self.linear(inner)
                return _Linear(0, {inner: 1}) if value.type == I64 and _is_narrow(inner) else None
        return _Linear(0, {value: 1}) if _is_integer(value) else None

    def fits(self, start: _Linear, step: int, type: object) -> bool:
        """Whether `start + step * k` is a number of a type for all k of the loop, from 0 on: by a bound that is

        k < max(end - start + rest, 0) / step   with a number `end` of the type, and rest < step."""
        loop = self.loop
        below, last = (loop.lower, loop.upper) if loop.step > 0 else (loop.upper, loop.lower)
        least, top = self.linear(below), self.linear(last)
        if least is None or least.terms or top is None or len(top.terms) != 1 or list(top.terms.values()) != [1]:
            return False
        if least.const != (0 if loop.step > 0 else -1) or top.const > (0 if loop.step > 0 else -1):
            return False
        (count,) = top.terms
        distance = self.distance(count, step)
        if distance is None or len(start.terms) != 1 or start.const != 0:
            return False
        ((first, factor),) = start.terms.items()
        end = distance.plus(start)
        if factor != 1 or len(end.terms) != 1 or list(end.terms.values()) != [1]:
            return False
        numbers = (first, next(iter(end.terms)))
        return end.const < step and all(v.type == type and _is_narrow(v) for v in numbers)

    def distance(self, count: Value, step: int) -> _Linear | None:
        """Of `max(distance, 0) / step`."""
        op = self.definition.get(count)
        if not isinstance(op, Apply) or op.fn != "div":
            return None
        of, by = (self.definition.get(v) for v in op.args)
        if not isinstance(by, Constant) or by.value != step or not isinstance(of, Apply) or of.fn != "max":
            return None
        for value, other in _both(*of.args):
            least = self.definition.get(other)
            if isinstance(least, Constant) and least.value == 0:
                return self.linear(value)
        return None

    # ---- the code

    def emitted(self, b: Builder, k: Value, known: dict[Value, Value]) -> list[Op]:
        loop = self.loop
        low, high = ("ge", "lt") if loop.step > 0 else ("le", "gt")
        there = b.apply("and", b.apply(low, k, loop.lower), b.apply(high, k, loop.upper))
        given = {**dict(zip(loop.body.args, (k, *loop.inits), strict=True)), **known}
        then = substitute(Block((), loop.body.ops, loop.body.results), given)
        return [*b.ops, If(there, then, Block((), (), loop.inits), results=loop.results, span=loop.span)]


def _both(left: Value, right: Value) -> tuple[tuple[Value, Value], tuple[Value, Value]]:
    return (left, right), (right, left)


def _is_narrow(value: Value) -> bool:
    """Whether 64 bits hold sums of such numbers."""
    return _is_integer(value) and value.type.size < I64.size


def _is_integer(value: Value) -> bool:
    return isinstance(value.type, Scalar) and not value.type.is_float and value.type.kind != "bool"
