"""Unroll-and-jam over blocks: for CUDA, one thread does the work of two neighbouring blocks of a large grid.

Where a loop adds to addresses that threads of one block do not share, but the same thread of the next blocks does
(`d_b[k * n + column] += ...` where blocks are rows), their sums are added up in registers, and the atomics are
half as many. Of each two blocks the first does this, and the other has nothing left to do.

Note [Jam]
The gradient must be arithmetic and loads, then one loop that carries nothing, without shared memory, of which each
block has its own: so nothing tells in which order the blocks did their parts of it. Everything that it depends on is
tested by each warp, after it has computed what the loop needs for all blocks: the warp is whole, no thread is guarded
off, the loops have the same iterations, full strips of them, and the addresses that should be the same are. Else the
thread goes through the blocks one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import reduce
from typing import cast

from ...analysis.machine import FILLING_BLOCKS, FULL_WARP, WARP
from ...analysis.uniform import uniform_values
from ...ir.builder import Builder
from ...ir.ops import (
    Aggregate,
    Apply,
    Atomic,
    Block,
    Builtin,
    Constant,
    Extract,
    For,
    Function,
    GlobalRef,
    If,
    Insert,
    Load,
    Member,
    Offset,
    Op,
    PtrCast,
    PtrDiff,
    Undef,
    Value,
    Warp,
)
from ...ir.traverse import blocks, clone, free_values, operands, substitute, walk, with_body
from ...ir.types import BOOL, I32, U16, U32, U64, Array, Pointer, Scalar
from ...transforms.unmask import without_tests
from ...transforms.unroll import constants_of, iterations
from ..sum_over.lane_strips import STRIP, Kept, Strips, Sum
from ..sum_over.lane_sums import summed

BLOCKS = 2  # more take so many registers that fewer threads are under way
_BITS = {2: U16, 4: U32, 8: U64}
_BEFORE = (
    *(Constant, Undef, Apply, Aggregate, Extract, Insert, Builtin, GlobalRef, Offset, Member, PtrCast, PtrDiff),
    *(Load, If),
)
_INDICES = ("block_idx", "thread_idx")  # those of other blocks are others
_Values = tuple[Value, ...]


def find(function: Function) -> Jam | None:
    numbered = _numbered_once(function)
    found = _candidate(numbered)
    return None if found is None else Jam(numbered, *found)


def applies(function: Function) -> bool:
    return _candidate(_numbered_once(function)) is not None


def _numbered_once(function: Function) -> Function:
    """With block and thread asked for at the very beginning alone: the loop then gets them as it gets other values."""
    asked = [op for op in walk(function.body) if isinstance(op, Builtin) and op.name in _INDICES]
    b = Builder(function.span)
    own = {kind: b.builtin(*kind) for kind in dict.fromkeys((op.name, op.axis) for op in asked)}
    body = substitute(function.body, {op.result: own[op.name, op.axis] for op in asked})
    return with_body(function, Block(body.args, (*b.ops, *body.ops), body.results))


def _is_block_number(op: Op) -> bool:
    return isinstance(op, Builtin) and (op.name, op.axis) == ("block_idx", 0)


def _candidate(function: Function) -> tuple[For, tuple[Sum, ...]] | None:
    """The loop behind which nothing comes, and its sums, one of which lanes may not share."""
    sums = summed(function)
    loops = [op for op in walk(function.body) if isinstance(op, For)]
    if len(loops) != 1 or loops[0] not in sums or loops[0].inits:
        return None
    (loop,) = loops
    known = iterations(loop, constants_of(function))
    if known is not None and len(known) % STRIP:
        return None
    inside = set(walk(loop.body))
    before = [op for op in walk(function.body) if op is not loop and op not in inside]
    plain = all(isinstance(op, _BEFORE) and not _is_clock(op) for op in before)
    shared = any(isinstance(op, GlobalRef) and _is_shared(op.result) for op in walk(function.body))
    found = sums[loop]
    moving = _moving(function)
    worth = any(s.together and s.tested and not sources(s) & moving for s in found)
    if not plain or shared or not _leads_to(function.body, loop) or not worth:
        return None
    return loop, found


def _is_clock(op: Op) -> bool:
    return (isinstance(op, Builtin) and ("clock" in op.name or "timer" in op.name)) or (
        isinstance(op, Load) and op.volatile
    )


def _is_shared(pointer: Value) -> bool:
    return isinstance(pointer.type, Pointer) and pointer.type.space == "shared"


def _leads_to(block: Block, loop: For) -> bool:
    """Whether the loop is the last thing that happens, behind guards alone."""
    if not block.ops or block.results:
        return False
    last = block.ops[-1]
    if last is loop:
        return True
    return isinstance(last, If) and not last.orelse.ops and _leads_to(last.then, loop)


@dataclass(frozen=True)
class Copy:
    """The loop for one of the blocks."""

    loop: For
    sums: tuple[Sum, ...]


def _moving(function: Function) -> set[Value]:
    """Values that differ between neighbouring blocks, as far as the arithmetic tells: what a remainder is the same."""
    found: set[Value] = set()
    _add_moving(function.body, found)
    return found


def _add_moving(block: Block, found: set[Value]) -> None:
    for op in block.ops:
        for inner in blocks(op):
            _add_moving(inner, found)
        wraps = isinstance(op, Apply) and op.fn == "rem"
        if _is_block_number(op) or (not wraps and any(v in found for v in operands(op))):
            found.update(op.results)
        for inner in blocks(op):
            found.update(r for r, v in zip(op.results, inner.results[-len(op.results) :], strict=False) if v in found)


def sources(of: Sum) -> set[Value]:
    """What the address is computed from, besides the counter."""
    return set(free_values(Block((), of.address, (of.update.ptr,))))


class Jam:
    def __init__(self, function: Function, loop: For, sums: tuple[Sum, ...]):
        self.function, self.loop, self.sums = function, loop, sums
        self.b = Builder()
        self.thread: Value | None = None
        params = {p.value for p in function.params}
        free = dict.fromkeys((loop.lower, loop.upper, *free_values(loop.body)))
        self.live = tuple(v for v in free if v not in params)
        self.uniform = uniform_values(function)
        moving = _moving(function)
        self.shared = [s.together and not (sources(s) & moving) for s in sums]
        # What must be the same for all of the blocks.
        comparable = (v for v in self.live if isinstance(v.type, Scalar | Pointer))
        self.alike = {loop.lower, loop.upper, *(v for v in comparable if v not in moving)}
        self.alike |= {v for s, shared in zip(sums, self.shared, strict=True) if shared for v in sources(s)}

    def body(self) -> Block:
        b = self.b
        at, extent = b.builtin("block_idx"), b.builtin("grid_dim")
        many = self.is_many(extent)
        inside = b.apply("rem", at, b.constant(BLOCKS, U32))
        first = b.apply("select", many, b.apply("sub", at, inside), at)
        count = b.apply("select", many, b.constant(BLOCKS, U32), b.constant(1, U32))
        left = b.apply("sub", extent, first)
        works = b.apply("eq", first, at)
        with b.region() as region:
            self.some(first, b.apply("min", left, count))
        b.if_(works, region.block(), exits=True)
        return Block((), tuple(b.ops), ())

    def is_many(self, extent: Value) -> Value:
        return self.has_blocks(extent, FILLING_BLOCKS)

    def has_blocks(self, extent: Value, least: int) -> Value:
        """Whether the grid has so many; `extent`: along the first axis."""
        b = self.b
        size = reduce(
            lambda n, axis: b.apply("mul", n, b.convert(b.builtin("grid_dim", axis), U64)),
            (1, 2),
            b.convert(extent, U64),
        )
        return b.apply("ge", size, b.constant(least, U64))

    def some(self, first: Value, count: Value) -> None:
        """The work of so many blocks: at once, if it can be."""
        b = self.b
        whole = b.apply("eq", b.emit(Warp, "activemask", (), type=U32), b.constant(FULL_WARP, U32))
        full = b.apply("ge", count, b.constant(BLOCKS, U32))
        with b.region() as tried:
            done = self.jammed(first)
        (done,) = b.if_(b.apply("and", whole, full), tried.block(results=(done,)), self.no())
        with b.region() as rest:
            self.one_by_one(first, b.apply("add", first, count))
        b.if_(b.apply("not", done), rest.block())

    def no(self) -> Block:
        with self.b.region() as region:
            value = self.b.constant(False, BOOL)
        return region.block(results=(value,))

    # ---- one block

    def copied(self, block: Value) -> tuple[Block, dict[Value, Value]]:
        """The gradient of another block than this thread's own, and of another thread of it, if `thread` says so."""
        values: dict[Value, Value] = {}
        copy = clone(self.function.body, values)
        index = {("block_idx", 0): block, ("thread_idx", 0): self.thread}
        numbers = [op for op in walk(self.function.body) if isinstance(op, Builtin)]
        others = {op.result: index.get((op.name, op.axis)) for op in numbers}
        own = {result: other for result, other in others.items() if other is not None}
        return substitute(copy, {values[result]: other for result, other in own.items()}), values | own

    def one_by_one(self, first: Value, end: Value) -> None:
        b, block = self.b, Value(U32, "~block")
        copy, _ = self.copied(block)
        b.for_(first, end, (), 1, Block((block,), copy.ops, ()), unroll=1)

    def before_loop(self, block: Block, values: dict[Value, Value]) -> _Values:
        """Whether the thread comes to the loop and runs it, and what the loop needs."""
        b = self.b
        *before, last = block.ops
        b.ops += before
        live = tuple(values.get(v, v) for v in self.live)
        if isinstance(last, For):
            return (b.apply("lt" if last.step > 0 else "gt", last.lower, last.upper), *live)
        assert isinstance(last, If)
        with b.region() as then:
            found = self.before_loop(last.then, values)
        with b.region() as orelse:
            none = (b.constant(False, BOOL), *(b.undef(v.type) for v in live))
        return b.if_(last.cond, then.block(results=found), orelse.block(results=none))

    # ---- several blocks

    def jammed(self, first: Value) -> Value:
        """Does the work of all blocks and gives true; or does nothing, if it cannot."""
        b = self.b
        kept = [b.alloca(Array(v.type, BLOCKS), v.name) for v in self.live]

        def prepare(number: Value, carried: _Values) -> _Values:
            copy, values = self.copied(b.apply("add", first, b.convert(number, U32)))
            comes, *live = self.before_loop(copy, values)
            for cells, value in zip(kept, live, strict=True):
                b.store(b.offset(b.decay(cells), number), value)
            return (b.apply("and", carried[0], comes),)

        (comes,) = self.count((b.emit(Constant, True, type=BOOL, name="~ready"),), prepare)
        with b.region() as region:
            done = self.tested(kept)
        (done,) = b.if_(self.all(comes), region.block(results=(done,)), self.no())
        return done

    def tested(self, kept: list[Value]) -> Value:
        b = self.b
        start = self.copy(kept, b.constant(0, I32))
        strips = self.strips(start)
        trips = strips.trips()
        full = b.apply("eq", b.apply("rem", trips, b.constant(STRIP, trips.type)), b.constant(0, trips.type))
        bounds = [self.lanes(v) for v in dict.fromkeys((start.loop.lower, start.loop.upper))]
        conditions = [full, *(b.apply("eq", n, b.constant(WARP, U32)) for n in bounds), *strips.fitting()]
        others = [s.name for s, shared in zip(self.sums, self.shared, strict=True) if s.together and not shared]

        def compare(number: Value, carried: _Values) -> _Values:
            """Whether this block's loop is like the first one's, and how many lanes share its other addresses."""
            alike, *counts = carried
            for value, cells in zip(self.live, kept, strict=True):
                if value in self.alike:
                    one, other = (self.bits(self.load(cells, at)) for at in (b.constant(0, I32), number))
                    alike = b.apply("and", alike, b.apply("eq", one, other))
            copy = self.copy(kept, number)
            sums = [s for s, shared in zip(copy.sums, self.shared, strict=True) if s.together and not shared]
            found = [self.strips(copy).lanes_of(s) for s in sums]
            lanes = [b.constant(WARP, U32) if n is None else n for n in found]
            return (alike, *(b.apply("min", x, y) for x, y in zip(counts, lanes, strict=True)))

        true = b.emit(Constant, True, type=BOOL, name="~alike")
        widest = tuple(b.emit(Constant, WARP, type=U32, name=f"{n}_lanes") for n in others)
        alike, *counts = self.count((true, *widest), compare)
        conditions += [alike, *(b.apply("gt", n, b.constant(1, U32)) for n in counts)]
        with b.region() as region:
            self.work(kept, start, iter(counts))
            done = b.constant(True, BOOL)
        (done,) = b.if_(self.all(self.every(conditions)), region.block(results=(done,)), self.no())
        return done

    def work(self, kept: list[Value], start: Copy, counts: Iterator[Value]) -> None:
        """The strips: in each, those of the blocks, then the sums that they share."""
        b, strips = self.b, self.strips(start)
        lanes = [
            strips.lanes_of(s) if shared else next(counts) if s.together else None
            for s, shared in zip(start.sums, self.shared, strict=True)
        ]
        first = Value(strips.type, self.loop.body.args[0].name)
        lower, upper = (b.convert(v, strips.type) for v in (start.loop.lower, start.loop.upper))
        with b.region() as region:
            totals = [
                strips.keep(s, n) if shared else None
                for s, n, shared in zip(start.sums, lanes, self.shared, strict=True)
            ]
            added = [total for total in totals if total is not None]
            strips.count(0, STRIP, (), lambda j, _: strips.clear(added, j))
            self.count((), lambda number, _: self.work_of_one(kept, number, first, lanes, totals))
            for total in added:
                strips.add_kept(total, first, STRIP)
        b.add(For(lower, upper, (), self.loop.step * STRIP, region.block((first,), ()), span=self.loop.span))

    def work_of_one(
        self, kept: list[Value], number: Value, first: Value, lanes: list[Value | None], totals: list[Kept | None]
    ) -> _Values:
        """A strip of one block."""
        copy = self.copy(kept, number)
        own = self.strips(copy)
        parts = [own.keep(s, n) for s, n in zip(copy.sums, lanes, strict=True)]
        own.count(0, STRIP, (), lambda j, _: own.iterate(first, j, (), parts))
        for part, total in zip(parts, totals, strict=True):
            if total is not None:
                own.count(0, STRIP, (), lambda j, _: own.accumulate(total, part, j))  # noqa: B023
            elif part.sum.together:
                own.add_sums(part, first)
            else:
                own.add_own(part, first, STRIP)
        return ()

    def load(self, cells: Value, number: Value) -> Value:
        return self.b.load(self.b.offset(self.b.decay(cells), number))

    def bits(self, value: Value) -> Value:
        """What is the same for equal numbers alone: 0.0 is not -0.0."""
        is_float = isinstance(value.type, Scalar) and value.type.is_float
        return self.b.apply("bitcast", value, type=_BITS[value.type.size]) if is_float else value

    def copy(self, kept: list[Value], number: Value) -> Copy:
        """The loop, with what it needs for one of the blocks."""
        b = self.b
        first = b.constant(0, I32)
        cells = zip(self.live, kept, strict=True)
        return self.with_values({v: self.load(c, first if v in self.alike else number) for v, c in cells})

    def with_values(self, values: dict[Value, Value], nonzero: frozenset[Value] = frozenset()) -> Copy:
        """`nonzero`: what the loop need not test again."""
        lower, upper = (values.get(v, v) for v in (self.loop.lower, self.loop.upper))
        body = clone(without_tests(self.loop.body, nonzero), values)
        ops = dict(zip(walk(self.loop.body), walk(body), strict=True))
        sums = tuple(
            replace(
                s,
                op=cast(Atomic | If, ops[s.op]),
                update=cast(Atomic, ops[s.update]),
                address=tuple(ops[op] for op in s.address),
                tested=tuple(values.get(v, v) for v in s.tested),
                widened=cast(Apply, ops[s.widened]) if s.widened is not None else None,
            )
            for s in self.sums
        )
        return Copy(replace(self.loop, lower=lower, upper=upper, body=body), sums)

    def strips(self, copy: Copy) -> Strips:
        found = Strips(copy.loop, copy.sums, self.uniform, {})
        found.build_with(self.b)
        return found

    # ---- conditions

    def count(self, carried: _Values, work: Callable[[Value, _Values], _Values]) -> _Values:
        """A loop over the blocks, to be unrolled so that what they need is in registers."""
        b, number = self.b, Value(I32, "~r")
        args = tuple(Value(v.type, v.name) for v in carried)
        with b.region() as region:
            following = work(number, args)
        body = region.block((number, *args), following)
        return b.for_(b.constant(0, I32), b.constant(BLOCKS, I32), carried, 1, body, unroll=0)

    def all(self, condition: Value) -> Value:
        return self.b.emit(Warp, "vote_all", (self.b.constant(FULL_WARP, U32), condition), type=BOOL)

    def every(self, conditions: Iterable[Value]) -> Value:
        return reduce(lambda x, y: self.b.apply("and", x, y), conditions)

    def lanes(self, value: Value) -> Value:
        return self.b.emit(Warp, "lanes_alike", (self.b.constant(FULL_WARP, U32), value), type=U32)
