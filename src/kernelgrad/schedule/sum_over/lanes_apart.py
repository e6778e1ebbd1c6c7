"""Additions of lanes that are all elsewhere: each adds for itself, with no look at its neighbours.

Where it is not known whether neighbouring lanes add to the same element, they find out, which takes a dozen
instructions. An address that the index along the row moves is another one for each of them, whatever multiple of a
block's stride their loops have come to.
"""

from __future__ import annotations

from dataclasses import replace

from ...analysis.access.residues import Residues
from ...analysis.machine import WARP
from ...analysis.uniform import uniform_values, warp_uniform_values
from ...ir.builder import Builder
from ...ir.ops import Atomic, Block, Function, Op
from ...ir.traverse import descend, uses, walk, with_body

_ROW = frozenset((("thread_idx", 1), ("thread_idx", 2)))


def run(function: Function, block: tuple[int, int, int]) -> Function:
    if not any(isinstance(op, Atomic) and op.together for op in walk(function.body)):
        return function
    uniform = warp_uniform_values(function, block[0] % WARP == 0) | uniform_values(function, _ROW)
    residues, lanes = Residues(function, uniform, block), min(WARP, block[0])
    used = uses(function.body)

    def is_apart(op: Op) -> bool:
        if not isinstance(op, Atomic) or not op.together or op.kind != "add" or any(used.get(v) for v in op.results):
            return False
        return residues.of(op.ptr).is_apart(lanes)

    def rewritten(b: Block) -> Block:
        ops: list[Op] = []
        for op in b.ops:
            ops += _alone(op) if is_apart(op) else (descend(op, rewritten),)
        return Block(b.args, tuple(ops), b.results)

    return with_body(function, rewritten(function.body))


def _alone(op: Op) -> list[Op]:
    """Unless there is nothing to add."""
    assert isinstance(op, Atomic)
    b, (value,) = Builder(op.span), op.args
    with b.region() as some:
        b.add(replace(op, together=False))
    b.if_(b.apply("ne", value, b.constant(0.0, value.type)), some.block())
    return b.ops
