"""Loops that run once, without the loop: what is left of a loop in strips that is one strip long."""

from __future__ import annotations

from ...ir.ops import BarrierReduce, Block, Constant, For, Function, Module, Op, Value
from ...ir.traverse import rebuild, substitute, walk, with_body


def run(function: Function, _: Module) -> Function:
    constant = {op.result: op.value for op in walk(function.body) if isinstance(op, Constant)}
    if not any(isinstance(op, For) and _runs_once(op, constant) for op in walk(function.body)):
        return function
    return with_body(function, _block(function.body, constant))


def _runs_once(loop: For, constant: dict[Value, int | float | bool]) -> bool:
    if loop.lower not in constant or loop.upper not in constant:
        return False
    if any(isinstance(op, BarrierReduce) for op in walk(loop.body)):
        return False  # which of them loops are around decides on their shared memory
    first, end = int(constant[loop.lower]), int(constant[loop.upper])
    return first < end <= first + loop.step if loop.step > 0 else first > end >= first + loop.step


def _block(block: Block, constant: dict[Value, int | float | bool]) -> Block:
    """Later operations see what the last trip left in place of the loop's results."""
    ops: list[Op] = []
    renamed: dict[Value, Value] = {}
    for op in block.ops:
        op = rebuild(op, lambda v: renamed.get(v, v), lambda b: _block(substitute(b, renamed), constant))
        if isinstance(op, For) and _runs_once(op, constant):
            given = dict(zip(op.body.args, (op.lower, *op.inits), strict=True))
            body = substitute(Block((), op.body.ops, op.body.results), given)
            ops += body.ops
            renamed.update(zip(op.results, body.results, strict=True))
        else:
            ops.append(op)
    return Block(block.args, tuple(ops), tuple(renamed.get(v, v) for v in block.results))
