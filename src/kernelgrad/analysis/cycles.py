"""Periodic loop-carried values: values that are back where they were after a few iterations.

    in ^= 1;    next = 1 - next;    stage = (stage + 1) % 3;    sign = -sign;    swap(from, to);    last = in;

Found by playing the loop: what it begins with are numbers, or values that are only passed on; if after a few
iterations these are what they were before, they are known in every one. How the next is computed does not matter.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from ..ir.builder import Builder
from ..ir.ops import Apply, Constant, For, Op, Value, While
from ..ir.types import I64, Scalar, Type
from .fold import Number, evaluate
from .structure import Structure

_MOST = 8  # iterations until the values come round
Held = Number | Value


@dataclass(frozen=True)
class Cycle:
    """`lead`: the value in the first iterations; then `turn`, again and again."""

    type: Type
    lead: tuple[Held, ...]
    turn: tuple[Held, ...]

    @property
    def needs(self) -> tuple[Value, ...]:
        return tuple(dict.fromkeys(v for v in (*self.lead, *self.turn) if isinstance(v, Value)))

    def at(self, b: Builder, given: Mapping[Value, Value], iteration: Value, name: str | None) -> Value:
        """The value in iteration `iteration` (i64), counted from zero. `given`: what stands for `needs`."""
        picked = _Picked(b, self.type, given, None if self.lead else name)
        value = picked.by_digit(self.turn, iteration, len(self.lead))
        for k in reversed(range(len(self.lead))):
            is_here = b.apply("eq", iteration, b.constant(k, I64))
            value = b.apply("select", is_here, picked.one(self.lead[k]), value, name=name)
        return value


def find(loop: For | While, arg: Value, structure: Structure) -> Cycle | None:
    args = loop.body.args[1:] if isinstance(loop, For) else loop.body.args
    play = _Play(loop, dict(zip(args, loop.body.results, strict=True)), structure)
    watched = play.sources(arg) if arg in play.following else None
    if watched is None:
        return None
    inits = dict(zip(args, loop.inits, strict=True))
    states: list[dict[Value, Held]] = [{a: play.number_or(inits[a]) for a in watched}]
    keys = [_key(states[0])]
    while len(states) <= _MOST:
        state = play.next(states[-1])
        if state is None:
            return None
        if (key := _key(state)) in keys:
            at = keys.index(key)
            values = tuple(s[arg] for s in states)
            return Cycle(arg.type, values[:at], values[at:])
        states.append(state)
        keys.append(key)
    return None


def _key(state: dict[Value, Held]) -> tuple[object, ...]:
    """Numbers are the same if they look the same: -0.0 is not 0.0, and NaN is itself."""
    return tuple(id(v) if isinstance(v, Value) else repr(v) for v in state.values())


class _Play:
    """`following`: what the arguments are in the next iteration."""

    def __init__(self, loop: For | While, following: dict[Value, Value], structure: Structure):
        self.loop, self.following, self.structure = loop, following, structure

    def number_or(self, value: Value) -> Held:
        op = self.structure.definition.get(value)
        is_number = isinstance(op, Constant) and isinstance(op.value, bool | int | float)
        return op.value if is_number else value  # type: ignore[union-attr]

    def sources(self, arg: Value) -> tuple[Value, ...] | None:
        """The arguments that this one depends on; None if it depends on more than these and pure functions."""
        found, todo, seen = dict[Value, None](), [arg], set[Value]()
        while todo:
            value = todo.pop()
            if value in seen or not self.structure.is_inside(value, self.loop):
                continue
            seen.add(value)
            op = self.structure.definition.get(value)
            if value in self.following:
                found[value] = None
                todo.append(self.following[value])
            elif isinstance(op, Apply):
                todo += op.args
            elif not isinstance(op, Constant):
                return None
        return tuple(found)

    def next(self, state: dict[Value, Held]) -> dict[Value, Held] | None:
        known: dict[Value, Held | None] = {**state}
        found = {arg: self.value(self.following[arg], known) for arg in state}
        return None if None in found.values() else found  # type: ignore[return-value]

    def value(self, value: Value, known: dict[Value, Held | None]) -> Held | None:
        if value not in known:
            op = self.structure.definition.get(value)
            is_inside = self.structure.is_inside(value, self.loop)
            known[value] = self.applied(op, known) if is_inside and isinstance(op, Apply) else self.number_or(value)
        return known[value]

    def applied(self, op: Op, known: dict[Value, Held | None]) -> Held | None:
        assert isinstance(op, Apply)
        args = [self.value(arg, known) for arg in op.args]
        if op.fn == "select" and not isinstance(args[0], Value | None):
            return args[1] if args[0] else args[2]
        types = tuple(arg.type for arg in op.args if isinstance(arg.type, Scalar))
        numbers = tuple(arg for arg in args if arg is not None and not isinstance(arg, Value))
        if len(numbers) < len(args) or len(types) < len(args) or not isinstance(op.result.type, Scalar):
            return None
        return evaluate(op.fn, numbers, types, op.result.type)


@dataclass(frozen=True)
class _Picked:
    b: Builder
    type: Type
    given: Mapping[Value, Value]
    name: str | None

    def one(self, held: Held) -> Value:
        return self.given[held] if isinstance(held, Value) else self.b.constant(held, self.type)

    def by_digit(self, turn: tuple[Held, ...], iteration: Value, first: int) -> Value:
        """That of `turn` whose turn it is; those before `first` do not count."""
        if len(turn) == 1:
            return self.one(turn[0])
        digit = self.digit(iteration, first, len(turn))
        if (by := _progress(turn, self.type)) is not None:
            moved = self.b.apply("mul", self.b.convert(digit, self.type), self.b.constant(by, self.type))
            return self.b.apply("add", self.one(turn[0]), moved, name=self.name)
        value = self.one(turn[-1])
        for k in reversed(range(len(turn) - 1)):
            is_here = self.b.apply("eq", digit, self.b.constant(k, I64))
            value = self.b.apply("select", is_here, self.one(turn[k]), value, name=self.name)
        return value

    def digit(self, iteration: Value, first: int, period: int) -> Value:
        """Of an iteration's number: what is left of it by the period. Before `first` it does not matter."""
        b = self.b
        counted = b.apply("sub", iteration, b.constant(first, I64)) if first else iteration
        if period & (period - 1) == 0:
            return b.apply("and", counted, b.constant(period - 1, I64))
        return b.apply("rem", counted, b.constant(period, I64))


def _progress(turn: tuple[Held, ...], type: Type) -> int | None:
    """By how much each of them is more than the one before; None where they are no such integers."""
    numbers = [v for v in turn if isinstance(v, int) and not isinstance(v, bool)]
    if len(numbers) < len(turn) or not isinstance(type, Scalar) or type.kind not in ("int", "uint") or type.bits < 32:
        return None
    by = numbers[1] - numbers[0]
    return by if all(b - a == by for a, b in pairwise(numbers)) else None
