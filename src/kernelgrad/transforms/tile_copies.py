"""Tiles that are copies: shared memory that a block fills from memory which nobody writes, and then reads.

    s[t] = x[blockIdx.x * blockDim.x + t - r];  __syncthreads();  ... s[threadIdx.x + k] ...

A read of such a tile is a read of that memory: `x[blockIdx.x * blockDim.x + threadIdx.x + k - r]`. Tile and barriers go,
and what is known of kernels without them holds: who reads an element, so that each element collects its adjoint.

Of a store, the indices of its cell are each a thread's index, or a counter that goes in steps of as many threads (a
`core`), and something that all threads share. So a cell tells which thread stores to it, at which iteration: what it
stores, and whether it does, is computed for these (`solved`). Several stores (a tile and its halo) are tried from the last
to the first. A cell that nobody stores to holds zero, as everything does that is not initialised.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from ..analysis import roots, structure, tiles, uniform
from ..analysis.access.affine import Shape, Sums
from ..analysis.access.intervals import Intervals
from ..analysis.tiles import Tile
from ..ir.builder import Builder, pointee
from ..ir.effects import is_pure
from ..ir.ops import (
    Apply,
    Atomic,
    BarrierReduce,
    Block,
    Builtin,
    Fence,
    For,
    Function,
    GlobalRef,
    If,
    Load,
    Module,
    Offset,
    Op,
    PtrCast,
    Store,
    Value,
    Warp,
    While,
)
from ..ir.traverse import blocks, descend, kinds, operands, uses, walk, with_body, with_ops
from ..ir.types import BOOL, I32, U32, Array, Pointer, Scalar
from . import barriers, block_shape, simplify

Dim3 = tuple[int, int, int]
_MEETING = (BarrierReduce, Warp, Fence)  # threads that pass each other more than tiles
_MOST_STORES = 10  # a tile, four sides, four corners, and one to clear it


class NoCopy(Exception):
    """A tile holds something else."""


def run(function: Function, module: Module, block: Dim3) -> Function | None:
    """The function for blocks of that shape, without shared memory; None where that holds more than copies."""
    try:
        return _Copies(simplify.run(block_shape.with_extents(function, block), module), block).run(module)
    except NoCopy:
        return None


@dataclass(frozen=True)
class _Fill:
    """A store. `around`: what it stands in, from outside in, and which of its regions."""

    store: Store
    around: tuple[tuple[Op, int], ...]


@dataclass(frozen=True)
class _Core:
    """What of an index tells threads or iterations apart, and what is added to it."""

    value: Value
    added: tuple[tuple[str, Value], ...]  # "add" or "sub"


class _Fixed(NamedTuple):
    """An index of a cell that all threads share: where it is read, where it is stored, and what those are made of."""

    at: Value
    own: Value
    stored: list[Value]
    parts: list[Value]


class _Copies:
    def __init__(self, function: Function, block: Dim3):
        self.function, self.extents = function, block
        self.memory = roots.analyse(function)
        self.structure = structure.analyse(function, apart=False)
        self.tiles = tiles.find_tiles(self.memory, self.structure)
        self.definition = self.structure.definition
        self.uniform = uniform.uniform_values(function)
        self.sums = Sums(self.structure, Shape((1, 1, 1), block), lambda _: None)
        self.written = self.memory.written()
        self.parameters = {p.value for p in function.params}
        self.fills = {root: self._fills(tile) for root, tile in self.tiles.items()}
        self.filling = {op for tile in self.tiles.values() for op in tile.fill if not _used_results(op, function)}
        self.of_load = {n: root for root, tile in self.tiles.items() for n in tile.loads}
        self._check()

    def run(self, module: Module) -> Function:
        body = self._block(self.function.body)
        plain = simplify.run(with_body(self.function, body), module)
        plain = simplify.run(barriers.run(plain, module), module)
        if not _shared(plain).isdisjoint((*_shared(self.function), None)) or _meets(plain):
            raise NoCopy
        return plain

    def _check(self) -> None:
        shared = {op.name for op in walk(self.function.body) if isinstance(op, GlobalRef) and _is_shared(op.result)}
        found = kinds(self.function.body)
        if not shared or {tile.variable for tile in self.tiles.values()} != shared or not found.isdisjoint(_MEETING):
            raise NoCopy
        for tile in self.tiles.values():
            once = not any(place.in_loop for place in tile.place.around())
            if tile.barrier is None or not once or len(tile.stores) > _MOST_STORES:
                raise NoCopy
        _Rows(self).check(self.function.body)

    # ---- the code

    def _block(self, block: Block) -> Block:
        ops: list[Op] = []
        for op in block.ops:
            root = self.of_load.get(id(op))
            if isinstance(op, Load) and root is not None:
                ops += self._read(op, self.fills[root])
            elif not any(id(op) in tile.stores for tile in self.tiles.values()):
                inner = descend(op, self._block)
                ops += () if op in self.filling and _does_nothing(inner) else (inner,)
        return with_ops(block, ops)

    def _read(self, load: Load, fills: tuple[_Fill, ...]) -> tuple[Op, ...]:
        build = Builder(load.span)
        value = self._value(build, load, fills)
        last = build.ops.pop()
        assert last.results == (value,)
        return (*build.ops, replace(last, results=load.results))

    def _value(self, build: Builder, load: Load, fills: tuple[_Fill, ...]) -> Value:
        """What the cell holds."""
        if not fills:
            return build.constant(0, load.result.type)
        copy = _Copied(self, build, fills[0], self.cell(load.ptr))
        copy.address(fills[0].store.value)
        with build.region() as then:
            stored = copy.inside().copied(fills[0].store.value)
        with build.region() as orelse:
            other = self._value(build, load, fills[1:])
        (found,) = build.if_(copy.happens, then.block(results=(stored,)), orelse.block(results=(other,)))
        return found

    # ---- what is known

    def _fills(self, tile: Tile) -> tuple[_Fill, ...]:
        """The last one first: where one thread stores to a cell twice, that is what it holds."""
        found = [f for op in tile.fill for f in _stores(op, (), tile.stores)]
        return tuple(reversed(found))

    def cell(self, ptr: Value) -> dict[int, list[Value]]:
        """The indices of an address in shared memory, by the bytes of what they count."""
        found: dict[int, list[Value]] = {}
        while True:
            op = self.definition.get(ptr)
            match op:
                case Offset(inner, index):
                    found.setdefault(pointee(ptr).size, []).insert(0, index)
                    ptr = inner
                case PtrCast(inner):
                    ptr = inner
                case GlobalRef():
                    return found
                case _:
                    raise NoCopy

    def core(self, index: Value) -> _Core | None:
        """None of an index that all threads share."""
        added: list[tuple[str, Value]] = []
        while index not in self.uniform:
            op = self.definition.get(index)
            match op:
                case Apply("convert", (inner,)) if _is_index(inner):
                    index = inner
                case Apply("add", (one, other)) if one in self.uniform or other in self.uniform:
                    index, more = (other, one) if one in self.uniform else (one, other)
                    added.append(("add", more))
                case Apply("sub", (one, other)) if other in self.uniform:
                    index = one
                    added.append(("sub", other))
                case _:
                    return _Core(index, tuple(added))
        return None

    def distance(self, one: _Core, other: _Core) -> int | None:
        """How much more is added to one; None where it is no number."""
        total, rest = 0, dict[Value, int]()
        for core, sign in ((one, 1), (other, -1)):
            for fn, value in core.added:
                number, times = self.number(value), sign if fn == "add" else -sign
                if number is None:
                    rest[value] = rest.get(value, 0) + times
                else:
                    total += times * number
        return None if any(rest.values()) else (total + 2**31) % 2**32 - 2**31

    def number(self, value: Value) -> int | None:
        """The same for all threads and launches of such blocks."""
        found = self.sums.of(value)
        return found.const if found is not None and not found.terms else None

    def threads(self, value: Value) -> int | None:
        """How many values it takes in a block, from zero, if it numbers threads."""
        found = self.sums.of(value)
        if found is None or found.const:
            return None
        axes = [a for a in range(3) if self.extents[a] > 1]
        factors, number = {}, 1
        for axis in axes:
            factors["thread_idx", axis] = number
            number *= self.extents[axis]
        if found.coefficients == factors:
            return number
        (only,) = found.terms if len(found.terms) == 1 else ((None, 0),)
        basis, factor = only
        is_index = factor == 1 and isinstance(basis, tuple) and basis[0] == "thread_idx"
        return self.extents[basis[1]] if is_index else None  # type: ignore[index, misc]


class _Copied:
    """What a store's thread computes, copied to where a cell is read."""

    def __init__(self, found: _Copies, build: Builder, fill: _Fill, cell: dict[int, list[Value]]):
        self.found, self.build, self.mapping = found, build, dict[Value, Value]()
        self.tests: list[Value] = []
        self.shifts: dict[Value, int] = {}
        self.own: dict[Value, Value] = {}
        self.unknown: set[Value] = set()  # cores of which it is not known whether a thread has them
        stored = found.cell(fill.store.ptr)
        shared = self._solve(stored, cell)
        self._pin(fill, shared)
        for op, region in fill.around:
            self._inside(op, region)
        if self.unknown:
            raise NoCopy
        self.happens = self._all(self.tests)

    def _all(self, tests: list[Value]) -> Value:
        found, *more = tests or [self.build.constant(True, BOOL)]
        for test in more:
            found = self.build.apply("and", found, test)
        return found

    def inside(self) -> _Copied:
        """What is copied in a region stays there."""
        made = object.__new__(_Copied)
        made.__dict__.update(self.__dict__)
        made.mapping = dict(self.mapping)
        return made

    def address(self, value: Value) -> None:
        """Of a value that is loaded, if something holds: both are computed outside of branches, where they are the same
        for several stores."""
        match self.found.definition.get(value):
            case Load(ptr) if self._is_addressed(ptr):
                self.copied(ptr)
            case If(cond, then, orelse):
                if not self._loads(cond):
                    self.copied(cond, loads=False)
                for side in (then, orelse):
                    self.address(side.results[0])

    def _is_addressed(self, ptr: Value) -> bool:
        return self._is_constant(ptr) and not self._loads(ptr)

    def _loads(self, value: Value) -> bool:
        """Whether it comes from memory, or from a branch."""
        todo, seen = [value], set[Value]()
        while todo:
            one = todo.pop()
            op = self.found.definition.get(one)
            if one in seen or op is None:
                continue
            if not is_pure(op):
                return True
            seen.add(one)
            todo += operands(op)
        return False

    # ---- whose cell it is

    def _solve(self, stored: dict[int, list[Value]], cell: dict[int, list[Value]]) -> list[_Fixed]:
        """The cores, by the cell. Gives the indices that all threads share, which must be those of the cell."""
        shared = []
        for size in sorted({*stored, *cell}, reverse=True):
            at, index = self._sum(cell.get(size, [])), stored.get(size, [])
            if len(index) > 1:
                raise NoCopy
            core = self.found.core(index[0]) if index else None
            if core is None:
                own = self.copied(index[0]) if index else self.build.constant(0, at.type)
                shared.append(_Fixed(at, own, index, cell.get(size, [])))
                self.tests.append(self._is_at(cell.get(size, []), index) or self.build.apply("eq", at, self._as(own, at)))
            elif core.value in self.mapping:
                raise NoCopy
            else:
                value = self._near(cell.get(size, []), core)
                if value is None:
                    value = self._without(at, core)
                self.mapping[core.value] = value
                self.unknown.add(core.value)
                if self._is_thread(core):
                    self.unknown.discard(core.value)
                    self.tests.append(self._exists(core.value, value))
        return shared

    def _is_at(self, parts: list[Value], stored: list[Value]) -> Value | None:
        """Whether a cell has an index that all threads share, as a test of the thread's that reads it."""
        own = self.found.core(parts[0]) if len(parts) == 1 else None
        if own is None or not self._is_thread(own):
            return None
        numbers = self.found.distance(_Core(own.value, tuple(("add", v) for v in stored)), own)
        if numbers is None or not 0 <= numbers < 2**31:
            return None
        return self.build.apply("eq", self._own(own.value), self.build.constant(numbers, own.value.type))

    def _sum(self, parts: list[Value]) -> Value:
        if not parts:
            return self.build.constant(0, U32)
        total, *more = parts
        for part in more:
            total = self.build.apply("add", total, self._as(part, total))
        return total

    def _without(self, at: Value, core: _Core) -> Value:
        value = self.build.convert(at, I32 if core.value.type == U32 else core.value.type)
        for fn, added in core.added:
            value = self.build.apply("sub" if fn == "add" else "add", value, self._as(self.copied(added), value))
        return self.build.convert(value, core.value.type)

    def _near(self, parts: list[Value], core: _Core) -> Value | None:
        """Of a cell at a fixed distance from that of the thread that reads it: its index, and that distance."""
        own = self.found.core(parts[0]) if len(parts) == 1 else None
        numbers = None if own is None else self.found.distance(own, core)
        if own is None or own.value is not core.value or numbers is None or not self._is_thread(core):
            return None
        self.shifts[core.value] = numbers
        return self._shifted(self._own(core.value), numbers)

    def _shifted(self, value: Value, by: int) -> Value:
        if by == 0:
            return value
        signed = self.build.convert(value, I32) if value.type == U32 else value
        amount = self.build.constant(abs(by), signed.type)
        return self.build.convert(self.build.apply("add" if by > 0 else "sub", signed, amount), value.type)

    def _own(self, value: Value) -> Value:
        """What the thread that reads computes itself."""
        if value not in self.own:
            op = self.found.definition.get(value)
            if op is None:
                return value
            made = {v: self._own(v) for v in operands(op)}
            copy = replace(_with_operands(op, made), results=(Value(value.type, value.name),))
            self.own[value] = self.build.add(copy).result
        return self.own[value]

    def _shift(self, value: Value) -> int | None:
        """By how much it is more for the thread that stores than for the one that reads."""
        if value in self.shifts:
            return self.shifts[value]
        op = self.found.definition.get(value)
        match op:
            case None:
                return 0 if value in self.found.parameters else None
            case Builtin("thread_idx", axis):
                return 0 if self.found.extents[axis] == 1 else None
            case Apply("convert", (one,)) if _is_index(one) and _is_index(value):
                return self._shift(one)
            case Apply("add" | "sub" as fn, (one, other)) if _is_index(value):
                left, right = self._shift(one), self._shift(other)
                return None if left is None or right is None else left + right * (1 if fn == "add" else -1)
        parts = [self._shift(v) for v in operands(op)] if is_pure(op) else [None]
        return 0 if all(part == 0 for part in parts) else None

    def _as(self, value: Value, like: Value) -> Value:
        return self.build.convert(value, like.type)

    def _pin(self, fill: _Fill, shared: list[_Fixed]) -> None:
        """A thread's index that a branch compares with something is that. Of a cell whose index is a number, the
        distance to it is zero: added to the thread's, neighbours' reads look alike."""
        for op, region in fill.around:
            for index, given in self._equal(op, region):
                if index in self.mapping:
                    continue
                value = self.build.convert(self.copied(given), I32)
                self.tests.append(self._exists(index, value))
                fixed = shared.pop() if shared else None
                near = None if fixed is None else self._near_pin(index, given, fixed)
                if near is None and fixed is not None:
                    at, own = self._as(fixed.at, value), self._as(fixed.own, value)
                    value = self.build.apply("add", value, self.build.apply("sub", at, own))
                self.mapping[index] = self._as(value, index) if near is None else near

    def _near_pin(self, index: Value, given: Value, fixed: _Fixed) -> Value | None:
        own = self.found.core(fixed.parts[0]) if len(fixed.parts) == 1 else None
        added = tuple(("add", v) for v in fixed.stored)
        numbers = None if own is None else self.found.distance(own, _Core(index, (*added, ("sub", given))))
        if own is None or own.value is not index or numbers is None:
            return None
        self.shifts[index] = numbers
        return self._shifted(self._own(index), numbers)

    def _equal(self, op: Op, region: int) -> Iterator[tuple[Value, Value]]:
        if not isinstance(op, If) or region:
            return
        todo = [op.cond]
        while todo:
            match self.found.definition.get(todo.pop()):
                case Apply("and", args):
                    todo += args
                case Apply("eq", (one, other)):
                    for index, given in ((one, other), (other, one)):
                        core = self.found.core(index)
                        if core is not None and not core.added and given in self.found.uniform and self._is_thread(core):
                            yield core.value, given

    def _is_thread(self, core: _Core) -> bool:
        op = self.found.definition.get(core.value)
        return isinstance(op, Builtin) and op.name == "thread_idx"

    # ---- whether it is stored

    def _exists(self, index: Value, value: Value) -> Value:
        op = self.found.definition[index]
        assert isinstance(op, Builtin)
        signed = self.build.convert(value, I32)
        extent = self.build.constant(self.found.extents[op.axis], I32)
        least = self.build.apply("ge", signed, self.build.constant(0, I32))
        return self.build.apply("and", least, self.build.apply("lt", signed, extent))

    def _inside(self, op: Op, region: int) -> None:
        match op:
            case If(cond):
                test = self.copied(cond, loads=False)
                self.tests.append(self.build.apply("not", test) if region else test)
            case For(lower, upper, step=step, body=body) if step > 0:
                self._steps(body.args[0], lower, step)
                value = self.mapping[body.args[0]]
                self.tests.append(self.build.apply("lt", value, self._as(self.copied(upper, loads=False), value)))
            case While():
                self._repeats(op, region)
            case _:
                raise NoCopy

    def _steps(self, counter: Value, start: Value, step: int | None) -> None:
        """Whether a loop comes to the value of its counter: it starts at a thread's number, and has as many threads."""
        if counter not in self.mapping or step is None:
            raise NoCopy
        value = self.mapping[counter]
        core = self.found.core(start)
        if core is None:
            is_any, first = step == 1, self.copied(start, loads=False)
        else:
            is_any = self.found.threads(core.value) == step
            first = self._added(core, value)
        if not is_any:
            raise NoCopy
        self.unknown.discard(counter)
        self.tests.append(self.build.apply("ge", value, self._as(first, value)))

    def _added(self, core: _Core, like: Value) -> Value:
        """What all threads start from."""
        total = self.build.constant(0, like.type)
        for fn, added in core.added:
            total = self.build.apply(fn, total, self._as(self.copied(added, loads=False), like))
        return total

    def _repeats(self, loop: While, region: int) -> None:
        """A loop that adds the number of threads each time, as long as that is less than something."""
        condition, *forwarded = loop.before.results
        counters = [arg for arg in loop.body.args if arg in self.mapping]
        if region != 1 or len(counters) != 1:
            raise NoCopy
        (counter,) = counters
        at = loop.body.args.index(counter)
        value, next = self.mapping[counter], self.found.core(loop.body.results[at])
        if forwarded[at] not in loop.before.args or next is None or next.value is not counter:
            raise NoCopy
        own = loop.before.args.index(forwarded[at])
        if own != at or [fn for fn, _ in next.added] != ["add"]:
            raise NoCopy
        self._steps(counter, loop.inits[own], self.found.number(next.added[0][1]))
        test = self.found.definition.get(condition)
        if not isinstance(test, Apply) or test.fn not in ("lt", "le") or test.args[1] not in self.found.uniform:
            raise NoCopy
        tested = self.found.core(test.args[0])
        if tested is None or tested.value is not forwarded[at] or tested.added:
            raise NoCopy
        self.mapping[forwarded[at]] = value
        self.tests.append(self.copied(condition, loads=False))

    # ---- copies

    def copied(self, value: Value, loads: bool = True) -> Value:
        """`loads`: whether it may be loaded."""
        if value in self.mapping:
            return self.mapping[value]
        op = self.found.definition.get(value)
        if op is None:
            if value not in self.found.parameters:
                raise NoCopy
            return value
        shift = self._shift(value) if _is_index(value) or value.type == BOOL or isinstance(value.type, Pointer) else None
        copy = self._copy(op, value, loads) if shift is None else self._shifted(self._own(value), shift)
        self.mapping[value] = copy
        return copy

    def _copy(self, op: Op, value: Value, loads: bool) -> Value:
        match op:
            case Builtin("thread_idx", axis) if self.found.extents[axis] == 1:
                return self.build.constant(0, value.type)
            case Builtin("thread_idx"):
                raise NoCopy
            case If(cond, then, orelse):
                return self._branch(op, value, loads)
            case Load(ptr, volatile=False) if loads and self._is_constant(ptr):
                pass
            case _ if not is_pure(op):
                raise NoCopy
        made = {v: self.copied(v, loads) for v in operands(op)}
        if isinstance(op, Apply) and op.fn in ("add", "sub") and value.type == U32:
            return self._signed(op.fn, *(made[v] for v in op.args))
        changed = _with_operands(op, made)
        return self.build.add(replace(changed, results=(Value(value.type, value.name),))).result

    def _signed(self, fn: str, one: Value, other: Value) -> Value:
        """A sum of 32 bits: what is one less than zero on the way is so for analyses, too."""
        total = self.build.apply(fn, self.build.convert(one, I32), self.build.convert(other, I32))
        return self.build.convert(total, U32)

    def _branch(self, op: If, value: Value, loads: bool) -> Value:
        cond, at, sides = self.copied(op.cond, loads), op.results.index(value), []
        for side in (op.then, op.orelse):
            with self.build.region() as region:
                result = self.inside().copied(side.results[at], loads)
            sides.append(region.block(results=(result,)))
        return self.build.if_(cond, *sides)[0]

    def _is_constant(self, ptr: Value) -> bool:
        """Whether nobody writes that memory while the kernel runs."""
        found = self.found.memory.of(ptr)
        lasting = all(r is not roots.UNKNOWN and not _is_of_block(r) for r in found)
        return bool(found) and lasting and found.isdisjoint(self.found.written) and roots.UNKNOWN not in self.found.written


class _Rows:
    """Whether every index of a row of a tile stays in its row, so that cells are the same where their indices are."""

    def __init__(self, found: _Copies):
        self.found = found
        self.intervals = Intervals(found.function, (2**31 - 1, 65535, 65535), found.extents, lambda _: None)

    def check(self, block: Block) -> None:
        for op in block.ops:
            match op:
                case Load(ptr) | Store(ptr) if _is_shared(ptr):
                    self._access(ptr)
                case If(cond):
                    for inner, side in ((op.then, True), (op.orelse, False)):
                        with self.intervals.assuming(cond, side) as happens:
                            if happens:
                                self.check(inner)
                case For(body=body):
                    with self.intervals.counting(op) as happens:
                        if happens:
                            self.check(body)
                case While(before=before, body=body):
                    with self.intervals.repeating(op):
                        self.check(before)
                        with self.intervals.entering(op) as happens:
                            if happens:
                                self.check(body)
                case _:
                    assert not blocks(op)

    def _access(self, ptr: Value) -> None:
        (root,) = self.found.memory.of(ptr)
        type, bounds = pointee(root), dict[int, int]()
        while isinstance(type, Array):
            bounds[type.element.size] = type.count
            type = type.element
        largest = max(bounds, default=0)
        for size, indices in self.found.cell(ptr).items():
            if size not in bounds:
                raise NoCopy
            ranges = [self.intervals.of(index) for index in indices]
            low, high = sum(r[0] for r in ranges), sum(r[1] for r in ranges)
            if size != largest and not 0 <= low <= high < bounds[size]:
                raise NoCopy


def _stores(op: Op, around: tuple[tuple[Op, int], ...], wanted: frozenset[int]) -> Iterator[_Fill]:
    if id(op) in wanted:
        assert isinstance(op, Store)
        yield _Fill(op, around)
    for number, inner in enumerate(blocks(op)):
        for nested in inner.ops:
            yield from _stores(nested, (*around, (op, number)), wanted)


def _does_nothing(op: Op) -> bool:
    """Of an operation that filled a tile: a loop of its comes to an end."""
    return all(is_pure(one) or isinstance(one, Load | If | For | While) for one in (op, *_inside(op)))


def _inside(op: Op) -> Iterator[Op]:
    return (one for block in blocks(op) for one in walk(block))


def _used_results(op: Op, function: Function) -> bool:
    used = uses(function.body)
    return any(used.get(v, 0) for v in op.results)


def _with_operands(op: Op, made: dict[Value, Value]) -> Op:
    from ..ir.traverse import rebuild

    return rebuild(op, lambda v: made.get(v, v), lambda b: b)


def _shared(function: Function) -> set[str | None]:
    return {op.name for op in walk(function.body) if isinstance(op, GlobalRef) and _is_shared(op.result)}


def _meets(function: Function) -> bool:
    from ..ir.ops import Barrier

    return not kinds(function.body).isdisjoint((Barrier, *_MEETING))


def _is_shared(ptr: Value) -> bool:
    return isinstance(ptr.type, Pointer) and ptr.type.space == "shared"


def _is_of_block(root: Value) -> bool:
    return isinstance(root.type, Pointer) and root.type.space in ("shared", "local")


def _is_index(value: Value) -> bool:
    return isinstance(value.type, Scalar) and not value.type.is_float and value.type.size >= 4
