"""Which thread of a block stores to a cell of a tile, in which iteration: from the indices of the cell.

An index of a cell, less what all threads add to it, is that thread's index or the counter of its loop (see
`tile_layouts`). It exists if it is one of the block's threads, or if the loop comes to it: loops go from the threads'
numbers in steps of as many threads, so that together they come to every number from the first one on.

Arithmetic of 32 bits may wrap here as there: what an index is modulo 2^32 decides, since a cell outside of its tile is
nobody's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from ..analysis.ownership.tile_rows import Cell, cell_of
from ..ir.builder import Builder
from ..ir.effects import is_pure
from ..ir.ops import Apply, Builtin, For, If, Op, Store, Value, While
from ..ir.types import BOOL, I32, I64, Scalar
from .other_threads import NotACopy, OtherThread
from .tile_layouts import Core, Digit, Indices, Layout, Number

_LATEST = 1 << 16  # number at which a loop may start


@dataclass(frozen=True)
class Filling:
    """A store to a tile. `around`: what it stands in, from outside in, and in which region of each."""

    store: Store
    around: tuple[tuple[Op, int], ...]

    @property
    def loops(self) -> tuple[tuple[Op, int], ...]:
        return tuple((op, region) for op, region in self.around if not isinstance(op, If))


@dataclass(frozen=True)
class Kernel:
    """What is known of a kernel, for blocks of one shape."""

    indices: Indices
    parameters: frozenset[Value]
    block: tuple[int, int, int]
    read_only: Callable[[Value], bool]

    def cell(self, ptr: Value) -> Cell:
        found = cell_of(ptr, self.indices.definition.get)
        if found is None:
            raise NotACopy
        return found


class Writer(NamedTuple):
    """The thread that stores to a cell, if one does."""

    thread: OtherThread
    stores: Value


def writer_of(kernel: Kernel, build: Builder, filling: Filling, ptr: Value) -> Writer:
    """Of the cell at an address that a thread reads."""
    thread = OtherThread(build, kernel.indices.definition, kernel.parameters, kernel.read_only, {})
    solving = _Solving(kernel, build, thread)
    solving.solve(kernel.indices.layout(kernel.cell(filling.store.ptr)), dict(kernel.cell(ptr)))
    for op, region in filling.around:
        solving.enter(op, region)
    if solving.open:
        raise NotACopy
    return Writer(thread, _all(build, solving.tests))


def _all(build: Builder, tests: list[Value]) -> Value:
    found = build.constant(True, BOOL)
    for test in tests:
        found = build.apply("and", found, test)
    return found


class _Solving:
    """`tests`: what must hold for the thread to exist and to store. `open`: counters of loops that were not entered."""

    def __init__(self, kernel: Kernel, build: Builder, thread: OtherThread):
        self.kernel, self.build, self.thread = kernel, build, thread
        self.tests: list[Value] = []
        self.open: set[Value] = set()

    # ---- whose cell it is

    def solve(self, stored: Layout, read: dict[int, tuple[Value, ...]]) -> None:
        """`read`: the parts of its indices, by the bytes of what they count."""
        for digit in stored.digits:
            self._give(digit.core, self._part(digit, read.get(digit.size, ())))
        for number in stored.numbers:
            self._give(number.core, self._whole(number, read))
        found = {digit.size for digit in stored.digits}.union(*((n.quotient, n.remainder) for n in stored.numbers))
        for size in sorted({*stored.shared, *read} - found):
            index = map(self.thread.tested, stored.shared.get(size, ()))
            test = self.build.apply("eq", self._sum(read.get(size, ()), I64), self._sum(index, I64))
            self.tests.append(test)

    def _part(self, digit: Digit, at: tuple[Value, ...]) -> Value:
        """Of the index of a cell."""
        if digit.part == "whole":
            return self._sum(at, I64 if digit.core.value.type.size == I64.size else I32)
        index = self._sum(at, I32)
        fn = "div" if digit.part == "quotient" else "rem"
        return self.build.apply(fn, index, self.build.constant(digit.by, I32))

    def _whole(self, number: Number, read: dict[int, tuple[Value, ...]]) -> Value:
        """A row may have more cells than were counted: what would be in the next row is nowhere."""
        high, low = (self._sum(read.get(size, ()), I32) for size in (number.quotient, number.remainder))
        self.tests += self._below(low, number.by)
        return self.build.apply("add", self.build.apply("mul", high, self.build.constant(number.by, I32)), low)

    def _give(self, core: Core, value: Value) -> None:
        """The thread's index or counter. `value`: with what is added to it."""
        own, type = core.value.type, value.type
        if core.value in self.thread.own or not isinstance(own, Scalar) or own.size < I32.size:
            raise NotACopy
        for fn, added in core.added:
            amount = self.build.convert(self.thread.tested(added), type)
            value = self.build.apply("sub" if fn == "add" else "add", value, amount)
        self.thread.own[core.value] = self.build.convert(value, own)
        op = self.kernel.indices.definition.get(core.value)
        if isinstance(op, Builtin) and op.name == "thread_idx":
            self.tests += self._below(value, self.kernel.block[op.axis])
        else:
            self.open.add(core.value)

    def _sum(self, parts: Iterable[Value], type: Scalar) -> Value:
        total, *more = [self.build.convert(part, type) for part in parts] or [self.build.constant(0, type)]
        for part in more:
            total = self.build.apply("add", total, part)
        return total

    def _below(self, value: Value, extent: int) -> tuple[Value, Value]:
        least, end = (self.build.constant(number, value.type) for number in (0, extent))
        return self.build.apply("ge", value, least), self.build.apply("lt", value, end)

    # ---- whether it stores

    def enter(self, op: Op, region: int) -> None:
        match op:
            case If(cond):
                test = self.thread.tested(cond)
                self.tests.append(self.build.apply("not", test) if region else test)
            case For(lower, upper, step=step, body=body) if step > 0:
                counter = self._count(body.args[0], lower, step)
                self.tests.append(self.build.apply("lt", counter, self.thread.tested(upper)))
            case While() if region == 1:
                self._repeat(op)
            case _:
                raise NotACopy

    def _count(self, counter: Value, first: Value, step: int | None) -> Value:
        """Of a loop that is entered: that it does not start beyond the value of its counter."""
        start = self.kernel.indices.sums.of(first)
        if counter not in self.open or start is None or step is None or step != self._threads(first):
            raise NotACopy
        if not 0 <= start.const <= _LATEST:  # numbers from there on do not wrap before they leave the tile
            raise NotACopy
        self.open.discard(counter)
        value = self.thread.own[counter]
        self.tests.append(self.build.apply("ge", value, self.build.constant(start.const, value.type)))
        return value

    def _repeat(self, loop: While) -> None:
        """A loop that goes on while its counter is less than something, as `j += blockDim.x` of an int leaves it."""
        condition, *handed_on = loop.before.results
        numbers = [k for k, arg in enumerate(loop.body.args) if arg in self.open]
        if len(numbers) != 1 or not all(map(is_pure, loop.before.ops)):
            raise NotACopy
        (k,) = numbers
        tested = loop.before.args[k]
        test = self.kernel.indices.definition.get(condition)
        compares = (
            isinstance(test, Apply) and test.fn in ("lt", "le") and self.kernel.indices.same(test.args[0]) is tested
        )
        if handed_on[k] is not tested or not compares:
            raise NotACopy
        counter = loop.body.args[k]
        self.thread.own[tested] = self._count(counter, loop.inits[k], self._step(loop.body.results[k], counter))
        self.tests.append(self.thread.tested(condition))

    def _step(self, following: Value, counter: Value) -> int | None:
        """What is added to a counter."""
        match self.kernel.indices.definition.get(self.kernel.indices.same(following)):
            case Apply("add", (one, other)) if self.kernel.indices.same(one) is counter:
                amount = self.kernel.indices.sums.of(other)
            case Apply("add", (other, one)) if self.kernel.indices.same(one) is counter:
                amount = self.kernel.indices.sums.of(other)
            case _:
                return None
        return None if amount is None or amount.terms else amount.const

    def _threads(self, value: Value) -> int | None:
        """How many values it takes in a block, each one more than the last, if it numbers threads."""
        found, block = self.kernel.indices.sums.of(value), self.kernel.block
        if found is None:
            return None
        axes = [axis for axis in range(3) if block[axis] > 1]
        numbering = {("thread_idx", axis): math.prod(block[:axis]) for axis in axes}
        if found.coefficients == numbering:
            return math.prod(block)
        along = [axis for axis in axes if found.coefficients == {("thread_idx", axis): 1}]
        return block[along[0]] if along else None
