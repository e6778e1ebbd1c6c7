"""Note [Last taken]: of a running maximum, the reverse needs to know which iteration took it.

    m = max(m, s)   is, where j is the last iteration in which s was taken,   m = (this is j) ? s : m

To keep j takes one integer, where a tape has a bool, or both numbers, for each iteration. The same holds for any value
that a loop carries and replaces in some iterations, if nothing else that has a derivative is computed from it on the
way: else its adjoints belong to who was taken then. Ties go where they go in `calculus/rules`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...errors import Span
from ...ir.builder import Builder
from ...ir.ops import Apply, Block, For, Function, If, Op, Value, While
from ...ir.traverse import blocks, descend, operands, walk, with_body, with_ops
from ...ir.types import BOOL, I64, Scalar
from ..calculus.activity import Activity
from .forward_sweep import carried, carried_args, carrying

_FIRST = {"max": "ge", "min": "le"}  # when the first argument is taken


@dataclass(frozen=True)
class Taken:
    """Carried value `index` is replaced in some iterations: `following` chooses between it and others. `own`: the
    value, and what it becomes on the way."""

    index: int
    following: Op
    own: frozenset[Value]


def find(loop: For | While, activity: Activity) -> list[Taken]:
    definition = {v: op for op in walk(loop.body) for v in op.results}
    found = []
    for k, arg in enumerate(carried_args(loop)):
        following = loop.body.results[k]
        if arg not in activity or following is arg or not _is_float(arg) or following not in definition:
            continue
        own = {arg}
        if _leads(following, arg, definition, own) and not _is_used(loop, k, own, activity):
            found.append(Taken(k, definition[following], frozenset(own)))
    return found


def _is_float(value: Value) -> bool:
    return isinstance(value.type, Scalar) and value.type.is_float


def _leads(value: Value, arg: Value, definition: dict[Value, Op], own: set[Value]) -> bool:
    """Whether a value is chosen between the argument, as it is, and others; `own` gets what it is on the way."""
    if value is arg:
        return True
    op = definition.get(value)
    if isinstance(op, If):
        ends = [(side, side.results[op.results.index(value)]) for side in (op.then, op.orelse)]
        found = [_is_told(end, side, definition) and _leads(end, arg, definition, own) for side, end in ends]
    elif isinstance(op, Apply) and op.fn in _FIRST:
        found = [_leads(side, arg, definition, own) for side in op.args]
        if all(found) or not all(_is_same(definition, side, op, arg) for side in op.args if side in own):
            return False
    elif isinstance(op, Apply) and op.fn == "select" and arg in op.args[1:]:
        test = definition.get(op.args[0])
        found = [isinstance(test, Apply) and arg in test.args]  # others can be had again
    else:
        return False
    if any(found):
        own.add(value)
    return any(found)


def _is_told(value: Value, side: Block, definition: dict[Value, Op]) -> bool:
    """Whether a side of a branch can say what it took: what a branch before it took, is not had there."""
    op = definition.get(value)
    return not isinstance(op, If) or op in side.ops


def _is_same(definition: dict[Value, Op], side: Value, op: Apply, arg: Value) -> bool:
    """Whether one after the other is a maximum, or a minimum: of all of them, then."""
    below = definition.get(side)
    return side is arg or (isinstance(below, Apply) and below.fn == op.fn)


def _is_used(loop: For | While, k: int, own: set[Value], activity: Activity) -> bool:
    """Whether something that has a derivative is computed from the value on the way."""
    if any(loop.body.results[other] in own for other in carried(loop, activity) if other != k):
        return True
    for op in walk(loop.body):
        if isinstance(op, If):
            pairs = zip(op.results, op.then.results, op.orelse.results, strict=True)
            used = any(not own.isdisjoint(sides) and r in activity and r not in own for r, *sides in pairs)
        elif own.isdisjoint((*operands(op), *(v for inner in blocks(op) for v in inner.results))):
            used = False
        else:
            used = not isinstance(op, Apply) or (op.result in activity and op.result not in own)
        if used:
            return True
    return False


def run(function: Function, chosen: set[Span], activity: Activity) -> Function:
    """For the loops at the chosen places."""

    def block(b: Block) -> Block:
        ops: list[Op] = []
        for op in b.ops:
            op = descend(op, block)
            found = find(op, activity) if isinstance(op, For | While) and op.span in chosen else []
            ops += _Rewrite(op, found).ops() if isinstance(op, For | While) and found else [op]
        return with_ops(b, ops)

    return with_body(function, block(function.body))


class _Rewrite:
    """`last`: for each value, the number of the iteration that replaced it last, carried along."""

    def __init__(self, loop: For | While, found: list[Taken]):
        self.loop, self.found = loop, found
        type = loop.lower.type if isinstance(loop, For) else I64
        self.last = [Value(type, "~last") for _ in found]
        self.count = None if isinstance(loop, For) else Value(I64, "~iteration")
        self.definition = {v: op for op in walk(loop.body) for v in op.results}

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
        return b.apply("sub", loop.lower, b.constant(loop.step, loop.lower.type))

    def body(self) -> Block:
        body, b = self.loop.body, Builder(self.loop.span)
        number = body.args[0] if self.count is None else self.count
        following: dict[int, Value] = {}
        for op in body.ops:
            chosen = [k for k, taken in enumerate(self.found) if taken.following is op]
            if not chosen:
                b.add(op)
                continue
            b.span = op.span
            self.chosen(b, op, chosen, number, following)
        moved = [following[k] for k in range(len(self.found))]
        if self.count is not None:
            moved.append(b.apply("add", self.count, b.constant(1, I64)))
        return Block(body.args, tuple(b.ops), (*body.results, *moved))

    def chosen(self, b: Builder, op: Op, chosen: list[int], number: Value, following: dict[int, Value]) -> None:
        """The values as they are, with the derivatives of what was taken last; `following` gets when that was."""
        args = {k: carried_args(self.loop)[self.found[k].index] for k in chosen}
        ends = {k: self.loop.body.results[self.found[k].index] for k in chosen}
        raw = {k: Value(end.type, end.name) for k, end in ends.items()}
        renamed = {end: raw[k] for k, end in ends.items()}
        op = replace(op, results=tuple(renamed.get(v, v) for v in op.results))
        outside = {k: self.outside(op, op.results.index(raw[k]), args[k]) for k in chosen}
        told = [k for k in chosen if isinstance(op, If) and outside[k] is None]
        for k in told:  # branches say what they took, too
            assert isinstance(op, If)
            op = self.telling(op, op.results.index(raw[k]), args[k])
        b.add(op)
        for k in chosen:
            if isinstance(op, If) and (found := outside[k]) is not None:
                other, of_then = found
                taken = op.cond if of_then else b.apply("not", op.cond)
            elif isinstance(op, If):
                extra = len(op.results) - 2 * (len(told) - told.index(k))
                taken, other = op.results[extra : extra + 2]
            else:
                taken, other = self.choice(b, op, args[k])
            last = b.apply("select", taken, number, self.last[k])
            here = b.apply("eq", number, b.apply("at_end", last, self.last[k]))
            derived = b.apply("select", here, other, args[k])
            value, one = b.apply("detach", raw[k]), b.constant(1.0, raw[k].type)
            b.add(Apply("along", (value, derived, one), results=(ends[k],), span=op.span))
            following[k] = last

    # ---- what was taken, and whether

    def outside(self, op: Op, at: int, arg: Value) -> tuple[Value, bool] | None:
        """What a branch takes in one side, and leaves in the other, where that is there before it; and in which. The
        reverse then need not know which way the branch went."""
        if not isinstance(op, If):
            return None
        sides = (op.then, op.orelse)
        for side, other in (sides, sides[::-1]):
            value, made = side.results[at], {v for inner in walk(side) for v in inner.results}
            named = self.definition.get(value)
            if (
                value in made
                and isinstance(named, Apply)
                and named.fn == "convert"
                and named.args[0].type == value.type
            ):
                value = named.args[0]
            if other.results[at] is arg and value is not arg and value not in made:
                return value, side is op.then
        return None

    def telling(self, op: If, at: int, arg: Value) -> If:
        """The branch with two more results: whether it replaced value `at`, and by what."""
        sides = []
        for side in (op.then, op.orelse):
            b = Builder(op.span)
            taken, other = self.taken(b, side.results[at], arg, list(side.ops))
            sides.append(Block(side.args, tuple(b.ops), (*side.results, taken, other)))
        told = (Value(BOOL, "~taken"), Value(arg.type, arg.name))
        return replace(op, then=sides[0], orelse=sides[1], results=(*op.results, *told))

    def taken(self, b: Builder, value: Value, arg: Value, ops: list[Op]) -> tuple[Value, Value]:
        """Of a value at the end of a side, whose operations go in first."""
        source = self.definition.get(value)
        told: If | None = None
        for op in ops:
            if isinstance(op, If) and value in op.results and _leads(value, arg, self.definition, set()):
                told = self.telling(op, op.results.index(value), arg)
                b.add(told)
            else:
                b.add(op)
        if told is not None:
            return told.results[-2], told.results[-1]
        if value is arg:
            return b.constant(False, BOOL), b.constant(0.0, arg.type)
        if isinstance(source, Apply) and _leads(value, arg, self.definition, set()):
            return self.choice(b, source, arg)
        return b.constant(True, BOOL), value

    def choice(self, b: Builder, op: Op, arg: Value) -> tuple[Value, Value]:
        """Whether something else than the argument was chosen by an operation, and what of all else would be."""
        assert isinstance(op, Apply)
        if op.fn == "select":
            cond, first, second = op.args
            return (cond, first) if second is arg else (b.apply("not", cond), second)
        below = next(side for side in op.args if _leads(side, arg, self.definition, set()))
        lost = self.lost(b, op, below)
        rest = next(side for side in op.args if side is not below)
        if below is arg:
            return lost, rest
        taken, other = self.choice(b, self.definition[below], arg)
        sides = (other if side is below else side for side in op.args)
        return b.apply("or", lost, taken), b.apply(op.fn, *sides)

    def lost(self, b: Builder, op: Apply, side: Value) -> Value:
        """Whether a maximum or minimum took the other side, as in `calculus/rules`."""
        first, second = op.args
        kept = b.apply("or", b.apply(_FIRST[op.fn], first, second), b.apply("isnan", second))
        return b.apply("not", kept) if first is side else kept
