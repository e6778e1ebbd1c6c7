"""A loop in strips of eight iterations, at the end of which lanes add up what they have for each (`lane_sums`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import reduce

from ..ir.builder import Builder
from ..ir.ops import Atomic, Block, For, Member, Offset, Op, PtrCast, Value, Warp
from ..ir.traverse import clone, operands, rebuild
from ..ir.types import U32, U64, Array, Pointer, Scalar

STRIP = 8
_WARP = 32
_EVERYONE = 0xFFFFFFFF
_WORTH = 3  # iterations that are left over, from which on they are a strip of their own


@dataclass(frozen=True)
class Sum:
    """An update of a loop. `address`: the arithmetic behind its pointer; `tested`: the values in it that must be the
    same for lanes to share it; `always`: it happens in every iteration."""

    update: Atomic
    address: tuple[Op, ...]
    tested: tuple[Value, ...]
    always: bool


@dataclass(frozen=True)
class _Kept:
    """`lanes`: how many neighbours share the address, 1 for none; None where all lanes do, for sure."""

    sum: Sum
    cells: Value
    lanes: Value | None


_Work = Callable[[Value, tuple[Value, ...]], tuple[Value, ...]]


class Strips:
    """`known`: the counter's values, where they are constants."""

    def __init__(self, loop: For, sums: tuple[Sum, ...], uniform: set[Value], known: range | None):
        self.loop, self.sums, self.uniform, self.known = loop, sums, uniform, known
        self.b = Builder()
        self.everyone = self.b.constant(_EVERYONE, U32)

    def ops(self) -> tuple[Op, ...]:
        b, loop = self.b, self.loop
        whole = b.apply("eq", b.emit(Warp, "activemask", (), type=U32), self.everyone)
        with b.region() as region:
            done = self.alike_whole()
        start, *carried = b.if_(whole, region.block(results=done), Block((), (), (loop.lower, *loop.inits)))
        b.add(replace(loop, lower=start, inits=tuple(carried)))
        return tuple(b.ops)

    # ---- how far strips go

    def alike_whole(self) -> tuple[Value, ...]:
        """The counter and the carried values behind the strips of a whole warp."""
        if self.known is not None:
            return self.strips(self.bound(len(self.known) - len(self.known) % STRIP))
        trips = self.trips()
        go_on = self.b.apply("ge", trips, self.b.constant(STRIP, trips.type))
        for bound in (self.loop.lower, self.loop.upper):
            if bound not in self.uniform:
                alike = self.b.apply("eq", self.lanes_alike((bound,)), self.b.constant(_WARP, U32))
                go_on = self.b.apply("and", go_on, alike)
        with self.b.region() as region:
            done = self.strips(self.end(trips))
        before = (self.loop.lower, *self.loop.inits)
        return self.b.if_(go_on, region.block(results=done), Block((), (), before))

    def trips(self) -> Value:
        """The number of iterations, without overflow."""
        b, lower, upper, step = self.b, self.loop.lower, self.loop.upper, self.loop.step
        type = U64 if self.counter_type.bits > 32 else U32
        ends = (upper, lower) if step > 0 else (lower, upper)
        distance = b.apply("sub", *(b.convert(v, type) for v in ends))
        if abs(step) > 1:
            one, size = b.constant(1, type), b.constant(abs(step), type)
            distance = b.apply("add", b.apply("div", b.apply("sub", distance, one), size), one)
        runs = b.apply("lt" if step > 0 else "gt", lower, upper)
        return b.apply("select", runs, distance, b.constant(0, type))

    def end(self, trips: Value) -> Value:
        """The counter behind the last full strip."""
        b = self.b
        full = b.apply("sub", trips, b.apply("rem", trips, b.constant(STRIP, trips.type)))
        return self.iteration(self.loop.lower, b.convert(full, self.counter_type))

    def bound(self, count: int) -> Value:
        assert self.known is not None
        return self.b.constant(self.known.start + count * self.loop.step, self.counter_type)

    @property
    def counter_type(self) -> Scalar:
        type = self.loop.lower.type
        assert isinstance(type, Scalar)
        return type

    def iteration(self, first: Value, number: Value) -> Value:
        """The counter, so many iterations behind `first`."""
        b, step = self.b, self.loop.step
        if abs(step) > 1:
            number = b.apply("mul", number, b.constant(abs(step), number.type))
        return b.apply("add" if step > 0 else "sub", first, number)

    # ---- strips

    def strips(self, end: Value) -> tuple[Value, ...]:
        b, loop = self.b, self.loop
        lanes = [self.lanes_of(s) for s in self.sums]
        carried = loop.inits
        if self.known is None or len(self.known) >= STRIP:
            first = Value(loop.lower.type, loop.body.args[0].name)
            args = tuple(Value(v.type, v.name) for v in loop.body.args[1:])
            with b.region() as region:
                following = self.strip(first, args, lanes, STRIP)
            body = region.block((first, *args), following)
            results = tuple(Value(v.type, v.name) for v in args)
            b.add(For(loop.lower, end, carried, loop.step * STRIP, body, results=results, span=loop.span))
            carried = results
        if self.known is not None and len(self.known) % STRIP >= _WORTH:
            carried = self.strip(end, carried, lanes, len(self.known) % STRIP)
            end = self.bound(len(self.known))
        return (end, *carried)

    def strip(
        self, first: Value, carried: tuple[Value, ...], lanes: list[Value | None], count: int
    ) -> tuple[Value, ...]:
        """`count` iterations, and their sums."""
        kept = [self.keep(s, n) for s, n in zip(self.sums, lanes, strict=True)]
        if count < STRIP:
            self.count(count, STRIP, (), lambda j, _: self.clear(kept, j))
        carried = self.count(0, count, carried, lambda j, values: self.iterate(first, j, values, kept))
        for k in kept:
            self.where_shared(k, lambda k=k: self.add_sums(k, first))  # type: ignore[misc]
        return carried

    def count(self, start: int, end: int, carried: tuple[Value, ...], work: _Work) -> tuple[Value, ...]:
        """A loop over the cells, to be unrolled so that they are registers."""
        b, number = self.b, Value(self.counter_type, "j")
        args = tuple(Value(v.type, v.name) for v in carried)
        with b.region() as region:
            following = work(number, args)
        bounds = (b.constant(k, self.counter_type) for k in (start, end))
        return b.for_(*bounds, carried, 1, region.block((number, *args), following), unroll=0)

    def clear(self, kept: list[_Kept], number: Value) -> tuple[Value, ...]:
        for k in kept:
            self.store(k, number, self.b.constant(0.0, k.sum.update.result.type))
        return ()

    def iterate(self, first: Value, number: Value, carried: tuple[Value, ...], kept: list[_Kept]) -> tuple[Value, ...]:
        """The loop's body, with the updates kept."""
        body = self.loop.body
        self.clear([k for k in kept if not k.sum.always], number)
        given = dict(zip(body.args, (self.iteration(first, number), *carried), strict=True))
        by_update = {k.sum.update: k for k in kept}
        copy = clone(Block((), self.keeping(body, by_update, number).ops, body.results), given)
        self.b.ops += copy.ops
        return copy.results

    def keeping(self, block: Block, kept: dict[Atomic, _Kept], number: Value) -> Block:
        with self.b.region() as region:
            for op in block.ops:
                if isinstance(op, Atomic) and op in kept:
                    self.keep_update(op, kept[op], number)
                else:
                    self.b.add(rebuild(op, lambda v: v, lambda inner: self.keeping(inner, kept, number)))
        return region.block(block.args, block.results)

    def keep_update(self, op: Atomic, kept: _Kept, number: Value) -> None:
        (value,) = op.args
        self.where_shared(kept, lambda: self.store(kept, number, value), lambda: self.add(op, op.ptr, value))

    # ---- updates

    def keep(self, of: Sum, lanes: Value | None) -> _Kept:
        name = self.name(of)
        cells = self.b.alloca(Array(of.update.result.type, STRIP), f"{name}_parts")
        return _Kept(of, cells, lanes)

    def store(self, kept: _Kept, number: Value, value: Value) -> None:
        self.b.store(self.b.offset(self.b.decay(kept.cells), number), value)

    def where_shared(self, kept: _Kept, work: Callable[[], None], otherwise: Callable[[], None] | None = None) -> None:
        b = self.b
        if kept.lanes is None:
            work()
            return
        shared = b.apply("gt", kept.lanes, b.constant(1, U32))
        with b.region() as then:
            work()
        with b.region() as orelse:
            if otherwise is not None:
                otherwise()
        b.if_(shared, then.block(), orelse.block())

    def add(self, op: Atomic, ptr: Value, value: Value, condition: Value | None = None) -> None:
        """Atomically, unless there is nothing to add."""
        b = self.b
        some = b.apply("ne", value, b.constant(0.0, value.type))
        with b.region() as region:
            b.add(Atomic("add", ptr, (value,), op.scope, results=(Value(value.type),), span=op.span))
        b.if_(some if condition is None else b.apply("and", condition, some), region.block())

    def add_sums(self, kept: _Kept, first: Value) -> None:
        """By the first eight of the lanes that share the addresses."""
        b, update = self.b, kept.sum.update
        lanes = b.constant(_WARP, U32) if kept.lanes is None else kept.lanes
        total = b.emit(Warp, "lane_sums", (self.everyone, b.decay(kept.cells), lanes), type=update.result.type)
        lane, one = b.builtin("lane_id"), b.constant(1, U32)
        strip = b.constant(STRIP, U32)
        adds = b.apply("lt", b.apply("and", lane, b.apply("sub", lanes, one)), strip)
        number = b.convert(b.apply("rem", lane, strip), self.counter_type)
        ptr = self.repeated(kept.sum.address, {self.loop.body.args[0]: self.iteration(first, number)}, update.ptr)
        self.add(update, ptr, total, adds)

    def repeated(self, ops: tuple[Op, ...], given: dict[Value, Value], value: Value) -> Value:
        self.b.ops += clone(Block((), ops, ()), given).ops
        return given.get(value, value)

    # ---- which lanes share addresses

    def lanes_of(self, of: Sum) -> Value | None:
        if not of.tested:
            return None
        given: dict[Value, Value] = {}
        self.repeated(self.unchanging(of.address), given, of.update.ptr)
        return self.lanes_alike(tuple(given.get(v, v) for v in of.tested), f"{self.name(of)}_lanes")

    def unchanging(self, ops: tuple[Op, ...]) -> tuple[Op, ...]:
        """Those that do not depend on the counter."""
        changing = {self.loop.body.args[0]}
        for op in ops:
            if any(v in changing for v in operands(op)):
                changing.update(op.results)
        return tuple(op for op in ops if op.result not in changing)

    def lanes_alike(self, values: tuple[Value, ...], name: str | None = None) -> Value:
        """Of how many neighbours each value is the same: 32, 16 or 8, or 1 for none."""
        b = self.b
        plain = [b.apply("address", v, type=U64) if isinstance(v.type, Pointer) else v for v in values]
        counts = [b.emit(Warp, "lanes_alike", (self.everyone, v), type=U32, name=name) for v in plain]
        return reduce(lambda a, c: b.apply("min", a, c, name=name), counts)

    def name(self, of: Sum) -> str:
        ptr = of.update.ptr
        definition = {op.result: op for op in of.address}
        while isinstance(op := definition.get(ptr), Offset | Member | PtrCast):
            ptr = op.ptr
        return ptr.name or "sum"
