"""How often loops run in a launch, by its integers: where ends of loops follow from scalar arguments and the launch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from ..ir.ops import Apply, Builtin, Constant, For, Value, While
from ..ir.types import Scalar
from .fold import evaluate as fold
from .structure import Structure

Number = int | float | bool
Known = Callable[[Value], Number | None]
BuiltinValue = Callable[[str, int], int]
State = dict[Value, Number]
Bounded = Callable[[For | While, Structure, Known, BuiltinValue], "int | None"]

_SIMULATED = 4096  # iterations that are played


def evaluate(value: Value, structure: Structure, known: Known, builtin: BuiltinValue) -> Number | None:
    """The value of a scalar that depends only on scalar parameters and the launch; None where it does not."""
    given = known(value)
    op = structure.definition.get(value)
    if given is not None or op is None:
        return given
    match op:
        case Constant(number):
            return number
        case Builtin(name, axis) if name in ("block_dim", "grid_dim"):
            return builtin(name, axis)
        case Apply(fn, args):
            return _apply(op, [evaluate(a, structure, known, builtin) for a in args], fn)
    return None


def _apply(op: Apply, args: list[Number | None], fn: str) -> Number | None:
    types = tuple(a.type for a in op.args)
    if any(a is None for a in args) or not all(isinstance(t, Scalar) for t in (*types, op.result.type)):
        return None
    return fold(fn, tuple(args), types, op.result.type)  # type: ignore[arg-type]


class Played:
    """Loops inside of loops, the inner ones of other lengths each time: their counters are played. `bounded`: at most
    how often a loop runs of which no more is known."""

    def __init__(self, structure: Structure, builtin: BuiltinValue, bounded: Bounded | None = None):
        self.structure, self.builtin, self.bounded = structure, builtin, bounded
        self.left = _SIMULATED

    def executions(self, loops: Sequence[For | While], known: Known) -> int | None:
        """How often the innermost of loops, from outside, runs in all; None where that is not known, or takes too long
        to find."""
        if not loops:
            return 1
        first, *inner = loops
        trips = trip_count(first, self.structure, known, self.builtin)
        if trips is None and self.bounded is not None:
            trips = self.bounded(first, self.structure, known, self.builtin)
            return _times(trips, self.executions(inner, known) if trips is not None else None)
        self.left -= trips if isinstance(first, While) and trips is not None else 0
        if trips is None or self.left < 0:
            return None
        alike = self.executions(inner, known)
        return trips * alike if alike is not None else self._one_by_one(first, inner, known)

    def _one_by_one(self, loop: For | While, inner: Sequence[For | While], known: Known) -> int | None:
        total = 0
        for state in _states(loop, self.structure, known, self.builtin):
            self.left -= 1
            found = None if state is None or self.left < 0 else self.executions(inner, _extended(known, state))
            if found is None:
                return None
            total += found
        return total


def _times(trips: int | None, alike: int | None) -> int | None:
    return None if trips is None or alike is None else trips * alike


def _extended(known: Known, state: State) -> Known:
    return lambda value: state[value] if value in state else known(value)


def trip_count(loop: For | While, structure: Structure, known: Known, builtin: BuiltinValue) -> int | None:
    if isinstance(loop, While):
        return _simulated(loop, structure, known, builtin)
    lower = evaluate(loop.lower, structure, known, builtin)
    upper = evaluate(loop.upper, structure, known, builtin)
    if lower is None or upper is None:
        return _bounded(loop, structure, known, builtin)
    return len(range(int(lower), int(upper), loop.step))


def _simulated(loop: While, structure: Structure, known: Known, builtin: BuiltinValue) -> int | None:
    """Runs what decides about going on, as in `for (d = blockDim.x / 2; d > 0; d /= 2)`; None where memory or floats
    that the kernel computes have a say, or where it takes too long."""
    count = 0
    for state in _states(loop, structure, known, builtin):
        if state is None or count == _SIMULATED:
            return None
        count += 1
    return count


def _states(loop: For | While, structure: Structure, known: Known, builtin: BuiltinValue) -> Iterator[State | None]:
    """The integers that decide about going on, in each iteration; None at last where they are not known."""
    if isinstance(loop, For):
        lower, upper = (evaluate(v, structure, known, builtin) for v in (loop.lower, loop.upper))
        if lower is None or upper is None:
            yield None
            return
        for number in range(int(lower), int(upper), loop.step):
            yield {loop.body.args[0]: number}
        return
    args, results = loop.body.args, loop.body.results
    carried = _deciding(loop, structure)
    state = _evaluated({args[k]: loop.inits[k] for k in carried}, structure, known, builtin)
    while state is None or state[args[0]]:
        yield state
        if state is None:
            return
        following = {args[k]: results[k] for k in carried}
        state = _evaluated(following, structure, _extended(known, state), builtin)


def _evaluated(
    values: Mapping[Value, Value], structure: Structure, known: Known, builtin: BuiltinValue
) -> State | None:
    found = {arg: evaluate(value, structure, known, builtin) for arg, value in values.items()}
    return None if None in found.values() else {arg: n for arg, n in found.items() if n is not None}


def _deciding(loop: While, structure: Structure) -> list[int]:
    """The carried values that the condition depends on, from iteration to iteration."""
    index = {arg: k for k, arg in enumerate(loop.body.args)}
    found: dict[int, None] = {}
    todo = [loop.body.results[0], loop.body.args[0]]
    seen: set[Value] = set()
    while todo:
        value = todo.pop()
        if value in seen:
            continue
        seen.add(value)
        if value in index:
            found[index[value]] = None
            todo.append(loop.body.results[index[value]])
        op = structure.definition.get(value)
        if isinstance(op, Apply):
            todo += op.args
    return list(found)


def _bounded(loop: For, structure: Structure, known: Known, builtin: BuiltinValue) -> int | None:
    """A loop from a to min(a + length, ...) runs at most `length` times, whatever a is: a checkpointed segment."""
    op = structure.definition.get(loop.upper)
    if not (isinstance(op, Apply) and op.fn == "min" and loop.step == 1):
        return None
    for limit in op.args:
        total = structure.definition.get(limit)
        if isinstance(total, Apply) and total.fn == "add" and loop.lower in total.args:
            length = total.args[1] if total.args[0] is loop.lower else total.args[0]
            found = evaluate(length, structure, known, builtin)
            if found is not None:
                return max(0, int(found))
    return None
