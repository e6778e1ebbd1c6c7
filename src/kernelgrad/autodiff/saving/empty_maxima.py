"""Guards for maxima of nothing: `m == -INFINITY ? 0 : exp(m - m2)`, or `m2 == -INFINITY ? 0 : m2` in place of m2.

A running maximum is -inf as long as all that it is the maximum of is. If every term's exponent is among that, none has
added anything by then, and what a guard gives in place of NaN does not matter: in the reverse, which has the last
maximum for each, terms of -inf are zero, and the guard asks of the last one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping

from ...ir.ops import Apply, If, Op, Value
from .scale_degrees import Labels

_GREATER = {"gt": (0, 1), "ge": (0, 1), "lt": (1, 0), "le": (1, 0)}  # which of two is the greater


class Maximum:
    """`number`: the constant that a value is."""

    def __init__(self, labels: Labels, definition: Mapping[Value, Op], number: Callable[[Value], float | None]):
        self.labels, self.definition, self.number = labels, definition, number

    def tested(self, cond: Value) -> tuple[Value, bool] | None:
        """The label that a condition compares with -inf, and what the condition is then."""
        match self.definition.get(cond):
            case Apply("eq" | "ne" as fn, (left, right)):
                for label, other in ((left, right), (right, left)):
                    if label in self.labels.all and self.number(other) == -math.inf:
                        return label, fn == "eq"
            case Apply("not", (inner,)):
                found = self.tested(inner)
                return None if found is None else (found[0], not found[1])
        return None

    def is_guard(self, cond: Value, of_then: bool) -> bool:
        """Whether one side of a choice is for a maximum of nothing."""
        found = self.tested(cond)
        return found is not None and found[1] is of_then

    def alias(self, value: Value) -> Value | None:
        """The label that a value is, but for a number in place of -inf."""
        op = self.definition.get(value)
        if not isinstance(op, Apply) or op.fn != "select" or (found := self.tested(op.args[0])) is None:
            return None
        instead, otherwise = op.args[1:] if found[1] else op.args[:0:-1]
        return otherwise if otherwise is found[0] and self.number(instead) is not None else None

    def bounds(self, exponentials: Iterable[Apply]) -> bool:
        """Whether the loop's label is a running maximum, and of all that is added by these."""
        followed = self.labels.arg in self._below(self.labels.following)
        return followed and all(self._is_bounded(op.args[0]) for op in exponentials)

    def _is_bounded(self, exponent: Value) -> bool:
        """A difference from a label that is at least the other part, perhaps times a positive number."""
        match self.definition.get(exponent):
            case Apply("sub" | "sub_rn", (term, label)):
                return term in self._below(self.alias(label) or label)
            case Apply("mul" | "mul_rn", (left, right)):
                for inner, factor in ((left, right), (right, left)):
                    if (self.number(factor) or 0.0) > 0.0 and self._is_bounded(inner):
                        return True
        return False

    def _below(self, value: Value) -> set[Value]:
        """What is at most that."""
        op = self.definition.get(value)
        parts: tuple[Value, ...] = ()
        match op:
            case Apply("max", args):
                parts = args
            case Apply("select", (cond, first, second)):
                parts = (first, second) if self._is_greater(cond, first, second) else ()
            case If():
                k = op.results.index(value)
                first, second = (self._unnamed(side.results[k]) for side in (op.then, op.orelse))
                parts = (first, second) if self._is_greater(op.cond, first, second) else ()
        return {value}.union(*(self._below(part) for part in parts))

    def _unnamed(self, value: Value) -> Value:
        op = self.definition.get(value)
        return op.args[0] if isinstance(op, Apply) and op.fn == "convert" and op.args[0].type == value.type else value

    def _is_greater(self, cond: Value, first: Value, second: Value) -> bool:
        """Whether a condition chooses the greater of two."""
        op = self.definition.get(cond)
        if not isinstance(op, Apply) or op.fn not in _GREATER:
            return False
        greater, less = (op.args[k] for k in _GREATER[op.fn])
        return greater is first and less is second
