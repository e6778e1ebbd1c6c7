"""Shared cells that all threads of a block add to at once: the block adds up, and one thread adds the sum.

In shared memory, where floats have no atomic addition of their own, the warps of a block would try one after the other.
"""

from __future__ import annotations

from ..ir.builder import Builder
from ..ir.ops import Atomic, BarrierReduce, Block, Function, Op, Value
from ..ir.traverse import uses, with_body
from ..ir.types import U32, Pointer, Scalar
from ..transforms.uniform import uniform_values


def run(function: Function) -> Function:
    """At the top of a kernel, where all threads of the block are."""
    used, uniform = uses(function.body), uniform_values(function)
    body = function.body
    ops = [one for op in body.ops for one in (_summed(op) if _is_common(op, used, uniform) else (op,))]
    return with_body(function, Block(body.args, tuple(ops), body.results)) if len(ops) > len(body.ops) else function


def _is_common(op: Op, used: dict[Value, int], uniform: set[Value]) -> bool:
    if not isinstance(op, Atomic) or op.kind != "add" or used.get(op.result):
        return False
    assert isinstance(op.ptr.type, Pointer)
    type = op.ptr.type.pointee
    floats = isinstance(type, Scalar) and type.is_float and type.size >= 4
    return op.together and floats and op.ptr.type.space == "shared" and op.ptr in uniform


def _summed(op: Op) -> list[Op]:
    assert isinstance(op, Atomic)
    b = Builder(op.span)
    (value,) = op.args
    total = b.emit(BarrierReduce, "sum", value, type=value.type)
    x, y, z = (b.builtin("thread_idx", axis) for axis in range(3))
    first = b.apply("eq", b.apply("or", b.apply("or", x, y), z), b.constant(0, U32))
    with b.region() as region:
        b.atomic("add", op.ptr, total)
    b.if_(first, region.block())
    return b.ops
