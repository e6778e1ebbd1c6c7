"""The part of a gather's code that collects one read: it finds the thread and the iterations that made it, tests again
that they exist and get there, and copies the slice of the gradient that the update's value comes from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, TypeGuard

from ....ir.builder import Builder
from ....ir.ops import (
    Aggregate,
    Apply,
    Builtin,
    Constant,
    Extract,
    For,
    GlobalRef,
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
from ....ir.traverse import blocks, free_values, operands, rebuild, settle
from ....ir.types import BOOL, I64, U32, U64
from ....transforms.unroll import trips
from .conditions import Coordinate
from .plan import Index, Site, range_names
from .staging import thread_number

if TYPE_CHECKING:
    from .kernel import Emitter

_ADDRESSES = (GlobalRef, Offset, Member, PtrCast, PtrDiff)
_PURE = (Constant, Apply, Aggregate, Extract, Insert, *_ADDRESSES)

Guard = tuple[Value, bool]  # a condition, and whether it must hold or fail


class NotSliceable(Exception):
    """An update's value needs more than a gather computes again."""


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
    if first in start.site.single:
        with ExitStack() as scopes:
            for one in slices:
                scopes.enter_context(one.scope())
                one.at[first] = one.only(first)
                one.found.add(first)
            over(slices, tuple(others))
        return
    lower, step = start.start(first) if len(slices) == 1 else (start.first(first), 1)
    length = start.end(first)
    with b.region() as body, ExitStack() as scopes:
        for one in slices:
            scopes.enter_context(one.scope())
            one.at[first] = at
        over(slices, tuple(others))
    b.for_(lower, length, (), step, body.block((at,)))


class Slice:
    """The adjoint that one read gives to an element. `inner`: its executions are known to exist, and the bounds around
    them to hold."""

    def __init__(self, emitter: Emitter, site: Site, digits: list[Value], sum_: Value, inner: bool):
        self.emitter, self.site, self.digits, self.sum, self.inner = emitter, site, digits, sum_, inner
        self.b, self.type = emitter.b, emitter.type
        self.update = emitter.updates[site.number]
        self.loops = [op for op, _ in self.update.path if isinstance(op, For)]
        self.at: dict[Coordinate, Value] = {}
        self.found = set[Coordinate]()  # in `at`, as the only values that there may be
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
        conditions = [c for k in range(len(self.digits)) for c in self.solve(k, self.inner)]
        conditions += self.derive()
        for k, loop in enumerate(self.loops):
            self.bind(loop.body.args[0], self.counter(loop, self.at[Coordinate("loop", k)]))
        guards = [(op.cond, side is op.then) for op, side in self.update.path if isinstance(op, If)]
        guards = [guard for guard in guards[self.site.bounds * self.inner :] if not self.is_zero_test(guard[0])]
        self.guarded([*conditions, *self.threads_exist()], guards)

    def solve(self, k: int, inner: bool = False) -> Iterator[Value]:
        """Finds the coordinate of a digit; yields what must hold for it to be one. `inner`: it is in its range."""
        b, solved, zero = self.b, self.site.solved[k], self.b.constant(0, self.type)
        rest = self.left(k, solved.moves)
        if solved.coordinate is None:
            if not inner:
                yield b.apply("eq", rest, zero)
            return
        at = rest if solved.factor > 0 else b.apply("neg", rest)
        if solved.stride > 1:
            stride = b.constant(solved.stride, self.type)
            if not self.is_divided(k):
                yield b.apply("eq", b.apply("rem", at, stride), zero)
            at = b.apply("div", at, stride)
        self.at[solved.coordinate] = at
        if not inner and solved.coordinate.kind != "quotient":
            unsigned = U64 if self.type == I64 else U32  # a negative one is too large
            yield b.apply("lt", b.convert(at, unsigned), b.convert(self.length(solved.coordinate), unsigned))

    def derive(self) -> list[Value]:
        """Finds the coordinates that follow from others, and what comes of them; what must hold for them to be some."""
        b, unsigned = self.b, U64 if self.type == I64 else U32
        for coordinate, factors, const in self.site.derived:
            self.at[coordinate] = self._sum(factors, const)
        for number, factors, const in self.site.told:
            value = self.emitter.ops[number].result
            self.bind(value, b.convert(self._sum(factors, const), value.type))
        found = (coordinate for coordinate, _, _ in self.site.derived)
        return [b.apply("lt", b.convert(self.at[c], unsigned), b.convert(self.length(c), unsigned)) for c in found]

    def _sum(self, factors: tuple[tuple[Coordinate, int], ...], const: int) -> Value:
        total = self.b.constant(const, self.type)
        for coordinate, factor in factors:
            each = self.b.apply("mul", self.at[coordinate], self.b.constant(factor, self.type))
            total = self.b.apply("add", total, each)
        return total

    def left(self, k: int, moves: Iterable[tuple[Coordinate, int]]) -> Value:
        """Of a digit, without its shift and some moves."""
        b = self.b
        rest = b.apply("sub", self.digits[k], b.constant(self.site.solved[k].shift, self.type))
        for coordinate, factor in moves:
            rest = b.apply("sub", rest, b.apply("mul", self.at[coordinate], b.constant(factor, self.type)))
        return rest

    def start(self, coordinate: Coordinate) -> tuple[Value, int]:
        """Where a coordinate that is summed over begins, and in what steps it goes on, so that a digit in strides is
        that of an execution."""
        b, found = self.b, self.site.strided(coordinate)
        if found is None:
            return self.first(coordinate), 1
        (k, factor), solved = found, self.site.solved[found[0]]
        rest = self.left(k, [move for move in solved.moves if move[0] != coordinate])
        stride = b.constant(solved.stride, self.type)
        least = b.apply("rem", rest if factor > 0 else b.apply("neg", rest), stride)
        return b.apply("rem", b.apply("add", least, stride), stride), solved.stride

    def only(self, coordinate: Coordinate) -> Value:
        """Its only value, of which a digit in strides is that of an execution."""
        b, found = self.b, self.site.strided(coordinate)
        assert found is not None
        (k, factor), solved = found, self.site.solved[found[0]]
        rest = self.left(k, [move for move in solved.moves if move[0] != coordinate])
        first, stride = self.first(coordinate), b.constant(solved.stride, self.type)
        behind = b.apply("rem", b.apply("sub", rest if factor > 0 else b.apply("neg", rest), first), stride)
        return b.apply("add", first, b.apply("rem", b.apply("add", behind, stride), stride))

    def is_divided(self, k: int) -> bool:
        """Whether what is left of a digit is a multiple of its stride, for sure."""
        found = (self.site.strided(coordinate) for coordinate in self.found)
        return any(one is not None and one[0] == k for one in found)

    def first(self, coordinate: Coordinate) -> Value:
        """Of the values of a coordinate that is summed over."""
        if coordinate not in self.site.narrow:
            return self.b.constant(0, self.type)
        return self.emitter.number(range_names(self.emitter.gather.sites.index(self.site), coordinate)[0])

    def end(self, coordinate: Coordinate) -> Value:
        """Behind the last of them."""
        if coordinate not in self.site.narrow:
            return self.length(coordinate)
        last = self.emitter.number(range_names(self.emitter.gather.sites.index(self.site), coordinate)[1])
        return self.b.apply("add", last, self.b.constant(1, self.type))

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
        self.add(self.value(self.update.op.args[0]))

    def add(self, contribution: Value) -> None:
        self.b.store(self.sum, self.b.apply("add", self.b.load(self.sum), contribution))

    def holds(self, cond: Value, holds: bool) -> Value:
        tested = self.value(cond)
        return tested if holds else self.b.apply("not", tested)

    def is_cheap(self, value: Value) -> bool:
        """Whether it may be computed although an earlier condition fails."""
        if value in self.known or value in self.emitter.indices:
            return True
        if value in self.emitter.staged:
            return False
        op = self.emitter.definition.get(value)
        if op is None or isinstance(op, Constant | Builtin):
            return True
        cheap = isinstance(op, _ADDRESSES) or (isinstance(op, Apply) and op.fn not in ("div", "rem"))
        return cheap and all(map(self.is_cheap, operands(op)))

    # ---- values of the pattern, for that thread

    def value(self, value: Value) -> Value:
        settle(value, self.known, self._needs, lambda v: self.bind(v, self._compute(v)))
        return self.known[value]

    def _needs(self, value: Value) -> tuple[Value, ...]:
        """What must be known before it is copied."""
        op = self.emitter.definition.get(value)
        told = value in self.emitter.indices or value in self.emitter.staged
        if told or not (isinstance(op, _PURE) or self.is_copied_load(op)):
            return ()
        return operands(op)

    def is_copied_load(self, op: Op | None) -> TypeGuard[Load]:
        return isinstance(op, Load) and not op.volatile and self._is_input(op.ptr)

    def _compute(self, value: Value) -> Value:
        op = self.emitter.definition.get(value)
        match op:
            case _ if value in self.emitter.staged:
                return self._staged(self.emitter.staged[value])
            case _ if value in self.emitter.indices:
                return self.b.convert(self._told(self.emitter.indices[value]), value.type)
            case None if value in self.emitter.params:
                return value
            case None if value in self.emitter.bounds:
                return self.emitter.long_number(self.emitter.bounds[value])
            case Builtin(name, axis):
                return self.b.convert(self._builtin(name, axis), value.type)
            case If():
                return self._branches(op, op.results.index(value))
            case For():
                return self._loop(op, op.results.index(value))
            case op if isinstance(op, _PURE) or self.is_copied_load(op):
                return self._copy(op)
        raise NotSliceable

    def _staged(self, param: Param) -> Value:
        """What the thread left in memory."""
        number = thread_number(self.b, self._index, lambda axis: self.emitter.number(f"_threads_{axis}"))
        return self.b.load(self.b.offset(param.value, number))

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

    def _loop(self, op: For, k: int) -> Value:
        """A result of a loop that is run again, with what it carries for that."""
        carried = self._carried(op, k)
        inits = tuple(self.value(op.inits[j]) for j in carried)
        lower, upper, counter = self.value(op.lower), self.value(op.upper), op.body.args[0]
        args = [op.body.args[j + 1] for j in carried]
        fresh = [Value(arg.type, arg.name) for arg in (counter, *args)]
        with self.b.region() as region, self.scope():
            for arg, copy in zip((counter, *args), fresh, strict=True):
                self.bind(arg, copy)
            results = tuple(self.value(op.body.results[j]) for j in carried)
        found = self.b.for_(lower, upper, inits, op.step, region.block(tuple(fresh), results), op.unroll)
        self.emitter.again[id(self.b.ops[-1])] = op
        return found[carried.index(k)]

    def _carried(self, op: For, k: int) -> list[int]:
        """What a result comes from, of all that the loop carries, and in what order it is said."""
        found, todo, seen = {k}, [op.body.results[k]], set[Value]()
        numbers = {arg: j for j, arg in enumerate(op.body.args[1:])}
        while todo:
            value = todo.pop()
            if value in seen:
                continue
            seen.add(value)
            if value in numbers and numbers[value] not in found:
                found.add(numbers[value])
                todo.append(op.body.results[numbers[value]])
            defined = self.emitter.definition.get(value)
            if defined is not None:
                todo += (*operands(defined), *(v for inner in blocks(defined) for v in free_values(inner)))
        return sorted(found)

    def _is_input(self, ptr: Value) -> bool:
        """Memory that outlives the launch and that the gradient does not write."""
        roots = self.emitter.memory.of(ptr)
        return bool(roots) and roots <= self.emitter.lasting and not roots & self.emitter.written

    def _digit(self, axis: int, digit: int) -> Value:
        """Of the thread's index in the kernel's grid; along an axis that is one thread wide there is no coordinate."""
        follow = (coordinate for coordinate, _, _ in self.site.derived)
        mine = (*self.site.summed, *(solved.coordinate for solved in self.site.solved), *follow)
        place = Coordinate("axis", axis, digit)
        if place not in mine:
            return self.b.constant(0, self.type)
        if place not in self.at:
            raise NotSliceable
        return self.at[place]

    def _told(self, index: Index) -> Value:
        if index.digit is None:
            return self._index(index.axis)
        b, at = self.b, self._digit(index.axis, index.digit)
        if index.divisor > 1:
            at = b.apply("div", at, b.constant(index.divisor, self.type))
        return at if index.modulus is None else b.apply("rem", at, b.constant(index.modulus, self.type))

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
    """True where there are none."""
    first, *rest = conditions or [b.constant(True, BOOL)]
    for condition in rest:
        first = b.apply("and", first, condition)
    return first
