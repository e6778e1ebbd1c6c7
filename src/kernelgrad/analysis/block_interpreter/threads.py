"""Integers of all threads of a block at once: an array with one number per thread, or None where it depends on memory,
on the block, or on a loop whose iterations are not known. What every interpreter of a block evaluates them by."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...ir.ops import Apply, Builtin, Constant, For, GlobalRef, Member, Offset, PtrCast, Value, While
from ...ir.types import Pointer, Scalar, Struct, Type, limits
from ..access.affine import Known
from ..structure import Structure

Numbers = Any  # an array of int64 or bool, one entry per thread
_ITERATIONS = 2048  # of a loop
_PLAYED = 1 << 13  # of all loops
_LARGE = 1 << 31  # products of such numbers do not wrap here; what is larger counts as unknown


class Threads:
    """Evaluates integers for every thread of a block; `given` holds what loops carry."""

    def __init__(
        self,
        block: tuple[int, int, int],
        structure: Structure,
        known: Known,
        given: dict[Value, Numbers | None] | None = None,
        indices: tuple[Numbers, Numbers, Numbers] | None = None,
        left: list[int] | None = None,
    ):
        self.block, self.structure, self.known = block, structure, known
        self.given = given if given is not None else {}
        self.count = block[0] * block[1] * block[2]
        self.indices = _indices(block) if indices is None else indices
        self.left = [_PLAYED] if left is None else left  # iterations, of all loops together

    def value(self, value: Value) -> Numbers | None:
        if value not in self.given:
            self.given[value] = self._evaluate(value)
        return self.given[value]

    def _evaluate(self, value: Value) -> Numbers | None:
        op = self.structure.definition.get(value)
        match op:
            case None:
                number = self.known(value)
                return None if number is None else self._constant(number)
            case Constant(number):
                return self._constant(number)
            case Builtin("thread_idx", axis):
                return self.indices[axis]
            case Builtin("block_dim", axis):
                return self._constant(self.block[axis])
            case Apply(fn, args) if fn in _ARITHMETIC:
                return self._apply(fn, [self.value(a) for a in args], value.type)
        return None

    def _constant(self, number: float) -> Numbers | None:
        return None if isinstance(number, float) else np.full(len(self.indices[0]), number)

    def _apply(self, fn: str, args: list[Numbers | None], type: Type) -> Numbers | None:
        if any(a is None or _is_large(a) for a in args) or not isinstance(type, Scalar) or type.is_float:
            return None
        result = _ARITHMETIC[fn](*args)
        if result is None or type.kind == "bool":
            return None if result is None else result.astype(bool)
        low, high = limits(type)
        low, high = max(low, -_LARGE), min(high, _LARGE)
        result = result.astype(np.int64)
        return result if (result >= low).all() and (result <= high).all() else None

    def address(self, ptr: Value) -> Numbers | None:
        """In bytes from the start of the shared variable."""
        op = self.structure.definition.get(ptr)
        match op:
            case PtrCast(base):
                return self.address(base)
            case Offset(base, index):
                start, by = self.address(base), self.value(index)
                assert isinstance(ptr.type, Pointer)
                return None if start is None or by is None else start + by * ptr.type.pointee.size
            case Member(base, index):
                start = self.address(base)
                assert isinstance(base.type, Pointer) and isinstance(base.type.pointee, Struct)
                return None if start is None else start + base.type.pointee.fields[index].offset
        return self._constant(0) if isinstance(op, GlobalRef) else None

    # ---- loops

    def iterations(self, loop: For | While, mask: Numbers, most: int = _ITERATIONS) -> Iterator[Iteration]:
        """Each iteration; where they are not known any more, or too many have been played, one that stands for all that
        may follow. Who has left the loop does not come back."""
        state = self._start(loop)
        for _ in range(most):
            running = self._running(loop, state)
            if running is None or self.left[0] <= 0:
                break
            mask = mask & running
            if not mask.any():
                return
            self.left[0] -= 1
            inner = self._with({**self.given, **dict(zip(loop.body.args, state, strict=True))})
            yield Iteration(mask, inner, True)
            following = [inner.value(v) for v in loop.body.results]
            state = following if isinstance(loop, While) else [_plus(state[0], loop.step), *following]
        yield Iteration(mask, self._with({**self.given, **dict.fromkeys(loop.body.args)}), False)

    def _start(self, loop: For | While) -> list[Numbers | None]:
        first = [loop.lower] if isinstance(loop, For) else []
        return [self.value(v) for v in (*first, *loop.inits)]

    def _running(self, loop: For | While, state: list[Numbers | None]) -> Numbers | None:
        at = state[0]
        if isinstance(loop, While):
            return at
        upper = self.value(loop.upper)
        if at is None or upper is None:
            return None
        return at < upper if loop.step > 0 else at > upper

    def _with(self, given: dict[Value, Numbers | None]) -> Threads:
        return Threads(self.block, self.structure, self.known, given, self.indices, self.left)


def _indices(block: tuple[int, int, int]) -> tuple[Numbers, Numbers, Numbers]:
    """threadIdx of each thread, by axis."""
    linear = np.arange(block[0] * block[1] * block[2])
    return linear % block[0], linear // block[0] % block[1], linear // (block[0] * block[1])


@dataclass(frozen=True)
class Iteration:
    mask: Numbers
    threads: Threads
    sure: bool  # whether the threads in the mask run it for sure


def _plus(numbers: Numbers, step: int) -> Numbers:
    return numbers + step


def _is_large(numbers: Numbers) -> bool:
    return numbers.dtype != bool and bool(abs(numbers).max(initial=0) > _LARGE)


def _shifted(left: bool) -> Callable[[Numbers, Numbers], Numbers | None]:
    def shift(a: Numbers, by: Numbers) -> Numbers | None:
        if (a < 0).any() or (by < 0).any() or (by > 31).any():
            return None
        return a << by if left else a >> by

    return shift


def _divided(remainder: bool) -> Callable[[Numbers, Numbers], Numbers | None]:
    def divide(a: Numbers, b: Numbers) -> Numbers | None:
        if (a < 0).any() or (b <= 0).any():  # C rounds towards zero, numpy down
            return None
        return a % b if remainder else a // b

    return divide


_ARITHMETIC: dict[str, Callable[..., Numbers | None]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": _divided(False),
    "rem": _divided(True),
    "min": np.minimum,
    "max": np.maximum,
    "neg": lambda a: -a,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "shl": _shifted(True),
    "shr": _shifted(False),
    "not": lambda a: ~a,
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "select": lambda c, a, b: np.where(c, a, b),
    "convert": lambda a: a,
}
