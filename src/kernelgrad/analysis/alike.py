"""Which values of two loops are the same in the same iterations: those that are computed alike, from the same.

    for (int c = t; c < n; c += width) ... y + c ...
    for (int c = t; c < n; c += width) ... y + c ...

Both loops run equally often, and in each iteration c is the same in both. What a loop carries is taken to be the same
if it starts so, and dropped again if the next one is not, until nothing is dropped any more.
"""

from __future__ import annotations

from ..ir.effects import is_clock, is_pure
from ..ir.ops import Block, For, If, Op, Undef, Value, While
from ..ir.traverse import attribute_fields, operands

Pairs = dict[Value, Value]  # of the first nest and of the second
Region = tuple[Op, Block]  # an operation, and one of its blocks


class Alike:
    """Compares values by `definition`s."""

    def __init__(self, definition: dict[Value, Op]):
        self.definition = definition

    def same(self, one: Value, other: Value, pairs: Pairs) -> bool:
        todo, seen = [(one, other)], set[tuple[Value, Value]]()
        while todo:
            pair = todo.pop()
            one, other = pair
            if pair in seen or pairs.get(one, one) is other:
                continue
            seen.add(pair)
            first, second = self.definition.get(one), self.definition.get(other)
            if one in pairs or first is None or second is None or not self._computed_alike(first, second):
                return False
            todo += zip(operands(first), operands(second), strict=True)
        return True

    def _computed_alike(self, one: Op, other: Op) -> bool:
        if type(one) is not type(other) or not is_pure(one) or isinstance(one, Undef) or is_clock(one):
            return False
        if one.result.type != other.result.type or len(operands(one)) != len(operands(other)):
            return False
        return all(repr(getattr(one, name)) == repr(getattr(other, name)) for name in attribute_fields(type(one)))

    def around(self, first: Region, second: Region, pairs: Pairs) -> Pairs | None:
        """The pairs in two regions that run equally often, one iteration as the other; None if they do not."""
        (one, side), (other, other_side) = first, second
        match one, other:
            case For(), For() if one.step == other.step:
                ends = zip((one.lower, one.upper), (other.lower, other.upper), strict=True)
                if all(self.same(a, b, pairs) for a, b in ends):
                    return {**pairs, one.body.args[0]: other.body.args[0]}
            case While(), While() if side is one.body and other_side is other.body:
                return self._of_loops(one, other, pairs)
            case If(), If() if (side is one.then) == (other_side is other.then):
                return pairs if self.same(one.cond, other.cond, pairs) else None
        return None

    def _of_loops(self, one: While, other: While, pairs: Pairs) -> Pairs | None:
        carried = [
            (k, j)
            for k, init in enumerate(one.inits)
            for j, start in enumerate(other.inits)
            if self.same(init, start, pairs)
        ]
        while True:
            inside = self._inside(one, other, carried, pairs)
            kept = [(k, j) for k, j in carried if self.same(one.body.results[k], other.body.results[j], inside)]
            if kept == carried:
                break
            carried = kept
        return inside if self.same(one.before.results[0], other.before.results[0], inside) else None

    def _inside(self, one: While, other: While, carried: list[tuple[int, int]], pairs: Pairs) -> Pairs:
        before = {**pairs}
        for k, j in carried:
            before.setdefault(one.before.args[k], other.before.args[j])
        found = dict(before)
        for arg, forwarded in zip(one.body.args, one.before.results[1:], strict=True):
            for partner, value in zip(other.body.args, other.before.results[1:], strict=True):
                if arg not in found and self.same(forwarded, value, before):
                    found[arg] = partner
        return found
