"""How often a launch adds to one cell of an adjoint in memory, at most: what decides whether floats can hold the sum.

Each execution of a load is one addition to the cell that it read. Executions are numbered by the indices of threads and
by the counters of the loops around the load; an address is a sum of multiples of them (`affine`). As far as a step of
one index leaps over all that smaller ones reach, as the digits of a number do, different executions are at different
cells. The product of all others is the bound. What is not known to be different may be the same.

Loops that do not change the address are left out where their additions go to a register (`transforms/sums`), whose sum
`transforms/sum_pieces` looks after; so are those that fill the memory again, since their stores take what is there.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...analysis.access.affine import Affine, Basis, Part, Sums
from ...analysis.access.contribution_counts import LoopLengths
from ...analysis.access.executions import Executions
from ...analysis.access.ranges import Range
from ...analysis.access.reach import reach
from ...analysis.machine import LOOP_SUMS
from ...analysis.ownership.private import places_of
from ...analysis.roots import Place as Exclusive
from ...analysis.roots import is_shared
from ...analysis.structure import Place
from ...analysis.uniform import uniform_values
from ...ir.effects import MEETINGS
from ...ir.ops import (
    Alloca,
    Apply,
    Atomic,
    Builtin,
    Constant,
    For,
    GlobalRef,
    Load,
    Member,
    Offset,
    Op,
    PtrCast,
    Store,
    Value,
    While,
)
from ...ir.traverse import blocks, operands, walk
from ...ir.types import Array, Pointer, Scalar, Struct, Type
from ...locks import cached_property
from ..accumulate.choice import is_exclusive
from ..calculus.flat_numbers import floats_in

if TYPE_CHECKING:
    from .prepared import Prepared

_ENDLESS = 1 << 62  # iterations of a loop of which nothing is known
_MOST_TERMS = 8  # of an address that are looked at in all ways
_THREAD: tuple[Basis, ...] = tuple(("thread_idx", axis) for axis in range(3))


@dataclass(frozen=True)
class Count:
    """Additions of a launch: `most` to one cell, `by_thread` of them by one thread; `total` to all cells. `low`: bytes
    before the memory's first that are touched, as far as is known."""

    most: float = 0.0
    by_thread: float = 0.0
    total: float = 0.0
    low: int = 0

    def __add__(self, other: Count) -> Count:
        return Count(
            self.most + other.most,
            self.by_thread + other.by_thread,
            self.total + other.total,
            min(self.low, other.low),
        )


@dataclass(frozen=True)
class _Inside:
    """A loop: what makes its values, its arguments and those of loops in it, the memory that it stores to, and whether
    it may have sums in registers."""

    made: dict[Value, Op]
    moving: set[Value]
    stored: frozenset[Value]
    sums: bool

    def is_fixed(self, ptr: Value) -> bool:
        """Whether an address is the same in all iterations."""
        todo = [ptr]
        while todo:
            value = todo.pop()
            op = self.made.get(value)
            if value in self.moving or isinstance(op, Load | Atomic):
                return False
            todo += () if op is None else operands(op)
        return True


class Contributions:
    """Of one launch. `private`: memory whose elements are touched by one thread each. `lanes`: how many threads add up
    together where they add to the same cell. `of_block`: those of one block alone. `exclusive`: where shared cells are
    read that one thread touches between two barriers."""

    def __init__(
        self,
        prepared: Prepared,
        sums: Sums,
        lengths: LoopLengths,
        private: frozenset[str],
        lanes: int = 1,
        of_block: bool = False,
        exclusive: frozenset[Exclusive] = frozenset(),
    ):
        self.structure, self.memory, self.plan = prepared.structure, prepared.memory, prepared.plan
        self.function, self.accumulation = prepared.function, prepared.accumulation
        self.sums, self.lengths, self.lanes, self.of_block = sums, lengths, lanes, of_block
        self.places = places_of(prepared.structure)
        self._inside: dict[For | While, _Inside] = {}
        self._addresses: dict[Value, float] = {}
        self._filled: dict[For | While, set[Value]] = {}
        names = {p.value: p.name for p in prepared.function.params}
        names |= {root: name for name, root in prepared.memory.global_names.items()}
        self.private = {root for root, name in names.items() if name in private}
        self.exclusive, self.names = exclusive, {root: name for name, root in prepared.memory.global_names.items()}

    @cached_property
    def uniform(self) -> set[Value]:
        return uniform_values(self.function)

    def to(self, root: Value) -> Count:
        return sum((self.by(op, root) for op in self.loads(root)), Count())

    def loads(self, root: Value) -> list[Load]:
        return [op for op in self.memory.loads if root in self.memory.of(op.ptr) and self.plan.has_adjoint(op)]

    def most(self, root: Value) -> float:
        """Of `to`, with loads apart that are never at the same cell: `w[16 * j]` and `w[16 * j + 1]`."""
        loads = self.loads(root)
        found = [self.sums.address(op.ptr, root) for op in loads]
        addresses = [address for address in found if address is not None]
        sizes = {op.result.type.size for op in loads}
        if len(addresses) < len(loads) or len(sizes) > 1:
            return self.to(root).most
        step = math.gcd(*(c for address in addresses for _, c in address.terms))
        if any(n % size for size in sizes for n in (step, *(address.const for address in addresses))):
            return self.to(root).most  # rows that overlap in part
        classes: dict[int, list[tuple[float, float, float]]] = {}
        for op, address in zip(loads, addresses, strict=True):
            rest = address.const % step if step else address.const
            classes.setdefault(rest, []).append((*self.span(address), self.by(op, root).most))
        return max(map(_most_at_once, classes.values()), default=0.0)

    def span(self, address: Affine) -> tuple[float, float]:
        """The first and last of it."""
        if any(basis in self.sums.wrapping for basis, _ in address.terms):
            return -math.inf, math.inf
        return self.sums.range(address, _ENDLESS)

    def reach(self, root: Value) -> Range | None:
        """From where to where the launch may touch a parameter's memory, in bytes, where that is known."""
        return reach(self.function, self.memory, root, self.sums)

    def is_certain_of(self, root: Value, most: float) -> bool:
        """Whether some cell gets more than that for certain: by loads that have so few addresses."""
        return any(
            self.by(op, root).total > most * self.addresses(op.ptr) * floats_in(op.result.type)
            for op in self.loads(root)
        )

    def addresses(self, value: Value) -> float:
        """How many values an address or integer has in a launch, at most."""
        if value not in self._addresses:
            self._addresses[value] = math.inf  # while it is looked for
            span = self.lengths.ranges.of(value) if isinstance(value.type, Scalar) else None
            width = math.inf if span is None else span[1] - span[0] + 1.0
            self._addresses[value] = min(width, self._made_of(value))
        return self._addresses[value]

    def _made_of(self, value: Value) -> float:
        op = self.structure.definition.get(value)
        match op:
            case None:
                return self._given(value)
            case Builtin("thread_idx" | "block_idx" as name, axis):
                return self.sums.shape.extent(name, axis)
            case Builtin():
                return 1.0 if op.name in ("block_dim", "grid_dim", "warp_size") else math.inf
            case Constant() | GlobalRef():
                return 1.0
            case Apply() | Offset() | Member() | PtrCast():
                return math.prod(self.addresses(v) for v in operands(op))
        return math.inf

    def _given(self, value: Value) -> float:
        """Of parameters and of what blocks are given."""
        loop = self.structure.home[value].owner if value in self.structure.home else None
        if isinstance(loop, For) and value is loop.body.args[0]:
            return max(1.0, self.lengths.length(loop)) * self.addresses(loop.lower)
        return 1.0 if loop is None else math.inf

    def by(self, load: Load, root: Value) -> Count:
        place = self.places[id(load)]
        axes = self.axes(root, place)
        loops = {loop: max(1.0, self.lengths.length(loop)) for loop in self.loops(load, root, place)}
        certain = [n for loop, n in loops.items() if loop not in self.lengths.unbounded]
        everything = math.prod(axes.values()) * math.prod(certain) * floats_in(load.result.type)
        address, fixed = self.address(load.ptr, root)
        # Between two barriers, one thread adds to a cell: so often as it may go round.
        alone = root in self.private or self.is_exclusive(load)
        if address is None:
            threads = 1 if alone else math.prod(axes.values())
            each = self.lengths.nest_iterations(tuple(loops)[::-1])
            return Count(threads * each, each, everything)
        own: dict[Basis, int] = {b: n for b, n in axes.items() if not fixed or b in _THREAD}
        digits = self.digits(address, load.result.type.size, own, {} if fixed else loops)
        left = _shared_out(axes, digits)
        others = [n for basis, n in left.items() if basis not in digits and not alone]
        again = [n for loop, n in loops.items() if loop not in digits]
        low = min(0, self.sums.range(address)[0])
        lanes = self.lanes_alike(load, address, place) if others else 1
        return Count(math.prod(others) * math.prod(again) / lanes, math.prod(again), everything, low)

    def is_exclusive(self, load: Load) -> bool:
        return is_exclusive(load, [self.names.get(root, "") for root in self.memory.of(load.ptr)], self.exclusive)

    def lanes_alike(self, load: Load, address: Affine, place: Place) -> int:
        """How many neighbouring lanes add up what they have before one of them adds it for all."""
        block = self.sums.shape.block
        whole = math.prod(block) % self.lanes == 0 and not moves_along(address, ("thread_idx", 0))
        together = whole and id(load) in self.accumulation.together and self.is_of_all(place)
        return math.gcd(block[0], self.lanes) if together else 1

    def is_of_all(self, place: Place) -> bool:
        """Whether the lanes of a warp are there together, but for the last of them or the last time."""
        in_loops = isinstance(self.sums, Executions) and self.sums.exact_guards(place) is not None
        return in_loops or self.sums.only_guards(place) is not None

    # ---- who executes a load

    def axes(self, root: Value, place: Place) -> dict[Basis, int]:
        """The indices by which the threads differ that may touch the same memory, and how many values each has."""
        if isinstance(self.structure.definition.get(root), Alloca):
            return {}
        names = ("thread_idx",) if is_shared(root) or self.of_block else ("thread_idx", "block_idx")
        fixed = self.sums.fixed(place)
        extents: dict[Basis, int] = {
            (name, axis): self.sums.shape.extent(name, axis) for name in names for axis in range(3)
        }
        for guard in self.sums.guards(place):
            if len(guard.sum.terms) == 1:  # threadIdx.x < 8
                ((basis, factor),) = guard.sum.terms
                if basis in extents and factor > 0:
                    extents[basis] = max(0, min(extents[basis], -((guard.sum.const - guard.bound) // factor)))
        return {basis: n for basis, n in extents.items() if n > 1 and basis not in fixed}

    def loops(self, load: Load, root: Value, place: Place) -> Iterator[For | While]:
        """Those around a load in each of whose iterations it may add to the same sum, from the innermost outwards."""
        definition = self.structure.definition.get(root)
        home = self.structure.home[root] if isinstance(definition, Alloca) else None  # zeros, whenever that runs
        in_register = True
        for around in _outwards(place):
            if around is home or not isinstance(around.owner, For | While):
                if around is home:
                    return
                continue
            loop = around.owner
            if not isinstance(definition, Alloca) and root in self.filled(loop):
                return
            in_register = in_register and self.is_register(load, loop)
            if not in_register:
                yield loop

    def filled(self, loop: For | While) -> set[Value]:
        """The shared memory that every iteration of a loop stores to."""
        if loop not in self._filled:
            stores = (op for op in self.memory.stores if isinstance(op, Store))
            shared = (op for op in stores if any(map(is_shared, self.memory.of(op.ptr))) and self.is_certain(op, loop))
            self._filled[loop] = {root for op in shared for root in self.memory.of(op.ptr)}
        return self._filled[loop]

    def is_certain(self, store: Store, loop: For | While) -> bool:
        """Whether a store in a loop does not depend on the iteration."""
        inside = {arg for block in blocks(loop) for arg in block.args}
        for around in _outwards(self.places[id(store)]):
            if around.owner is loop:
                return True
            condition = getattr(around.owner, "cond", None)
            if condition is not None and inside & self.lengths.slice((condition,)):
                return False
        return False

    def is_register(self, load: Load, loop: For | While) -> bool:
        """Whether what a loop adds by a load is added up in a register: what `transforms/sums` does for certain."""
        inside, root = self.inside(loop), self.origin(load.ptr)
        known = inside.sums and self.memory.of(load.ptr) == {root}
        added = not self.accumulation.is_logged(load) and root not in inside.stored
        return known and added and inside.is_fixed(load.ptr)

    def origin(self, ptr: Value) -> Value:
        """Where a pointer begins. One that was chosen begins where it was."""
        op = self.structure.definition.get(ptr)
        while isinstance(op, Offset | Member | PtrCast):
            ptr = op.ptr
            op = self.structure.definition.get(ptr)
        name = op.name if isinstance(op, GlobalRef) else None
        return ptr if name is None else self.memory.global_names[name]

    def inside(self, loop: For | While) -> _Inside:
        if loop not in self._inside:
            ops = [op for block in blocks(loop) for op in walk(block)]
            adding = (op.result.type for op in ops if isinstance(op, Load) and self.plan.has_adjoint(op))
            few = sum(map(_numbers, adding)) <= LOOP_SUMS
            sums = few and not any(isinstance(op, MEETINGS) for op in ops)
            stored = frozenset[Value]().union(*(self.memory.of(op.ptr) for op in ops if isinstance(op, Store | Atomic)))
            made = {r: op for op in ops for r in op.results}
            moving = {arg for op in (loop, *ops) for block in blocks(op) for arg in block.args}
            self._inside[loop] = _Inside(made, moving, stored, sums)
        return self._inside[loop]

    # ---- where it adds

    def address(self, ptr: Value, root: Value) -> tuple[Affine | None, bool]:
        """In bytes from the root, but for a part that the threads of a block have in common: then True."""
        found = self.sums.address(ptr, root)
        if found is not None:
            return found, False
        found = self.but_common(ptr, root)
        return found, True

    def but_common(self, ptr: Value, root: Value) -> Affine | None:
        op = self.structure.definition.get(ptr)
        match op:
            case _ if ptr is root:
                return Affine(0)
            case PtrCast(base) | Member(base, _):
                return self.but_common(base, root)
            case Offset(base, index):
                start, by = self.but_common(base, root), self.varying(index)
                assert isinstance(ptr.type, Pointer)
                return None if start is None or by is None else start.plus(by, ptr.type.pointee.size)
        return self.sums.address(ptr, root)

    def varying(self, value: Value) -> Affine | None:
        """An integer without what the threads of a block have in common."""
        found = self.sums.of(value)
        if found is not None:
            return found
        if value in self.uniform:
            return Affine(0)
        op = self.structure.definition.get(value)
        if not isinstance(op, Apply) or not all(_is_wide(v) for v in (*op.args, op.result)):
            return None
        if op.fn in ("add", "sub"):
            left, right = map(self.varying, op.args)
            return None if left is None or right is None else left.plus(right, 1 if op.fn == "add" else -1)
        return self.varying(op.args[0]) if op.fn == "convert" else None

    def digits(
        self, address: Affine, size: int, axes: dict[Basis, int], loops: dict[For | While, float]
    ) -> set[Basis | For | While]:
        """The indices and loops of which no two values lead to the same cell, if the others stay as they are: those
        with the most values, of `x[i + j]` those of i."""
        terms: list[tuple[float, float, Basis | For | While]] = []
        for basis, coefficient in address.terms:
            loop = self.sums.loops.get(basis)
            what, number = (basis, self.values(basis, axes)) if loop is None else (loop, loops.get(loop))
            if number is not None and basis not in self.sums.wrapping:
                terms.append((abs(coefficient), number, what))
        terms.sort(key=lambda term: term[:2])
        return max(_leaping(terms[:_MOST_TERMS], float(size)), key=lambda found: found[0])[1]

    def values(self, basis: Basis, axes: dict[Basis, int]) -> int | None:
        """How many an index has, or a part of one; None of what is none of them."""
        if isinstance(basis, Part):
            return self.sums.extents[basis] if not self.sums.wrapping.intersection(basis.of.coefficients) else None
        return axes.get(basis)


def _most_at_once(spans: list[tuple[float, float, float]]) -> float:
    """Of numbers that are there from one place to another."""
    return max(sum(n for first, last, n in spans if first <= at <= last) for at, _, _ in spans)


def _leaping(
    terms: list[tuple[float, float, Basis | For | While]], reach: float
) -> Iterator[tuple[float, set[Basis | For | While]]]:
    """Those of which each steps over what the ones before reach, in all ways, with how many values they have together:
    from the smallest step on."""
    yield 1.0, set()
    for k, (step, number, what) in enumerate(terms):
        if step >= reach:
            for product, others in _leaping(terms[k + 1 :], reach + step * (number - 1)):
                yield number * product, {what, *others}


def moves_along(address: Affine, basis: Basis) -> bool:
    """Whether an index is in an address, or in what a part of it is of."""
    return any(b == basis or (isinstance(b, Part) and moves_along(b.of, basis)) for b, _ in address.terms)


def _shared_out(axes: dict[Basis, int], digits: Collection[Basis | For | While]) -> dict[Basis, int]:
    """How many values of each index lead to the same cell: of one that an address has a part of, and of no other index
    that is not known by then, `t % 32` leaves every 32nd, and `t / 32` leaves 32."""
    found = dict(axes)
    for part in (digit for digit in digits if isinstance(digit, Part)):
        open_ = [(b, c) for b, c in part.of.terms if b in axes and b not in digits]
        if len(open_) == 1 and open_[0][1] > 0:
            ((basis, coefficient),) = open_
            step = part.by // math.gcd(coefficient, part.by)
            alike = -(-part.by // coefficient) if part.is_quotient else -(-axes[basis] // step)
            found[basis] = min(found[basis], alike)
    return found


def _outwards(place: Place | None) -> Iterator[Place]:
    while place is not None:
        yield place
        place = place.parent


def _numbers(type: Type) -> int:
    match type:
        case Array(element, count):
            return count * _numbers(element)
        case Struct():
            return sum(_numbers(field.type) for field in type.fields)
    return 1


def _is_wide(value: Value) -> bool:
    return isinstance(value.type, Scalar) and not value.type.is_float and value.type.bits >= 32
