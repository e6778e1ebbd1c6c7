"""Strips: a long loop that carries a value it needs again becomes a loop over strips of a few iterations.

    for (k = 0; k < n; ++k) v = f(v);   becomes   for (j = 0; j < n / 8; ++j) { v = f(v); ... 8 times }  and the rest

The tape then holds one value per strip; entering the reverse of a strip, its iterations run again, in registers. For
launches whose tape is large, that is faster than the memory it saves: arithmetic costs less than bandwidth.
"""

from __future__ import annotations

from dataclasses import replace

from ...analysis.access.loop_bounds import ends_of
from ...analysis.induction import find_step
from ...analysis.structure import Structure, analyse, is_rotated
from ...errors import Span
from ...ir.builder import Builder
from ...ir.effects import PURE
from ...ir.ops import Block, For, Function, If, Load, Op, Value, While
from ...ir.traverse import blocks, descend, operands, walk, with_body
from ...ir.types import I64, Scalar
from .checkpoint import inlined
from .costs import effort
from .plan import Plan

LENGTH = 8
_MOST_OPS = 24  # in the body: strips are written out
_FUNCTIONS = 4  # that cost much more than what a tape does
_LARGEST_STEP = 1 << 16  # eight of them are far from coming round


def candidates(function: Function, plan: Plan) -> frozenset[Span]:
    """The loops that gain by it: all they lose is what they carry, and running them again is cheap."""
    found = (op for op in walk(function.body) if isinstance(op, For | While) and _gains(op, plan))
    return frozenset(loop.span for loop in found)


def _gains(loop: For | While, plan: Plan) -> bool:
    """In strips, the numbers of a loop that may break off are no sums any more: it had better not need them."""
    frame = plan.taped.get(id(loop.body), {})
    lost = [v for v in plan.lost if plan.structure.home[v].block is loop.body]
    carried = all(v in loop.body.args and isinstance(v.type, Scalar) for v in lost)
    inside = list(walk(loop.body))
    plain = len(inside) <= _MOST_OPS
    if isinstance(loop, While):
        breaks = is_rotated(loop) and not ends_of(loop, plan.structure)
        plain = plain and breaks and _reads_the_same(loop)
    else:
        plain = plain and not any(blocks(op) for op in inside)
    costly = sum(isinstance(op, Load) or effort(op) > 0 for op in inside)
    return bool(frame) and carried and plain and costly <= _FUNCTIONS


def _reads_the_same(loop: While) -> bool:
    """Whether it writes nothing, and each iteration reads where the others do."""
    moving = set(loop.body.args)
    for op in walk(loop.body):
        if not isinstance(op, (*PURE, Load, If)):
            return False
        moves = not moving.isdisjoint(operands(op))
        if isinstance(op, Load) and moves:
            return False
        moving.update(op.results if moves or isinstance(op, If) else ())
    return True


def strip(function: Function, chosen: frozenset[Span]) -> Function:
    structure = analyse(function, apart=False)

    def block(b: Block) -> Block:
        ops: list[Op] = []
        for op in b.ops:
            if isinstance(op, For | While) and op.span in chosen:
                ops += _strips(op) if isinstance(op, For) else _strips_that_end(op, structure)
            else:
                ops.append(descend(op, block))
        return Block(b.args, tuple(ops), b.results)

    return with_body(function, block(function.body))


def _strips_that_end(loop: While, structure: Structure) -> list[Op]:
    """Of a rotated loop: in each strip, what is left of it goes by once it has ended. All before the last are whole: so
    what the loop counts up is known at the start of each, and carried along beside what it comes to in the end."""
    b = Builder(loop.span)
    steps = {k: step for k, arg in enumerate(loop.body.args) if (step := _constant_step(loop, arg, structure))}
    args = tuple(Value(v.type, v.name) for v in loop.body.args)
    starts = {k: Value(args[k].type, args[k].name) for k in steps}

    def counted(current: tuple[Value, ...], number: int) -> tuple[Value, ...]:
        return tuple(
            b.apply("add", starts[k], b.constant(number * steps[k], v.type)) if k in steps else v
            for k, v in enumerate(current)
        )

    with b.region() as region:
        current = inlined(b, loop.body, counted(args, 0))
        for number in range(1, LENGTH):
            with b.region() as on:
                following = inlined(b, loop.body, counted(current, number))
            current = b.if_(current[0], on.block((), following), Block((), (), current))
        ends = tuple(v for k, v in enumerate(counted(args, LENGTH)) if k in steps)
    body = region.block((*args, *starts.values()), (*current, *ends))
    passed = tuple(Value(v.type, v.name) for v in body.args)
    inits = (*loop.inits, *(loop.inits[k] for k in steps))
    results = (*loop.results, *(Value(v.type, v.name) for v in starts.values()))
    before = Block(passed, (), (passed[0], *passed))
    b.add(replace(loop, inits=inits, before=before, body=body, results=results))
    return b.ops


def _constant_step(loop: While, arg: Value, structure: Structure) -> int:
    step = find_step(loop, arg, structure)
    if step is None or step.fn != "add" or step.by is not None or abs(step.amount) > _LARGEST_STEP:
        return 0
    return step.amount


def _strips(loop: For) -> list[Op]:
    b = Builder(loop.span)
    low, high = b.convert(loop.lower, I64), b.convert(loop.upper, I64)
    first, last = (low, high) if loop.step > 0 else (high, low)
    distance = b.apply("add", b.apply("sub", last, first), b.constant(abs(loop.step) - 1, I64))
    count = b.apply("div", b.apply("max", distance, b.constant(0, I64)), b.constant(abs(loop.step), I64))
    whole = b.apply("div", count, b.constant(LENGTH, I64))
    number = Value(I64, "~strip")
    states = tuple(Value(v.type, v.name) for v in loop.body.args[1:])
    with b.region() as region:
        start = b.apply("add", low, b.apply("mul", number, b.constant(LENGTH * loop.step, I64)))
        current = states
        for k in range(LENGTH):
            at = b.apply("add", start, b.constant(k * loop.step, I64))
            current = inlined(b, loop.body, (b.convert(at, loop.lower.type), *current))
    ends = b.for_(b.constant(0, I64), whole, loop.inits, 1, region.block((number, *states), current))
    rest = b.apply("add", low, b.apply("mul", whole, b.constant(LENGTH * loop.step, I64)))
    b.add(replace(loop, lower=b.convert(rest, loop.lower.type), inits=ends))
    return b.ops
