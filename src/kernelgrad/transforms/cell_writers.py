"""Which thread of a block stores to a cell of a tile, in which iteration: from the indices of the cell.

Each index of a store's cell is a thread's index or the counter of a loop, which tells threads and iterations apart (its
`core`), and something added to it that all threads share; or nothing but that. So an index of a cell, less what is
added, is that thread's index or counter. It exists if it is one of the block's threads, or if the loop comes to it:
loops go from the threads' numbers in steps of as many threads, so that together they come to every number from the
first one on.

Arithmetic of 32 bits may wrap here as there: what an index is modulo 2^32 decides, since a cell outside of its tile is
nobody's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from ..analysis.access.affine import Sums
from ..analysis.ownership.tile_rows import Cell, cell_of
from ..ir.builder import Builder
from ..ir.effects import is_pure
from ..ir.ops import Apply, Builtin, For, If, Op, Store, Value, While
from ..ir.types import BOOL, I32, I64, Scalar
from .other_threads import NotACopy, OtherThread

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

    definition: Mapping[Value, Op]
    parameters: frozenset[Value]
    uniform: frozenset[Value]
    sums: Sums
    block: tuple[int, int, int]
    read_only: Callable[[Value], bool]

    def cell(self, ptr: Value) -> Cell:
        found = cell_of(ptr, self.definition.get)
        if found is None:
            raise NotACopy
        return found


class Writer(NamedTuple):
    """The thread that stores to a cell, if one does."""

    thread: OtherThread
    stores: Value


class _Core(NamedTuple):
    """What of an index tells threads or iterations apart, and what is added to it."""

    value: Value
    added: tuple[tuple[str, Value], ...]  # "add" or "sub"


def writer_of(kernel: Kernel, build: Builder, filling: Filling, ptr: Value) -> Writer:
    """Of the cell at an address that a thread reads."""
    thread = OtherThread(build, kernel.definition, kernel.parameters, kernel.read_only, {})
    solving = _Solving(kernel, build, thread)
    solving.solve(dict(kernel.cell(filling.store.ptr)), dict(kernel.cell(ptr)))
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

    def solve(self, stored: dict[int, tuple[Value, ...]], read: dict[int, tuple[Value, ...]]) -> None:
        """Both by the bytes of what indices count."""
        fixed = []
        for size in sorted({*stored, *read}, reverse=True):
            at, index = read.get(size, ()), stored.get(size, ())
            core = self._core(index)
            if core is None:
                fixed.append((at, index))
            elif core.value in self.thread.own:
                raise NotACopy
            else:
                self._give(core, at)
        for at, index in fixed:
            self.tests.append(
                self.build.apply("eq", self._sum(at, I64), self._sum(map(self.thread.tested, index), I64))
            )

    def _core(self, parts: tuple[Value, ...]) -> _Core | None:
        """None of a sum that all threads share."""
        uniform = self.kernel.uniform
        varying = [part for part in parts if part not in uniform]
        if not varying:
            return None
        if len(varying) > 1:
            raise NotACopy
        added, index = [("add", part) for part in parts if part in uniform], varying[0]
        while index not in uniform:
            match self.kernel.definition.get(index):
                case Apply("convert", (inner,)) if _is_widened(inner, index):
                    index = inner
                case Apply("add", (one, other)) if one in uniform or other in uniform:
                    index, more = (other, one) if one in uniform else (one, other)
                    added.append(("add", more))
                case Apply("sub", (one, other)) if other in uniform:
                    index = one
                    added.append(("sub", other))
                case _:
                    return _Core(index, tuple(added))
        raise NotACopy

    def _give(self, core: _Core, at: tuple[Value, ...]) -> None:
        """The thread's index or counter, by an index of the cell."""
        if not isinstance(core.value.type, Scalar) or core.value.type.size < I32.size:
            raise NotACopy
        type = I64 if core.value.type.size == I64.size else I32
        value = self._sum(at, type)
        for fn, added in core.added:
            amount = self.build.convert(self.thread.tested(added), type)
            value = self.build.apply("sub" if fn == "add" else "add", value, amount)
        self.thread.own[core.value] = self.build.convert(value, core.value.type)
        op = self.kernel.definition.get(core.value)
        if isinstance(op, Builtin) and op.name == "thread_idx":
            self.tests += self._in_block(value, self.kernel.block[op.axis])
        else:
            self.open.add(core.value)

    def _sum(self, parts: Iterable[Value], type: Scalar) -> Value:
        total, *more = [self.build.convert(part, type) for part in parts] or [self.build.constant(0, type)]
        for part in more:
            total = self.build.apply("add", total, part)
        return total

    def _in_block(self, value: Value, extent: int) -> tuple[Value, Value]:
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
        start = self.kernel.sums.of(first)
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
        test = self.kernel.definition.get(condition)
        compares = isinstance(test, Apply) and test.fn in ("lt", "le") and self._same(test.args[0]) is tested
        if handed_on[k] is not tested or not compares:
            raise NotACopy
        counter = loop.body.args[k]
        self.thread.own[tested] = self._count(counter, loop.inits[k], self._step(loop.body.results[k], counter))
        self.tests.append(self.thread.tested(condition))

    def _step(self, following: Value, counter: Value) -> int | None:
        """What is added to a counter."""
        match self.kernel.definition.get(self._same(following)):
            case Apply("add", (one, other)) if self._same(one) is counter:
                amount = self.kernel.sums.of(other)
            case Apply("add", (other, one)) if self._same(one) is counter:
                amount = self.kernel.sums.of(other)
            case _:
                return None
        return None if amount is None or amount.terms else amount.const

    def _same(self, value: Value) -> Value:
        """Without conversions that keep all bits."""
        while isinstance(op := self.kernel.definition.get(value), Apply) and op.fn == "convert":
            if not _is_widened(op.args[0], value):
                break
            value = op.args[0]
        return value

    def _threads(self, value: Value) -> int | None:
        """How many values it takes in a block, each one more than the last, if it numbers threads."""
        found, block = self.kernel.sums.of(value), self.kernel.block
        if found is None:
            return None
        axes = [axis for axis in range(3) if block[axis] > 1]
        numbering = {("thread_idx", axis): math.prod(block[:axis]) for axis in axes}
        if found.coefficients == numbering:
            return math.prod(block)
        along = [axis for axis in axes if found.coefficients == {("thread_idx", axis): 1}]
        return block[along[0]] if along else None


def _is_widened(inner: Value, value: Value) -> bool:
    """Whether a conversion keeps all bits of an integer."""
    types = inner.type, value.type
    return (
        all(isinstance(t, Scalar) and not t.is_float and t.size >= 4 for t in types)
        and inner.type.size <= value.type.size
    )
