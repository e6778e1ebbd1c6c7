"""Comparisons for equality at an end of what is compared, as bounds.

    if (i >= n) return;
    if (i == 0 || i == n - 1) ...          if (i <= 0 || i >= n - 1) ...

So gathers see where the inside of a grid begins and ends, which is often written that way.
"""

from __future__ import annotations

from dataclasses import replace

from ....analysis.access.affine import Guard, Sums
from ....analysis.access.executions import hull
from ....analysis.ownership.private import places_of
from ....ir.builder import Builder
from ....ir.ops import Apply, Block, Function, If, Op, Value
from ....ir.traverse import descend, walk, with_body, with_ops

_AT_FIRST = {"eq": "le", "ne": "gt"}
_AT_LAST = {"eq": "ge", "ne": "lt"}
_TURNED = {"le": "ge", "ge": "le", "lt": "gt", "gt": "lt"}


def with_bounds(function: Function, sums: Sums) -> tuple[Function, tuple[tuple[int, int, str], ...]]:
    """The function with such comparisons, where branches are taken by them; and which they are, by the numbers of
    branches and comparisons in the order of operations: that depends on the launch."""
    bounds = _Bounds(sums)
    body = bounds.block(function.body)
    numbers = {id(op): k for k, op in enumerate(walk(function.body))}
    return with_body(function, body), tuple(
        (numbers[id(branch)], numbers[id(sums.structure.definition[value])], fn) for branch, value, fn in bounds.found
    )


class _Bounds:
    def __init__(self, sums: Sums):
        self.sums, self.definition = sums, sums.structure.definition
        self.places = places_of(sums.structure)
        self.found: list[tuple[If, Value, str]] = []

    def block(self, block: Block) -> Block:
        ops = list[Op]()
        for op in block.ops:
            inner = descend(op, self.block)
            if isinstance(op, If) and isinstance(inner, If):
                b = Builder(op.span)
                cond = self._tested(b, op, op.cond, self.sums.guards(self.places[id(op)]))
                ops += b.ops
                inner = replace(inner, cond=cond)
            ops.append(inner)
        return with_ops(block, ops)

    def _tested(self, b: Builder, branch: If, cond: Value, guards: set[Guard]) -> Value:
        match self.definition.get(cond):
            case Apply("and" | "or" | "not" as fn, args):
                tested = [self._tested(b, branch, arg, guards) for arg in args]
                return cond if all(new is old for new, old in zip(tested, args, strict=True)) else b.apply(fn, *tested)
            case Apply("eq" | "ne" as fn, (left, right)):
                bound = self._bound(fn, left, right, guards)
                if bound is not None:
                    self.found.append((branch, cond, bound))
                    return b.apply(bound, left, right)
        return cond

    def _bound(self, fn: str, left: Value, right: Value, guards: set[Guard]) -> str | None:
        """The comparison that comes out the same as one for equality, where guards hold."""
        one, other = self.sums.of(left), self.sums.of(right)
        if one is None or other is None or bool(one.terms) == bool(other.terms):
            return None
        ends = hull(one if one.terms else other, self.sums, guards)
        number = other.const if one.terms else one.const
        if ends is None or number not in ends:
            return None
        found = (_AT_FIRST if number == ends[0] else _AT_LAST)[fn]
        return found if one.terms else _TURNED[found]
