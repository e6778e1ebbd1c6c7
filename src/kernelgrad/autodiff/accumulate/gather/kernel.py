"""The code of a gather (see `gather`): a kernel whose threads are the elements of an input.

For each read, it finds the thread and the iterations that made it, tests again that they exist and get there, and runs
the slice of the gradient that the update's value comes from.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TypeGuard

from ....analysis.machine import VECTOR_BYTES
from ....analysis.roots import UNKNOWN
from ....analysis.roots import analyse as roots_of
from ....analysis.structure import analyse
from ....ir.builder import Builder, pointee
from ....ir.functions import UNFUSED
from ....ir.ops import (
    Aggregate,
    Apply,
    Block,
    Builtin,
    Constant,
    Extract,
    For,
    Function,
    If,
    Insert,
    Load,
    Member,
    Offset,
    Op,
    Param,
    PtrCast,
    PtrDiff,
    Value,
)
from ....ir.traverse import blocks, clone, operands, rebuild, settle, walk
from ....ir.types import I32, I64, U32, U64, Pointer, Scalar
from ....transforms.masks import is_second_run
from ....transforms.unroll import constants_of, trips
from .conditions import Coordinate
from .pattern import GRID_AXES, WIDTH, Gather, Site
from .updates import updates_of
from .windows import Windows

_PURE = (Constant, Apply, Aggregate, Extract, Insert, Offset, Member, PtrCast, PtrDiff)
_COSTS = {
    "div": 8,
    "add": 1,
    "sub": 1,
    "mul": 1,
    "neg": 1,
    "fma": 1,
    "select": 1,
    "convert": 1,
    "masked": 0,
    **dict.fromkeys(UNFUSED.values(), 1),
}
_COST_OF_LOAD, _COST_OF_FUNCTION = 4, 16


Guard = tuple[Value, bool]  # a condition, and whether it must hold or fail


class NotSliceable(Exception):
    """An update's value needs more than a gather computes again."""


def gather_function(pattern: Function, gather: Gather, shadow: Param, most: float = math.inf) -> Function:
    """The kernel; its last parameters are what the launcher tells (see `gathers.numbers`). `most`: the operations that
    it may have. Of each read it has a slice, and slices are as long as the program: it stops there."""
    if gather.tile is not None:
        from .block_sums import BlockSums

        return BlockSums(pattern, gather, shadow, most).function()
    return Emitter(pattern, gather, shadow, most).function()


def cost(block: Block) -> int:
    """Of a thread that makes every sum once: its loads and its arithmetic on floats."""
    total, definition = 0, {v: op for op in block.ops for v in op.results}
    for op in block.ops:
        if isinstance(op, Load):
            total += _COST_OF_LOAD
        elif isinstance(op, If) and not is_second_run(op, definition):
            total += max(cost(op.then), cost(op.orelse))
        elif isinstance(op, Apply) and isinstance(op.result.type, Scalar) and op.result.type.is_float:
            total += _COSTS.get(op.fn, _COST_OF_FUNCTION)
        total += sum(map(cost, blocks(op))) if isinstance(op, For) else 0
    return total


class Emitter:
    def __init__(self, pattern: Function, gather: Gather, shadow: Param, most: float):
        self.pattern, self.gather, self.shadow, self.most = pattern, gather, shadow, most
        self.copied = 0  # operations of the pattern
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
        self.params = {p.value for p in pattern.params if p.variable is None}
        ops = list(walk(pattern.body))
        self.indices = {ops[index.number].result: index for index in gather.indices}

    def count_copy(self) -> None:
        self.copied += 1
        if self.copied > self.most:
            raise NotSliceable

    def number(self, name: str) -> Value:
        """What the launcher tells."""
        if name not in self.numbers:
            self.numbers[name] = Value(I64, name)
            self.told[name] = self.top.convert(self.numbers[name], self.type)
        return self.told[name]

    def function(self) -> Function:
        if self.gather.part == "whole":
            self._whole()
        else:
            self._row()
        given = tuple(p for p in self.pattern.params if p.variable is None)
        told = tuple(Param(value, "long long", variable=name) for name, value in self.numbers.items())
        suffix = {"whole": "", "inside": "_inside", "border": "_border"}[self.gather.part]
        name = f"{self.pattern.name}_gather_{self.gather.name}{suffix}"
        body = Block((), (*self.top.ops, *self.b.ops), ())
        if sum(1 for _ in walk(body)) > self.most:
            raise NotSliceable
        return replace(self.pattern, name=name, params=(*given, *told), body=body, launch_bounds=())

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


def over(slices: list[Slice], rest: tuple[Coordinate, ...]) -> None:
    """Loops over the coordinates that do not follow from the digits: nor do their lengths, so several elements go
    through them together."""
    if not rest:
        for one in slices:
            with one.scope():
                one.execution()
        return
    (start, *_), (first, *others) = slices, rest
    b, at = start.b, Value(start.type, "~at")
    if start.inner and start.emitter.gather.taps:
        for number in range(start.trips(first)):
            with ExitStack() as scopes:
                for one in slices:
                    scopes.enter_context(one.scope())
                    one.at[first] = b.constant(number, start.type)
                over(slices, tuple(others))
        return
    length = start.length(first)
    with b.region() as body, ExitStack() as scopes:
        for one in slices:
            scopes.enter_context(one.scope())
            one.at[first] = at
        over(slices, tuple(others))
    b.for_(b.constant(0, start.type), length, (), 1, body.block((at,)))


class Slice:
    """The adjoint that one read gives to an element. `inner`: its executions are known to exist, and the bounds around
    them to hold."""

    def __init__(self, emitter: Emitter, site: Site, digits: list[Value], sum_: Value, inner: bool):
        self.emitter, self.site, self.digits, self.sum, self.inner = emitter, site, digits, sum_, inner
        self.b, self.type = emitter.b, emitter.type
        self.update = emitter.updates[site.number]
        self.loops = [op for op, _ in self.update.path if isinstance(op, For)]
        self.at: dict[Coordinate, Value] = {}
        self.known: dict[Value, Value] = {}
        self.added: list[tuple[Value, Value | None]] = []  # to `known`, in this scope, and what was there before

    @contextmanager
    def scope(self) -> Iterator[None]:
        outer, self.added = self.added, []
        yield
        for value, before in reversed(self.added):
            if before is None:
                del self.known[value]
            else:
                self.known[value] = before
        self.added = outer

    def bind(self, value: Value, copy: Value) -> None:
        self.added.append((value, self.known.get(value)))
        self.known[value] = copy

    def execution(self) -> None:
        """One execution of the read, if there is one: its conditions are tested before anything is loaded."""
        conditions = [c for k in range(len(self.digits)) for c in self.solve(k)]
        for k, loop in enumerate(self.loops):
            self.bind(loop.body.args[0], self.counter(loop, self.at[Coordinate("loop", k)]))
        guards = [(op.cond, side is op.then) for op, side in self.update.path if isinstance(op, If)]
        guards = [guard for guard in guards[self.site.bounds * self.inner :] if not self.is_zero_test(guard[0])]
        self.guarded([*([] if self.inner else conditions), *self.threads_exist()], guards)

    def solve(self, k: int) -> Iterator[Value]:
        """Finds the coordinate of a digit; yields what must hold for it to be one."""
        b, digit, solved = self.b, self.digits[k], self.site.solved[k]
        rest = b.apply("sub", digit, b.constant(solved.shift, self.type))
        for coordinate, factor in solved.moves:
            rest = b.apply("sub", rest, b.apply("mul", self.at[coordinate], b.constant(factor, self.type)))
        if solved.coordinate is None:
            yield b.apply("eq", rest, b.constant(0, self.type))
            return
        at = rest if solved.sign > 0 else b.apply("neg", rest)
        self.at[solved.coordinate] = at
        unsigned = U64 if self.type == I64 else U32  # a negative one is too large
        yield b.apply("lt", b.convert(at, unsigned), b.convert(self.length(solved.coordinate), unsigned))

    def trips(self, coordinate: Coordinate) -> int:
        """The number of iterations, where it is a constant."""
        found = trips(self.loops[coordinate.number], self.emitter.constants)
        assert found is not None
        return found

    def length(self, coordinate: Coordinate) -> Value:
        if coordinate.kind == "axis":
            return self._extent(coordinate.number, coordinate.digit)
        b, loop = self.b, self.loops[coordinate.number]
        lower, upper = (b.convert(self.value(v), I64) for v in (loop.lower, loop.upper))
        first, last, step = (lower, upper, loop.step) if loop.step > 0 else (upper, lower, -loop.step)
        distance = b.apply("add", b.apply("sub", last, first), b.constant(step - 1, I64))
        trips = b.apply("max", b.apply("div", distance, b.constant(step, I64)), b.constant(0, I64))
        return b.convert(trips, self.type)

    def _extent(self, axis: int, digit: int) -> Value:
        split = self.emitter.gather.axes[axis] > 1
        return self.emitter.number(f"_digit_{axis}_{digit}" if split else f"_threads_{axis}")

    def threads_exist(self) -> Iterator[Value]:
        """That digits in their ranges are those of threads. Inside of the domain that follows from the last digit, if
        it follows from the element."""
        b, gather, unsigned = self.b, self.emitter.gather, U64 if self.type == I64 else U32
        for axis in gather.doubtful:
            if not self.inner or Coordinate("axis", axis, gather.axes[axis] - 1) in self.site.summed:
                index = b.convert(self._index(axis), unsigned)
                yield b.apply("lt", index, b.convert(self.emitter.number(f"_threads_{axis}"), unsigned))

    def counter(self, loop: For, at: Value) -> Value:
        b, type = self.b, loop.lower.type
        moved = b.apply("mul", b.convert(at, I64), b.constant(loop.step, I64))
        return b.convert(b.apply("add", b.convert(self.value(loop.lower), I64), moved), type)

    def is_zero_test(self, cond: Value) -> bool:
        """Atomics of zeros are skipped; sums of them are not worth a test."""
        op = self.emitter.definition.get(cond)
        return isinstance(op, Apply) and op.fn == "ne" and op.args[0] is self.update.op.args[0]

    def guarded(self, conditions: list[Value], guards: list[Guard]) -> None:
        b = self.b
        while guards and (not conditions or self.is_cheap(guards[0][0])):
            first, *guards = guards
            conditions.append(self.holds(*first))
        if conditions:
            with b.region() as region, self.scope():
                self.guarded([], guards)
            b.if_(together(b, conditions), region.block())
            return
        contribution = self.value(self.update.op.args[0])
        b.store(self.sum, b.apply("add", b.load(self.sum), contribution))

    def holds(self, cond: Value, holds: bool) -> Value:
        tested = self.value(cond)
        return tested if holds else self.b.apply("not", tested)

    def is_cheap(self, value: Value) -> bool:
        """Whether it may be computed although an earlier condition fails."""
        if value in self.known or value in self.emitter.indices:
            return True
        op = self.emitter.definition.get(value)
        if op is None or isinstance(op, Constant | Builtin):
            return True
        return isinstance(op, Apply) and op.fn not in ("div", "rem") and all(map(self.is_cheap, op.args))

    # ---- values of the pattern, for that thread

    def value(self, value: Value) -> Value:
        settle(value, self.known, self._needs, lambda v: self.bind(v, self._compute(v)))
        return self.known[value]

    def _needs(self, value: Value) -> tuple[Value, ...]:
        """What must be known before it is copied."""
        op = self.emitter.definition.get(value)
        if value in self.emitter.indices or not (isinstance(op, _PURE) or self.is_copied_load(op)):
            return ()
        return operands(op)

    def is_copied_load(self, op: Op | None) -> TypeGuard[Load]:
        return isinstance(op, Load) and not op.volatile and self._is_input(op.ptr)

    def _compute(self, value: Value) -> Value:
        op = self.emitter.definition.get(value)
        match op:
            case _ if value in self.emitter.indices:
                index = self.emitter.indices[value]
                at = self._index(index.axis) if index.digit is None else self._digit(index.axis, index.digit)
                return self.b.convert(at, value.type)
            case None if value in self.emitter.params:
                return value
            case Builtin(name, axis):
                return self.b.convert(self._builtin(name, axis), value.type)
            case If():
                return self._branches(op, op.results.index(value))
            case op if isinstance(op, _PURE) or self.is_copied_load(op):
                return self._copy(op)
        raise NotSliceable

    def _copy(self, op: Op) -> Value:
        self.emitter.count_copy()
        copied = rebuild(
            op, self.known.__getitem__, lambda block: block, results=(Value(op.result.type, op.result.name),)
        )
        return self.b.add(copied).result

    def _branches(self, op: If, k: int) -> Value:
        sides, cond = [], self.value(op.cond)
        for side in (op.then, op.orelse):
            with self.b.region() as region, self.scope():
                result = self.value(side.results[k])
            sides.append(region.block((), (result,)))
        then, orelse = sides
        return self.b.if_(cond, then, orelse)[0]

    def _is_input(self, ptr: Value) -> bool:
        """Memory that outlives the launch and that the gradient does not write."""
        roots = self.emitter.memory.of(ptr)
        outlives = all(r in self.emitter.params for r in roots) and UNKNOWN not in roots
        return bool(roots) and outlives and not roots & self.emitter.written

    def _digit(self, axis: int, digit: int) -> Value:
        """Of the thread's index in the kernel's grid; along an axis that is one thread wide there is no coordinate."""
        mine = (*self.site.summed, *(solved.coordinate for solved in self.site.solved))
        place = Coordinate("axis", axis, digit)
        if place not in mine:
            return self.b.constant(0, self.type)
        if place not in self.at:
            raise NotSliceable
        return self.at[place]

    def _index(self, axis: int) -> Value:
        """The thread's index in the kernel's grid, by its digits; those of no thread may be too large together."""
        b, unsigned = self.b, U64 if self.type == I64 else U32
        first, *others = (self._digit(axis, k) for k in range(self.emitter.gather.axes[axis]))
        if not others:
            return first
        total = b.convert(first, unsigned)
        for k, digit in enumerate(others, 1):
            start = b.convert(self.emitter.number(f"_start_{axis}_{k}"), unsigned)
            total = b.apply("add", total, b.apply("mul", b.convert(digit, unsigned), start))
        return b.convert(total, self.type)

    def _builtin(self, name: str, axis: int) -> Value:
        match name:
            case "thread_idx":
                return self.b.apply("rem", self._index(axis), self.emitter.number(f"_block_{axis}"))
            case "block_idx":
                return self.b.apply("div", self._index(axis), self.emitter.number(f"_block_{axis}"))
            case "block_dim":
                return self.emitter.number(f"_block_{axis}")
            case "grid_dim":
                return self.emitter.number(f"_grid_{axis}")
        raise NotSliceable


def together(b: Builder, conditions: list[Value]) -> Value:
    first, *rest = conditions
    for condition in rest:
        first = b.apply("and", first, condition)
    return first
