"""Checkpointing of long loops: a loop becomes segments of `_segment` iterations, a loop around a loop.

The plan does the rest: of the outer loop it tapes what is carried, once per segment; the inner loop is rerun before its
reverse and tapes one segment at a time. With segments of about the square root of the iterations, so is the tape. Loops
in loops are segments of segments, so that what is rerun has a small tape, too.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace

from ...errors import Span
from ...ir.builder import Builder
from ...ir.ops import SEGMENT, Block, For, Function, If, Module, Op, Param, Value, While
from ...ir.traverse import clone, descend
from ...ir.types import BOOL, I64
from ...transforms import rotate


def run(function: Function, module: Module, taped: Container[Span]) -> Function:
    """Splits the loops at the given places; the segment length is a new parameter of the launcher's."""
    function = rotate.run(function, module)
    segment = Value(I64, SEGMENT)
    body = _Split(segment, taped).block(function.body)
    return replace(function, params=(*function.params, Param(segment, "long long", variable=SEGMENT)), body=body)


class _Split:
    def __init__(self, segment: Value, taped: Container[Span]):
        self.segment, self.taped = segment, taped

    def block(self, block: Block) -> Block:
        ops: list[Op] = []
        for op in block.ops:
            ops += self.op(op)
        return Block(block.args, tuple(ops), block.results)

    def op(self, op: Op) -> list[Op]:
        match op:
            case If():
                return [descend(op, self.block)]
            case For() | While() if op.span in self.taped:
                inside = descend(op, self.block)
                return self.for_(inside) if isinstance(inside, For) else self.while_(inside)  # type: ignore[arg-type]
            case For() | While():
                return [descend(op, self.block)]
        return [op]

    def for_(self, op: For) -> list[Op]:
        """Both loops count iterations from 0, in 64 bits; the original's variable is computed from that."""
        b = Builder(op.span)
        low, high = b.convert(op.lower, I64), b.convert(op.upper, I64)
        first, last = (low, high) if op.step > 0 else (high, low)
        distance = b.apply("add", b.apply("sub", last, first), b.constant(abs(op.step) - 1, I64))
        count = b.apply("div", b.apply("max", distance, b.constant(0, I64)), b.constant(abs(op.step), I64))
        more = b.apply("sub", b.apply("add", count, self.segment), b.constant(1, I64))
        segments = b.apply("div", more, self.segment)
        number = Value(I64, "~segment")
        states = tuple(Value(v.type, v.name) for v in op.body.args[1:])
        with b.region() as outer:
            start = b.apply("mul", number, self.segment)
            end = b.apply("min", b.apply("add", start, self.segment), count)
            k = Value(I64, "~k")
            with b.region() as inner:
                moved = b.apply("mul", k, b.constant(op.step, I64))
                iv = b.convert(b.apply("add", low, moved), op.lower.type)
                args = tuple(Value(v.type, v.name) for v in op.body.args[1:])
                copy = inlined(b, op.body, (iv, *args))
            ends = b.for_(start, end, states, 1, inner.block((k, *args), copy))
        outer_block = outer.block((number, *states), ends)
        b.add(For(b.constant(0, I64), segments, op.inits, 1, outer_block, results=op.results, span=op.span))
        return b.ops

    def while_(self, op: While) -> list[Op]:
        """The inner loop also stops after `_segment` iterations, with `go` still set."""
        b = Builder(op.span)
        states = tuple(Value(v.type, v.name) for v in op.body.args)
        with b.region() as outer:
            zero = b.constant(0, I64)
            inits = (states[0], *states, zero)
            carried = (Value(BOOL, "~run"), *(Value(v.type, v.name) for v in op.body.args), Value(I64, "~k"))
            with b.region() as inner:
                copy = inlined(b, op.body, carried[1:-1])
                k = b.apply("add", carried[-1], b.constant(1, I64))
                run_on = b.apply("and", copy[0], b.apply("lt", k, self.segment))
            body = inner.block(carried, (run_on, *copy, k))
            ends = b.while_(inits, _test(carried), body)
        block = outer.block(states, ends[1:-1])
        b.add(replace(op, before=_test(states), body=block))
        return b.ops


def _test(args: tuple[Value, ...]) -> Block:
    """The condition of a rotated loop: its first carried value."""
    passed = tuple(Value(v.type, v.name) for v in args)
    return Block(passed, (), (passed[0], *passed))


def inlined(b: Builder, block: Block, args: tuple[Value, ...]) -> tuple[Value, ...]:
    """A copy of the block's operations with `args` for its arguments; gives its results."""
    copy = clone(block, {})
    mapping = dict(zip(copy.args, args, strict=True))
    body = rotate.renamed(copy, mapping)
    for op in body:
        b.add(op)
    return tuple(mapping.get(v, v) for v in copy.results)
