"""Shared arrays of which each thread has cells to itself (`analysis/ownership/thread_cells`), as arrays of its own."""

from __future__ import annotations

from dataclasses import replace

from ..analysis.access.shared_parts import accesses_of, way_to
from ..analysis.ownership.thread_cells import ThreadCells, all_blocks, array_of
from ..ir.builder import Builder, pointee
from ..ir.ops import Block, Function, Load, Member, Module, Offset, Op, PtrCast, Store, Value
from ..ir.traverse import descend, walk, with_body
from ..ir.types import I32, Pointer
from . import simplify


def run(function: Function, module: Module, all_cells: tuple[ThreadCells, ...]) -> Function:
    for cells in all_cells:
        function = _with_own(function, cells)
    return simplify.run(function, module)


def _with_own(function: Function, cells: ThreadCells) -> Function:
    definition = {v: op for op in walk(function.body) for v in op.results}
    accesses = accesses_of(function, cells.variable)
    ids = {id(op) for op in accesses}
    first, scope = Builder(function.span), all_blocks(function)[cells.scope]
    own = first.alloca(array_of(cells, accesses[0]), cells.variable)
    before = _before(first, cells, pointee(accesses[0].ptr).size)

    def pointer(b: Builder, ptr: Value) -> Value:
        """The same way from the thread's array, less what is before it."""
        at = b.decay(own)
        for op in way_to(ptr, definition):
            match op:
                case PtrCast():
                    assert isinstance(op.result.type, Pointer)
                    at = b.cast_pointer(at, replace(op.result.type, space="local"))
                case Member(_, index):
                    at = b.member(at, index)
                case Offset(_, index):
                    at = b.offset(at, index)
        return b.offset(at, before)

    def rewritten(block: Block) -> Block:
        ops: list[Op] = first.ops if block is scope else []
        for op in block.ops:
            if isinstance(op, Load | Store) and id(op) in ids:
                b = Builder(op.span)
                op = replace(op, ptr=pointer(b, op.ptr))
                ops += b.ops
            ops.append(descend(op, rewritten))
        return Block(block.args, tuple(ops), block.results)

    return with_body(function, rewritten(function.body))


def _before(b: Builder, cells: ThreadCells, size: int) -> Value:
    """How many elements of others are before a thread's, less than none."""
    total = b.constant(-cells.start // size, I32)
    for axis, apart in enumerate(cells.apart):
        if apart:
            thread = b.convert(b.builtin("thread_idx", axis), I32)
            total = b.apply("sub", total, b.apply("mul", thread, b.constant(apart // size, I32)))
    return total
