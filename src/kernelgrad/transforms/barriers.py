"""One barrier for two: a barrier of the block behind another is dropped where no memory is touched between them."""

from __future__ import annotations

from ..ir.ops import (
    Aggregate,
    Apply,
    Barrier,
    Block,
    Builtin,
    Constant,
    Extract,
    Function,
    GlobalRef,
    Insert,
    Member,
    Module,
    Offset,
    Op,
    PtrCast,
    PtrDiff,
    Undef,
)
from ..ir.traverse import rebuild, with_body

_PURE = (Aggregate, Apply, Builtin, Constant, Extract, GlobalRef, Insert, Member, Offset, PtrCast, PtrDiff, Undef)


def run(function: Function, module: Module) -> Function:
    return with_body(function, _block(function.body))


def _block(block: Block) -> Block:
    ops: list[Op] = []
    together = False  # since the last barrier, no thread has done anything that others could notice
    for op in block.ops:
        is_barrier = isinstance(op, Barrier) and op.scope == "block"
        if not (is_barrier and together):
            ops.append(rebuild(op, lambda v: v, _block))
        together = is_barrier or (together and isinstance(op, _PURE))
    return Block(block.args, tuple(ops), block.results)
