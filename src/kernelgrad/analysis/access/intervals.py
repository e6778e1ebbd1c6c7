"""Between which numbers integers lie at each place of a kernel's body, in one launch.

What is known comes from the launch's shape, the integers among its arguments, the bounds of loops, and the conditions
around a place, which `ranges` does not look at. Everything has an interval: at worst what its type can hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from ...ir.layout import leaves
from ...ir.ops import Apply, Builtin, Constant, Extract, For, Function, If, Op, Value, While
from ...ir.traverse import walk
from ...ir.types import Array, Pointer, Scalar, Struct, Type
from .ranges import BUILTINS, COMBINED, Dim3, Range

Numbers = Callable[[str], int | None]  # an integer among the arguments, by its path

_ADDRESSES: Range = (-(1 << 63), (1 << 63) - 1)
_MIRRORED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq"}
_DENIED = {"lt": "ge", "le": "gt", "gt": "le", "ge": "lt", "ne": "eq", "eq": "ne"}


class Frame:
    """What holds in a block besides what holds around it; `found`: what followed from that."""

    def __init__(self) -> None:
        self.narrowed: dict[Value, Range] = {}
        self.found: dict[Value, Range] = {}


class Step(NamedTuple):
    """What a loop adds to something each time. `is_signed`: C++ forbids that it wraps around."""

    least: int
    most: int
    is_signed: bool


class Intervals:
    def __init__(self, function: Function, grid: Dim3, block: Dim3, numbers: Numbers):
        self._grid, self._block, self._numbers = grid, block, numbers
        self._names = {p.value: p.name for p in function.params}
        self._definitions: dict[Value, Op] = {v: op for op in walk(function.body) for v in op.results}
        self._frames = [Frame()]
        self.pointers = {
            p.value: [path for path, _, leaf in leaves(p.type, p.name) if isinstance(leaf, Pointer)]
            for p in function.params
        }

    def definition(self, value: Value) -> Op | None:
        return self._definitions.get(value)

    def path(self, value: Value) -> str | None:
        """Of an argument, or of a part of one."""
        if value in self._names:
            return self._names[value]
        op = self._definitions.get(value)
        if not isinstance(op, Extract):
            return None
        around, type = self.path(op.aggregate), op.aggregate.type
        if around is None or not isinstance(type, Struct | Array):
            return None
        return f"{around}.{type.fields[op.index].name}" if isinstance(type, Struct) else f"{around}[{op.index}]"

    # ---- places

    @contextmanager
    def assuming(self, condition: Value, holds: bool) -> Iterator[bool]:
        """Where a condition holds or does not. Gives whether anyone can get there."""
        with self._frame():
            yield self._assume(condition, holds)

    @contextmanager
    def counting(self, loop: For) -> Iterator[bool]:
        """In the body of a counted loop."""
        counter, *carried = loop.body.args
        lower, upper = self.of(loop.lower), self.of(loop.upper)
        first, last = (lower[0], upper[1] - 1) if loop.step > 0 else (upper[0] + 1, lower[1])
        with self._frame():
            trips = max(0, (last - first) // abs(loop.step))
            for arg, init, result in zip(carried, loop.inits, loop.body.results, strict=True):
                self._carry(arg, init, result, trips)
            yield self._narrow(counter, (first, last))

    @contextmanager
    def repeating(self, loop: While) -> Iterator[None]:
        """In both blocks of a loop."""
        with self._frame():
            for arg, init, result in zip(loop.before.args, loop.inits, loop.body.results, strict=True):
                self._carry_on(loop, arg, init, result)
            yield

    @contextmanager
    def entering(self, loop: While) -> Iterator[bool]:
        """In its body: `before` has just said that the condition holds."""
        condition, *forwarded = loop.before.results
        with self._frame():
            is_entered = self._assume(condition, True)
            for arg, value in zip(loop.body.args, forwarded, strict=True):
                if is_entered and _is_integer(arg.type):
                    self._narrow(arg, self.of(value))
            yield is_entered

    @contextmanager
    def _frame(self) -> Iterator[None]:
        self._frames.append(Frame())
        try:
            yield
        finally:
            self._frames.pop()

    def _carry(self, arg: Value, init: Value, result: Value, trips: int) -> None:
        """What a counted loop hands from one iteration to the next: it begins with this, and is up to so many steps
        more. Where that might come round, nothing is known; that it does not is what C++ demands of signed numbers."""
        step = self._step(result, arg, {})
        if step is None:
            return
        first, last = self.of(init)
        all_of_them = first + min(0, trips * step.least), last + max(0, trips * step.most)
        if step.is_signed or _is_in(all_of_them, _limits(arg.type)):
            self._narrow(arg, all_of_them)

    def _carry_on(self, loop: While, arg: Value, init: Value, result: Value) -> None:
        """The same of another loop: of what only grows, the least is what it begins with. Unsigned numbers only grow
        if the condition stops them before they come round."""
        back = dict(zip(loop.body.args, loop.before.results[1:], strict=True))
        step = self._step(result, arg, back)
        if step is None:
            if self.of(init)[0] >= 0 and self._is_divided(result, arg, back):
                self._narrow(arg, (0, self.of(init)[1]))
            return
        least, most = _limits(arg.type)
        if not step.is_signed:
            with self.entering(loop) as is_entered:
                now = self.of(arg) if is_entered else self.of(init)
            if not _is_in((now[0] + step.least, now[1] + step.most), (least, most)):
                return
        first, last = self.of(init)
        self._narrow(arg, (first if step.least >= 0 else least, last if step.most <= 0 else most))

    def _step(self, result: Value, arg: Value, back: dict[Value, Value]) -> Step | None:
        """How much more the next value is than this one, modulo what the type holds."""
        if not _is_integer(arg.type):
            return None
        if self._is_again(result, arg, back):
            return Step(0, 0, True)
        op = self._definitions.get(self._plain(result))
        if not isinstance(op, Apply) or op.fn not in ("add", "sub"):
            return None
        left, right = op.args
        if op.fn == "add" and self._is_again(right, arg, back):
            left, right = right, left
        if not self._is_again(left, arg, back):
            return None
        is_signed = all(isinstance(v.type, Scalar) and v.type.kind == "int" for v in (arg, op.result))
        least, most = self.of(right if is_signed else self._plain(right))
        return Step(least, most, is_signed) if op.fn == "add" else Step(-most, -least, is_signed)

    def _is_divided(self, result: Value, arg: Value, back: dict[Value, Value]) -> bool:
        """Whether the next value is this one, divided: `d /= 2`, `d >>= 1`."""
        op = self._definitions.get(self._plain(result))
        if not isinstance(op, Apply) or op.fn not in ("shr", "div") or not self._is_again(op.args[0], arg, back):
            return False
        return self.of(op.args[1])[0] >= (1 if op.fn == "div" else 0)

    def _is_again(self, value: Value, arg: Value, back: dict[Value, Value]) -> bool:
        value = self._plain(value)
        return back.get(value, value) is arg

    def _plain(self, value: Value) -> Value:
        """Without conversions between signed and unsigned: a counter that wraps is no counter."""
        op = self._definitions.get(value)
        while isinstance(op, Apply) and op.fn == "convert" and _bits(op.args[0].type) == _bits(value.type) > 0:
            value = op.args[0]
            op = self._definitions.get(value)
        return value

    # ---- integers

    def of(self, value: Value) -> Range:
        found = self._frames[-1].found.get(value)
        if found is None:
            limits = self._frames[-1].found[value] = _limits(value.type)  # while it is looked for
            computed = self._computed(value)
            found = computed if computed is not None and _is_in(computed, limits) else limits
            for frame in self._frames:
                found = _both(found, frame.narrowed.get(value, found))
            self._frames[-1].found[value] = found
        return found

    def offset(self, index: Value) -> Range:
        """Of an index, as addresses take it: those of 64 bits come round, so that `size_t i; p[i - 1]` may be before
        p."""
        found = self.of(index)
        if _is_in(found, _ADDRESSES):
            return found
        exact = None
        match self._definitions.get(index):
            case Apply("convert", (source,)) if _bits(source.type) == _bits(index.type):
                exact = self.offset(source)
            case Apply("neg", (arg,)):
                exact = COMBINED["sub"]((0, 0), self.offset(arg))
            case Apply("add" | "sub" | "mul" as fn, (left, right)):
                exact = COMBINED[fn](self.offset(left), self.offset(right))
        return exact if exact is not None and _is_in(exact, _ADDRESSES) else _ADDRESSES

    def _computed(self, value: Value) -> Range | None:
        path = self.path(value)
        number = self._numbers(path) if path is not None else None
        if number is not None:
            return number, number
        match self._definitions.get(value):
            case Constant(constant) if isinstance(constant, int):
                return int(constant), int(constant)
            case Builtin(name, axis) if name in BUILTINS:
                return BUILTINS[name](self._grid[axis], self._block[axis])
            case Apply("convert", (source,)) if _is_integer(source.type):
                return self.of(source)
            case Apply("neg", (arg,)):
                least, most = self.of(arg)
                return -most, -least
            case Apply("select", (condition, one, other)):
                return self._either(condition, one, other)
            case Apply(fn, (left, right)) if fn in COMBINED and _is_integer(left.type):
                return COMBINED[fn](self.of(left), self.of(right))
            case If() as op:
                k = op.results.index(value)
                return self._either(op.cond, op.then.results[k], op.orelse.results[k])
        return None

    def _either(self, condition: Value, one: Value, other: Value) -> Range | None:
        found = []
        for value, holds in ((one, True), (other, False)):
            with self.assuming(condition, holds) as is_possible:
                if is_possible:
                    found.append(self.of(value))
        return (min(r[0] for r in found), max(r[1] for r in found)) if found else None

    # ---- conditions

    def _assume(self, condition: Value, holds: bool) -> bool:
        """Narrows what the condition is about. False if it cannot be so."""
        match self._definitions.get(condition):
            case Constant(value):
                return bool(value) == holds
            case Apply("not", (arg,)):
                return self._assume(arg, not holds)
            case Apply("and" | "or" as fn, (one, other)) if holds == (fn == "and"):
                return self._assume(one, holds) and self._assume(other, holds)
            case Apply("select", (test, one, other)):
                return self._assume_one(test, one, other, holds)
            case If() as op:
                k = op.results.index(condition)
                return self._assume_one(op.cond, op.then.results[k], op.orelse.results[k], holds)
            case Apply(fn, (left, right)) if fn in _DENIED and _is_integer(left.type):
                fn = fn if holds else _DENIED[fn]
                return self._compare(fn, left, right)
        return True

    def _assume_one(self, test: Value, one: Value, other: Value, holds: bool) -> bool:
        """`test ? one : other`, where one of the two cannot be: `a && b`."""
        for side, value, against in ((True, one, other), (False, other, one)):
            op = self._definitions.get(against)
            if isinstance(op, Constant) and bool(op.value) != holds:
                return self._assume(test, side) and self._assume(value, holds)
        return True

    def _compare(self, fn: str, left: Value, right: Value) -> bool:
        if fn == "ne":
            return True
        return self._bound(fn, left, self.of(right)) and self._bound(_MIRRORED[fn], right, self.of(left))

    def _bound(self, fn: str, value: Value, other: Range) -> bool:
        least, most = _limits(value.type)
        bounds = {
            "lt": (least, other[1] - 1),
            "le": (least, other[1]),
            "gt": (other[0] + 1, most),
            "ge": (other[0], most),
            "eq": other,
        }
        return self._narrow(value, bounds[fn])

    def _narrow(self, value: Value, to: Range) -> bool:
        found = _both(self.of(value), to)
        if found[0] > found[1]:
            return False
        frame = self._frames[-1]
        frame.narrowed[value] = found
        frame.found = {}
        return self._narrow_operands(value, found)

    def _narrow_operands(self, value: Value, to: Range) -> bool:
        """What follows for what a value was computed from, where nothing wrapped."""
        match self._definitions.get(value):
            case Apply("convert", (source,)) if _is_integer(source.type):
                limits = _limits(source.type)
                fits = _is_in(self.of(source), _limits(value.type))
                if fits or (_bits(source.type) == _bits(value.type) and to[0] >= 0 and _is_in(to, limits)):
                    return self._narrow(source, _both(to, limits))
            case Apply("add" | "sub" as fn, (left, right)):
                one, other = self.of(left), self.of(right)
                whole = COMBINED[fn](one, other)
                if whole is None or not _is_in(whole, _limits(value.type)):
                    return True
                if fn == "sub":
                    of_left, of_right = (to[0] + other[0], to[1] + other[1]), (one[0] - to[1], one[1] - to[0])
                else:
                    of_left, of_right = (to[0] - other[1], to[1] - other[0]), (to[0] - one[1], to[1] - one[0])
                return self._if_new(left, of_left) and self._if_new(right, of_right)
        return True

    def _if_new(self, value: Value, to: Range) -> bool:
        least, most = self.of(value)
        return True if to[0] <= least and most <= to[1] else self._narrow(value, to)


def _is_integer(type: Type) -> bool:
    return isinstance(type, Scalar) and type.kind in ("int", "uint", "bool")


def _bits(type: Type) -> int:
    return type.bits if isinstance(type, Scalar) and type.kind in ("int", "uint") else 0


def _limits(type: Type) -> Range:
    if not isinstance(type, Scalar) or type.kind not in ("int", "uint"):
        return (0, 1) if isinstance(type, Scalar) and type.kind == "bool" else (-(1 << 64), 1 << 64)
    least = -(2 ** (type.bits - 1)) if type.kind == "int" else 0
    return least, least + 2**type.bits - 1


def _is_in(inner: Range, outer: Range) -> bool:
    return outer[0] <= inner[0] and inner[1] <= outer[1]


def _both(one: Range, other: Range) -> Range:
    return max(one[0], other[0]), min(one[1], other[1])
