"""Note [Last taken]: of a running maximum, the reverse needs to know which iteration took it.

    m = max(m, s)   is, where j is the last iteration in which s was taken,   m = (this is j) ? s : m

To keep j takes one integer, where a tape has a bool, or both numbers, for each iteration. The same holds for any value
that a loop carries and replaces in some iterations. Ties go where they go in `calculus/rules`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ...errors import Span
from ...ir.builder import Builder
from ...ir.ops import Apply, Block, For, Function, Op, Value, While
from ...ir.traverse import descend, walk, with_body
from ...ir.types import I64, Scalar
from ..calculus.activity import Activity
from .forward_sweep import carried_args, carrying

_FIRST = {"max": "ge", "min": "le"}  # when the first argument is taken


@dataclass(frozen=True)
class Taken:
    """Carried value `index` is replaced by the outcome of `path`: one operation after the other, the last of which has
    the value itself as one argument."""

    index: int
    path: tuple[Apply, ...]


def find(loop: For | While, activity: Activity) -> list[Taken]:
    definition = {v: op for op in loop.body.ops for v in op.results}
    found = []
    for k, arg in enumerate(carried_args(loop)):
        if arg in activity and isinstance(arg.type, Scalar) and arg.type.is_float:
            path = _path(loop.body.results[k], arg, definition)
            if path:
                found.append(Taken(k, path))
    return found


def _path(value: Value, arg: Value, definition: dict[Value, Op]) -> tuple[Apply, ...]:
    """From what is carried on back to what was; empty where it is no choice between that and others."""
    op = definition.get(value)
    if not isinstance(op, Apply) or (op.fn not in _FIRST and not _chooses(op, arg, definition)):
        return ()
    sides = op.args if op.fn in _FIRST else op.args[1:]
    if arg in sides:
        return (op,) if sides.count(arg) == 1 else ()
    for side in sides if op.fn in _FIRST else ():
        rest = _path(side, arg, definition)
        if rest and all(other.fn == op.fn for other in rest):
            return (op, *rest)
    return ()


def _chooses(op: Apply, arg: Value, definition: dict[Value, Op]) -> bool:
    """Whether a select's condition compares the argument: others can be had again."""
    if op.fn != "select" or arg not in op.args[1:]:
        return False
    test = definition.get(op.args[0])
    return isinstance(test, Apply) and arg in test.args


def candidates(function: Function, spans: set[Span], activity: Activity) -> frozenset[Span]:
    loops = (op for op in walk(function.body) if isinstance(op, For | While) and op.span in spans)
    return frozenset(loop.span for loop in loops if find(loop, activity))


def run(function: Function, chosen: frozenset[Span], activity: Activity) -> Function:
    def block(b: Block) -> Block:
        ops: list[Op] = []
        for op in b.ops:
            op = descend(op, block)
            found = find(op, activity) if isinstance(op, For | While) and op.span in chosen else []
            ops += _Rewrite(op, found).ops() if isinstance(op, For | While) and found else [op]
        return Block(b.args, tuple(ops), b.results)

    return with_body(function, block(function.body))


class _Rewrite:
    """`last`: for each value, the number of the iteration that replaced it last, carried along."""

    def __init__(self, loop: For | While, found: list[Taken]):
        self.loop, self.found = loop, found
        self.last = [Value(I64, "~last") for _ in found]
        self.count = None if isinstance(loop, For) else Value(I64, "~iteration")

    def ops(self) -> list[Op]:
        loop, b = self.loop, Builder(self.loop.span)
        counts = () if self.count is None else (self.count,)
        none = b.constant(-1, I64) if not isinstance(loop, For) else self.before_first(b, loop)
        inits = (*(none for _ in self.found), *(b.constant(0, I64) for _ in counts))
        body = self.body()
        body = replace(body, args=(*loop.body.args, *self.last, *counts))
        b.add(carrying(loop, inits, body, tuple(Value(v.type, v.name) for v in (*self.last, *counts))))
        return b.ops

    def before_first(self, b: Builder, loop: For) -> Value:
        """A number that no iteration has."""
        return b.apply("sub", b.convert(loop.lower, I64), b.constant(loop.step, I64))

    def body(self) -> Block:
        body, b = self.loop.body, Builder(self.loop.span)
        number = b.convert(body.args[0], I64) if self.count is None else self.count
        following: list[Value] = []
        ends = {taken.path[0].result: k for k, taken in enumerate(self.found)}
        for op in body.ops:
            k = ends.get(op.results[0]) if op.results else None
            if k is None:
                b.add(op)
            else:
                following.append(self.chosen(b, k, number))
        order = sorted(range(len(self.found)), key=lambda k: body.ops.index(self.found[k].path[0]))
        moved = [following[order.index(k)] for k in range(len(self.found))]
        if self.count is not None:
            moved.append(b.apply("add", self.count, b.constant(1, I64)))
        return Block(body.args, tuple(b.ops), (*body.results, *moved))

    def chosen(self, b: Builder, k: int, number: Value) -> Value:
        """The value as it is, with the derivative of what was taken last; gives the number of that iteration."""
        taken, arg = self.found[k], carried_args(self.loop)[self.found[k].index]
        op = taken.path[0]
        b.span = op.span
        raw = b.add(replace(op, results=(Value(op.result.type, op.result.name),))).result
        other = self.others(b, taken.path, arg)
        last = b.apply("select", self.is_taken(b, taken.path, arg), number, self.last[k])
        here = b.apply("eq", number, b.apply("at_end", last, self.last[k]))
        derived = b.apply("select", here, other, arg)
        value = b.apply("detach", raw)
        b.add(Apply("along", (value, derived, b.constant(1.0, raw.type)), results=op.results, span=op.span))
        return last

    def others(self, b: Builder, path: tuple[Apply, ...], arg: Value) -> Value:
        """What is chosen of, without the value itself."""
        below: Value | None = None
        for op, through in reversed(list(zip(path, (*(p.result for p in path[1:]), arg), strict=True))):
            sides = op.args if op.fn in _FIRST else op.args[1:]
            rest = next(side for side in sides if side is not through)
            below = rest if below is None else b.apply(op.fn, *(below if side is through else side for side in sides))
        assert below is not None
        return below

    def is_taken(self, b: Builder, path: tuple[Apply, ...], arg: Value) -> Value:
        """Whether something else than the value itself was chosen."""
        return _any(
            b, (self._lost(b, op, side) for op, side in zip(path, (*(p.result for p in path[1:]), arg), strict=True))
        )

    def _lost(self, b: Builder, op: Apply, side: Value) -> Value:
        if op.fn == "select":
            return op.args[0] if op.args[2] is side else b.apply("not", op.args[0])
        first, second = op.args
        kept = b.apply("or", b.apply(_FIRST[op.fn], first, second), b.apply("isnan", second))
        return b.apply("not", kept) if first is side else kept


def _any(b: Builder, values: Iterator[Value]) -> Value:
    total = next(values)
    for value in values:
        total = b.apply("or", total, value)
    return total
