"""At most how often a loop runs of which more is not known: its start depends on the thread, or it may break off.

    for (i = thread; i < n; i += threads)        for (k = 0; k < 64 && z < 4; ++k)

Of the first kind threads have about as many turns each: room for the one that starts first is hardly more than is
needed. Of the second, room for all that there may be can be much more; but nobody has to count them before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ...analysis.access.loop_bounds import End, bounds_of, ends_of, later_bounds_of
from ...analysis.access.ranges import BUILTINS, COMBINED, Range
from ...analysis.induction import find_step
from ...analysis.loop_counts import BuiltinValue, Known, evaluate
from ...analysis.structure import Structure, is_rotated
from ...ir.ops import Apply, Builtin, For, Value, While
from ...ir.types import Scalar, limits


class _Turns(NamedTuple):
    """Of a loop: `start + k * step < bound + more` in turn k, for one of the bounds."""

    start: Value
    bounds: Sequence[Value]
    more: int
    step: Value | int


def similar_turns(loop: For | While, structure: Structure, known: Known, builtin: BuiltinValue) -> int | None:
    """Of loops that all threads run about equally often: they end alike, and there alone."""
    numbers = _Numbers(structure, known, builtin)
    turns = _turns_of(loop, ends_of(loop, structure) if isinstance(loop, While) else (), structure)
    exact = [turn for turn in turns if all(numbers.exact(v) is not None for v in turn.bounds)]
    return min((n for turn in exact if (n := numbers.most(turn)) is not None), default=None)


def most_turns(loop: For | While, structure: Structure, known: Known, builtin: BuiltinValue) -> int | None:
    numbers = _Numbers(structure, known, builtin)
    turns = _turns_of(loop, bounds_of(loop, structure) if isinstance(loop, While) else (), structure)
    found = [numbers.most(turn) for turn in turns]
    if isinstance(loop, While) and is_rotated(loop):
        for end, before in later_bounds_of(loop, structure):
            later = (numbers.most(turn) for turn in _turns_of(loop, (end,), structure))
            found += [None if most is None else most + 1 if before else max(1, most) for most in later]
    return min((most for most in found if most is not None), default=None)


def _turns_of(loop: For | While, ends: Sequence[End], structure: Structure) -> list[_Turns]:
    if isinstance(loop, For):
        return [_Turns(loop.lower, (loop.upper,), 0, loop.step)] if loop.step > 0 else []
    found = []
    for end in ends:
        step = find_step(loop, end.value, structure)
        if step is not None and step.fn == "add" and step.start is not None:
            by = step.amount if step.by is None else step.by
            found.append(_Turns(step.start, end.bounds, end.more, by))
    return found


class _Numbers:
    """Of all threads of a launch."""

    def __init__(self, structure: Structure, known: Known, builtin: BuiltinValue):
        self.structure, self.known, self.builtin = structure, known, builtin

    def most(self, turns: _Turns) -> int | None:
        """None also where the counter may come round."""
        bounds = [self.range(v) for v in turns.bounds]
        step = turns.step if isinstance(turns.step, int) else self.exact(turns.step)
        start = self.range(turns.start)
        if step is None or step < 1 or start is None:
            return None
        last = max((-(1 << 64) if found is None else found[1] for found in bounds), default=0) + turns.more
        if None in bounds or not isinstance(turns.start.type, Scalar) or last + step > limits(turns.start.type)[1]:
            return None
        return max(0, -((start[0] - last) // int(step)))

    def exact(self, value: Value) -> int | None:
        found = evaluate(value, self.structure, self.known, self.builtin)
        return None if found is None or isinstance(found, float) else int(found)

    def range(self, value: Value) -> Range | None:
        """Between which numbers it is."""
        exact = self.exact(value)
        if exact is not None:
            return exact, exact
        found: Range | None = None
        match self.structure.definition.get(value):
            case Builtin(name, axis) if name in BUILTINS:
                extents = self.builtin("grid_dim", axis), self.builtin("block_dim", axis)
                found = None if None in extents else BUILTINS[name](*extents)
            case Apply("convert", (inner,)):
                found = self.range(inner)
            case Apply(fn, (left, right)) if fn in COMBINED:
                sides = self.range(left), self.range(right)
                found = None if sides[0] is None or sides[1] is None else COMBINED[fn](sides[0], sides[1])
        if found is None or not isinstance(value.type, Scalar) or value.type.kind not in ("int", "uint"):
            return None
        least, most = limits(value.type)
        return found if least <= found[0] and found[1] <= most else None
