"""Strips: a long loop that carries a value it needs again becomes a loop over strips of a few iterations.

    for (k = 0; k < n; ++k) v = f(v);   becomes   for (j = 0; j < n / 8; ++j) { v = f(v); ... 8 times }  and the rest

The tape then holds one value per strip; entering the reverse of a strip, its iterations run again, in registers. For
launches whose tape is large, that is faster than the memory it saves: arithmetic costs less than bandwidth.
"""

from __future__ import annotations

from dataclasses import replace

from ...errors import Span
from ...ir.builder import Builder
from ...ir.ops import Block, For, Function, Load, Op, Value
from ...ir.traverse import blocks, descend, walk, with_body
from ...ir.types import I64, Scalar
from .checkpoint import inlined
from .costs import effort
from .plan import Plan

LENGTH = 8
_MOST_OPS = 24  # in the body: strips are written out
_FUNCTIONS = 4  # that cost much more than what a tape does


def candidates(function: Function, plan: Plan) -> frozenset[Span]:
    """The loops that gain by it: all they lose is what they carry, and running them again is cheap."""
    found = (op for op in walk(function.body) if isinstance(op, For) and _gains(op, plan))
    return frozenset(loop.span for loop in found)


def _gains(loop: For, plan: Plan) -> bool:
    frame = plan.taped.get(id(loop.body), {})
    lost = [v for v in plan.lost if plan.structure.home[v].block is loop.body]
    carried = all(v in loop.body.args and isinstance(v.type, Scalar) for v in lost)
    inside = list(walk(loop.body))
    plain = not any(blocks(op) for op in inside) and len(inside) <= _MOST_OPS
    costly = sum(isinstance(op, Load) or effort(op) > 0 for op in inside)
    return bool(frame) and carried and plain and costly <= _FUNCTIONS


def strip(function: Function, chosen: frozenset[Span]) -> Function:
    def block(b: Block) -> Block:
        ops: list[Op] = []
        for op in b.ops:
            if isinstance(op, For) and op.span in chosen:
                ops += _strips(op)
            else:
                ops.append(descend(op, block))
        return Block(b.args, tuple(ops), b.results)

    return with_body(function, block(function.body))


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
