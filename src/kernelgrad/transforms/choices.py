"""Choices between two floats, for `ties`: maxima, minima and their kind, and comparisons of two on which more hangs."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, replace

from ..ir.builder import Builder
from ..ir.ops import Apply, Atomic, Block, Constant, If, Op, Store, Value
from ..ir.traverse import blocks, operands, walk
from ..ir.types import Array, Scalar, Struct, Type, element_types

Compared = dict[frozenset[Value], dict[Op, Value]]

_CONVERSE = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}
_KINDS = {"gt": "max", "ge": "max", "lt": "min", "le": "min"}


@dataclass(frozen=True)
class Choice:
    """`kind` of two values; at a tie the result is `taken`."""

    op: Apply
    kind: str
    taken: Value
    left: Value

    @property
    def pair(self) -> frozenset[Value]:
        return frozenset((self.taken, self.left))

    def taking(self, value: Value) -> list[Op]:
        """The operation, made to take one of the two at ties."""
        if value is self.taken:
            return [self.op]
        if self.op.fn == self.kind:
            return [replace(self.op, args=(self.left, self.taken))]
        b, (cond, one, other) = Builder(self.op.span), self.op.args
        tied = b.apply("eq", one, other)
        cond = b.apply("or", cond, tied) if value is one else b.apply("and", cond, b.apply("not", tied))
        return [*b.ops, replace(self.op, args=(cond, one, other))]

    def ordered(self, b: Builder, takes: Value) -> list[Op]:
        """The operation, with `taken` at ties where `takes` holds."""
        if self.op.fn == self.kind:
            first = b.apply("select", takes, self.taken, self.left)
            second = b.apply("select", takes, self.left, self.taken)
            return [*b.ops, replace(self.op, args=(first, second))]
        _, one, other = self.op.args
        tied = b.apply("eq", one, other)
        cond = b.apply("select", tied, takes if self.taken is one else b.apply("not", takes), self.op.args[0])
        return [*b.ops, replace(self.op, args=(cond, one, other))]

    def halved(self) -> list[Op]:
        """The operation, with half of it from each at ties."""
        b, (one, other) = Builder(self.op.span), (self.taken, self.left)
        half, less = b.constant(0.5, one.type), b.constant(-0.5, one.type)
        both = b.apply("custom", b.apply("custom", one, one, less), other, half)
        result = replace(self.op, results=(Value(one.type, self.op.result.name),))
        b.add(result)
        args = (b.apply("eq", one, other), both, result.result)
        return [*b.ops, Apply("select", args, results=self.op.results, span=self.op.span)]


def find_choices(definition: dict[Value, Op]) -> Iterator[Choice]:
    for op in definition.values():
        match op:
            case Apply("max" | "min" as kind, (one, other)) if one is not other and is_float(one):
                yield Choice(op, kind, one, other)
            case Apply("select", (cond, one, other)) if one is not other and is_float(one):
                test = _comparison(cond, definition)
                if test is not None and set(test.args) == {one, other}:
                    fn = test.fn if test.args[0] is one else _CONVERSE[test.fn]
                    taken, left = (one, other) if fn in ("ge", "le") else (other, one)
                    yield Choice(op, _KINDS[fn], taken, left)


def _comparison(cond: Value, definition: dict[Value, Op]) -> Apply | None:
    """What a condition compares, but for NaN."""
    op = definition.get(cond)
    while isinstance(op, Apply) and op.fn == "or":
        sides = [side for side in op.args if not _asks_for_nan(definition.get(side))]
        op = definition.get(sides[0]) if len(sides) == 1 else None
    return op if isinstance(op, Apply) and op.fn in _KINDS and is_float(op.args[0]) else None


def _asks_for_nan(op: Op | None) -> bool:
    return isinstance(op, Apply) and (op.fn == "isnan" or (op.fn == "ne" and op.args[0] is op.args[1]))


def find_compared(body: Block, definition: dict[Value, Op], choices: Container[Op]) -> Compared:
    """Pairs of which a comparison decides more than the choice between them: what, and who is the larger by that at a
    tie."""
    found: Compared = {}
    for op in walk(body):
        if op in choices or not _decides(op):
            continue
        test = _comparison(op.cond if isinstance(op, If) else op.args[0], definition)  # type: ignore[attr-defined]
        if test is not None:
            one, other = test.args
            found.setdefault(frozenset(test.args), {})[op] = one if test.fn in ("ge", "lt") else other
    return found


def _decides(op: Op) -> bool:
    """Whether it has a condition, on which floats depend."""
    if isinstance(op, If):
        return any(_holds_floats(r.type) for r in op.results) or any(isinstance(o, Store | Atomic) for o in _inner(op))
    return isinstance(op, Apply) and op.fn == "select" and _holds_floats(op.result.type)


def find_distances(definition: dict[Value, Op], pairs: Container[frozenset[Value]]) -> dict[Op, tuple[Value, Value]]:
    """Absolute values of differences of the two of a pair, the one minus the other; zero is one of two, too."""
    zeros = [v for v, op in definition.items() if isinstance(op, Constant) and op.value == 0 and is_float(v)]
    found: dict[Op, tuple[Value, Value]] = {}
    for op in definition.values():
        if isinstance(op, Apply) and op.fn == "abs" and is_float(op.result):
            of = definition.get(op.args[0])
            if isinstance(of, Apply) and of.fn in ("sub", "sub_rn") and frozenset(of.args) in pairs:
                found[op] = of.args[0], of.args[1]
            ends = ((op.args[0], zero) for zero in zeros if frozenset((op.args[0], zero)) in pairs)
            found.update((op, end) for end in ends)
    return found


def depend_on(value: Value, ops: Iterable[Op], body: Block) -> bool:
    """Whether one of the operations takes something that is computed from a value."""
    reached, wanted = {value}, set(ops)
    for op in walk(body):
        taken = (
            *operands(op),
            *(v for o in _inner(op) for v in operands(o)),
            *(v for b in blocks(op) for v in b.results),
        )
        if not reached.isdisjoint(taken):
            reached.update(op.results)
            if op in wanted:
                return True
    return False


def _holds_floats(type: Type) -> bool:
    if isinstance(type, Struct | Array):
        return any(map(_holds_floats, element_types(type)))
    return isinstance(type, Scalar) and type.is_float


def _inner(op: Op) -> Iterator[Op]:
    return (o for block in blocks(op) for o in walk(block))


def is_float(value: Value) -> bool:
    return isinstance(value.type, Scalar) and value.type.is_float
