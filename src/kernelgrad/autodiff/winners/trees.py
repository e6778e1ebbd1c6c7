"""Which thread's number is the result of a tree of maxima or minima over a block."""

from __future__ import annotations

from ...ir.builder import Builder, linear_thread
from ...ir.ops import BarrierReduce, Value
from ...ir.types import U32

_BITS = 32


def has_won(b: Builder, value: Value, top: Value, threads: int, rising: bool) -> Value:
    """Whether this thread's value is the first, in the tree's order, that is the result. Where all are NaN, none is:
    the tree takes the first of them."""
    place = b.convert(linear_thread(b), U32)
    if not rising:  # the last level, between neighbours, decides first
        place = b.apply("shr", b.apply("brev", place), b.constant(_BITS + 1 - threads.bit_length(), U32))
    last = b.constant(threads, U32)
    mine = b.apply("select", b.apply("eq", value, top), place, last)
    first = b.emit(BarrierReduce, "min", mine, threads, type=U32)
    first = b.apply("select", b.apply("eq", first, last), b.constant(0, U32), first)
    return b.apply("eq", place, first)


def tree_tangent(b: Builder, op: BarrierReduce, tangent: Value) -> Value:
    """Forward: sums are linear, of maxima and minima the winner's counts."""
    if op.kind == "tree_add":
        return b.emit(BarrierReduce, op.kind, tangent, op.threads, op.rising, type=tangent.type)
    nothing = b.constant(-0.0, tangent.type)
    won = has_won(b, op.value, op.result, op.threads, op.rising)
    return b.emit(BarrierReduce, "sum", b.apply("select", won, tangent, nothing), op.threads, type=tangent.type)
