"""How many times a launch's threads may add to one sum: what is known of its loops from its integers.

A counted loop whose ends lie between known numbers is no longer than these are apart. Of others the length is taken
from the largest number that decides about it: an argument, a constant, what was computed from such.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ...ir.ops import Apply, Block, Builtin, For, Function, If, Load, Op, Value, While
from ...ir.traverse import blocks, operands, walk
from ...ir.types import Scalar
from ..structure import Structure
from ..trip_counts import Amount, Trips
from .affine import Shape
from .ranges import Indices, Ranges

LONG = 1 << 12  # additions to one sum of floats that keep enough of its digits
_LONG_IF_EVER = 1 << 16  # the same, where a loop's length is in memory and only bounded by what a launch can do
_GEOMETRIC = ("shr", "shl", "div", "mul")
_BITS = 64.0
_LONGEST = float(1 << 38)  # iterations of all threads of a launch together


def has_long_loops(function: Function, structure: Structure, shape: Shape, known: Callable[[Any], Any]) -> bool:
    lengths = Lengths(function, structure, shape, known)
    most = lengths.most(function.body)
    return most > (_LONG_IF_EVER if lengths.open else LONG)


class Lengths:
    def __init__(self, function: Function, structure: Structure, shape: Shape, known: Callable[[Any], Any]):
        self.trips, self.definition, self.known = Trips(function, structure), structure.definition, known
        self.params = {p.name: p.value for p in function.params}
        self.shape: dict[str, int] = {}
        for name, extents in (("gridDim", shape.grid), ("blockDim", shape.block)):
            self.shape |= {f"{name}.{axis}": n for axis, n in zip("xyz", extents, strict=True)}
        self.carried = {arg: v for op in walk(function.body) for arg, v in _carried(op)}
        self.ranges = Ranges(Indices(function), shape.grid, shape.block, _Answers(known))
        self.open: set[For | While] = set()  # loops that may be as long as they like
        self.extents = {"block_dim": math.prod(shape.block), "grid_dim": math.prod(shape.grid)}

    def most(self, block: Block) -> float:
        """Iterations of loops inside of loops."""
        return max((self.iterations(op) for op in block.ops), default=1.0)

    def iterations(self, op: Op) -> float:
        inside = max((self.most(b) for b in blocks(op)), default=1.0)
        return inside * max(1.0, self.length(op)) if isinstance(op, For | While) else inside

    def length(self, loop: For | While) -> float:
        found = self.number(self.trips.of(loop))
        found = self.between(loop) if found is None and isinstance(loop, For) else found
        return self.guess(loop) if found is None else found

    def between(self, loop: For) -> float | None:
        """At most, by what its ends may be."""
        lower, upper = self.ranges.of(loop.lower), self.ranges.of(loop.upper)
        if lower is None or upper is None:
            return None
        distance = upper[1] - lower[0] if loop.step > 0 else lower[1] - upper[0]
        return float(max(0, -(-distance // abs(loop.step))))

    def number(self, amount: Amount) -> float | None:
        factors = [([self.named(name) for name in names], number) for names, number in amount.terms]
        if any(n is None for names, _ in factors for n in names):
            return None
        return float(sum(number * math.prod(names) for names, number in factors))  # type: ignore[arg-type]

    def named(self, name: str) -> int | None:
        """Asked for only where a loop depends on it: launches that agree on what was asked for share a plan."""
        found: int | None = self.shape.get(name)
        return self.known(self.params.get(name)) if found is None else found

    def guess(self, loop: For | While) -> float:
        """Of a loop whose threads begin at different places, or that is not counted: the largest number that its ends
        come from, shared among the threads where its step is a block or the grid. What depends on memory may be as
        long as a launch of its size lasts."""
        if isinstance(loop, For):
            return self.guess_from(loop, (loop.lower, loop.upper))
        return min(self.guess_from(loop, (condition,)) for condition in self.conditions(loop.before.results[0]))

    def conditions(self, value: Value) -> Iterator[Value]:
        """All of which must hold."""
        op = self.definition.get(value)
        if isinstance(op, Apply) and op.fn == "and":
            for arg in op.args:
                yield from self.conditions(arg)
        else:
            yield value

    def guess_from(self, loop: For | While, first: tuple[Value, ...]) -> float:
        ends = self.slice(first)
        ops = [self.definition.get(v) for v in ends]
        if any(isinstance(op, Load) for op in ops) or any(_is_float(v) for v in ends):
            self.open.add(loop)
            return max(1.0, _LONGEST / math.prod(self.extents.values()))
        if isinstance(loop, While) and self.is_geometric(loop, ends):
            return _BITS
        steps = self.slice(tuple(self.steps(loop, ends)))
        names = {op.name for op in map(self.definition.get, steps) if isinstance(op, Builtin)}
        shared = math.prod(n for name, n in self.extents.items() if name in names)
        return max((abs(n) for r in map(self.ranges.of, ends) if r is not None for n in r), default=0) / shared

    def steps(self, loop: For | While, ends: set[Value]) -> Iterator[Value]:
        """What a loop goes on by, and by what distances were divided to count its iterations."""
        for value in ends:
            match self.definition.get(value):
                case Apply("div", (_, by)):
                    yield by
        for arg, again in self.changing(loop, ends) if isinstance(loop, While) else ():
            match self.definition.get(self.unconverted(again)):
                case Apply("add" | "sub", args) if arg in (found := [self.unconverted(v) for v in args]):
                    yield from (v for v in found if v is not arg)

    def unconverted(self, value: Value) -> Value:
        """What it was before conversions between wide integers: `i += blockDim.x` adds unsigned numbers."""
        op = self.definition.get(value)
        while isinstance(op, Apply) and op.fn == "convert" and all(map(_is_wide, (*op.args, op.result))):
            (value,) = op.args
            op = self.definition.get(value)
        return value

    def changing(self, loop: While, ends: set[Value]) -> Iterator[tuple[Value, Value]]:
        """The integers that a loop's end depends on and that it changes, in its body and after."""
        passed = dict(zip(loop.before.results[1:], loop.body.args, strict=True))
        for first, again in zip(loop.before.args, loop.body.results, strict=True):
            arg = passed.get(first, first)
            if first in ends and again is not arg and _is_integer(again):
                yield arg, again

    def is_geometric(self, loop: While, ends: set[Value]) -> bool:
        """Whether all that it ends by are integers that it shifts: as many times as these have bits."""
        found = [self.is_shifted(again) for _, again in self.changing(loop, ends)]
        return bool(found) and all(found)

    def is_shifted(self, value: Value) -> bool:
        op = self.definition.get(value)
        while isinstance(op, Apply) and op.fn == "convert":
            op = self.definition.get(op.args[0])
        return isinstance(op, Apply) and op.fn in _GEOMETRIC

    def slice(self, values: tuple[Value, ...]) -> set[Value]:
        """What they are computed from."""
        found, todo = set[Value](), list(values)
        while todo:
            value = todo.pop()
            op = self.definition.get(value)
            if value not in found:
                found.add(value)
                todo += (*(operands(op) if op is not None else ()), *self.carried.get(value, ()))
        return found


class _Answers(Mapping[Value, int]):
    """Integers among a launch's arguments, each asked for only where something depends on it."""

    def __init__(self, known: Callable[[Any], Any]):
        self._known = known

    def __contains__(self, value: object) -> bool:
        return self._known(value) is not None

    def __getitem__(self, value: Value) -> int:
        return int(self._known(value))

    def __iter__(self) -> Iterator[Value]:
        return iter(())

    def __len__(self) -> int:
        return 0


def _is_integer(value: Value) -> bool:
    return isinstance(value.type, Scalar) and value.type.kind in ("int", "uint")


def _is_wide(value: Value) -> bool:
    return _is_integer(value) and isinstance(value.type, Scalar) and value.type.bits >= 32


def _is_float(value: Value) -> bool:
    return isinstance(value.type, Scalar) and value.type.is_float


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
