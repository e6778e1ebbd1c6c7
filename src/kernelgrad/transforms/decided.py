"""Branches whose outcome is known (see `analysis/access/outcomes`) are taken, or left out."""

from __future__ import annotations

from dataclasses import replace

from ..analysis.access.outcomes import Outcome
from ..ir.ops import Block, Constant, Function, If, Module, Op, Value
from ..ir.traverse import descend, with_body
from ..ir.types import BOOL
from . import simplify


def run(function: Function, module: Module, outcomes: frozenset[Outcome]) -> Function:
    known = dict(outcomes)

    def decided(block: Block) -> Block:
        ops: list[Op] = []
        for op in block.ops:
            inner = descend(op, decided)
            if isinstance(inner, If) and str(inner.span) in known:
                outcome = Constant(known[str(inner.span)], results=(Value(BOOL),), span=inner.span)
                ops.append(outcome)
                inner = replace(inner, cond=outcome.result)
            ops.append(inner)
        return Block(block.args, tuple(ops), block.results)

    return simplify.run(with_body(function, decided(function.body)), module)
