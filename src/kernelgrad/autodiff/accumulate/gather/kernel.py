"""The code of a gather (see `gather`): a kernel whose threads are the elements of an input.

For each read, it finds the thread and the iterations that made it, tests again that they exist and get there, and runs
the slice of the gradient that the update's value comes from.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import replace
from typing import NamedTuple

from ....analysis.machine import REGISTERS, VECTOR_BYTES
from ....analysis.roots import analyse as roots_of
from ....analysis.structure import analyse
from ....ir.builder import Builder, pointee
from ....ir.ops import (
    Block,
    For,
    Function,
    Op,
    Param,
    Value,
)
from ....ir.traverse import clone, walk
from ....ir.types import F32, F64, I32, I64, U32, U64, Pointer, Scalar
from ....transforms.unroll import constants_of
from .plan import GRID_AXES, WIDTH, Gather, shape_of
from .rectangles import PREFIX as BOUND
from .slices import NotSliceable, Slice, over, together
from .staging import given, parameter
from .updates import updates_of
from .windows import Windows

_RESIDENT = 1024  # threads of a multiprocessor, of blocks that add up together
_OTHER_REGISTERS = 36  # than sums, that such a thread takes


class Emitted(NamedTuple):
    """The kernel of a gather. `again`: the pattern's loops that it runs again for each execution, by id of the copy."""

    function: Function
    again: dict[int, For]


def emitted_gather(
    pattern: Function, gather: Gather, shadow: Param, variables: Collection[str] = (), most: float = math.inf
) -> Emitted:
    """Its last parameters are what the launcher tells (see `gathers.numbers`). `variables`: of the source, whose
    addresses may be parameters. `most`: the operations that it may have. Of each read it has a slice, and slices are as
    long as the program: it stops there."""
    kind = Emitter
    if gather.tile is not None:
        from .block_sums import BlockSums

        kind = BlockSums
    emitter = kind(pattern, gather, shadow, variables, most)
    return Emitted(emitter.function(), emitter.again)


class Emitter:
    def __init__(self, pattern: Function, gather: Gather, shadow: Param, variables: Collection[str], most: float):
        self.pattern, self.gather, self.shadow, self.most = pattern, gather, shadow, most
        self.copied = 0  # operations of the pattern
        self.again: dict[int, For] = {}
        self.b = Builder(pattern.span)
        self.type = I32 if gather.narrow else I64
        self.top = Builder(pattern.span)  # what is the same for all threads
        self.numbers: dict[str, Value] = {}
        self.told: dict[str, Value] = {}
        self.updates = {update.number: update for update in updates_of(pattern, shadow.value) or ()}
        (self.element,) = {type for u in self.updates.values() if isinstance(type := pointee(u.op.ptr), Scalar)}
        self.memory = roots_of(pattern)
        self.written = self.memory.written()
        self.definition = analyse(pattern, apart=False).definition
        self.constants = constants_of(pattern)
        self.given = given(pattern, variables)
        self.params = {p.value for p in self.given}
        self.lasting = self.memory.lasting() & {*self.params, *self.memory.global_names.values()}
        self.bounds = {p.value: p.name for p in pattern.params if p.name.startswith(BOUND)}
        self.ops = ops = list(walk(pattern.body))
        self.indices = {ops[index.number].result: index for index in gather.indices}
        self.staged = {ops[k].result: parameter(k, ops[k].result.type) for k in gather.staged}  # type: ignore[arg-type]

    def count_copy(self) -> None:
        self.copied += 1
        if self.copied > self.most:
            raise NotSliceable

    def number(self, name: str) -> Value:
        """What the launcher tells, in as many bits as indices have."""
        if name not in self.told:
            self.told[name] = self.top.convert(self.long_number(name), self.type)
        return self.told[name]

    def long_number(self, name: str) -> Value:
        """In 64 bits: where loops begin is no index of this launch."""
        return self.numbers.setdefault(name, Value(I64, name))

    def function(self) -> Function:
        if self.gather.part == "whole":
            self._whole()
        else:
            self._row()
        told = tuple(Param(value, "long long", variable=name) for name, value in self.numbers.items())
        suffix = {"whole": "", "inside": "_inside", "border": "_border"}[self.gather.part]
        name = f"{self.pattern.name}_gather_{self.gather.name}{suffix}"
        body = Block((), (*self.top.ops, *self.b.ops), ())
        if sum(1 for _ in walk(body)) > self.most:
            raise NotSliceable
        params = (*self.given, *told, *self.staged.values())
        return replace(self.pattern, name=name, params=params, body=body, launch_bounds=self._bounds())

    def _bounds(self) -> tuple[int, ...]:
        """Of a block whose threads add up together. Where the sums and their totals leave room, so many are resident
        that they wait for memory side by side: what is there for infinities alone takes registers besides."""
        if self.gather.tile is None:
            return ()
        threads, sums = math.prod(shape_of(self.gather)), math.prod(self.gather.tile)
        registers = sums * (self.element.size + F64.size) // F32.size + _OTHER_REGISTERS
        return (threads, _RESIDENT // threads) if registers <= REGISTERS // _RESIDENT else (threads,)

    def _whole(self) -> None:
        b, span = self.b, self.gather.span
        if self.gather.digits == 1 and not self.gather.taps:
            offsets = [self._thread(0, span)]
        else:
            *others, last = self._offsets()
            offsets = [*others, b.apply("mul", last, b.constant(span, self.type)) if span > 1 else last]
        inside = [b.apply("lt", at, self.number(f"_extent_{k}")) for k, at in enumerate(offsets)]
        with b.region() as region:
            self._elements(
                [b.apply("add", self.number(f"_first_{k}"), at) for k, at in enumerate(offsets)], offsets[-1]
            )
        b.if_(together(b, inside), region.block(), exits=True)

    def _row(self) -> None:
        """There is a thread for each element. `inside`: only the first digit may be outside of the domain."""
        b = self.b
        digits = [b.apply("add", self.number(f"_first_{k}"), at) for k, at in enumerate(self._offsets())]
        with b.region() as tested:
            self._update(digits, self._sums([digits], False)[0])
        if self.gather.part == "border":
            b.ops += tested.ops
            return
        with b.region() as untested:
            self._update(digits, self._sums([digits], True)[0])
        after = b.apply("ge", digits[0], self.number("_inner_first_0"))
        before = b.apply("le", digits[0], self.number("_inner_last_0"))
        b.if_(together(b, [after, before]), untested.block(), tested.block())

    def _offsets(self) -> list[Value]:
        """Of the thread's digits from the first of each; those that the grid has no axis for share its last."""
        b, digits = self.b, self.gather.digits
        found = [self._thread(axis) for axis in range(min(digits, GRID_AXES))]
        for k in range(GRID_AXES - 1, digits - 1):
            rest, extent = found.pop(), self.number(f"_extent_{k}")
            found += [b.apply("rem", rest, extent), b.apply("div", rest, extent)]
        return found

    def _thread(self, axis: int, span: int = 1) -> Value:
        """The thread's index in the grid of the gather, or in one of blocks that are `span` times as wide."""
        b = self.b
        wide = U64 if self.type == I64 else U32
        block, width, thread = (b.convert(b.builtin(n, axis), wide) for n in ("block_idx", "block_dim", "thread_idx"))
        width = b.constant(WIDTH * span, wide) if span > 1 else width
        return b.convert(b.apply("add", b.apply("mul", block, width), thread), self.type)

    def _elements(self, digits: list[Value], offset: Value) -> None:
        """Inside of the domain all executions exist: no test stands between the loads there, and they overlap.
        `offset`: of the last digit from its first."""
        b, last = self.b, self.gather.digits - 1
        tests = []
        for k, digit in enumerate(digits):
            tests.append(b.apply("ge", digit, self.number(f"_inner_first_{k}")))
            # Of windows, what is loaded besides must be there too.
            reach = (self.gather.span - 1) * (2 if self.gather.taps else 1)
            end = self._next(digits, b.constant(reach, self.type))[last] if k == last else digit
            tests.append(b.apply("le", end, self.number(f"_inner_last_{k}")))
        with b.region() as inside:
            rows = [self._next(digits, b.constant(k, self.type)) for k in range(self.gather.span)]
            for row, sums in zip(rows, self._sums(rows, True), strict=True):
                self._update(row, sums, there=bool(self.gather.taps))
        if self.gather.taps:
            inside.ops = self._in_windows(inside.ops, digits[0])
        with b.region() as outside:
            self._one_by_one(digits, offset)
        b.if_(together(b, tests), inside.block(), outside.block())

    def _in_windows(self, ops: list[Op], start: Value) -> list[Op]:
        """16 bytes at a time where buffers and elements begin at multiples of that; else one by one."""
        b, windows = self.b, Windows(ops, start, self.element)
        with b.region() as region:
            lanes, bytes_ = b.constant(windows.lanes, self.type), b.constant(VECTOR_BYTES, U64)
            rests = [b.apply("rem", b.apply("address", buffer, type=U64), bytes_) for buffer in windows.buffers]
            tests = [b.apply("eq", rest, b.constant(0, U64)) for rest in rests]
            tests.append(b.apply("eq", b.apply("rem", self.number("_first_0"), lanes), b.constant(0, self.type)))
            with b.region() as wide:
                windows.emit(b)
            b.if_(together(b, tests), wide.block(), clone(Block((), tuple(ops), ()), {}))
        return region.ops

    def _one_by_one(self, digits: list[Value], offset: Value) -> None:
        b, k = self.b, Value(self.type, "~k")
        if self.gather.span == 1:
            self._update(digits, self._sums([digits], False)[0])
            return
        with b.region() as body:
            row = self._next(digits, k)
            with b.region() as exists:
                self._update(row, self._sums([row], False)[0])
            (last,) = self._next([offset], k)
            there = b.apply("lt", last, self.number(f"_extent_{self.gather.digits - 1}"))
            b.if_(there, exists.block())
        b.for_(b.constant(0, self.type), b.constant(self.gather.span, self.type), (), 1, body.block((k,)), unroll=1)

    def _next(self, digits: list[Value], k: Value) -> list[Value]:
        """The digits of an element of the thread's."""
        if self.gather.digits == 1 and not self.gather.taps:
            k = self.b.apply("mul", k, self.b.constant(WIDTH, self.type))
        return [*digits[:-1], self.b.apply("add", digits[-1], k)]

    def _sums(self, rows: list[list[Value]], inner: bool) -> list[dict[int, Value]]:
        """Of all reads, by residue, for each of some elements."""
        b, type = self.b, self.element
        residues = sorted({s.residue for s in self.gather.sites})
        variables = [{residue: b.alloca(type, "~sum") for residue in residues} for _ in rows]
        for variable in (v for own in variables for v in own.values()):
            b.store(variable, b.constant(0.0, type))
        for site in self.gather.sites:
            if inner and site.rare:
                continue
            b.span = self.updates[site.number].op.span
            pairs = zip(rows, variables, strict=True)
            over([Slice(self, site, row, own[site.residue], inner) for row, own in pairs], site.summed)
        b.span = self.pattern.span
        return [{residue: b.load(variable) for residue, variable in own.items()} for own in variables]

    def _update(self, digits: list[Value], sums: dict[int, Value], there: bool = False) -> None:
        """`there`: the element is in the buffer for sure."""
        b, type = self.b, self.element
        assert isinstance(self.shadow.type, Pointer)
        steps = [self._step(digit, k) for k, digit in enumerate(digits)]
        at = steps[0]
        for step in steps[1:]:
            at = b.apply("add", at, step)
        first = b.offset(b.cast_pointer(self.shadow.value, Pointer(type, self.shadow.type.space)), b.convert(at, I64))
        for residue, sum_ in sums.items():
            self._add(b.offset(first, b.constant(residue // type.size, I64)), sum_, there)

    def _step(self, digit: Value, k: int) -> Value:
        return digit if k == 0 and self.gather.contiguous else self.b.apply("mul", digit, self.number(f"_step_{k}"))

    def _add(self, place: Value, sum_: Value, there: bool) -> None:
        b = self.b
        if self.gather.writes or there:
            b.store(place, sum_ if self.gather.writes else b.apply("add", b.load(place), sum_))
            return
        # Where nothing was read, the place may lie outside of the buffer.
        with b.region() as region:
            b.store(place, b.apply("add", b.load(place), sum_))
        b.if_(b.apply("ne", sum_, b.constant(0.0, self.element)), region.block())
