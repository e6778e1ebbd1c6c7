"""Loops that share out work among threads, `for (i = threadIdx.x; i < n; i += blockDim.x)`, are run by all threads in
step: one trip of the block after another, instead of one thread's trips after another's.

Neighbouring threads touch neighbouring memory, so this is the order that caches and vector units want. For threads in
step the counter is `start + offset`, where the start is the thread's own and the offset is the same for all: `run`
rewrites such loops so that the offset is what they carry.

The reverse of such a loop counts down, `for (k = trips - 1; k >= 0; --k)`, and may begin at another trip in each
thread. In step, the block begins at the last trip that any thread has, and each thread joins in where its own ones
begin (see `structure`).
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, replace

from ...analysis.uniform import uniform_values
from ...ir.builder import Builder
from ...ir.effects import MEETINGS
from ...ir.ops import Apply, Block, Builtin, Constant, For, Function, If, Leave, Op, Value, While
from ...ir.traverse import blocks, descend, operands, substitute, uses, walk, with_body
from ...ir.types import Scalar, Type

_STARTING = frozenset(("add", "sub", "mul", "convert", "shl"))
_COUNTING = _STARTING | {"div", "shr", "min", "max"}
_MOST_MADE_OF = 16


def run(function: Function) -> tuple[Function, frozenset[Op]]:
    """The function with such loops rewritten, and those loops."""
    pass_ = _Strides(function)
    body = pass_.block(function.body)
    return with_body(function, body), frozenset(pass_.loops)


@dataclass(frozen=True)
class _Counter:
    """A carried value that grows by the same step for all threads: its place among the loop's arguments and among the
    forwarded values, where it starts, and in which type it is added to."""

    place: int
    forwarded: int
    start: Value
    step: Value
    type: Scalar


class _Strides:
    def __init__(self, function: Function):
        self.uniform = uniform_values(function)
        self.definitions = {v: op for op in walk(function.body) for v in op.results}
        self.uses = uses(function.body)
        self.loops: list[Op] = []
        self.trips = set[Value]()  # what such loops count

    def block(self, block: Block) -> Block:
        builder = Builder()
        for op in block.ops:
            builder.span = op.span
            self.op(op, builder)
        return Block(block.args, tuple(builder.ops), block.results)

    def op(self, op: Op, builder: Builder) -> None:
        if isinstance(op, For) and self.shares_work(op.lower):
            op = self.as_while(op, builder)
        if isinstance(op, For) and self.is_reverse(op):
            self.loops.append(op)
            builder.add(op)
            return
        if isinstance(op, While):
            counter = self.find_counter(op)
            if counter is not None:
                self.rewrite(op, counter, builder)
                return
        # A loop whose trips differ between threads is not run in step, and so nothing in it can be.
        if isinstance(op, If) or self.is_uniform_loop(op):
            op = descend(op, self.block)
        builder.add(op)

    def is_uniform_loop(self, op: Op) -> bool:
        match op:
            case For(lower, upper):
                return lower in self.uniform and upper in self.uniform
            case While(_, before):
                return before.results[0] in self.uniform
        return False

    def is_reverse(self, op: For) -> bool:
        """Whether it goes back through the trips of a loop that shares out work, down to the first one."""
        type = op.lower.type
        if op.step != -1 or op.upper not in self.uniform or not (isinstance(type, Scalar) and type.is_signed):
            return False
        return self.is_made_of(op.lower, _COUNTING, self.trips) and not any(map(_parts_threads, walk(op.body)))

    def shares_work(self, start: Value) -> bool:
        """Whether the start is made of threadIdx.x and launch numbers alone, so that it is cheap to compute again."""
        return self.is_made_of(start, _STARTING)

    def is_made_of(self, start: Value, functions: frozenset[str], leaves: Container[Value] = ()) -> bool:
        """Whether a value that threads do not have alike is made of threadIdx.x, launch numbers and `leaves` alone."""
        if start in self.uniform:
            return False
        found = False
        pending = [start]
        for _ in range(_MOST_MADE_OF):
            if not pending:
                return found
            value = pending.pop()
            op = self.definitions.get(value)
            if value in self.uniform:
                continue
            if value in leaves:
                found = True
            elif isinstance(op, Builtin) and op.name == "thread_idx":
                found = found or op.axis == 0
            elif isinstance(op, Apply) and op.fn in functions:
                pending += op.args
            else:
                return False
        return False

    # ---- while loops

    def find_counter(self, op: While) -> _Counter | None:
        inside = {v for inner in blocks(op) for v in inner.args} | {
            v for inner in blocks(op) for x in walk(inner) for v in x.results
        }
        for place, (arg, init) in enumerate(zip(op.before.args, op.inits, strict=True)):
            if op.before.results.count(arg) != 1 or arg is op.before.results[0] or not self.shares_work(init):
                continue
            forwarded = op.before.results.index(arg) - 1
            found = self.find_step(op.body.args[forwarded], op.body.results[place])
            if found is not None and found[0] in self.uniform and self.is_invariant(found[0], inside):
                return _Counter(place, forwarded, init, *found)
        return None

    def is_invariant(self, value: Value, inside: set[Value]) -> bool:
        """Whether a value does not depend on the loop, wherever it is computed."""
        op = self.definitions.get(value)
        if value not in inside:
            return True
        return isinstance(op, Apply | Builtin | Constant) and all(self.is_invariant(v, inside) for v in operands(op))

    def find_step(self, arg: Value, following: Value) -> tuple[Value, Scalar] | None:
        """The step and the type of the sum if `following` is arg + step."""
        op = self.definitions.get(self.without_sign(following))
        if not isinstance(op, Apply) or op.fn != "add" or not isinstance(op.result.type, Scalar):
            return None
        for one, other in (op.args, op.args[::-1]):
            if self.without_sign(one) is self.without_sign(arg):
                return other, op.result.type
        return None

    def without_sign(self, value: Value) -> Value:
        """The value before conversions between signed and unsigned."""
        op = self.definitions.get(value)
        if isinstance(op, Apply) and op.fn == "convert" and _same_bits(op.args[0].type, value.type):
            return self.without_sign(op.args[0])
        return value

    def rewrite(self, op: While, counter: _Counter, builder: Builder) -> None:
        """Carry the offset; add it to the start where the counter is used."""
        zero = builder.constant(0, counter.type)
        offsets = Value(counter.type), Value(counter.type)
        arg, inner = op.before.args[counter.place], op.body.args[counter.forwarded]
        before = self.with_offset(op.before, counter, offsets[0], arg)
        body = self.with_offset(self.block(op.body), counter, offsets[1], inner)
        ahead = Builder(op.span)
        following = ahead.apply("add", offsets[1], counter.step)
        before = Block(
            _replaced(before.args, counter.place, offsets[0]),
            before.ops,
            _replaced(before.results, counter.forwarded + 1, offsets[0]),
        )
        body = Block(
            _replaced(body.args, counter.forwarded, offsets[1]),
            (*body.ops, *ahead.ops),
            _replaced(body.results, counter.place, following),
        )
        result, last = op.results[counter.forwarded], Value(counter.type)
        loop = replace(
            op,
            inits=_replaced(op.inits, counter.place, zero),
            before=before,
            body=body,
            results=_replaced(op.results, counter.forwarded, last),
        )
        self.loops.append(loop)
        self.trips.update(v for v in loop.results if isinstance(v.type, Scalar) and not v.type.is_float)
        builder.add(loop)
        if self.uses.get(result):
            _define_sum(builder, result, counter, last)

    def with_offset(self, block: Block, counter: _Counter, offset: Value, old: Value) -> Block:
        """The block with `old` computed from the offset at its start."""
        ahead = Builder()
        value = Value(old.type, old.name)
        _define_sum(ahead, value, counter, offset)
        changed = substitute(block, {old: value})
        return Block(block.args, (*ahead.ops, *changed.ops), changed.results)

    # ---- for loops

    def as_while(self, op: For, builder: Builder) -> While:
        """The same loop, with its counter one of the carried values."""
        type = op.lower.type
        assert isinstance(type, Scalar)
        step = builder.constant(op.step % 2**type.bits if type.kind == "uint" else op.step, type)
        self.definitions[step] = builder.ops[-1]
        self.uniform.add(step)
        args = tuple(Value(v.type, v.name) for v in op.body.args)
        test = Builder(op.span)
        cond = test.apply("lt" if op.step > 0 else "gt", args[0], op.upper)
        go_on = Builder(op.span)
        following = go_on.apply("add", op.body.args[0], step)
        self.definitions[following] = go_on.ops[-1]
        body = Block(op.body.args, (*op.body.ops, *go_on.ops), (following, *op.body.results))
        last = Value(type)
        inits = (op.lower, *op.inits)
        results = (last, *op.results)
        before = Block(args, tuple(test.ops), (cond, *args))
        return While(inits, before, body, op.unroll, results=results, span=op.span)


def _define_sum(builder: Builder, result: Value, counter: _Counter, offset: Value) -> None:
    """result = start + offset, added in the counter's type."""
    start = builder.convert(counter.start, counter.type)
    if result.type == counter.type:
        builder.add(Apply("add", (start, offset), results=(result,), span=builder.span))
    else:
        total = builder.apply("add", start, offset)
        builder.add(Apply("convert", (total,), results=(result,), span=builder.span))


def _replaced(values: tuple[Value, ...], place: int, value: Value) -> tuple[Value, ...]:
    return (*values[:place], value, *values[place + 1 :])


def _same_bits(one: Type, other: Type) -> bool:
    return (
        isinstance(one, Scalar)
        and isinstance(other, Scalar)
        and one.bits == other.bits
        and not (one.is_float or other.is_float)
    )


def _parts_threads(op: Op) -> bool:
    """Whether threads may leave there, or meet."""
    return isinstance(op, (Leave, *MEETINGS)) or (isinstance(op, If) and op.exits)
