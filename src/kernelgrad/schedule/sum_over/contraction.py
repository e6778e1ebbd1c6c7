"""Sums over lanes of products, as products of matrices: for CUDA, since only there lanes run side by side.

A thread's layer `for (j ...) s[j] = sum over k of w[j][k] * v[k]` with weights that all threads share has the adjoint
`d_w[j][k] += d_s[j] * v[k]`, for each thread and weight. To sum up each over a warp takes an exchange for each product.
But what a loop over j adds are products of one number of the iteration with numbers that are the same in all of them.
So lanes exchange those once, before the loop: lane k then has the v[k] of all. In an iteration they exchange d_s[j],
and each lane has the sum for its own weight from as many products as there are lanes, with no exchange of any. Up to
16 sums are shared out to two lanes each, up to 32 to one.

Note [Contraction]
The lanes of a warp are at the same addresses if these are the same for all threads of the block, and in the same
iteration if the loop's bounds are and lanes did not drift apart (Note [Drift]). All of them are there where the loop
begins, or they do as they did.
A zero adjoint adds nothing, whatever it is multiplied by (Note [Masks]). As a product that holds if all factors are
finite: if those from before the loop are not, for any lane, the warp does as it did. The same is asked of an
iteration's factor where adjoints are among those from before.
Sums are added at the end of an iteration, or where threads wait for each other in it: others may look at the memory
behind that, also behind the loop.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from itertools import pairwise
from typing import NamedTuple

from ...analysis.access.constant_offsets import spot_of
from ...analysis.machine import FULL_WARP, WARP
from ...ir.builder import Builder
from ...ir.ops import Apply, Atomic, Barrier, BarrierReduce, Block, Fence, For, Function, Module, Op, Value, Warp
from ...ir.traverse import descend, free_values, holds, walk, with_body
from ...ir.types import BOOL, F32, F64, I64, U32, Array, Type
from ...transforms.unroll import iterations
from .lane_sums import Search

WIDTHS = (16, 32)  # sums that the lanes of a warp share out
_FEWEST = 6  # of them: fewer take less by exchanges
_SHORT = 3  # iterations: fewer do not pay for the exchange before them
_MOST = 64  # registers of a loop for what is exchanged before it
_MEETINGS = (Barrier, BarrierReduce, Fence)  # who comes to them has done what stands before


def run(function: Function, module: Module) -> Function:
    found = contracted(function)
    return with_body(function, _rewritten(function.body, found)) if found else function


@dataclass(frozen=True)
class Group:
    """Additions of an iteration, at a constant distance from each other, of `factor` times each of the `fixed`.
    `guards`: where one of them is zero, nothing is added. `guarding`: nor where the fixed one is."""

    updates: tuple[Atomic, ...]
    factor: Value
    fixed: tuple[Value, ...]
    guards: tuple[Value, ...]
    guarding: bool
    step: int  # elements between the addresses

    @property
    def width(self) -> int:
        return next(width for width in WIDTHS if len(self.updates) <= width)


class Found(NamedTuple):
    """In a loop. `singles`: additions of its iterations besides, at the same addresses for all lanes."""

    groups: tuple[Group, ...]
    singles: frozenset[Op]


def contracted(function: Function) -> dict[Op, Found]:
    """By the loops that have such groups."""
    loops = [op for op in walk(function.body) if isinstance(op, For) and _adds(op)]
    if not loops:
        return {}
    search = _Search(function)
    found = {loop: tuple(_fitting(search.groups(loop))) for loop in loops}
    return {loop: Found(groups, search.singles(loop, groups)) for loop, groups in found.items() if groups}


def _fitting(groups: Iterator[Group]) -> Iterator[Group]:
    """As many as there are registers for."""
    left = _MOST
    for group in groups:
        left -= group.width
        if left < 0:
            return
        yield group


def _adds(loop: For) -> bool:
    return sum(isinstance(op, Atomic) and op.together for op in loop.body.ops) >= _FEWEST


class _Product(NamedTuple):
    """Two numbers, and the guards of their product."""

    one: Value
    other: Value
    guards: tuple[Value, ...]

    def split(self, before: set[Value]) -> Iterator[tuple[Value, Value]]:
        """As what changes with the iterations, and what does not."""
        if (self.one in before) != (self.other in before):
            yield (self.other, self.one) if self.one in before else (self.one, self.other)


class _Kind(NamedTuple):
    """What sums have in common that may be a group: the part of the loop, all but a constant of their addresses, and
    one factor."""

    part: int
    root: Value
    terms: frozenset[tuple[Value, int]]
    type: Type
    factor: Value
    guards: tuple[Value, ...]


class _Sum(NamedTuple):
    """`guarding`: nothing is added where the fixed factor is zero."""

    update: Atomic
    fixed: Value
    guarding: bool
    at: int


class _Search(Search):
    def __init__(self, function: Function):
        super().__init__(function)
        self.definition = {r: op for op in walk(function.body) for r in op.results}

    def groups(self, loop: For) -> Iterator[Group]:
        known = iterations(loop, self.constants)
        if not {loop.lower, loop.upper} <= self.uniform or (known is not None and len(known) < _SHORT):
            return
        if self.drifting[loop]:  # what iterations around it have in common may differ
            return
        inside, before = list(walk(loop.body)), set(free_values(loop.body))
        found: dict[_Kind, list[_Sum]] = {}
        for part, op in ((k, op) for k, ops in enumerate(_parts(loop.body)) for op in ops):
            if isinstance(op, Atomic) and self.is_sum(op, inside) and (product := self.product(op.args[0])) is not None:
                for factor, fixed in product.split(before):
                    spot = spot_of(op.ptr, self.definition)
                    guards = tuple(v for v in product.guards if v is not fixed)
                    kind = _Kind(part, spot.root, spot.terms, op.result.type, factor, guards)
                    found.setdefault(kind, []).append(_Sum(op, fixed, guards != product.guards, spot.bytes))
        for kind, sums in found.items():
            yield from _stretches(kind, sums)

    def singles(self, loop: For, groups: tuple[Group, ...]) -> frozenset[Op]:
        grouped, inside = {op for group in groups for op in group.updates}, list(walk(loop.body))
        beside = (op for part in _parts(loop.body) if not grouped.isdisjoint(part) for op in part)
        return frozenset(op for op in beside if op not in grouped and self.is_sum(op, inside))

    def is_sum(self, op: Op, inside: list[Op]) -> bool:
        """Of all lanes, at one address."""
        return isinstance(op, Atomic) and op.together and op.ptr in self.uniform and self.is_unseen(op, inside)

    def product(self, value: Value, guards: tuple[Value, ...] = ()) -> _Product | None:
        match self.definition.get(value):
            case Apply("masked", (masked, guard)):
                return self.product(masked, (*guards, guard))
            case Apply("convert", (narrow,)) if (narrow.type, value.type) == (F32, F64) and not guards:
                return self.product(narrow)
            case Apply("mul", (one, other)):
                for part in (one, other):
                    match self.definition.get(part):
                        case Apply("masked", (masked, guard)):
                            rest = other if part is one else one
                            return _Product(masked, rest, (*guards, guard))
                return _Product(one, other, guards)
        return None


def _parts(body: Block) -> list[list[Op]]:
    """The operations between those at which threads wait for each other."""
    parts: list[list[Op]] = [[]]
    for op in body.ops:
        if isinstance(op, _MEETINGS) or holds(op, *_MEETINGS):
            parts.append([])
        parts[-1].append(op)
    return parts


def _stretches(kind: _Kind, sums: list[_Sum]) -> Iterator[Group]:
    """Up to 32 sums each, of places at the same distance from each other; the first of those at one place."""
    places = list(dict(sorted({one.at: one for one in reversed(sums)}.items())).values())
    while len(places) >= _FEWEST:
        step = places[1].at - places[0].at
        count = next(
            (k for k, (one, next_) in enumerate(pairwise(places), 1) if next_.at - one.at != step), len(places)
        )
        stretch, places = places[: min(count, WIDTHS[-1])], places[min(count, WIDTHS[-1]) :]
        if len(stretch) >= _FEWEST and step % kind.type.size == 0:
            updates, fixed = tuple(one.update for one in stretch), tuple(one.fixed for one in stretch)
            guarding = any(one.guarding for one in stretch)
            yield Group(updates, kind.factor, fixed, kind.guards, guarding, step // kind.type.size)


def _rewritten(block: Block, found: Mapping[Op, Found]) -> Block:
    ops: list[Op] = []
    for op in block.ops:
        inside = descend(op, lambda inner: _rewritten(inner, found))
        if op in found:
            assert isinstance(inside, For)
            ops += _Contraction(inside, found[op]).ops()
        else:
            ops.append(inside)
    return Block(block.args, tuple(ops), block.results)


class _Contraction:
    def __init__(self, loop: For, found: Found):
        self.loop, self.groups, self.singles = loop, found.groups, found.singles
        self.b = b = Builder(loop.span)
        self.everyone = b.constant(FULL_WARP, U32)

    def ops(self) -> tuple[Op, ...]:
        b, loop = self.b, self.loop
        whole = b.apply("eq", b.emit(Warp, "activemask", (), type=U32), self.everyone)
        columns = {group: self.columns(group) for group in self.groups}
        with b.region() as region:
            finite = [
                b.emit(Warp, "lane_columns", (self.everyone, b.decay(own)), type=BOOL) for own in columns.values()
            ]
            together = reduce(lambda one, other: b.apply("and", one, other), finite)
        nobody = Block((), (), (b.constant(False, BOOL),))
        together = b.if_(whole, region.block(results=(together,)), nobody)[0]
        added = {op for group in self.groups for op in group.updates} | self.singles
        with b.region() as body:
            for part in _parts(loop.body):
                for op in part:
                    if op not in added:
                        b.add(op)
                groups = {group: own for group, own in columns.items() if group.updates[0] in part}
                if groups:
                    self.add_all(groups, together, tuple(op for op in part if op in added))
        b.add(replace(loop, body=body.block(loop.body.args, loop.body.results)))
        return tuple(b.ops)

    def add_all(self, columns: dict[Group, Value], together: Value, one_by_one: tuple[Op, ...]) -> None:
        """What a part of an iteration adds, at its end: the sums side by side, then each lane to its own elements."""
        b = self.b
        singles = [op for op in one_by_one if op in self.singles and isinstance(op, Atomic)]
        with b.region() as summed:
            totals = self.totals(singles)
            products = [self.products(group, own) for group, own in columns.items()]
            for op, (total, lane) in zip(singles, totals, strict=True):
                self.add_by_lanes(op, total, op.ptr, lane)
            for group, total in zip(columns, products, strict=True):
                self.add_total(group, total)
        b.if_(self.finite(together, columns), summed.block(), Block((), one_by_one, ()))

    def columns(self, group: Group) -> Value:
        """What is exchanged before the loop."""
        b, type = self.b, group.fixed[0].type
        cells = b.alloca(Array(type, group.width), f"{group.factor.shown or 'lane'}_columns")
        for at in range(group.width):
            value = group.fixed[at] if at < len(group.fixed) else b.constant(0.0, type)
            b.store(b.offset(b.decay(cells), b.constant(at, I64)), value)
        return cells

    def products(self, group: Group, columns: Value) -> Value:
        b, factor = self.b, group.factor
        for guard in reversed(group.guards):
            factor = b.apply("masked", factor, guard)
        total = b.emit(Warp, "lane_products", (self.everyone, factor, b.decay(columns)), type=factor.type)
        return b.convert(total, group.updates[0].result.type, "~total")

    def finite(self, together: Value, groups: Iterable[Group]) -> Value:
        """Whether the factors of all lanes are, where that is asked of them, and lanes are together."""
        b = self.b
        factors = [group.factor for group in groups if group.guarding]
        if not factors:
            return together
        with b.region() as region:
            own = reduce(lambda one, other: b.apply("and", one, other), (b.apply("isfinite", f) for f in factors))
            everyones = b.emit(Warp, "vote_all", (self.everyone, own), type=BOOL)
        return b.if_(together, region.block(results=(everyones,)), Block((), (), (b.constant(False, BOOL),)))[0]

    def totals(self, updates: list[Atomic]) -> list[tuple[Value, int]]:
        """All lanes are at the address of each. Two of one type are summed at once: the lane that has the total."""
        b, found = self.b, list[tuple[Value, int]]()
        while len(found) < len(updates):
            one, *rest = (op.args[0] for op in updates[len(found) : len(found) + 2])
            other = rest[0] if rest and rest[0].type == one.type else None
            args = (self.everyone, one) if other is None else (self.everyone, one, other)
            fn = "lanes_total" if other is None else "lanes_totals"
            total = b.emit(Warp, fn, args, type=one.type, name="~total")
            found += [(total, 0)] if other is None else [(total, 0), (total, WARP // 2)]
        return found

    def add_total(self, group: Group, total: Value) -> None:
        """By the first lanes, each to its own element."""
        b, first = self.b, group.updates[0]
        index = b.builtin("lane_id")
        if group.step != 1:
            index = b.apply("mul", b.convert(index, I64), b.constant(group.step, I64))
        self.add_by_lanes(first, total, b.offset(first.ptr, index), 0, len(group.updates))

    def add_by_lanes(self, update: Atomic, total: Value, ptr: Value, lane: int, lanes: int = 1) -> None:
        """`lane`: the first of so many, which have what is to be added."""
        b = self.b
        some = b.apply("ne", total, b.constant(0.0, total.type))
        with b.region() as region:
            b.add(replace(update, ptr=ptr, args=(total,), together=False, results=(Value(total.type),)))
        fn, number = ("eq", lane) if lane else ("lt", lanes)
        is_own = b.apply(fn, b.builtin("lane_id"), b.constant(number, U32))
        b.if_(b.apply("and", is_own, some), region.block())
