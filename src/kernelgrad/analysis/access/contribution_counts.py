"""How many times a launch's threads may add to one sum: how long its loops are at most, by its integers.

The ranges of a and b bound `for (i = a; i < b; ++i)`, those of i, n and s `while (i < n) { ...; i += s; }`. A loop of
which nothing is known may be as long as a launch lasts.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from ...ir.ops import Apply, Block, For, Function, If, Load, Op, Value, While
from ...ir.traverse import blocks, operands, walk
from ...ir.types import F32, F64, Scalar
from ..loop_counts import Played
from ..structure import Structure
from ..trip_counts import Amount, Trips
from ..tuning import Totals
from .affine import Shape
from .ranges import Answers, Indices, Range, Ranges

LONG = 1 << 8  # additions to one sum of floats that keep enough of its digits
MIDDLING = 1 << 14  # the same where they are made in pieces (see `transforms/sum_pieces`), whose sum is a float
_ORDERED = ("lt", "le", "gt", "ge", "ne")
_GEOMETRIC = {"shr": 1, "shl": 1, "div": 2, "mul": 2}  # from which number on
_BITS = 64.0
_WRAPS = 1 << 31  # unsigned numbers that may stand for negative ones
_LONGEST = float(1 << 38)  # iterations of all threads of a launch together


def totals_of(function: Function, structure: Structure, shape: Shape, known: Callable[[Any], Any]) -> Totals | None:
    """How pieces of long loops' sums are added up; None where no loop adds that much to one float."""
    lengths = LoopLengths(function, structure, shape, known)
    most = lengths.most_iterations(function.body)
    most *= _uses(function) if most > 1 else 1
    longest = max(map(lengths.length, lengths.loops), default=1.0)
    return totals_for(math.inf if lengths.unbounded else most, longest)


def totals_for(additions: float, longest: float) -> Totals | None:
    """The same for nested loops that make so many additions to one sum. `longest`: iterations of the longest."""
    if additions <= LONG:
        return None
    return Totals(F32, longest <= LONG) if additions <= MIDDLING else Totals(F64)


def _uses(function: Function) -> int:
    """How often an iteration uses one number that it does not make, or loads one element, at most."""
    most = 1
    for loop in (op for op in walk(function.body) if isinstance(op, For | While)):
        inside = [op for block in blocks(loop) for op in walk(block)]
        made = {r for op in inside for r in op.results}
        used = Counter(v for op in inside for v in operands(op) if v not in made and _is_float(v))
        used.update(op.ptr for op in inside if isinstance(op, Load))
        most = max(most, *used.values(), 1)
    return most


class LoopLengths:
    """Iterations of a launch's loops, at most. `unbounded`: those asked for so far that nothing bounds."""

    def __init__(self, function: Function, structure: Structure, shape: Shape, known: Callable[[Any], Any]):
        self.trips, self.definition, self.known = Trips(function, structure), structure.definition, known
        self.params = {p.name: p.value for p in function.params}
        self.shape: dict[str, int] = {}
        for name, extents in (("gridDim", shape.grid), ("blockDim", shape.block)):
            self.shape |= {f"{name}.{axis}": n for axis, n in zip("xyz", extents, strict=True)}
        self.carried = {arg: v for op in walk(function.body) for arg, v in _carried(op)}
        self.ranges = Ranges(Indices(function), shape.grid, shape.block, Answers(known))
        self.loops = [op for op in walk(function.body) if isinstance(op, For | While)]
        self.unbounded: set[For | While] = set()
        self.nests: dict[tuple[For | While, ...], float] = {}  # by nested loops, from the outside
        self.structure, self.extent = structure, {"block_dim": shape.block, "grid_dim": shape.grid}
        self.extents = {"block_dim": math.prod(shape.block), "grid_dim": math.prod(shape.grid)}

    def most_iterations(self, block: Block, around: tuple[For | While, ...] = ()) -> float:
        """Iterations of the nest of loops in a block that has most, with the loops around it."""
        return max((self._within(op, around) for op in block.ops), default=self.nest_iterations(around))

    def _within(self, op: Op, around: tuple[For | While, ...] = ()) -> float:
        loops = (*around, op) if isinstance(op, For | While) else around
        return max((self.most_iterations(b, loops) for b in blocks(op)), default=self.nest_iterations(around))

    def nest_iterations(self, loops: tuple[For | While, ...]) -> float:
        if loops not in self.nests:
            self.nests[loops] = self._nest_iterations(loops)
        return self.nests[loops]

    def _nest_iterations(self, loops: tuple[For | While, ...]) -> float:
        """Iterations of nested loops: the product of their lengths; where that is middling, they are played through."""
        lengths = [max(1.0, self.length(loop)) for loop in loops]
        product = math.prod(lengths)
        short = all(n <= _BITS for n, loop in zip(lengths, loops, strict=True) if isinstance(loop, While))
        if not short or not _BITS < product < _LONGEST:
            return product
        exact = Played(self.structure, lambda name, axis: self.extent[name][axis]).executions(loops, self.known)
        return product if exact is None else float(exact)

    def length(self, loop: For | While) -> float:
        found = self.evaluated(self.trips.of(loop))
        found = self.by_ranges(loop) if found is None and isinstance(loop, For) else found
        return self.by_conditions(loop) if found is None else found

    def by_ranges(self, loop: For) -> float | None:
        """By the ranges of its bounds."""
        lower, upper = self.ranges.of(loop.lower), self.ranges.of(loop.upper)
        if lower is None or upper is None:
            return None
        distance = upper[1] - lower[0] if loop.step > 0 else lower[1] - upper[0]
        return float(max(0, -(-distance // abs(loop.step))))

    def evaluated(self, amount: Amount) -> float | None:
        factors = [([self.integer(name) for name in names], number) for names, number in amount.terms]
        if any(n is None for names, _ in factors for n in names):
            return None
        return float(sum(number * math.prod(names) for names, number in factors))  # type: ignore[arg-type]

    def integer(self, name: str) -> int | None:
        """Of the launch's extents and arguments. Asked for only where a loop depends on it: launches that agree on what
        was asked for share a plan."""
        found: int | None = self.shape.get(name)
        return self.known(self.params.get(name)) if found is None else found

    def by_conditions(self, loop: For | While) -> float:
        """Of a loop whose trip count is not known: the least that one of its conditions says, as all must hold."""
        if isinstance(loop, For):
            return self.as_long_as_a_launch(loop)
        found = [n for c in self.conditions(loop) if (n := self.by_condition(loop, c)) is not None]
        return min(found) if found else self.as_long_as_a_launch(loop)

    def as_long_as_a_launch(self, loop: For | While) -> float:
        self.unbounded.add(loop)
        return max(1.0, _LONGEST / math.prod(self.extents.values()))

    def conditions(self, loop: While) -> Iterator[Value]:
        """Those that all must hold, computed before an iteration or at the end of the one before."""
        todo = [loop.before.results[0]]
        for value in todo:
            op = self.definition.get(value)
            if isinstance(op, Apply) and op.fn == "and":
                todo += op.args
            elif value in loop.before.args:
                todo += (v for v in (loop.body.results[loop.before.args.index(value)],) if v not in todo)
            else:
                yield value

    def by_condition(self, loop: While, condition: Value) -> float | None:
        """Of a loop that goes on until an integer that it moves one way comes to a limit, `i` of `i < n`: None where
        either is not known."""
        op = self.definition.get(condition)
        if not isinstance(op, Apply) or op.fn not in _ORDERED or not all(map(_is_integer, op.args)):
            return None
        for value, end in (op.args, op.args[::-1]):
            moved, limit = self.stepped(loop, value), self.ranges.of(end)
            if moved is not None and limit is not None:
                found = self.by_steps(loop, moved, limit)
                return _BITS if found is None and self.is_geometric(loop, moved, op.fn) else found
        return None

    def stepped(self, loop: While, value: Value) -> int | None:
        """Which of the integers that a loop carries is compared: itself, what it becomes next, or either with a known
        number added."""
        passed = dict(zip(loop.body.args, loop.before.results[1:], strict=True))
        todo = [value]
        for found in todo:
            first = self.before_wide_conversions(found)
            first = self.before_wide_conversions(passed.get(first, first))
            if first in loop.before.args:
                return loop.before.args.index(first)
            match self.definition_of(first):
                case Apply(fn, (arg, by)) if fn in ("add", "sub", *_GEOMETRIC) and self.ranges.of(by) is not None:
                    todo.append(arg)
                case Apply("add", (by, arg)) if self.ranges.of(by) is not None:
                    todo.append(arg)
        return None

    def by_steps(self, loop: While, k: int, limit: Range) -> float | None:
        """`(limit - start) / step + 1` of an integer that is added to."""
        again, start = self.definition_of(loop.body.results[k]), self.ranges.of(loop.inits[k])
        if start is None or not isinstance(again, Apply) or again.fn not in ("add", "sub"):
            return None
        for arg, by in (again.args, again.args[::-1]):
            step = self.ranges.of(by)
            if step is None or step[0] * step[1] <= 0 or max(step) >= _WRAPS:
                continue
            if self.stepped(loop, arg) == k and self.is_carried(loop, self.before_wide_conversions(arg)):
                most = max(abs(limit[1] - start[0]), abs(start[1] - limit[0])) + max(map(abs, step))
                return most / min(map(abs, step)) + 1
        return None

    def is_carried(self, loop: While, value: Value) -> bool:
        return value in loop.body.args or value in loop.before.args

    def is_geometric(self, loop: While, k: int, compared: str) -> bool:
        """Whether it is shifted or scaled, at most once for each bit. One that grows may miss the end of a `!=`."""
        match self.definition_of(loop.body.results[k]):
            case Apply(fn, (arg, by)) if fn in _GEOMETRIC and self.is_carried(loop, self.before_conversions(arg)):
                known = self.ranges.of(by)
                return known is not None and known[0] >= _GEOMETRIC[fn] and (compared != "ne" or fn in ("shr", "div"))
        return False

    def before_wide_conversions(self, value: Value) -> Value:
        """Before conversions between wide integers: `i += blockDim.x` adds unsigned numbers."""
        op = self.definition.get(value)
        while isinstance(op, Apply) and op.fn == "convert" and all(map(_is_wide, (*op.args, op.result))):
            (value,) = op.args
            op = self.definition.get(value)
        return value

    def definition_of(self, value: Value) -> Op | None:
        return self.definition.get(self.before_conversions(value))

    def before_conversions(self, value: Value) -> Value:
        """Before conversions between integers."""
        op = self.definition.get(value)
        while isinstance(op, Apply) and op.fn == "convert" and _is_integer(op.args[0]):
            value = op.args[0]
            op = self.definition.get(value)
        return value

    def slice(self, values: tuple[Value, ...]) -> set[Value]:
        """The values that these are computed from, through loops and branches too."""
        found, todo = set[Value](), list(values)
        while todo:
            value = todo.pop()
            op = self.definition.get(value)
            if value not in found:
                found.add(value)
                todo += (*(operands(op) if op is not None else ()), *self.carried.get(value, ()))
        return found


def _is_integer(value: Value) -> bool:
    return isinstance(value.type, Scalar) and value.type.kind in ("int", "uint")


def _is_float(value: Value) -> bool:
    return isinstance(value.type, Scalar) and value.type.is_float


def _is_wide(value: Value) -> bool:
    return _is_integer(value) and value.type.size >= 4


def _carried(op: Op) -> Iterator[tuple[Value, tuple[Value, ...]]]:
    """What blocks pass on: from iteration to iteration, and to what comes after, with what it comes from, and what the
    loop ends by."""
    match op:
        case If(_, then, orelse):
            yield from zip(op.results, zip(then.results, orelse.results, strict=True), strict=True)
        case For(lower, upper, inits, _, body):
            passed = tuple((*both, lower, upper) for both in zip(inits, body.results, strict=True))
            yield from zip(body.args, ((lower, upper), *passed), strict=True)
            yield from zip(op.results, passed, strict=True)
        case While(inits, before, body):
            ends = before.results[:1]
            yield from zip(before.args, ((*both, *ends) for both in zip(inits, body.results, strict=True)), strict=True)
            yield from ((arg, (v, *ends)) for arg, v in zip(body.args, before.results[1:], strict=True))
            yield from ((result, (v, *ends)) for result, v in zip(op.results, before.results[1:], strict=True))
