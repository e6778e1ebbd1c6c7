"""Additions of lanes that are all elsewhere: each adds for itself, with no look at its neighbours.

Where it is not known whether neighbouring lanes add to the same element, they find out, which takes a dozen
instructions. An address that the index along the row moves, and besides only what the whole row has in common, is
another one for each of them.
"""

from __future__ import annotations

from dataclasses import replace

from ...analysis.access.block_affine import Slopes
from ...analysis.uniform import uniform_values
from ...ir.builder import Builder
from ...ir.ops import Atomic, Block, Function, Op, Value
from ...ir.traverse import descend, uses, walk, with_body

_ROW = frozenset((("thread_idx", 1), ("thread_idx", 2)))


def run(function: Function) -> Function:
    if not any(isinstance(op, Atomic) and op.together for op in walk(function.body)):
        return function
    definition = {v: op for op in walk(function.body) for v in op.results}
    slopes = Slopes(definition, uniform_values(function, _ROW), Value(function.params[0].type))
    used = uses(function.body)

    def is_apart(op: Op) -> bool:
        if not isinstance(op, Atomic) or not op.together or op.kind != "add" or any(used.get(v) for v in op.results):
            return False
        address = slopes.address(op.ptr)
        return address is not None and address.slope(("thread_idx", 0)) != 0

    def block(b: Block) -> Block:
        ops: list[Op] = []
        for op in b.ops:
            ops += _alone(op) if is_apart(op) else (descend(op, block),)
        return Block(b.args, tuple(ops), b.results)

    return with_body(function, block(function.body))


def _alone(op: Op) -> list[Op]:
    """Unless there is nothing to add."""
    assert isinstance(op, Atomic)
    b, (value,) = Builder(op.span), op.args
    with b.region() as some:
        b.add(replace(op, together=False))
    b.if_(b.apply("ne", value, b.constant(0.0, value.type)), some.block())
    return b.ops
