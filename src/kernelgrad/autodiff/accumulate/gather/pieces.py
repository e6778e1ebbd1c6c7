"""Updates at places that are chosen, as updates at one place each, in branches.

    d_x[max(i - 1, 0)] += v            if (i - 1 >= 0) d_x[i - 1] += v; else d_x[0] += v;
    d_x[(i + 1) % n] += v              if (i + 1 < n) d_x[i + 1] += v; else d_x[i + 1 - n] += v;

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


class _Choice(NamedTuple):
    """Which of two values another is: by a comparison of `left` and `right`, or by a condition."""

    test: str
    left: Value
    right: Value | None
    first: Value
    second: Value
    less: Value | None = None  # is taken off the second


def in_pieces(function: Function, sums: Sums) -> tuple[Function, tuple[int, ...]]:
    """The function with such updates, where their places are made of choices; and of which, by numbers of operations:
    that depends on the launch."""
    pieces = _Pieces(sums)
    body = pieces.block(function.body)
    numbers = (k for k, op in enumerate(walk(function.body)) if not pieces.found.isdisjoint(op.results))
    return with_body(function, body), tuple(numbers)


def has_choices(ptr: Value, sums: Sums) -> bool:
    """Whether a place is made of choices, of which there are few."""
    return 0 < len(list(_Pieces(sums).choices(ptr))) <= _MOST


class _Pieces:
    def __init__(self, sums: Sums):
        self.sums, self.definition = sums, sums.structure.definition
        self.found: set[Value] = set()

    def block(self, block: Block) -> Block:
        ops = list[Op]()
        for op in block.ops:
            choices = list(self.choices(op.ptr)) if isinstance(op, Atomic) and op.kind == "add" else []
            if isinstance(op, Atomic) and 0 < len(choices) <= _MOST:
                self.found.update(choices)
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
            inner = operands(op) if choice is None else (choice.first, choice.second, choice.left, choice.right)
            for operand in inner:
                if operand is not None:
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
                return _Choice("", cond, None, first, second)
            case Apply("max", (first, second)):
                return _Choice("ge", first, second, first, second)
            case Apply("min", (first, second)):
                return _Choice("le", first, second, first, second)
            case Apply("rem", (over, by)) if self._comes_round_once(over, by):
                return _Choice("lt", over, by, over, over, less=by)
        return None

    def _comes_round_once(self, over: Value, by: Value) -> bool:
        sum_, end = self.sums.of(over), self.sums.of(by)
        if sum_ is None or end is None or end.terms or any(basis in self.sums.wrapping for basis, _ in sum_.terms):
            return False
        low, high = self.sums.range(sum_, 1 << 62)
        return low >= 0 and high < 2 * end.const

    def _branch(self, b: Builder, op: Atomic, choices: list[Value], known: dict[Value, Value]) -> None:
        if not choices:
            b.atomic("add", self._copy(b, op.ptr, known), op.args[0])
            return
        value, *others = choices
        choice = self.choice(value)
        assert choice is not None
        cond = self._copy(b, choice.left, known)
        if choice.right is not None:
            cond = b.apply(choice.test, cond, self._copy(b, choice.right, known))
        sides = list[Block]()
        for taken, less in ((choice.first, None), (choice.second, choice.less)):
            with b.region() as region:
                found = self._copy(b, taken, known)
                found = found if less is None else b.apply("sub", found, self._copy(b, less, known))
                self._branch(b, op, others, {**known, value: found})
            sides.append(region.block())
        b.if_(cond, sides[0], sides[1])

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
