"""Lanes that may be in different iterations: values that are the same for all threads, of each iteration.

Note [Drift]
Lanes that meet at a place of the code need not have come there equally often. Where a loop's body parts them, some skip
the place and may be at it again, in a later iteration, when others come there for the first time. What is the same for
all threads in an iteration of that loop is not the same for them then.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import dataclass, field

from ..ir.ops import Block, Constant, For, Function, If, Op, Value, While
from ..ir.traverse import blocks


def drifting(function: Function, uniform: Set[Value]) -> dict[For, frozenset[Value]]:
    """For each counted loop, the values around it by which lanes that come to it may be apart, though `uniform`."""
    walk = _Walk(uniform)
    walk.block(function.body, frozenset(), frozenset())
    return walk.found


@dataclass
class _Walk:
    uniform: Set[Value]
    found: dict[For, frozenset[Value]] = field(default_factory=dict)

    def block(self, block: Block, repeated: frozenset[Value], apart: frozenset[Value]) -> None:
        """`repeated`: what has a value for each iteration around; `apart`: of that, what lanes may be apart by."""
        own = frozenset((*block.args, *_computed(block)))
        repeated, apart = (repeated | own, apart | own if apart else apart) if repeated else (repeated, apart)
        for op in block.ops:
            self.op(op, repeated, apart)

    def op(self, op: Op, repeated: frozenset[Value], apart: frozenset[Value]) -> None:
        if isinstance(op, For):
            self.found[op] = apart
        if self.parts(op):
            apart = apart | repeated
        for inner in blocks(op):
            loops = isinstance(op, For | While)
            counted = (*inner.args, *_computed(inner)) if loops else ()
            self.block(inner, repeated | frozenset(counted), apart)

    def parts(self, op: Op) -> bool:
        match op:
            case If(cond):
                return cond not in self.uniform
            case For(lower, upper):
                return not {lower, upper} <= self.uniform
        return isinstance(op, While)


def _computed(block: Block) -> Iterator[Value]:
    return (v for op in block.ops if not isinstance(op, Constant) for v in op.results)
