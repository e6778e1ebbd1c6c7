"""Where floats have a kink, for `ties`: choices between two, absolute values, and comparisons on which more hangs.

Each is told by a difference of two numbers (`analysis/linear_forms`): where that is zero there is a tie, and those that
have the same one, but for a factor, are at the same kink. At a tie, each is as on one *side* of it: where the sum that
is the key is positive (True), or where it is negative.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, replace

from ..analysis.linear_forms import Difference, Key, LinearForms
from ..ir.builder import Builder
from ..ir.ops import Apply, Atomic, Block, If, Op, Store, Value
from ..ir.traverse import blocks, operands, walk
from ..ir.types import Array, Scalar, Struct, Type, element_types

Compared = dict[Key, dict[Op, bool]]

_ORDERED = ("gt", "ge", "lt", "le")
_COMPARISONS = frozenset((*_ORDERED, "eq", "ne"))
_LOGIC = frozenset(("and", "or", "not"))


@dataclass(frozen=True)
class Test:
    """A comparison in a condition. `path`: the logic between them, from the condition on."""

    op: Apply
    path: tuple[Apply, ...] = ()

    @property
    def is_direct(self) -> bool:
        """Whether the condition holds rather where the comparison does."""
        return sum(op.fn == "not" for op in self.path) % 2 == 0

    def replaced(self, b: Builder, value: Value) -> Value:
        """The condition with something else in place of the comparison."""
        before = self.op.result
        for op in reversed(self.path):
            value = b.apply(op.fn, *(value if v is before else v for v in op.args))
            before = op.result
        return value


@dataclass(frozen=True)
class Choice:
    """`kind` of two values; at a tie the result is `taken`. `difference`: what is taken less what is left. `test`: what
    a `?:` goes by."""

    op: Apply
    kind: str
    taken: Value
    left: Value
    difference: Difference
    test: Test | None = None

    @property
    def key(self) -> Key:
        return self.difference.key

    def side(self, value: Value) -> bool:
        """On which side `value` is the one."""
        return (value is self.taken) == (self.difference.is_positive == (self.kind == "max"))

    def on(self, side: bool) -> list[Op]:
        """The operation, made to be as on one side at ties."""
        return self.taking(self.taken if self.side(self.taken) == side else self.left)

    def taking(self, value: Value) -> list[Op]:
        """The operation, made to take one of the two at ties."""
        if value is self.taken:
            return [self.op]
        if self.test is None:
            return [replace(self.op, args=(self.left, self.taken))]
        b, (_, one, other) = Builder(self.op.span), self.op.args
        test, tied = self.test.op.result, b.apply("eq", one, other)
        holds = (value is one) == self.test.is_direct
        test = b.apply("or", test, tied) if holds else b.apply("and", test, b.apply("not", tied))
        return self.tested(b, test)

    def ordered(self, b: Builder, takes: Value) -> list[Op]:
        """The operation, with `taken` at ties where `takes` holds."""
        if self.test is None:
            first = b.apply("select", takes, self.taken, self.left)
            second = b.apply("select", takes, self.left, self.taken)
            return [*b.ops, replace(self.op, args=(first, second))]
        _, one, other = self.op.args
        tied = b.apply("eq", one, other)
        holds = takes if (self.taken is one) == self.test.is_direct else b.apply("not", takes)
        return self.tested(b, b.apply("select", tied, holds, self.test.op.result))

    def tested(self, b: Builder, test: Value) -> list[Op]:
        """The `?:`, by another value in place of its comparison."""
        assert self.test is not None
        cond = self.test.replaced(b, test)
        return [*b.ops, replace(self.op, args=(cond, *self.op.args[1:]))]

    def halved(self) -> list[Op]:
        """The operation, with half of it from each at ties."""
        b, (one, other) = Builder(self.op.span), (self.taken, self.left)
        half, less = b.constant(0.5, one.type), b.constant(-0.5, one.type)
        both = b.apply("custom", b.apply("custom", one, one, less), other, half)
        result = replace(self.op, results=(Value(one.type, self.op.result.name),))
        b.add(result)
        args = (b.apply("eq", one, other), both, result.result)
        return [*b.ops, Apply("select", args, results=self.op.results, span=self.op.span)]


class Kinks:
    """Those of a function. `choices`; `bends`: absolute values and `fdim`, with their differences; `masked`: `(a > b) *
    (a - b)` and its kind; `compared`: of comparisons that decide more than a choice between the two, what, and on which
    side that is at a tie."""

    def __init__(self, body: Block):
        ops = list(walk(body))
        self.body, self.definition = body, {r: op for op in ops for r in op.results}
        self.forms = LinearForms(ops)
        applied = [op for op in ops if isinstance(op, Apply)]
        self.choices = {c.op: c for op in applied if (c := self._choice(op)) is not None}
        self.bends = {op: d for op in applied if (d := self._bend(op)) is not None}
        self.masked = {key for op in applied if (key := self._masked(op)) is not None}

    def compared(self) -> Compared:
        found: Compared = {}
        for op in walk(self.body):
            if op in self.choices or (cond := _decides(op)) is None:
                continue
            for test in self.tests(cond):
                difference = self.forms.difference(*test.op.args)
                if difference is None or test.op.fn not in _ORDERED or len(self._about(difference.key, cond)) > 1:
                    continue
                side = (test.op.fn in ("ge", "lt")) == difference.is_positive
                found.setdefault(difference.key, {})[op] = side
        return found

    def tests(self, cond: Value) -> Iterator[Test]:
        """The comparisons of floats that a condition is made of."""
        todo: list[tuple[Value, tuple[Apply, ...]]] = [(cond, ())]
        while todo:
            value, path = todo.pop()
            op = self.definition.get(value)
            if isinstance(op, Apply) and op.fn in _LOGIC:
                todo += [(v, (*path, op)) for v in op.args]
            elif isinstance(op, Apply) and op.fn in _COMPARISONS and is_float(op.args[0]):
                yield Test(op, path)

    def _choice(self, op: Apply) -> Choice | None:
        match op:
            case Apply("max" | "min" as kind, (one, other)) if is_float(one):
                difference = self.forms.difference(one, other)
                return None if difference is None else Choice(op, kind, one, other, difference)
            case Apply("select", (cond, one, other)) if is_float(one):
                difference = self.forms.difference(one, other)
                tests = [] if difference is None else self._about(difference.key, cond)
                if len(tests) == 1 and tests[0].op.fn in _ORDERED:
                    return self._selected(op, tests[0])
        return None

    def _about(self, key: Key, cond: Value) -> list[Test]:
        """The comparisons in a condition that are about one difference."""
        found = ((test, self.forms.difference(*test.op.args)) for test in self.tests(cond))
        return [test for test, difference in found if difference is not None and difference.key == key]

    def _selected(self, op: Apply, test: Test) -> Choice:
        _, one, other = op.args
        of_sides, of_test = self.forms.difference(one, other), self.forms.difference(*test.op.args)
        assert of_sides is not None and of_test is not None
        is_first = (test.op.fn in ("ge", "le")) == test.is_direct  # at a tie
        taken, left = (one, other) if is_first else (other, one)
        is_larger = (test.op.fn in ("gt", "ge")) == test.is_direct  # what is compared, where the first is chosen
        kind = "max" if is_larger == (of_sides.is_positive == of_test.is_positive) else "min"
        difference = self.forms.difference(taken, left)
        assert difference is not None
        return Choice(op, kind, taken, left, difference, test)

    def _bend(self, op: Apply) -> Difference | None:
        if op.fn == "abs" and is_float(op.result):
            return self.forms.itself(op.args[0])
        return self.forms.difference(*op.args) if op.fn == "fdim" else None

    def _masked(self, op: Apply) -> Key | None:
        """The kink of a product with a comparison, as a number, that is zero where what it multiplies is."""
        for mask, value in (op.args, op.args[::-1]) if op.fn in ("mul", "mul_rn") and is_float(op.result) else ():
            match self.definition.get(mask), self.forms.itself(value):
                case Apply("convert", (cond,)), Difference(key, _) if self._about(key, cond):
                    return key
        return None


def bent(op: Apply, is_up: bool) -> list[Op]:
    """An absolute value, or `fdim`, that has the slope of one side at its kink, and the same values."""
    if op.fn == "fdim" and not is_up:
        return [op]
    b = Builder(op.span)
    raw = replace(op, results=(Value(op.result.type, op.result.name),))
    b.add(raw)
    nothing = b.constant(0.0, op.result.type)
    one, other = op.args if op.fn == "fdim" else (op.args[0], nothing)
    slope = b.apply("select", b.apply("eq", one, other), b.constant(1.0 if is_up else -1.0, one.type), nothing)
    result = raw.result
    if op.fn == "fdim":
        result = b.apply("custom", result, other, b.apply("neg", slope))
    return [*b.ops, Apply("custom", (result, one, slope), results=op.results, span=op.span)]


def _decides(op: Op) -> Value | None:
    """The condition on which floats depend by way of an operation."""
    match op:
        case If(cond):
            stores = any(isinstance(o, Store | Atomic) for o in _inner(op))
            return cond if stores or any(_holds_floats(r.type) for r in op.results) else None
        case Apply("select", (cond, *_)) | Apply("convert", (cond,)) if _holds_floats(op.result.type):
            return cond
    return None


def depend_on(value: Value, ops: Container[Op], body: Block) -> bool:
    """Whether one of the operations takes something that is computed from a value."""
    reached = {value}
    for op in walk(body):
        taken = (
            *operands(op),
            *(v for o in _inner(op) for v in operands(o)),
            *(v for b in blocks(op) for v in b.results),
        )
        if not reached.isdisjoint(taken):
            reached.update(op.results)
            if op in ops:
                return True
    return False


def _holds_floats(type: Type) -> bool:
    if isinstance(type, Struct | Array):
        return any(map(_holds_floats, element_types(type)))
    return isinstance(type, Scalar) and type.is_float


def _inner(op: Op) -> Iterable[Op]:
    return (o for block in blocks(op) for o in walk(block))


def is_float(value: Value) -> bool:
    return isinstance(value.type, Scalar) and value.type.is_float
