"""Reductions over blocks of a known size: all threads' values in an array, combined in the order of a tree."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llvmlite import ir

from ...ir.ops import BarrierReduce
from ...ir.types import Scalar
from . import llvm_types as lt
from .frame import Active, Step
from .llvm_types import i64
from .loops import counted
from .scalars import TABLE, Application

if TYPE_CHECKING:
    from .blocks import BlockCode


def block_tree(code: BlockCode, op: BarrierReduce, active: Active) -> None:
    b, frame, type = code.b, code.frame, lt.register_type(op.result.type)
    size = op.result.type.size
    cells = frame.stack(op.threads * size, size)

    def at(thread: ir.Value) -> ir.Value:
        return b.gep(cells, [b.mul(thread, i64(size))], source_etype=lt.I8)

    def put() -> None:
        assert frame.thread is not None
        b.store(frame.get(op.value), at(frame.thread.linear), align=size)

    code.phase([], active, [Step((op.value,), put)])
    for stride in strides(op):
        end, step = (op.threads, 2 * stride) if op.rising else (stride, 1)
        with counted(b, i64(0), i64(end), step) as thread:
            one, other = (b.load(at(t), typ=type, align=size) for t in (thread, b.add(thread, i64(stride))))
            b.store(combined(b, op.kind.removeprefix("tree_"), op.value.type, one, other), at(thread), align=size)
    frame.values[op.result] = b.load(cells, typ=type, align=size)


def strides(op: BarrierReduce) -> list[int]:
    found = [1 << k for k in range(op.threads.bit_length() - 1)]
    return found if op.rising else found[::-1]


def block_least(code: BlockCode, op: BarrierReduce, active: Active) -> None:
    b, type = code.b, lt.register_type(op.result.type)
    size = op.result.type.size
    least = code.frame.stack(size, size)
    b.store(ir.Constant(type, -1), least, align=size)  # the largest there is, without a sign

    def take() -> None:
        b.store(combined(b, "min", op.value.type, b.load(least, typ=type, align=size), code.frame.get(op.value)), least)

    code.phase([], active, [Step((op.value,), take)])
    code.frame.values[op.result] = b.load(least, typ=type, align=size)


def combined(b: ir.IRBuilder, fn: str, type: object, one: ir.Value, other: ir.Value) -> ir.Value:
    assert isinstance(type, Scalar)
    return TABLE[fn](Application(b, (one, other), (type, type), type))
