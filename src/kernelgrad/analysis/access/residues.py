"""What differs between the lanes of a warp: integers as multiples of `threadIdx.x` plus what all lanes share, but for
multiples of a power of two that nobody knows.

    c = threadIdx.x + trip * 256     ->   1 * threadIdx.x, modulo 256: no two lanes are at the same c, whatever their
                                          trips are

That is arithmetic modulo 2 to the 32, which wraps around as the device's does. Loops are followed until what they carry
does not change any more; lanes are taken to go through them together, and to leave them after any number of trips.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container
from typing import NamedTuple

from ...ir.ops import Apply, Block, Builtin, Constant, For, Function, If, Member, Offset, Op, PtrCast, Value, While
from ...ir.traverse import walk
from ...ir.types import Pointer, Scalar, Struct, Type

_ALL = 1 << 32


class Residue(NamedTuple):
    """`slope * threadIdx.x`, plus a multiple of `common` that the lanes share, plus any multiples of `other`. Powers of
    two; 2 to the 32 of what is zero."""

    slope: int
    common: int
    other: int

    def plus(self, more: Residue, sign: int = 1) -> Residue:
        slope = (self.slope + sign * more.slope) % _ALL
        return Residue(slope, min(self.common, more.common), min(self.other, more.other))

    def times(self, number: int) -> Residue:
        by = _power(number)
        return Residue(self.slope * number % _ALL, min(_ALL, self.common * by), min(_ALL, self.other * by))

    def product(self, more: Residue) -> Residue:
        """Of unknown numbers."""
        (_, a, b), (_, c, d) = self.spread(), more.spread()
        return Residue(0, min(_ALL, a * c), min(_ALL, a * d, b * c, b * d))

    def spread(self) -> Residue:
        """The multiples of the lane's number as any multiples."""
        return Residue(0, self.common, min(self.other, _power(self.slope)))

    def or_(self, more: Residue) -> Residue:
        """One in some lanes, the other in others."""
        slopes = _power(self.slope - more.slope)
        common = min(self.common, more.common)
        return Residue(self.slope, common, min(self.other, more.other, slopes, common))

    def following(self, more: Residue) -> Residue:
        """One before a trip, the other after it, in all lanes at once."""
        slopes = _power(self.slope - more.slope)
        return Residue(self.slope, min(self.common, more.common), min(self.other, more.other, slopes))

    def left(self) -> Residue:
        """After another number of trips in each lane."""
        return self._replace(other=min(self.other, self.common))

    def is_apart(self, lanes: int) -> bool:
        """Whether so many neighbouring lanes have different ones."""
        return self.other // math.gcd(self.other, self.slope) >= lanes


_UNKNOWN = Residue(0, 1, 1)


def _power(number: int) -> int:
    """The greatest power of two that divides it."""
    return math.gcd(number, _ALL)


class Residues:
    """`uniform`: what the lanes of a warp have in common; `block`: its extents."""

    def __init__(self, function: Function, uniform: Container[Value], block: tuple[int, int, int]):
        self.uniform, self.block = uniform, block
        self.definition = {v: op for op in walk(function.body) for v in op.results}
        self.found: dict[Value, Residue] = {}
        for param in function.params:
            self.put(param.value, _UNKNOWN)
        self.follow(function.body)

    def of(self, value: Value) -> Residue:
        return self.found.get(value, _UNKNOWN)

    def put(self, value: Value, residue: Residue) -> None:
        if value in self.uniform:
            residue = Residue(0, residue.common if residue.slope == 0 and residue.other == _ALL else 1, _ALL)
        self.found[value] = residue

    def follow(self, block: Block) -> None:
        for op in block.ops:
            match op:
                case For():
                    self._for(op)
                case While():
                    self._while(op)
                case If(then=then, orelse=orelse):
                    self.follow(then)
                    self.follow(orelse)
                    for result, a, b in zip(op.results, then.results, orelse.results, strict=True):
                        self.put(result, self.of(a).or_(self.of(b)))
                case _ if op.results:
                    residue = self._simple(op)
                    for result in op.results:
                        self.put(result, residue)

    def _for(self, op: For) -> None:
        counted = self.of(op.lower).plus(Residue(0, _power(op.step), _ALL))
        self.put(op.body.args[0], counted)
        args = op.body.args[1:]
        self._carry(args, op.inits, op.body.results, lambda: self.follow(op.body))
        for result, arg in zip(op.results, args, strict=True):
            self.put(result, self.of(arg).left())

    def _while(self, op: While) -> None:
        def trip() -> None:
            self.follow(op.before)
            for arg, forwarded in zip(op.body.args, op.before.results[1:], strict=True):
                self.put(arg, self.of(forwarded))
            self.follow(op.body)

        self._carry(op.before.args, op.inits, op.body.results, trip)
        for result, forwarded in zip(op.results, op.before.results[1:], strict=True):
            self.put(result, self.of(forwarded).left())

    def _carry(
        self, args: tuple[Value, ...], inits: tuple[Value, ...], results: tuple[Value, ...], trip: Callable[[], None]
    ) -> None:
        for arg, init in zip(args, inits, strict=True):  # what was found before is not found again, in loops around
            self.put(arg, self.found[arg].following(self.of(init)) if arg in self.found else self.of(init))
        trip()
        while self._widen(args, results):
            trip()

    def _widen(self, args: tuple[Value, ...], results: tuple[Value, ...]) -> bool:
        """Whether what comes round is more than what was taken to be there."""
        before = [self.of(arg) for arg in args]
        for arg, result in zip(args, results, strict=True):
            self.put(arg, self.of(arg).following(self.of(result)))
        return before != [self.of(arg) for arg in args]

    def _simple(self, op: Op) -> Residue:
        match op:
            case Constant(number) if isinstance(number, int):
                return Residue(0, _power(number), _ALL)
            case Builtin("thread_idx", 0):
                return Residue(1, _ALL, _ALL)
            case Builtin("block_dim", axis):
                return Residue(0, _power(self.block[axis]), _ALL)
            case Offset(base, index):
                assert isinstance(base.type, Pointer)
                return self.of(base).plus(self.of(index).times(base.type.pointee.size))
            case Member(base, field):
                assert isinstance(base.type, Pointer) and isinstance(base.type.pointee, Struct)
                return self.of(base).plus(Residue(0, _power(base.type.pointee.fields[field].offset), _ALL))
            case PtrCast(base):
                return self.of(base)
            case Apply("select", (_, a, b)):
                return self.of(a).or_(self.of(b))
            case Apply(fn, args) if all(_is_index(v.type) for v in (op.result, *args)):
                return self._apply(fn, args)
        return _UNKNOWN

    def _apply(self, fn: str, args: tuple[Value, ...]) -> Residue:
        parts = [self.of(v) for v in args]
        match fn, parts:
            case "add", [a, b]:
                return a.plus(b)
            case "sub", [a, b]:
                return a.plus(b, -1)
            case "neg", [a]:
                return a.times(-1)
            case "convert", [a]:
                return a
            case "mul", [a, b]:
                left, right = map(self._number, args)
                return a.times(right) if right is not None else a.product(b) if left is None else b.times(left)
            case "shl", [a, _] if (bits := self._number(args[1])) is not None and 0 <= bits < 32:
                return a.times(1 << bits)
            case "rem", [a, _] if (by := self._number(args[1])) is not None and by == _power(by):
                return a.plus(Residue(0, _ALL, by))
            case "and", [a, _] if (mask := self._number(args[1])) is not None and mask + 1 == _power(mask + 1):
                return a.plus(Residue(0, _ALL, mask + 1))
            case "min" | "max", [a, b]:
                return a.or_(b)
        return _UNKNOWN

    def _number(self, value: Value) -> int | None:
        match self.definition.get(value):
            case Constant(number) if isinstance(number, int):
                return number
            case Builtin("block_dim", axis):
                return self.block[axis]
            case Apply("convert", (of,)) if _is_index(of.type):
                return self._number(of)
        return None


def _is_index(type: Type) -> bool:
    return isinstance(type, Scalar) and type.kind in ("int", "uint") and type.bits >= 32
