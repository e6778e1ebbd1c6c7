"""Operations with, beside every active value, its derivatives by some numbers: forward mode for a few at once.

In what a derivative is held is left to an `Arithmetic`: a float, or a float and an exponent.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Protocol

from ...ir.builder import Builder
from ...ir.ops import Apply, Block, For, If, Op, Value, While
from ...ir.types import Type
from ..calculus.activity import Activity
from ..calculus.rules import Rule, rule_for

Slope = tuple[Value, ...]  # the parts of one derivative
Tangents = tuple[Slope | None, ...]  # by each of the numbers; None: zero


class Arithmetic(Protocol):
    """Derivatives as numbers. `times`: by partial k of an operation, None where that is zero. `finished`: the slope
    of an operation is complete."""

    def zero(self, b: Builder, type: Type) -> Slope: ...
    def times(self, b: Builder, slope: Slope, rule: Rule, k: int, op: Apply) -> Slope | None: ...
    def plus(self, b: Builder, left: Slope, right: Slope) -> Slope: ...
    def product(self, b: Builder, left: Slope, right: Slope) -> Slope: ...
    def finished(self, b: Builder, op: Apply, slope: Slope) -> None: ...
    def fresh(self, value: Value) -> Slope: ...


class Slopes:
    """Emits operations. Arithmetic and control flow alone may be active: what `carried_derivatives` takes. `seeds`: the
    derivatives of values that are there before."""

    def __init__(self, b: Builder, activity: Activity, arithmetic: Arithmetic, seeds: dict[Value, Tangents]):
        self.b, self.activity, self.arithmetic = b, activity, arithmetic
        self.tangents = dict(seeds)
        self.count = len(next(iter(seeds.values()))) if seeds else 0

    def op(self, op: Op) -> None:
        self.b.span = op.span
        match op:
            case If():
                self.if_(op)
            case For():
                self.for_(op)
            case While():
                self.while_(op)
            case Apply() if op.result in self.activity:
                self.b.add(op)
                self.tangents[op.result] = tuple(self.tangent(op, k) for k in range(self.count))
            case _:
                self.b.add(op)

    # ---- numbers

    def tangent(self, op: Apply, number: int) -> Slope | None:
        if op.fn == "select":
            return self.chosen(op, number)
        rule = rule_for(op.fn)
        assert rule is not None
        total: Slope | None = None
        for k, arg in enumerate(op.args):
            inner = self.known(arg, number)
            term = None if inner is None else self.arithmetic.times(self.b, inner, rule, k, op)
            if term is not None:
                total = term if total is None else self.arithmetic.plus(self.b, total, term)
        if total is not None:
            self.arithmetic.finished(self.b, op, total)
        return total

    def chosen(self, op: Apply, number: int) -> Slope | None:
        cond, *sides = op.args
        if all(self.known(v, number) is None for v in sides):
            return None
        parts = zip(*(self.full(v, number) for v in sides), strict=True)
        return tuple(self.b.apply("select", cond, *both) for both in parts)

    def known(self, value: Value, number: int) -> Slope | None:
        return self.tangents[value][number] if value in self.tangents else None

    def full(self, value: Value, number: int) -> Slope:
        found = self.known(value, number)
        return self.arithmetic.zero(self.b, value.type) if found is None else found

    def all_of(self, values: Iterable[Value]) -> tuple[Value, ...]:
        return tuple(part for v in values for k in range(self.count) for part in self.full(v, k))

    def twins(self, values: Iterable[Value]) -> tuple[Value, ...]:
        """Fresh values to be the derivatives of what control flow defines."""
        found: list[Value] = []
        for value in values:
            own = tuple(self.arithmetic.fresh(value) for _ in range(self.count))
            self.tangents[value] = own
            found += [part for slope in own for part in slope]
        return tuple(found)

    # ---- control

    def block(self, block: Block, wanted: Sequence[int], args: tuple[Value, ...] = ()) -> Block:
        with self.b.region() as region:
            for op in block.ops:
                self.op(op)
            extra = self.all_of(block.results[k] for k in wanted)
        return region.block((*block.args, *args), (*block.results, *extra))

    def if_(self, op: If) -> None:
        wanted = [k for k, r in enumerate(op.results) if r in self.activity]
        then, orelse = self.block(op.then, wanted), self.block(op.orelse, wanted)
        results = (*op.results, *self.twins(op.results[k] for k in wanted))
        self.b.add(replace(op, then=then, orelse=orelse, results=results))

    def for_(self, op: For) -> None:
        wanted = carried(op, self.activity)
        inits = self.all_of(op.inits[k] for k in wanted)
        body = self.block(op.body, wanted, self.twins(op.body.args[1 + k] for k in wanted))
        self.b.add(carrying(op, inits, body, self.twins(op.results[k] for k in wanted)))

    def while_(self, op: While) -> None:
        wanted = carried(op, self.activity)
        inits = self.all_of(op.inits[k] for k in wanted)
        body = self.block(op.body, wanted, self.twins(op.body.args[k] for k in wanted))
        self.b.add(carrying(op, inits, body, self.twins(op.results[k] for k in wanted)))


def carried_args(loop: For | While) -> tuple[Value, ...]:
    """What a loop carries, as its body has it: in the order of what it starts from, yields and results in."""
    return loop.body.args[1:] if isinstance(loop, For) else loop.body.args


def carried(loop: For | While, activity: Activity) -> list[int]:
    """Which of the values that a loop carries are active."""
    return [k for k, arg in enumerate(carried_args(loop)) if arg in activity or loop.results[k] in activity]


def carrying(loop: For | While, inits: tuple[Value, ...], body: Block, results: tuple[Value, ...]) -> Op:
    """The loop with more values that it carries. While loops are rotated: their test is the first value they carry."""
    inits, results = (*loop.inits, *inits), (*loop.results, *results)
    if isinstance(loop, For):
        return replace(loop, inits=inits, body=body, results=results)
    passed = tuple(Value(v.type, v.name) for v in body.args)
    before = Block(passed, (), (passed[0], *passed))
    return replace(loop, inits=inits, before=before, body=body, results=results)
