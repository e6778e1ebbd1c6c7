"""A loop strip-mined by eight iterations, at the end of which lanes add up what they have for each (`lane_sums`).

A strip first runs its iterations and keeps what they would add, then adds: so loads stand together and do not wait for
updates in between. Sums of one iteration are packed eight to a sum over lanes instead, and added when it ends.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import reduce

from ...analysis.machine import FULL_WARP, WARP
from ...ir.builder import Builder
from ...ir.ops import Apply, Atomic, Block, Constant, For, If, Op, Value, Warp
from ...ir.traverse import clone, descend, operands, walk
from ...ir.types import BOOL, I32, U32, U64, Array, Pointer, Scalar
from ...locks import cached_property
from ...transforms.unroll import iterations

STRIP = 8
_PAIR = 2  # sums that lanes add up in one go
_WORTH = 3  # iterations that are left over, from which on they are a strip of their own
_Values = tuple[Value, ...]


@dataclass(frozen=True)
class Sum:
    """An update of a loop, made by `op`: itself, or an `If` that leaves out zeros. `address`: the arithmetic behind its
    pointer; `tested`: the values in it that must be the same for lanes to share it; `together`: they may be;
    `always`: it happens in every iteration. `widened`: what makes a double of the float that is added, which lanes add
    up as it is."""

    name: str  # of the memory
    op: Atomic | If
    update: Atomic
    address: tuple[Op, ...]
    tested: _Values
    together: bool
    always: bool
    widened: Apply | None = None

    @property
    def added(self) -> Value:
        return self.update.args[0] if self.widened is None else self.widened.args[0]


@dataclass(frozen=True)
class Kept:
    """What the iterations of a strip add. `lanes`: how many neighbours share the addresses, 1 for none; None if not
    tested: then all lanes do, or they may not."""

    sum: Sum
    cells: Value
    lanes: Value | None


@dataclass(frozen=True)
class Pack:
    """Sums of one iteration, of addresses that all lanes share."""

    sums: tuple[Sum, ...]
    cells: Value


class Strips:
    """`sums`: added in strips; `packed`: in each iteration. Without the former, there are no strips."""

    def __init__(
        self,
        loop: For,
        sums: tuple[Sum, ...],
        uniform: set[Value],
        constants: dict[Value, int],
        packed: tuple[Sum, ...] = (),
    ):
        self.loop, self.sums, self.packed, self.uniform, self.constants = loop, sums, packed, uniform, constants
        self.length = STRIP if sums else 1
        self.known = iterations(loop, constants)
        self.build_with(Builder())

    def build_with(self, b: Builder) -> None:
        self.b, self.everyone = b, b.constant(FULL_WARP, U32)

    def ops(self) -> tuple[Op, ...]:
        b, loop = self.b, self.loop
        whole = b.apply("eq", b.emit(Warp, "activemask", (), type=U32), self.everyone)
        with b.region() as region:
            done = self.whole_warp()
        start, *carried = b.if_(whole, region.block(results=done), Block((), (), (loop.lower, *loop.inits)))
        b.add(replace(loop, lower=start, inits=tuple(carried)))
        return tuple(b.ops)

    # ---- how far strips go

    def whole_warp(self) -> _Values:
        """The counter and the carried values behind the strips."""
        b, loop = self.b, self.loop
        if self.known is not None:
            return self.where_shared(self.constant(len(self.known) - len(self.known) % self.length))
        trips = self.trips()
        conditions = [b.apply("ge", trips, b.constant(self.length, trips.type))]
        for bound in (loop.lower, loop.upper):
            if bound not in self.uniform:
                conditions.append(b.apply("eq", self.lanes_alike((bound,)), b.constant(WARP, U32)))
        conditions += self.fitting()
        with b.region() as region:
            done = self.where_shared(self.end(trips))
        go_on = reduce(lambda a, c: b.apply("and", a, c), conditions)
        return b.if_(go_on, region.block(results=done), self.nothing_done())

    def where_shared(self, end: Value) -> _Values:
        """Strips up to the end; none, where lanes turn out to share no address at all."""
        b, lanes = self.b, self.lanes_of_all()
        tested = [n for of, n in zip(self.sums, lanes, strict=True) if of.together]
        if None in tested or self.packed:
            return self.strips(end, lanes)
        with b.region() as region:
            done = self.strips(end, lanes)
        return b.if_(self.any_shared(tested), region.block(results=done), self.nothing_done())

    def nothing_done(self) -> Block:
        return Block((), (), (self.loop.lower, *self.loop.inits))

    def trips(self) -> Value:
        """The number of iterations, without overflow."""
        b, lower, upper, step = self.b, self.loop.lower, self.loop.upper, self.loop.step
        type = U64 if _integer(lower).bits > 32 else U32
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
        full = trips
        if self.length > 1:
            full = b.apply("sub", trips, b.apply("rem", trips, b.constant(self.length, trips.type)))
        return self.iteration(self.loop.lower, b.convert(full, self.loop.lower.type))

    def constant(self, count: int) -> Value:
        """The counter after so many iterations."""
        assert self.known is not None
        return self.b.constant(self.known.start + count * self.loop.step, self.loop.lower.type)

    def iteration(self, first: Value, number: Value) -> Value:
        """The counter, so many iterations behind `first`."""
        b, step = self.b, self.loop.step
        if abs(step) > 1:
            number = b.apply("mul", number, b.constant(abs(step), number.type))
        return b.apply("add" if step > 0 else "sub", first, number)

    # ---- the counter

    @cached_property
    def narrowed(self) -> frozenset[Op]:
        """Conversions of the counter to one shorter signed type, if there is nothing else it is used for: strips count
        in that type, which spares the compiler the question whether the steps wrap."""
        counter = self.loop.body.args[0]
        used = [op for op in walk(self.loop.body) if counter in operands(op)]
        types = {op.result.type for op in used if isinstance(op, Apply) and op.fn == "convert"}
        short = all(isinstance(t, Scalar) and t.kind == "int" and t.bits < _integer(counter).bits for t in types)
        converted = all(isinstance(op, Apply) and op.fn == "convert" for op in used)
        usable = short and converted and len(types) == 1 and counter not in self.loop.body.results
        return frozenset(used) if usable and self.known is None else frozenset()

    @property
    def type(self) -> Scalar:
        """What strips count in."""
        return _integer(next((op.result for op in self.narrowed), self.loop.lower))

    def fits(self, bound: Value) -> bool:
        """Whether strips can count that far, for sure."""
        most = 1 << (self.type.bits - 1)
        return not self.narrowed or -most <= self.constants.get(bound, most) < most

    def fitting(self) -> list[Value]:
        """Conditions of which nothing is known before."""
        b, bounds = self.b, (self.loop.lower, self.loop.upper)
        return [b.apply("eq", v, b.convert(b.convert(v, self.type), v.type)) for v in bounds if not self.fits(v)]

    def counting(self, counter: Value) -> dict[Value, Value]:
        """What the counter of a strip stands for in the loop's body."""
        return {op.result: counter for op in self.narrowed} or {self.loop.body.args[0]: counter}

    # ---- strips

    def strips(self, end: Value, lanes: list[Value | None]) -> _Values:
        b, loop = self.b, self.loop
        carried = loop.inits
        if self.known is None or len(self.known) >= self.length:
            first = Value(self.type, next((op.result.name for op in self.narrowed), loop.body.args[0].name))
            args = _fresh(loop.body.args[1:])
            with b.region() as region:
                following = self.strip(first, args, lanes, self.length)
            body = region.block((first, *args), following)
            lower, upper = b.convert(loop.lower, self.type), b.convert(end, self.type)
            carried, inits = _fresh(args), carried
            b.add(For(lower, upper, inits, loop.step * self.length, body, results=carried, span=loop.span))
        if self.known is not None and len(self.known) % self.length >= _WORTH:
            carried = self.strip(end, carried, lanes, len(self.known) % self.length)
            end = self.constant(len(self.known))
        return (end, *carried)

    def strip(self, first: Value, carried: _Values, lanes: list[Value | None], count: int) -> _Values:
        """`count` iterations, then what they add."""
        kept = [self.keep(s, n) for s, n in zip(self.sums, lanes, strict=True)]
        if not kept:
            return self.iterate(first, self.b.constant(0, self.type), carried, kept)
        if count < STRIP:
            self.count(count, STRIP, (), lambda j, _: self.clear([k for k in kept if k.sum.together], j))
        carried = self.count(0, count, carried, lambda j, values: self.iterate(first, j, values, kept))
        for k in kept:
            self.add_kept(k, first, count)
        return carried

    def count(self, start: int, end: int, carried: _Values, work: Callable[[Value, _Values], _Values]) -> _Values:
        """A loop over the cells, to be unrolled so that they are registers."""
        b, number, args = self.b, Value(self.type, "~j"), _fresh(carried)
        with b.region() as region:
            following = work(number, args)
        lower, upper = b.constant(start, self.type), b.constant(end, self.type)
        return b.for_(lower, upper, carried, 1, region.block((number, *args), following), unroll=0)

    def iterate(self, first: Value, number: Value, carried: _Values, kept: list[Kept]) -> _Values:
        """The loop's body, with its updates kept."""
        body = self.loop.body
        self.clear([k for k in kept if not k.sum.always], number)
        packs = [self.pack(sums) for sums in self.together()]
        counter = self.iteration(first, number)
        given = self.counting(counter) | dict(zip(body.args[1:], carried, strict=True))
        cells: dict[Op, tuple[Value, Value]] = {k.sum.op: (self.cell(k, number), k.sum.added) for k in kept}
        for pack in packs:
            cells |= {s.op: (self.packed_cell(pack, k), s.added) for k, s in enumerate(pack.sums)}
        copy = clone(Block((), self.keeping(body, cells).ops, body.results), given)
        self.b.ops += copy.ops
        for pack in packs:
            self.add_packed(pack, counter)
        return copy.results

    def keeping(self, block: Block, cells: dict[Op, tuple[Value, Value]]) -> Block:
        """`cells`: where what updates add is kept instead, and what that is."""
        with self.b.region() as region:
            for op in block.ops:
                if op in cells:
                    self.b.store(*cells[op])
                elif op not in self.narrowed:
                    self.b.add(descend(op, lambda inner: self.keeping(inner, cells)))
        return region.block(block.args, block.results)

    # ---- packs

    def together(self) -> list[tuple[Sum, ...]]:
        """Those of a pack add to the same kind of memory."""
        kinds: dict[object, list[Sum]] = {}
        for s in self.packed:
            kinds.setdefault((s.update.ptr.type, s.update.scope, s.widened is None), []).append(s)
        return [tuple(sums[k : k + STRIP]) for sums in kinds.values() for k in range(0, len(sums), STRIP)]

    def pack(self, sums: tuple[Sum, ...]) -> Pack:
        count = STRIP if len(sums) > _PAIR else len(sums)
        found = Pack(sums, self.b.alloca(Array(sums[0].added.type, count), "sums"))
        for k in range(count):
            self.b.store(self.packed_cell(found, k), self.b.constant(0.0, sums[0].added.type))
        return found

    def packed_cell(self, pack: Pack, number: int) -> Value:
        return self.b.offset(self.b.decay(pack.cells), self.b.constant(number, I32))

    def add_packed(self, pack: Pack, counter: Value) -> None:
        """Sum k by lane k; of two, by the first lane of each half."""
        b, update = self.b, pack.sums[0].update
        total, lane = self.packed_total(pack), b.builtin("lane_id")
        if len(pack.sums) == _PAIR:
            half = b.constant(WARP // _PAIR, U32)
            few, lane = b.apply("eq", b.apply("rem", lane, half), b.constant(0, U32)), b.apply("div", lane, half)
        else:
            few = b.apply("lt", lane, b.constant(len(pack.sums), U32))
        with b.region() as region:
            places = [self.repeated(s.address, self.counting(counter), s.update.ptr) for s in pack.sums]
            ptr = places[0]
            for k, place in enumerate(places[1:], 1):
                ptr = b.apply("select", b.apply("eq", lane, b.constant(k, U32)), place, ptr)
            whole = total if pack.sums[0].widened is None else b.convert(total, update.result.type)
            b.add(Atomic("add", ptr, (whole,), update.scope, results=(Value(whole.type),), span=update.span))
        b.if_(b.apply("and", few, self.is_some(total)), region.block())

    def packed_total(self, pack: Pack) -> Value:
        """The sum that is a lane's to add."""
        b, type = self.b, pack.sums[0].added.type
        if len(pack.sums) > _PAIR:
            arguments = (self.everyone, b.decay(pack.cells), b.constant(WARP, U32))
            return b.emit(Warp, "lane_sums", arguments, type=type, name="~total")
        own = [b.load(self.packed_cell(pack, k)) for k in range(len(pack.sums))]
        fn = "lanes_totals" if len(own) == _PAIR else "lanes_total"
        return b.emit(Warp, fn, (self.everyone, *own), type=type, name="~total")

    # ---- cells

    def keep(self, of: Sum, lanes: Value | None) -> Kept:
        return Kept(of, self.b.alloca(Array(of.added.type, STRIP), f"{of.name}_parts"), lanes)

    def cell(self, kept: Kept, number: Value) -> Value:
        return self.b.offset(self.b.decay(kept.cells), number)

    def store(self, kept: Kept, number: Value, value: Value) -> None:
        self.b.store(self.cell(kept, number), value)

    def clear(self, kept: list[Kept], number: Value) -> _Values:
        for k in kept:
            self.store(k, number, self.b.constant(0.0, k.sum.added.type))
        return ()

    def accumulate(self, total: Kept, part: Kept, number: Value) -> _Values:
        sums = (self.b.load(self.cell(k, number)) for k in (total, part))
        self.store(total, number, self.b.apply("add", *sums))
        return ()

    # ---- updates

    def add_kept(self, kept: Kept, first: Value, count: int) -> None:
        b = self.b
        with b.region() as summed:
            self.add_sums(kept, first)
        with b.region() as one_by_one:
            self.add_own(kept, first, count)
        if kept.lanes is None:
            b.ops += (summed if kept.sum.together else one_by_one).ops
        else:
            b.if_(b.apply("gt", kept.lanes, b.constant(1, U32)), summed.block(), one_by_one.block())

    def add_sums(self, kept: Kept, first: Value) -> None:
        """By the first eight of the lanes that share the addresses."""
        b = self.b
        lanes = b.constant(WARP, U32) if kept.lanes is None else kept.lanes
        arguments = (self.everyone, b.decay(kept.cells), lanes)
        total = b.emit(Warp, "lane_sums", arguments, type=kept.sum.added.type, name="~total")
        lane, strip = b.builtin("lane_id"), b.constant(STRIP, U32)
        among = lane if kept.lanes is None else b.apply("and", lane, b.apply("sub", lanes, b.constant(1, U32)))
        number = b.convert(b.apply("rem", lane, strip), self.type)
        with b.region() as region:
            self.add(kept, self.iteration(first, number), total)
        b.if_(b.apply("and", b.apply("lt", among, strip), self.is_some(total)), region.block())

    def add_own(self, kept: Kept, first: Value, count: int) -> None:
        """What is kept for each iteration. That is nothing, or something each time, if there always is an update: one
        test then does for the strip, and addresses are steps from one to the next."""
        b = self.b

        def add(number: Value, _: _Values) -> _Values:
            value = b.load(self.cell(kept, number))
            with b.region() as region:
                self.add(kept, self.iteration(first, number), value)
            if kept.sum.always:
                b.ops += region.ops
            else:
                b.if_(self.is_some(value), region.block())
            return ()

        def find(number: Value, found: _Values) -> _Values:
            return (b.apply("or", *found, self.is_some(b.load(self.cell(kept, number)))),)

        if not kept.sum.always:
            self.count(0, count, (), add)
            return
        (some,) = self.count(0, count, (b.emit(Constant, False, type=BOOL, name="~some"),), find)
        with b.region() as region:
            self.count(0, count, (), add)
        b.if_(some, region.block())

    def is_some(self, value: Value) -> Value:
        return self.b.apply("ne", value, self.b.constant(0.0, value.type))

    def add(self, kept: Kept, counter: Value, value: Value) -> None:
        update = kept.sum.update
        ptr = self.repeated(kept.sum.address, self.counting(counter), update.ptr)
        whole = value if kept.sum.widened is None else self.b.convert(value, update.result.type)
        self.b.add(Atomic("add", ptr, (whole,), update.scope, results=(Value(whole.type),), span=update.span))

    def repeated(self, ops: tuple[Op, ...], given: dict[Value, Value], value: Value) -> Value:
        """The value, computed again."""
        self.b.ops += clone(Block((), tuple(op for op in ops if op not in self.narrowed), ()), given).ops
        return given.get(value, value)

    # ---- which lanes share addresses

    def lanes_of_all(self) -> list[Value | None]:
        """Of the sums; those with the same values behind their addresses share them alike."""
        found = {of.tested: self.lanes_of(of) for of in {of.tested: of for of in self.sums}.values()}
        return [found[of.tested] for of in self.sums]

    def any_shared(self, lanes: list[Value | None]) -> Value:
        different = dict.fromkeys(n for n in lanes if n is not None)
        most = reduce(lambda a, c: self.b.apply("max", a, c), different)
        return self.b.apply("gt", most, self.b.constant(1, U32))

    def lanes_of(self, of: Sum) -> Value | None:
        return self.lanes_alike(self.early(of, of.tested), f"{of.name}_lanes") if of.tested else None

    def early(self, of: Sum, values: _Values) -> _Values:
        """The values before the loop."""
        given: dict[Value, Value] = {}
        self.repeated(self.unchanging(of.address), given, of.update.ptr)
        return tuple(given.get(v, v) for v in values)

    def unchanging(self, ops: tuple[Op, ...]) -> tuple[Op, ...]:
        """Those that do not depend on the counter."""
        changing = {self.loop.body.args[0]}
        for op in ops:
            if any(v in changing for v in operands(op)):
                changing.update(op.results)
        return tuple(op for op in ops if op.result not in changing)

    def lanes_alike(self, values: _Values, name: str | None = None) -> Value:
        """Of how many neighbours each value is the same: 32, 16 or 8, or 1 for none."""
        b = self.b
        plain = [b.apply("address", v, type=U64) if isinstance(v.type, Pointer) else v for v in values]
        counts = [b.emit(Warp, "lanes_alike", (self.everyone, v), type=U32, name=name) for v in plain]
        return reduce(lambda a, c: b.apply("min", a, c, name=name), counts)


def _fresh(values: _Values) -> _Values:
    return tuple(Value(v.type, v.name) for v in values)


def _integer(value: Value) -> Scalar:
    assert isinstance(value.type, Scalar)
    return value.type
