"""Which elements of a row a thread can keep in registers or shared memory, from one loop over the row to the next.

In a launch, an element that a thread meets in turn k of several loops is in one place: loaded once, or stored once,
when the last of them is done with it. The loops stand one after the other and have the same turns (`turns`); an access
of each of them, in every turn, is at an address that is the same but for the turn's number (so that the proof is one
about sums, whatever the loops look like). What is only read must not be written by anybody in the launch. What is
written must be the thread's own, of which no other one sees anything, an element a turn, and touched nowhere else: then
nobody can tell when it is stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from ...analysis import structure as structure_analysis
from ...analysis.access.affine import Basis, Part, Shape
from ...analysis.aliases import Aliases
from ...analysis.structure import Structure
from ...analysis.tuning import KeptRows, TurnLoop
from ...ir.effects import ADDRESSES, PURE
from ...ir.ops import Atomic, Block, For, Function, If, Load, Op, Store, Value, While
from ...ir.traverse import operands, uses, walk
from ...ir.types import Pointer, Scalar
from .room import Turns, bytes_of, room, rounded
from .turns import Count, TurnSums, test_of

_MOST_CODE = 6144  # operations, once loops are unrolled
_MOST_SUMS = 64  # registers for sums over rows
_SEVERAL = 2  # additions to cells a turn: one takes no longer than the bytes of a row

_LANE: Basis = ("thread_idx", 0)
Touching = Load | Store | Atomic


class _Element(NamedTuple):
    """What accesses of several loops have in common: the root, what does not change, what each turn adds, the type."""

    root: Value
    const: int
    coefficients: frozenset[Any]
    each: int
    type: Scalar


class _Access(NamedTuple):
    op: Load | Store
    loop: For | While

    @property
    def type(self) -> Scalar:
        assert isinstance(self.op.ptr.type, Pointer) and isinstance(self.op.ptr.type.pointee, Scalar)
        return self.op.ptr.type.pointee


def find(function: Function, shape: Shape, known: Callable[[Value], Any], shared: Callable[[], int]) -> KeptRows | None:
    """`known`: the numbers that parameters are in the launch. `shared`: bytes of a block's that are free."""
    return _Search(function, shape, known, shared).run()


class _Search:
    def __init__(self, function: Function, shape: Shape, known: Callable[[Value], Any], shared: Callable[[], int]):
        self.function, self.block = function, shape.block
        self.structure = structure_analysis.analyse(function, apart=False)
        self.sums = TurnSums(self.structure, shape, known)
        self.aliases = Aliases(function)
        self.params = {p.value: p for p in function.params}
        self.touching = [op for op in walk(function.body) if isinstance(op, Touching)]
        self.room = room(shape, shared)

    def run(self) -> KeptRows | None:
        loops, slots, early, sums = list[TurnLoop](), list[tuple[int, ...]](), list[int](), list[int]()
        atomics = {id(op): k for k, op in enumerate(atomics_of(self.function))}
        numbers = {id(op): k for k, op in enumerate(loops_of(self.function))}
        places = {id(op): k for k, op in enumerate(accesses_of(self.function))}
        for count, rows in self._rows():
            turns = rounded(*self.sums.turns(count))
            is_dealt = any(_is_dealt(basis) for basis, _ in count.coefficients)
            if turns is None or not (kept := self._kept(rows, turns, is_dealt)):
                continue
            if turns.are_long:
                rows = [loop for loop in rows if any(access.loop is loop for found in kept for access in found)]
            elif not _is_short(rows, turns):
                continue
            if turns.least < turns.most and test_of(rows[0], self.structure) is None:
                continue
            first = numbers[id(rows[0])]
            loops += [TurnLoop(numbers[id(loop)], first, *turns, turns.are_long) for loop in rows]
            slots += [tuple(places[id(access.op)] for access in found) for found in kept if len(found) > 1]
            early += [places[id(found[0].op)] for found in kept if len(found) == 1]
            sums += [] if turns.are_long else [atomics[id(op)] for op in self._summed(rows, turns.most)]
        block = self.block if any(loop.is_long for loop in loops) else None
        return KeptRows(tuple(loops), tuple(slots), tuple(early), tuple(sums), block) if loops else None

    # ---- loops

    def _rows(self) -> Iterator[tuple[Count, list[For | While]]]:
        """Loops that stand one after the other and have the same turns."""
        for place in self.structure.places.values():
            found: dict[Count, list[For | While]] = {}
            for op in place.block.ops:
                if isinstance(op, For | While) and (count := self._count(op)) is not None:
                    found.setdefault(count, []).append(op)
            yield from found.items()

    def _count(self, loop: For | While) -> Count | None:
        if isinstance(loop, While) and not all(isinstance(op, PURE) for op in loop.before.ops):
            return None
        count = self.sums.count(loop)
        return count if count is not None and self.sums.turns(count)[1] > 0 else None

    # ---- elements

    def _kept(self, rows: list[For | While], turns: Turns, is_dealt: bool) -> list[list[_Access]]:
        """What is at the same place in several turns' worth of loops, as far as there is room. `is_dealt`: the row is
        dealt out among threads; else each has a row of its own."""
        found: dict[_Element, list[_Access]] = {}
        if not is_dealt and any(isinstance(op, Atomic) for loop in rows for op in walk(loop.body)):
            return []  # they are summed up over threads
        for loop in rows:
            for op in loop.body.ops:
                if not isinstance(op, Load | Store) or (element := self._element(op, loop)) is None:
                    continue
                if is_dealt or self._is_of_thread(element, turns):
                    found.setdefault(element, []).append(_Access(op, loop))
        left, kept = self.room.of_thread(turns.are_long), list[list[_Access]]()
        for element, accesses in sorted(found.items(), key=lambda item: -len(item[1])):
            several = len({id(a.loop) for a in accesses}) > 1
            if len(accesses) > 1 and not several:
                continue
            needed = bytes_of(element.type, turns)
            early = bool(kept) and not turns.are_long and self._may_be_early(element, accesses[0], rows[0])
            if needed <= left and (several or early) and self._may_stay(element, accesses):
                left -= needed
                kept.append(accesses)
        return self._paying(kept, turns) if turns.are_long else kept

    def _is_of_thread(self, element: _Element, turns: Turns) -> bool:
        """Whether no other thread of the row meets it, in any turn: what several read is left to what sums up over
        threads, and to caches."""
        slope: int = abs(dict(element.coefficients).get(_LANE, 0))
        each = abs(element.each)
        return slope > 0 and (each >= slope * self.block[0] or slope >= each * turns.most)

    def _paying(self, kept: list[list[_Access]], turns: Turns) -> list[list[_Access]]:
        """As many as are worth their shared memory, those of most accesses first."""
        needed = [sum(bytes_of(found[0].type, turns) for found in kept[:k]) for k in range(len(kept) + 1)]
        return kept[: max((k for k in range(1, len(kept) + 1) if self.room.pays(needed[-1], needed[k])), default=0)]

    def _may_be_early(self, element: _Element, access: _Access, first: For | While) -> bool:
        """Whether what one loop reads can be under way when the first loop is, long before it is needed: every block
        reads others, at an address that is known by then."""
        loop, moves = access.loop, any(_moves(basis) for basis, _ in element.coefficients)
        if loop is first or not moves or not isinstance(loop, For) or not isinstance(access.op, Load):
            return False
        return address_of(access.op, loop, first, self.structure) is not None

    def _element(self, op: Load | Store, loop: For | While) -> _Element | None:
        type, root = op.ptr.type, self.aliases.root(op.ptr)
        if op.volatile or not isinstance(type, Pointer) or not isinstance(type.pointee, Scalar):
            return None
        address = self.sums.address(op.ptr, root) if root in self.params else None
        if address is None or any(basis in self.sums.wrapping for basis in address.coefficients):
            return None
        fixed, each = self.sums.per_turn(address, loop)
        return _Element(root, fixed.const, frozenset(fixed.terms), each, type.pointee)

    def _may_stay(self, element: _Element, accesses: list[_Access]) -> bool:
        others = [op for op in self.touching if self.aliases.may_share(self.aliases.root(op.ptr), element.root)]
        if not any(isinstance(op, Store | Atomic) for op in others):
            return True
        own = self.params[element.root].own and abs(element.each) >= element.type.size
        return own and {id(op) for op in others} == {id(access.op) for access in accesses}

    # ---- sums

    def _summed(self, rows: list[For | While], most: int) -> Iterator[Atomic]:
        """Additions to cells of the block that a thread makes at the same places for one row after the other: it adds
        up what it adds to each, and adds that in the end. Nobody sees the cells before the rows are done."""
        around = around_rows(rows[0], self.structure)
        ops = [(op, loop) for loop in rows for op in atomics_in(loop.body)]
        if around is None or len(ops) < _SEVERAL or most * len(ops) > _MOST_SUMS:
            return
        used = uses(self.function.body)
        for op, loop in ops:
            if isinstance(loop, For) and not used.get(op.result) and self._stays(op, loop, around):
                yield op

    def _stays(self, op: Atomic, loop: For, around: For | While) -> bool:
        root, type = self.aliases.root(op.ptr), op.ptr.type
        address = self.sums.address(op.ptr, root)
        if op.kind != "add" or not isinstance(type, Pointer) or type.space != "shared" or address is None:
            return False
        fixed, each = self.sums.per_turn(address, loop)
        inside = {id(inner) for inner in walk(around.body) if isinstance(inner, Touching)}
        others = [o for o in self.touching if id(o) in inside and self.aliases.may_meet(o.ptr, op.ptr)]
        apart = abs(each) >= type.pointee.size and not any(_moves(basis) for basis in fixed.coefficients)
        return apart and others == [op] and outside(op.ptr, loop, around, self.structure) is not None


def _is_short(rows: list[For | While], turns: Turns) -> bool:
    return turns.most * sum(1 for loop in rows for _ in walk(loop.body)) <= _MOST_CODE


def atomics_in(block: Block) -> Iterator[Atomic]:
    """Of a turn, on either side of branches."""
    for op in block.ops:
        if isinstance(op, Atomic):
            yield op
        elif isinstance(op, If):
            yield from atomics_in(op.then)
            yield from atomics_in(op.orelse)


def around_rows(loop: For | While, structure: Structure) -> For | While | None:
    """The loop at the top of the function that a row's loop stands in."""
    place = structure.place_of(loop)
    owner = place.owner
    return owner if isinstance(owner, For | While) and place.parent is structure.top else None


def outside(ptr: Value, loop: For, around: For | While, structure: Structure) -> list[Op] | None:
    """What computes an address in a turn, from what is known before all rows; None where that takes more."""
    found = _slice(ptr, loop, lambda v: structure.is_inside(v, around), structure)
    return None if found is None else [op for op in walk(around.body) if op in found]


def address_of(op: Load, loop: For, first: For | While, structure: Structure) -> list[Op] | None:
    """What computes an address in a turn, from what is known before the first loop; None where that takes more."""
    block = structure.place_of(first).block
    later = block.ops[block.ops.index(first) :]
    made = {v for other in later for v in other.results}
    found = _slice(op.ptr, loop, lambda v: v in made or structure.is_inside(v, loop), structure)
    return None if found is None else [op for op in (*later, *loop.body.ops) if op in found]


def _slice(ptr: Value, loop: For, is_later: Callable[[Value], bool], structure: Structure) -> set[Op] | None:
    """The operations behind an address and what a loop's counter starts at, as far as they are not known already; None
    where they do more than compute."""
    turn, found = loop.body.args[0], set[Op]()
    wanted = [ptr, loop.lower] if loop.step > 0 else [ptr]  # counted down, a counter is the turn's number
    while wanted:
        value = wanted.pop()
        op = structure.definition.get(value)
        if value is turn or op in found or not is_later(value):
            continue
        if op is None or not isinstance(op, (*PURE, *ADDRESSES)):
            return None
        found.add(op)
        wanted += operands(op)
    return found


def _is_dealt(basis: Basis) -> bool:
    """Whether threads start at different elements: rows that are dealt out among them."""
    if isinstance(basis, Part):
        return any(map(_is_dealt, basis.of.coefficients))
    return isinstance(basis, tuple) and basis[0] == "thread_idx"


def _moves(basis: Basis) -> bool:
    """Whether blocks have different ones, or turns of loops around."""
    if isinstance(basis, Part):
        return any(map(_moves, basis.of.coefficients))
    return isinstance(basis, Value) or (isinstance(basis, tuple) and basis[0] == "block_idx")


def loops_of(function: Function) -> list[For | While]:
    return [op for op in walk(function.body) if isinstance(op, For | While)]


def atomics_of(function: Function) -> list[Atomic]:
    return [op for op in walk(function.body) if isinstance(op, Atomic)]


def accesses_of(function: Function) -> list[Load | Store]:
    return [op for op in walk(function.body) if isinstance(op, Load | Store)]
