"""Loops of different ranges, dealt out over the lanes of a warp: for CUDA, since only there lanes run side by side.

`for (k = start[row]; k < start[row + 1]; ++k) d_value[k] += ...`, a thread a row: in one step, lanes are a row apart,
and the warp takes as many steps as its longest row has elements. Whole warps take all their lanes' iterations as one
sequence instead: lane j takes iterations j, j + 32 and so on, of whichever lanes. Rows that lie one behind the other
are then read and added to as one stretch.

Note [Dealt loops]
An iteration may run in another lane, at another time, if nothing tells: the loop carries no values, reads only memory
that nobody writes, and does nothing but add to memory that it does not look at. What the body takes from outside is
either the same for all threads, and not of a loop around, or is passed on by the lane whose iteration it is. Where a
thread looks at that memory elsewhere, behind the loop or before it, the lanes of a warp wait for each other: what it
finds there was its own to add.
Whether it pays is tested where the loop begins: each lane's stretch lies behind the one of the lane before. Lanes whose
ranges overlap meet at addresses, where they add up together (`lane_sums`); partial warps do as they did.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from ...analysis.machine import FULL_WARP, WARP
from ...ir.builder import Builder, pointee
from ...ir.effects import PURE
from ...ir.ops import (
    Apply,
    Atomic,
    Barrier,
    Block,
    Builtin,
    Constant,
    For,
    Function,
    If,
    Load,
    Member,
    Module,
    Offset,
    Op,
    PtrCast,
    Value,
    Warp,
    While,
)
from ...ir.traverse import Copier, clone, descend, free_values, operands, walk, with_body
from ...ir.types import BOOL, I32, U32, U64, Pointer, Scalar
from .lane_sums import Address, Search, Slices

_MOST_PASSED = 8  # values that the lane of an iteration is given
_MOST_TRIPS = 1 << 26  # of a lane: those of a warp fit 32 bits
_PLAIN = (*PURE, Load, Atomic, If, For, While)
_POINTING = (Offset, Member, PtrCast)
_PARTIAL = ("div", "rem")
_SLOPES: dict[str, Callable[..., int]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "neg": lambda a: -a,
    "convert": lambda a: a,
}
_DISTANCES = (1, 2, 4, 8, 16)


def run(function: Function, module: Module) -> Function:
    found = dealt(function)
    return with_body(function, _rewritten(function.body, found)) if found else function


@dataclass(frozen=True)
class Dealt:
    """A loop that lanes may share. `passed`: numbers that differ between lanes; `pointing`: how pointers are made of
    them; `along`: an access of each iteration that goes along memory; `is_looked_at`: what is added to, by threads that
    take no part in the loop."""

    loop: For
    passed: tuple[Value, ...]
    pointing: tuple[Op, ...]
    along: Value
    address: Address
    is_looked_at: bool


def dealt(function: Function) -> dict[Op, Dealt]:
    """The outermost of such loops."""
    if not any(isinstance(op, For) and _is_plain(op) for op in walk(function.body)):
        return {}
    search = _Search(function)
    found = (search.dealt(op) for op in walk(function.body) if isinstance(op, For) and _is_plain(op))
    return {one.loop: one for one in found if one is not None}


def _is_plain(loop: For) -> bool:
    inside = list(walk(loop.body))
    adds = any(isinstance(op, Atomic) and op.together for op in inside)
    return adds and not loop.inits and abs(loop.step) == 1 and all(isinstance(op, _PLAIN) for op in inside)


class _Search(Search):
    def __init__(self, function: Function):
        super().__init__(function)
        self.everything = list(walk(function.body))
        self.definition = {r: op for op in self.everything for r in op.results}
        repeated = {v for op in walk(function.body) if isinstance(op, For | While) for v in _defined(op)}
        numbers = {v for v, op in self.definition.items() if isinstance(op, Constant)}
        self.same = self.uniform - repeated | numbers

    def dealt(self, loop: For) -> Dealt | None:
        if {loop.lower, loop.upper} <= self.uniform:
            return None
        inside = list(walk(loop.body))
        loads = [op for op in inside if isinstance(op, Load)]
        updates = [op for op in inside if isinstance(op, Atomic)]
        if not all(map(self.is_fixed, loads)) or not all(self.is_unseen(op, inside) for op in updates):
            return None
        if any(isinstance(op, Builtin) and op.result not in self.uniform for op in inside):
            return None
        along = self.along(loop, set(loads))
        taken = self.taken(loop.body)
        if along is None or taken is None:
            return None
        roots = {self.aliases.root(op.ptr) for op in updates}
        return Dealt(loop, *taken, *along, any(self.sees(op, root) for op in self.everything for root in roots))

    def along(self, loop: For, loads: set[Load]) -> tuple[Value, Address] | None:
        """An update that goes along memory, or else a load."""
        slices = Slices(loop, loads)
        accesses = list(_accesses(loop.body))
        for op in sorted(accesses, key=lambda op: isinstance(op, Load)):
            address = slices.address(op)
            if address is None or not address.linear or not all(map(_is_total, address.ops)):
                continue
            step = self.slope(op.ptr, loop.body.args[0])
            if step is not None and abs(step) == pointee(op.ptr).size:
                return op.ptr, address
        return None

    def slope(self, value: Value, counter: Value) -> int | None:
        """By how many bytes, or how much, it grows with the counter; None where that is not a constant."""
        op = self.definition.get(value)
        match op:
            case _ if value is counter:
                return 1
            case Offset(ptr, index):
                base, step = self.slope(ptr, counter), self.slope(index, counter)
                return None if base is None or step is None else base + step * pointee(ptr).size
            case Member() | PtrCast():
                return self.slope(op.ptr, counter)
            case Apply(fn, args) if fn in _SLOPES:
                parts = [self.slope(v, counter) for v in args]
                return None if None in parts else _SLOPES[fn](*parts)
            case Apply("mul", args):
                return self.product_slope(args, counter)
        return 0

    def product_slope(self, args: tuple[Value, ...], counter: Value) -> int | None:
        steps, numbers = [self.slope(v, counter) for v in args], [self.constants.get(v) for v in args]
        for step, number in zip(steps, reversed(numbers), strict=True):
            if step and number is not None:
                return step * number
        return 0 if steps == [0, 0] else None

    def taken(self, body: Block) -> tuple[tuple[Value, ...], tuple[Op, ...]] | None:
        """The numbers, and the arithmetic of pointers, that a body takes from its lane."""
        numbers, pointing = dict[Value, None](), dict[Op, None]()
        fits = all(self.take(v, numbers, pointing) for v in free_values(body) if v not in self.same)
        return (tuple(numbers), tuple(pointing)) if fits and len(numbers) <= _MOST_PASSED else None

    def take(self, value: Value, numbers: dict[Value, None], pointing: dict[Op, None]) -> bool:
        if not isinstance(value.type, Pointer):
            numbers.setdefault(value)
            return _can_be_passed(value)
        op = self.definition.get(value)
        if not isinstance(op, _POINTING):
            return False
        fits = all(v in self.same or self.take(v, numbers, pointing) for v in operands(op))
        pointing.setdefault(op)
        return fits


def _is_total(op: Op) -> bool:
    """Whether it can be computed for a lane whose loop never runs."""
    return not isinstance(op, Load) and not (isinstance(op, Apply) and op.fn in _PARTIAL)


def _accesses(block: Block) -> Iterator[Atomic | Load]:
    """Not those of loops inside."""
    for op in block.ops:
        if isinstance(op, Atomic | Load):
            yield op
        elif isinstance(op, If):
            yield from _accesses(op.then)
            yield from _accesses(op.orelse)


def _defined(loop: For | While) -> set[Value]:
    blocks = (loop.body,) if isinstance(loop, For) else (loop.before, loop.body)
    inside = {v for block in blocks for v in block.args}
    return inside | {v for block in blocks for op in walk(block) for v in op.results}


def _can_be_passed(value: Value) -> bool:
    return isinstance(value.type, Scalar) and (value.type == BOOL or value.type.bits in (32, 64))


def _rewritten(block: Block, found: dict[Op, Dealt]) -> Block:
    ops: list[Op] = []
    for op in block.ops:
        ops += _Dealing(found[op]).ops() if op in found else [descend(op, lambda inner: _rewritten(inner, found))]
    return Block(block.args, tuple(ops), block.results)


class _Dealing:
    def __init__(self, found: Dealt):
        self.found, self.loop = found, found.loop
        self.b = b = Builder(found.loop.span)
        self.everyone, self.width = b.constant(FULL_WARP, U32), b.constant(WARP, I32)

    def ops(self) -> tuple[Op, ...]:
        b = self.b
        whole = b.apply("eq", b.emit(Warp, "activemask", (), type=U32), self.everyone)
        self.lane = b.builtin("lane_id")
        first, trips = self.range()
        with b.region() as tested:
            pays = self.pays(first, trips)
        nobody = b.constant(False, BOOL)
        (shared,) = b.if_(whole, tested.block(results=(pays,)), Block((), (), (nobody,)))
        with b.region() as together:
            self.meet()
            self.share(first, b.convert(trips, U32))
            self.meet()
        b.if_(shared, together.block(), Block((), (self.loop,), ()))
        return tuple(b.ops)

    def meet(self) -> None:
        if self.found.is_looked_at:
            self.b.effect(Barrier, "warp", (self.everyone,))

    def range(self) -> tuple[Value, Value]:
        """The least counter and the number of iterations: their order does not matter."""
        b, loop = self.b, self.loop
        assert isinstance(loop.lower.type, Scalar)
        type, one = loop.lower.type, b.constant(1, loop.lower.type)
        low, high = (loop.lower, loop.upper) if loop.step > 0 else (loop.upper, loop.lower)
        wide = U64 if type.bits > 32 else U32
        distance = b.apply("sub", b.convert(high, wide), b.convert(low, wide))
        trips = b.apply("select", b.apply("lt", low, high), distance, b.constant(0, wide))
        return low if loop.step > 0 else b.apply("add", low, one), trips

    def pays(self, first: Value, trips: Value) -> Value:
        """For the whole warp: there are not too many iterations, and each lane's are behind those of the one before."""
        b = self.b
        few = b.apply("lt", trips, b.constant(_MOST_TRIPS, trips.type))
        behind = b.apply("add", first, b.convert(trips, first.type))
        last = self.address(b.apply("sub", behind, b.constant(1, first.type)))
        following = self.shuffle("shfl_down", self.address(first), b.constant(1, I32))
        is_last = b.apply("eq", self.lane, b.constant(WARP - 1, U32))
        apart = b.apply("or", is_last, b.apply("gt", following, last))
        return b.emit(Warp, "vote_all", (self.everyone, b.apply("and", few, apart)), type=BOOL)

    def address(self, counter: Value) -> Value:
        given = {self.loop.body.args[0]: counter}
        self.b.ops += clone(Block((), self.found.address.ops, ()), given).ops
        return self.b.apply("address", given.get(self.found.along, self.found.along), type=U64)

    def share(self, first: Value, trips: Value) -> None:
        """All iterations of the warp, 32 at a time."""
        b = self.b
        self.ends = self.running_total(trips)
        before = b.apply("sub", self.ends, trips)
        offset = b.apply("sub", first, b.convert(before, first.type))  # the counter of iteration q is offset + q
        base = Value(U32, "~base")
        total = self.shuffle("shfl_idx", self.ends, b.constant(WARP - 1, I32))
        with b.region() as region:
            self.turn(b.apply("add", base, self.lane), total, offset)
        b.for_(b.constant(0, U32), total, (), WARP, region.block((base,)))

    def running_total(self, number: Value) -> Value:
        b, total = self.b, number
        for distance in _DISTANCES:
            before = self.shuffle("shfl_up", total, b.constant(distance, I32))
            reaches = b.apply("ge", self.lane, b.constant(distance, U32))
            total = b.apply("add", total, b.apply("select", reaches, before, b.constant(0, U32)))
        return total

    def turn(self, number: Value, total: Value, offset: Value) -> None:
        """One of the warp's iterations; with the last ones, not all lanes have any."""
        b = self.b
        owner = self.owner(number)
        counter = b.apply("add", self.shuffle("shfl_idx", offset, owner), b.convert(number, offset.type))
        given = {v: self.pass_on(v, owner) for v in self.found.passed}
        given[self.loop.body.args[0]] = counter
        with b.region() as region:
            body = Block((), (*self.found.pointing, *self.loop.body.ops), ())
            b.ops += clone(body, given, _alone).ops
        b.if_(b.apply("lt", number, total), region.block())

    def owner(self, number: Value) -> Value:
        """The first lane whose iterations end behind this one."""
        b, half = self.b, WARP // 2
        end = self.shuffle("shfl_idx", self.ends, b.constant(half - 1, I32))
        owner = b.apply("select", b.apply("le", end, number), b.constant(half, I32), b.constant(0, I32))
        while half := half // 2:
            middle = b.apply("add", owner, b.constant(half, I32))
            end = self.shuffle("shfl_idx", self.ends, b.apply("sub", middle, b.constant(1, I32)))
            owner = b.apply("select", b.apply("le", end, number), middle, owner)
        return owner

    def pass_on(self, value: Value, owner: Value) -> Value:
        if value.type != BOOL:
            return self.shuffle("shfl_idx", value, owner)
        number = self.shuffle("shfl_idx", self.b.convert(value, U32), owner)
        return self.b.apply("ne", number, self.b.constant(0, U32))

    def shuffle(self, fn: str, value: Value, lane: Value) -> Value:
        return self.b.emit(Warp, fn, (self.everyone, value, lane, self.width), type=value.type, name=value.name)


def _alone(op: Op, copied: Copier) -> list[Op]:
    """Lanes are at different elements now; nothing is added where it is zero, as before."""
    copy = copied(op)
    if not isinstance(copy, Atomic) or not copy.together:
        return [copy]
    b = Builder(op.span)
    some = b.apply("ne", copy.args[0], b.constant(0.0, copy.args[0].type))
    b.if_(some, Block((), (replace(copy, together=False),), ()))
    return b.ops
