"""Kept rows (see `proof`): their loops take a constant number of turns, each of which has a place for elements.

    for (int c = lane; c < n; c += 32) top = max(top, x[c]);      ->   for (int k = 0; k < 32; ++k) {  // unrolled
    for (int c = lane; c < n; c += 32) sum += exp(x[c] - top);             int c = lane + k * 32;
                                                                           x_row[k] = x[c]; top = max(top, x_row[k]); }
                                                                       for (int k = 0; k < 32; ++k)    // unrolled
                                                                           sum += exp(x_row[k] - top);

Turns that not every thread takes test what the first of the loops tests. Unrolled, the arrays are registers. Of long
loops they are in shared memory, a thread's own cells, in which its neighbours' lie beside them; several turns are made
at once, so that their loads are under way together.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from operator import not_

from ...analysis import structure as structure_analysis
from ...analysis.machine import REGISTERS, SHARED_BYTES
from ...analysis.tuning import KeptRows, TurnLoop
from ...ir.builder import Builder
from ...ir.ops import Atomic, Block, For, Function, Global, If, Load, Module, Op, Store, Value, While
from ...ir.traverse import clone, descend, substitute, walk, with_body
from ...ir.types import I32, Array, Pointer
from .proof import accesses_of, address_of, around_rows, atomics_in, atomics_of, loops_of, outside
from .room import registers_for
from .turns import counter, holds, test_of

_AT_ONCE = 16  # turns of long loops
_MOST_AT_ONCE = 1024  # operations
_WORD = 4


def cells_of(function: Function, module: Module, plan: KeptRows) -> dict[int, Global]:
    """The variables in shared memory that hold elements, by the numbers of the slots."""
    accesses, long = accesses_of(function), _long_accesses(function, plan)
    firsts = [accesses[slot[0]] for slot in plan.slots]
    kept = [(k, op, long[id(op)]) for k, op in enumerate(firsts) if id(op) in long]
    arrays = ((k, Array(_pointee(op.ptr), turns.most * math.prod(plan.block or ()))) for k, op, turns in kept)
    return {k: Global(_free_name(k, module), array, "shared") for k, array in arrays}


def _free_name(slot: int, module: Module) -> str:
    names = (f"_row{'_' * length}{slot}" for length in itertools.count(1))
    return next(name for name in names if name not in module.globals)


def _long_accesses(function: Function, plan: KeptRows) -> dict[int, TurnLoop]:
    loops = loops_of(function)
    long = [turns for turns in plan.loops if turns.is_long]
    return {id(op): turns for turns in long for op in loops[turns.number].body.ops}


def run(function: Function, plan: KeptRows, cells: Mapping[int, Global]) -> Function:
    """`cells`: the variables that `cells_of` gave; they are the module's by now."""
    body = _Rewrite(function, plan, cells).block(function.body)
    return _with_registers(with_body(function, body), function, plan, cells)


def _with_registers(rewritten: Function, function: Function, plan: KeptRows, cells: Mapping[int, Global]) -> Function:
    """Fewer blocks at a time, where elements need more registers than so many blocks leave for a thread."""
    bounds = function.launch_bounds
    if len(bounds) < 2:
        return rewritten
    short = [loop.most for loop in plan.loops if not loop.is_long]
    most, accesses, long = max(short, default=0), accesses_of(function), _long_accesses(function, plan)
    # What is loaded early is not needed any more when the last of what is written is.
    kept = [accesses[slot[0]] for slot in plan.slots if id(accesses[slot[0]]) not in long]
    words = sum(max(1, _pointee(op.ptr).size // _WORD) for op in kept)
    resident = REGISTERS // (bounds[0] * registers_for(most * (words + len(plan.sums))))
    if cells:
        resident = min(resident, SHARED_BYTES // sum(g.type.size for g in cells.values()))
    return replace(rewritten, launch_bounds=(bounds[0], max(1, min(bounds[1], resident))))


@dataclass(frozen=True)
class _Slot:
    """The array in which an element stays. `first`: the access that finds it; `last`: the store that leaves it."""

    array: Value
    first: Op | None
    last: Op | None


class _Rewrite:
    def __init__(self, function: Function, plan: KeptRows, cells: Mapping[int, Global]):
        self.structure = structure_analysis.analyse(function, apart=False)
        self.cells, self.extents = cells, plan.block or (1, 1, 1)
        self.loops, self.accesses = loops_of(function), accesses_of(function)
        self.turns = {id(self.loops[turns.number]): turns for turns in plan.loops}
        self.slots: dict[int, _Slot] = {}  # by access
        self.arrays: dict[int, list[Op]] = {}  # by the loop before which they stand
        most = {id(op): turns for turns in plan.loops for op in self.loops[turns.number].body.ops}
        self.early: dict[int, list[tuple[Load, For]]] = {}  # by the first loop
        for number, slot in enumerate(plan.slots):
            self._make(number, tuple(self.accesses[k] for k in slot), most[id(self.accesses[slot[0]])])
        self.sums: dict[int, Value] = {}  # by the atomic
        self.around: dict[int, tuple[list[Op], list[Op]]] = {}  # what stands before and after a loop
        atomics = atomics_of(function)
        adding = {id(op): turns for turns in plan.loops for op in atomics_in(self.loops[turns.number].body)}
        for number in plan.sums:
            self._make_sum(atomics[number], adding[id(atomics[number])])
        for number in plan.early:
            self._make_early(self.accesses[number], most[id(self.accesses[number])])

    def _make_sum(self, op: Atomic, turns: TurnLoop) -> None:
        loop = self.loops[turns.number]
        around = around_rows(loop, self.structure)
        assert isinstance(loop, For) and around is not None
        b = Builder(op.span)
        self.sums[id(op)] = b.decay(b.alloca(Array(_pointee(op.ptr), turns.most), name="~sums"))
        zero = b.constant(-0.0, _pointee(op.ptr))
        self.each(b, turns.most, lambda turn: b.store(b.offset(self.sums[id(op)], turn), zero))
        before, after = self.around.setdefault(id(around), ([], []))
        before += b.ops
        b = Builder(op.span)
        self.each(b, turns.most, lambda turn: self.add(b, op, loop, around, turn))
        after += b.ops

    def each(self, b: Builder, turns: int, work: Callable[[Value], None]) -> None:
        turn = Value(I32, "~turn")
        with b.region() as region:
            work(turn)
        b.for_(b.constant(0, I32), b.constant(turns, I32), (), 1, region.block((turn,)), unroll=0)

    def add(self, b: Builder, op: Atomic, loop: For, around: For | While, turn: Value) -> None:
        """A turn's sum, where anything was added to it: then there is a place for it."""
        total = b.load(b.offset(self.sums[id(op)], turn))
        with b.region() as region:
            mapping = self.computed(b, outside(op.ptr, loop, around, self.structure) or [], loop, turn)
            added = replace(op, ptr=mapping.get(op.ptr, op.ptr), args=(total,), results=(Value(op.result.type),))
            b.add(added)
        b.if_(b.apply("ne", total, b.constant(0.0, total.type)), region.block())

    def computed(self, b: Builder, address: list[Op], loop: For, turn: Value) -> dict[Value, Value]:
        """An address of a loop's turn, once more elsewhere: what stands for the values behind it."""
        mapping: dict[Value, Value] = {}
        inside = [self.structure.is_inside(op.result, loop) for op in address]
        b.ops += clone(Block((), tuple(itertools.compress(address, map(not_, inside))), ()), mapping).ops
        mapping[loop.body.args[0]] = counter(b, loop, turn, mapping.get(loop.lower))
        b.ops += clone(Block((), tuple(itertools.compress(address, inside)), ()), mapping).ops
        return mapping

    def _make(self, number: int, accesses: tuple[Load | Store, ...], turns: TurnLoop) -> None:
        stores = [op for op in accesses if isinstance(op, Store)]
        array = self._cells(number, accesses[0], turns) if turns.is_long else self._array(accesses[0], turns)
        slot = _Slot(array, accesses[0], stores[-1] if stores else None)
        self.slots.update((id(op), slot) for op in accesses)

    def _make_early(self, load: Load | Store, turns: TurnLoop) -> None:
        loop = self.loops[turns.number]
        assert isinstance(load, Load) and isinstance(loop, For)
        self.slots[id(load)] = _Slot(self._array(load, turns), None, None)
        self.early.setdefault(id(self.loops[turns.first]), []).append((load, loop))

    def _array(self, access: Load | Store, turns: TurnLoop) -> Value:
        b = Builder(access.span)
        array = b.decay(b.alloca(Array(_pointee(access.ptr), turns.most), name="~row"))
        self.arrays.setdefault(turns.first, []).extend(b.ops)
        return array

    def _cells(self, number: int, access: Load | Store, turns: TurnLoop) -> Value:
        """Where the thread's own begin: of each turn, the whole block's lie next to each other."""
        b, variable = Builder(access.span), self.cells[number]
        cells = b.decay(b.global_ref(variable.name, variable.type, "shared"))
        array = b.offset(cells, number_in_block(b, self.extents))
        self.arrays.setdefault(turns.first, []).extend(b.ops)
        return array

    def place(self, b: Builder, slot: _Slot, turn: Value) -> Value:
        space = slot.array.type.space if isinstance(slot.array.type, Pointer) else ""
        each = math.prod(self.extents) if space == "shared" else 1
        return b.offset(slot.array, turn if each == 1 else b.apply("mul", turn, b.constant(each, I32)))

    def block(self, block: Block) -> Block:
        ops: list[Op] = []
        found: dict[Value, Value] = {}
        for op in block.ops:
            turns = self.turns.get(id(op))
            if turns is None or not isinstance(op, For | While):
                before, after = self.around.get(id(op), ([], []))
                ops += (*before, descend(op, self.block), *after)
                continue
            if turns.number == turns.first:
                ops += self.arrays.get(turns.first, ())
            b = Builder(op.span)
            found.update(zip(op.results, self.loop(b, op, turns), strict=True))
            ops += b.ops
        return substitute(Block(block.args, tuple(ops), block.results), found)

    def loop(self, b: Builder, loop: For | While, turns: TurnLoop) -> tuple[Value, ...]:
        carried = loop.inits
        down = isinstance(loop, For) and loop.step < 0
        pieces = [(0, turns.least, False), (turns.least, turns.most, True)]
        for start, end, tested in reversed(pieces) if down else pieces:
            if start < end:
                carried = self.piece(b, loop, turns, (start, end), carried, tested)
        if isinstance(loop, For):
            return carried
        mapping = dict(zip(loop.before.args, carried, strict=True))
        b.ops += clone(Block((), loop.before.ops, ()), mapping).ops
        return tuple(mapping.get(v, v) for v in loop.before.results[1:])

    def piece(
        self,
        b: Builder,
        loop: For | While,
        turns: TurnLoop,
        span: tuple[int, int],
        inits: tuple[Value, ...],
        tested: bool,
    ) -> tuple[Value, ...]:
        """Turns from one to another; in the order of the loop."""
        start, end = span
        turn, args = Value(I32, "~turn"), tuple(Value(v.type, v.name) for v in inits)
        with b.region() as region:
            results = self.guarded(b, loop, turns, turn, args) if tested else self.turn(b, loop, turn, args)
        body = region.block((turn, *args), results)
        down = isinstance(loop, For) and loop.step < 0
        ends = (end - 1, start - 1, -1) if down else (start, end, 1)
        lower, upper = (b.constant(n, I32) for n in ends[:2])
        return b.for_(lower, upper, inits, ends[2], body, unroll=_at_once(body, end - start) if turns.is_long else 0)

    def guarded(
        self, b: Builder, loop: For | While, turns: TurnLoop, turn: Value, args: tuple[Value, ...]
    ) -> tuple[Value, ...]:
        test = test_of(self.loops[turns.first], self.structure)
        assert test is not None
        runs = holds(b, test, turn)
        with b.region() as taken:
            results = self.turn(b, loop, turn, args)
        return b.if_(runs, taken.block((), results), Block((), (), args))

    def turn(self, b: Builder, loop: For | While, turn: Value, args: tuple[Value, ...]) -> tuple[Value, ...]:
        """One turn's work; what is carried after it."""
        for load, later in self.early.get(id(loop), ()):
            self.load_early(b, load, later, loop, turn)
        if isinstance(loop, For):
            mapping = dict(zip(loop.body.args, (counter(b, loop, turn), *args), strict=True))
        else:
            mapping = dict(zip(loop.before.args, args, strict=True))
            b.ops += clone(Block((), loop.before.ops, ()), mapping).ops
            forwarded = (mapping.get(v, v) for v in loop.before.results[1:])
            mapping |= dict(zip(loop.body.args, forwarded, strict=True))
        body = self.with_slots(loop.body, turn)
        copied = clone(Block((), body.ops, body.results), mapping)
        b.ops += copied.ops
        return copied.results

    # ---- elements

    def load_early(self, b: Builder, load: Load, later: For, first: For | While, turn: Value) -> None:
        mapping = self.computed(b, address_of(load, later, first, self.structure) or [], later, turn)
        copied = clone(Block((), (load,), (load.result,)), mapping)
        b.ops += copied.ops
        b.store(self.place(b, self.slots[id(load)], turn), copied.results[0])

    def with_slots(self, body: Block, turn: Value) -> Block:
        found: dict[Value, Value] = {}
        ops = [new for op in body.ops for new in self.access(op, turn, found)]
        return substitute(Block(body.args, tuple(ops), body.results), found)

    def access(self, op: Op, turn: Value, found: dict[Value, Value]) -> Iterator[Op]:
        if isinstance(op, Atomic) and id(op) in self.sums:
            b = Builder(op.span)
            place = b.offset(self.sums[id(op)], turn)
            b.store(place, b.apply("add", b.load(place), op.args[0]))
            yield from b.ops
            return
        slot = self.slots.get(id(op))
        if slot is None:
            yield descend(op, lambda side: self.with_slots(side, turn)) if isinstance(op, If) else op
            return
        b = Builder(op.span)
        place = self.place(b, slot, turn)
        if isinstance(op, Load):
            if op is slot.first:
                b.add(op)
                b.store(place, op.result)
            else:
                found[op.result] = b.load(place, name=op.result.name)
        else:
            assert isinstance(op, Store)
            b.store(place, op.value)
            if op is slot.last:
                b.add(op)
        yield from b.ops


def _at_once(body: Block, turns: int) -> int:
    """How many turns of a long loop are made together; 0: all."""
    operations = sum(1 for _ in walk(body))
    at_once = max(1, min(_AT_ONCE, _MOST_AT_ONCE // max(1, operations)))
    return 0 if turns <= at_once else at_once


def number_in_block(b: Builder, extents: tuple[int, int, int]) -> Value:
    """Of a thread."""
    number, each = b.convert(b.builtin("thread_idx", 0), I32), extents[0]
    for axis in (1, 2):
        if extents[axis] > 1:
            own = b.apply("mul", b.convert(b.builtin("thread_idx", axis), I32), b.constant(each, I32))
            number = b.apply("add", number, own)
        each *= extents[axis]
    return number


def _pointee(ptr: Value) -> Array:
    assert isinstance(ptr.type, Pointer)
    return ptr.type.pointee  # type: ignore[return-value]
