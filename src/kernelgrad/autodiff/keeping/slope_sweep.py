"""Operations with, beside every active value, its derivatives by some numbers: forward mode for a few at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from ...ir.builder import Builder
from ...ir.ops import Apply, Block, For, If, Op, Value, While
from ..activity import Activity
from ..rules import rule_for, scaled

Tangents = tuple[Value | None, ...]  # by each of the numbers; None: zero


class Slopes:
    """Emits operations. Arithmetic and control flow alone may be active: what `along` takes."""

    def __init__(self, b: Builder, activity: Activity, numbers: Sequence[Value]):
        self.b, self.activity, self.count = b, activity, len(numbers)
        one = range(self.count)
        self.tangents: dict[Value, Tangents] = {
            x: tuple(b.constant(1.0, x.type) if j == k else None for j in one) for k, x in enumerate(numbers)
        }

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

    def tangent(self, op: Apply, number: int) -> Value | None:
        if op.fn == "select":
            cond, *sides = op.args
            if all(self.known(v, number) is None for v in sides):
                return None
            return self.b.apply("select", cond, *(self.full(v, number) for v in sides))
        rule = rule_for(op.fn)
        assert rule is not None
        total: Value | None = None
        for k, arg in enumerate(op.args):
            inner = self.known(arg, number)
            term = None if inner is None else scaled(self.b, inner, rule, k, op.result, op.args)
            if term is not None:
                term = self.b.convert(term, op.result.type)
                total = term if total is None else self.b.apply("add", total, term)
        return total

    def known(self, value: Value, number: int) -> Value | None:
        return self.tangents[value][number] if value in self.tangents else None

    def full(self, value: Value, number: int) -> Value:
        found = self.known(value, number)
        return self.b.constant(0.0, value.type) if found is None else found

    def all_of(self, values: Iterable[Value]) -> tuple[Value, ...]:
        return tuple(self.full(v, k) for v in values for k in range(self.count))

    def twins(self, values: Iterable[Value]) -> tuple[Value, ...]:
        """Fresh values to be the derivatives of what control flow defines."""
        found: list[Value] = []
        for value in values:
            own = tuple(Value(value.type, value.name and f"{value.name}_slope") for _ in range(self.count))
            self.tangents[value] = own
            found += own
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
        carried = op.body.args[1:]
        wanted = self.carried(op, carried)
        inits = (*op.inits, *self.all_of(op.inits[k] for k in wanted))
        body = self.block(op.body, wanted, self.twins(carried[k] for k in wanted))
        results = (*op.results, *self.twins(op.results[k] for k in wanted))
        self.b.add(replace(op, inits=inits, body=body, results=results))

    def while_(self, op: While) -> None:
        """Rotated: its test is the first value it carries."""
        wanted = self.carried(op, op.body.args)
        inits = (*op.inits, *self.all_of(op.inits[k] for k in wanted))
        body = self.block(op.body, wanted, self.twins(op.body.args[k] for k in wanted))
        passed = tuple(Value(v.type, v.name) for v in body.args)
        results = (*op.results, *self.twins(op.results[k] for k in wanted))
        before = Block(passed, (), (passed[0], *passed))
        self.b.add(replace(op, inits=inits, before=before, body=body, results=results))

    def carried(self, op: For | While, args: Sequence[Value]) -> list[int]:
        return [k for k, arg in enumerate(args) if arg in self.activity or op.results[k] in self.activity]
