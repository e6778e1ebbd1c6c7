"""Updates at places that are chosen, as updates at one place each, in branches.

    d_x[max(i - 1, 0)] += v            if (i - 1 >= 0) d_x[i - 1] += v; else d_x[0] += v;
    d_x[(i + 1) % n] += v              if (i + 1 < n) d_x[i + 1] += v; else d_x[i + 1 - n] += v;
    d_x[abs(i - 1)] += v               if (i - 1 >= 0) d_x[i - 1] += v; else d_x[-(i - 1)] += v;

Boundaries of grids are written that way. So gathers see places that are sums of multiples of coordinates, and
conditions that say where they are meant.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ....analysis.access.affine import Part, Sums
from ....ir.builder import Builder
from ....ir.ops import Apply, Atomic, Block, Function, Member, Offset, Op, PtrCast, Value
from ....ir.traverse import descend, operands, rebuild, walk, with_body, with_ops
from ....ir.types import Scalar

_MOST = 4  # choices on the way to one place
_MOST_ROUNDS = 3  # that a remainder's dividend goes through


class _Way(NamedTuple):
    """One of the values that a choice has: `taken` less so many times another, or the negative of that. It has it if it
    comes so far and `left`, less the same, compares with `right`, or if `left` holds; the last one has no test."""

    taken: Value
    test: str | None = None
    left: Value | None = None
    right: Value | int | None = None
    less: Value | None = None
    times: int = 0
    negative: bool = False


_Choice = tuple[_Way, ...]


_Written = tuple[int, int, tuple[int, ...]]  # the numbers of an update and of a choice, and its ways' `times`


def in_pieces(function: Function, sums: Sums) -> tuple[Function, tuple[_Written, ...]]:
    """The function with such updates, where their places are made of choices; and of which, by numbers of operations,
    and of their ways: that depends on the launch."""
    pieces = _Pieces(sums)
    body = pieces.block(function.body)
    numbers = {id(op): k for k, op in enumerate(walk(function.body))}
    return with_body(function, body), tuple(
        (numbers[id(update)], numbers[id(pieces.definition[value])], tuple(way.times for way in ways))
        for update, value, ways in pieces.found
    )


def has_choices(ptr: Value, sums: Sums) -> bool:
    """Whether a place is made of choices, of which there are few."""
    return 0 < len(list(_Pieces(sums).choices(ptr))) <= _MOST


class _Pieces:
    def __init__(self, sums: Sums):
        self.sums, self.definition = sums, sums.structure.definition
        self.found: list[tuple[Atomic, Value, _Choice]] = []

    def block(self, block: Block) -> Block:
        ops = list[Op]()
        for op in block.ops:
            choices = list(self.choices(op.ptr)) if isinstance(op, Atomic) and op.kind == "add" else []
            if isinstance(op, Atomic) and 0 < len(choices) <= _MOST:
                self.found += ((op, value, self.choice(value) or ()) for value in choices)
                b = Builder(op.span)
                self._branch(b, op, choices, {})
                ops += b.ops
            else:
                ops.append(descend(op, self.block))
        return with_ops(block, ops)

    def choices(self, ptr: Value) -> Iterator[Value]:
        """The values on the way to a place that are choices, each after what it is made of."""
        seen, done = set[Value](), list[Value]()

        def visit(value: Value) -> None:
            op = self.definition.get(value)
            if value in seen or not isinstance(op, Apply | Offset | Member | PtrCast) or self._is_sum(value):
                return
            seen.add(value)
            choice = self.choice(value)
            for operand in operands(op):
                visit(operand)
            if choice is not None:
                done.append(value)

        visit(ptr)
        yield from done

    def _is_sum(self, value: Value) -> bool:
        """Of multiples of coordinates. What is shifted before it is divided has digits that are none of an index."""
        found = self.sums.of(value) if isinstance(value.type, Scalar) else None
        return found is not None and not any(isinstance(b, Part) and _is_shifted(b) for b, _ in found.terms)

    def choice(self, value: Value) -> _Choice | None:
        if not isinstance(value.type, Scalar) or value.type.is_float:
            return None
        match self.definition.get(value):
            case Apply("select", (cond, first, second)):
                return _Way(first, "", cond), _Way(second)
            case Apply("max", (first, second)):
                return _Way(first, "ge", first, second), _Way(second)
            case Apply("min", (first, second)):
                return _Way(first, "le", first, second), _Way(second)
            case Apply("abs", (of,)):
                return _Way(of, "ge", of, 0), _Way(of, negative=True)
            case Apply("rem", (over, by)):
                return self._rounds(over, by)
        return None

    def _rounds(self, over: Value, by: Value) -> _Choice | None:
        """Of a remainder: its dividend less as many divisors as it has, which differ by few."""
        sum_, end = self.sums.of(over), self.sums.of(by)
        if sum_ is None or end is None or end.terms or any(basis in self.sums.wrapping for basis, _ in sum_.terms):
            return None
        low, high = self.sums.range(sum_, 1 << 62)
        if low < 0 or end.const <= 0 or high // end.const - low // end.const >= _MOST_ROUNDS:
            return None
        *others, last = range(low // end.const, high // end.const + 1)
        return (*(_Way(over, "lt", over, by, by, k) for k in others), _Way(over, less=by, times=last))

    def _branch(self, b: Builder, op: Atomic, choices: list[Value], known: dict[Value, Value]) -> None:
        if not choices:
            b.atomic("add", self._copy(b, op.ptr, known), op.args[0])
            return
        choice = self.choice(choices[0])
        assert choice is not None
        self._ways(b, op, choices, choice, known)

    def _ways(self, b: Builder, op: Atomic, choices: list[Value], ways: _Choice, known: dict[Value, Value]) -> None:
        value, *rest = choices
        way, *others = ways
        with b.region() as region:
            self._branch(b, op, rest, {**known, value: self._taken(b, way, known)})
        if way.left is None:
            b.ops += region.ops
            return
        cond = self._copy(b, way.left, known)
        if way.test and way.right is not None:
            right = b.constant(way.right, cond.type) if isinstance(way.right, int) else self._copy(b, way.right, known)
            cond = b.apply(way.test, self._less(b, cond, way, known), right)
        with b.region() as otherwise:
            self._ways(b, op, choices, tuple(others), known)
        b.if_(cond, region.block(), otherwise.block())

    def _taken(self, b: Builder, way: _Way, known: dict[Value, Value]) -> Value:
        found = self._less(b, self._copy(b, way.taken, known), way, known)
        return b.apply("neg", found) if way.negative else found

    def _less(self, b: Builder, value: Value, way: _Way, known: dict[Value, Value]) -> Value:
        if not way.times or way.less is None:
            return value
        less = self._copy(b, way.less, known)
        times = less if way.times == 1 else b.apply("mul", less, b.constant(way.times, less.type))
        return b.apply("sub", value, times)

    def _copy(self, b: Builder, value: Value, known: dict[Value, Value]) -> Value:
        """A value with what is known put in the place of choices."""
        if value in known:
            return known[value]
        op = self.definition.get(value)
        if not isinstance(op, Apply | Offset | Member | PtrCast) or self._is_sum(value):
            return value
        copies = {v: self._copy(b, v, known) for v in operands(op)}
        if all(copies[v] is v for v in copies):
            return value
        fresh = (Value(value.type, value.name),)
        return b.add(rebuild(op, copies.__getitem__, lambda block: block, results=fresh)).result


def _is_shifted(part: Part) -> bool:
    return part.of.const != 0 or any(isinstance(b, Part) and _is_shifted(b) for b, _ in part.of.terms)
