"""Tiles that a loop fills behind guards, filled again as they were in one of its iterations.

    for (j = 0; j < n; j += 128) { if (j + t < n) K[t] = k[j + t];  __syncthreads();  ... reads of K ... }

A cell whose guard fails holds what the last iteration left there in which it held. So the reverse of an iteration goes
back from there, thread by thread, to that one, and stores what it stored:

    at = iteration; while (at >= 0 && !(j(at) + t < n)) --at;  if (at >= 0) K[t] = k[j(at) + t]; else K[t] = 0;

Nothing need be known of what is read (rule 8). What must hold: a cell is stored by one thread, in one place, in all
iterations (the launch decides, see `coverage.is_stored_apart`), at an address that the loop does not change; guards and
values come from its counters, and from memory that nothing writes; nothing else writes the tile, and no loop around
this one runs it again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from ...analysis import induction
from ...analysis.induction import Induction
from ...analysis.loop_ends import GoingOn
from ...analysis.structure import Place, is_rotated
from ...analysis.tiles import Earlier, Tile
from ...ir.builder import Builder
from ...ir.effects import OF_OPERANDS, is_clock
from ...ir.ops import Block, Builtin, For, If, Load, Op, Store, Value, Warp, While
from ...ir.traverse import blocks, operands, rebuild, walk
from ...ir.types import BOOL, I64, Pointer
from .forward_code import Copier
from .in_reverse import is_replaced
from .plan import Plan

if TYPE_CHECKING:
    from ...analysis.cycles import Cycle
    from .recompute import Again

Lookup = Callable[[Value], Value | None]
_LEFT = "the last iteration in which the cell was filled"
Guards = tuple[tuple[Value, bool], ...]  # conditions, and which way they must go

# ---- whether it can be done -----------------------------------------------------------------------------------------


def find_earlier(again: Again, tile: Tile) -> Earlier | None:
    """How to fill a tile as it was, if its fill is of the kind."""
    if tile.barrier is None or tile.inner or not any(map(blocks, tile.fill)):
        return None
    ways = _loop_around(tile.place)
    if ways is None:
        return None
    loop, branches = ways
    finding = _Finding(again, tile, loop)
    guards = tuple((cond, holds) for cond, holds in branches if not finding.is_sure(cond, holds))
    if not all(finding.is_known(cond) for cond, _ in guards) or not all(map(finding.is_fill, tile.fill)):
        return None
    number = again.numbers.setdefault(id(loop), Value(I64, "~iteration"))
    filling = (id(op) for op in tile.fill if isinstance(op, If))
    last = {branch: again.last_filled.setdefault(branch, Value(_LAST, "~last")) for branch in filling}
    again.structure.home.update(dict.fromkeys((number, *last.values()), again.structure.place(loop.body)))
    return Earlier(loop, number, guards, finding.inductions, tuple(finding.outside), last)


_LAST = Pointer(I64, "local")


def _loop_around(place: Place) -> tuple[For | While, list[tuple[Value, bool]]] | None:
    """The loop around a block, and the branches that lead to it from there; None if there is none, or another one
    around that."""
    branches = []
    at: Place | None = place
    while at is not None and isinstance(at.owner, If):
        branches.append((at.owner.cond, at.block is at.owner.then))
        at = at.parent
    if at is None or not isinstance(at.owner, For | While) or at.block is not at.owner.body or at.parent is None:
        return None
    around = any(isinstance(outer.owner, For | While) for outer in at.parent.around())
    return None if around else (at.owner, branches)


class _Finding:
    """`inductions`: of what the loop carries. `outside`: what is used from around it."""

    def __init__(self, again: Again, tile: Tile, loop: For | While):
        self.again, self.structure, self.tile, self.loop = again, again.structure, tile, loop
        self.going_on: GoingOn | None = None
        if isinstance(loop, While) and is_rotated(loop):
            self.going_on = GoingOn(loop, self.structure.definition)
        self.inductions: dict[Value, Induction | Cycle] = {}
        self.outside: dict[Value, None] = dict.fromkeys([loop.lower] if isinstance(loop, For) else [])
        self._known: dict[Value, bool] = {}
        self._constants = set[Value]()  # what loops that fill carry

    def is_sure(self, cond: Value, holds: bool) -> bool:
        """Whether all iterations that another one follows took a branch."""
        return self.going_on is not None and self.going_on.truth(cond) is holds

    def is_fill(self, op: Op, guarded: bool = False) -> bool:
        """Whether an operation stores to the tile as described above."""
        if isinstance(op, Store):
            return self.is_constant(op.ptr) and (not guarded or all(map(self.is_known, operands(op))))
        if not self._stores(op):
            return not guarded or (not blocks(op) and self._is_pure(op))
        match op:
            case If(cond, then, orelse):
                side = orelse if self._stores_in(orelse) else then
                other = then if side is orelse else orelse
                used = bool(op.results) and op not in self.tile.fill
                if guarded or used or self._stores_in(other) or not self.is_known(cond):
                    return False
                return all(self.is_fill(inner, True) for inner in side.ops)
            case For() | While():
                return self._goes_the_same_way(op) and all(self.is_fill(inner, guarded) for inner in op.body.ops)
        return False

    def _goes_the_same_way(self, op: For | While) -> bool:
        """Whether a loop that fills is the same in all iterations of the one around."""
        if isinstance(op, While) and not is_rotated(op):
            return False
        self._constants.update(op.body.args)
        ends = (op.lower, op.upper) if isinstance(op, For) else ()
        carried = (*ends, *op.inits, *op.body.results)
        return all(map(self.is_constant, carried))

    def _stores(self, op: Op) -> bool:
        return any(id(inner) in self.tile.stores for inner in (op, *_nested(op)))

    def _stores_in(self, block: Block) -> bool:
        return any(map(self._stores, block.ops))

    def _is_pure(self, op: Op) -> bool:
        return all(map(self.is_known, op.results))

    def is_known(self, value: Value) -> bool:
        """Whether a value of the loop can be computed for any of its iterations."""
        if value not in self._known:
            self._known[value] = True  # until found otherwise: nothing is computed from itself but by loops
            self._known[value] = self._is_known(value)
        return self._known[value]

    def _is_known(self, value: Value) -> bool:
        if not self.structure.is_inside(value, self.loop):
            self.outside[value] = None
            return True
        op = self.structure.definition.get(value)
        if op is None:
            return self._is_counter(value)
        if isinstance(op, Load):
            return self._is_read_again(op) and self.is_known(op.ptr)
        if blocks(op):
            return self._is_run_again(op, value)
        return self._is_plain(op) and all(map(self.is_known, operands(op)))

    def _is_read_again(self, op: Load) -> bool:
        return not self.again.is_source(op, self.tile.place) and self.again.is_untiled(op)

    def _is_run_again(self, op: Op, value: Value) -> bool:
        """Of an operation with blocks, what a result takes. Lanes that go back to different iterations meet nobody."""
        found = self.again.trace([value], op)
        made = [self.structure.definition.get(v) for v in found.seen if v not in found.outside]
        alone = not found.bad and not any(isinstance(op, Warp) for op in made)
        return alone and all(map(self.is_known, found.outside)) and all(map(self.again.is_untiled, _loads(made)))

    def _is_plain(self, op: Op) -> bool:
        return isinstance(op, (*OF_OPERANDS, Builtin)) and not (is_replaced(op) or is_clock(op))

    def _is_counter(self, arg: Value) -> bool:
        owner = self.structure.home[arg].owner
        if owner is not self.loop:
            return arg in self._constants
        if isinstance(owner, For) and arg is owner.body.args[0]:
            return True
        found = induction.find(self.loop, arg, self.structure)
        if found is None:
            return False
        self.inductions[arg] = found
        return all(not self.structure.is_inside(v, self.loop) and self.is_known(v) for v in found.needs)

    def is_constant(self, value: Value) -> bool:
        """Whether a value is loop-invariant, for the same thread and the same iterations of loops that fill."""
        if not self.structure.is_inside(value, self.loop):
            return True
        op = self.structure.definition.get(value)
        if op is None:
            return value in self._constants
        return self._is_plain(op) and all(map(self.is_constant, operands(op)))


def _loads(ops: Iterable[Op | None]) -> Iterator[Load]:
    return (op for op in ops if isinstance(op, Load))


def _nested(op: Op) -> Iterator[Op]:
    for block in blocks(op):
        yield from walk(block)


# ---- the code -------------------------------------------------------------------------------------------------------


def fill_again(b: Builder, plan: Plan, find: Lookup, tiles: list[Tile]) -> None:
    """Tiles that the same operations fill."""
    filling = _Filling(b, plan, find, tiles)
    for op in tiles[0].fill:
        filling.slice = filling.slice_for(op, [value for tile in tiles for value in tile.stored(op)])
        filling.op(op, taping=False)


class _Filling(Copier):
    """Fills tiles as they were in the iteration that is reversed, or left by earlier ones."""

    def __init__(self, b: Builder, plan: Plan, find: Lookup, tiles: list[Tile]):
        super().__init__(b, plan, find, lambda v: None, effects=False)
        assert tiles[0].earlier is not None
        self.tiles, self.earlier = tiles, tiles[0].earlier
        self.stores = frozenset[int]().union(*(tile.stores for tile in tiles))

    def slice_for(self, op: Op, wanted: list[Value]) -> set[Value]:
        return self.plan.slice_of(wanted, op) if blocks(op) else set(wanted)

    def if_(self, op: If, taping: bool) -> None:
        side = next((s for s in blocks(op) if any(id(inner) in self.stores for inner in walk(s))), None)
        if side is None:
            super().if_(op, taping)
            return
        self.b.span = op.span.reversed()
        first, last = self.value(self.earlier.number), None
        if id(op) in self.earlier.last:  # as far as a later iteration has gone back
            last = self.value(self.earlier.last[id(op)])
            first = self.b.apply("min", first, self.b.load(last))
        at = self.last_entered((*self.earlier.guards, (op.cond, side is op.then)), first)
        if last is not None:
            self.b.store(last, at)
        with self.b.region() as entered:
            self.fill(op, side, at)
        with self.b.region() as never:
            self.clear(op, side)
        self.b.span = op.span.reversed().because(_LEFT)
        self.b.if_(self.is_iteration(at), entered.block(), never.block())

    def last_entered(self, guards: Guards, first: Value) -> Value:
        """The last iteration in which the guards held, from a first one to go back from; negative if they never did."""
        with self.b.region() as test:
            tested = Value(I64, "~at")
            with self.b.region() as there:
                missing = self.is_missing(guards, _Iteration(self, tested))
            with self.b.region() as nowhere:
                no = self.b.constant(False, BOOL)
            (back,) = self.b.if_(self.is_iteration(tested), there.block((), (missing,)), nowhere.block((), (no,)))
        with self.b.region() as step:
            at = Value(I64, "~at")
            before = self.b.apply("sub", at, self.b.constant(1, I64))
        (found,) = self.b.while_((first,), test.block((tested,), (back, tested)), step.block((at,), (before,)))
        return found

    def is_missing(self, guards: Guards, iteration: _Iteration) -> Value:
        """Whether one of the guards fails: each is computed where those before it hold."""
        if not guards:
            return self.b.constant(False, BOOL)
        (cond, holds), *others = guards
        entered = iteration.value(cond)
        with self.b.region() as there:
            missing = self.is_missing(tuple(others), iteration.inside())
        with self.b.region() as elsewhere:
            yes = self.b.constant(True, BOOL)
        sides = there.block((), (missing,)), elsewhere.block((), (yes,))
        return self.b.if_(entered, *(sides if holds else sides[::-1]))[0]

    def is_iteration(self, at: Value) -> Value:
        return self.b.apply("ge", at, self.b.constant(0, I64))

    def fill(self, op: If, side: Block, at: Value) -> None:
        """What that iteration stored."""
        iteration = _Iteration(self, at)
        iteration.copy(side, self.slice_for(op, [value for tile in self.tiles for value in tile.stored(op)]))

    def clear(self, op: If, side: Block) -> None:
        """Nobody has stored there yet: what was never stored is zero."""
        zeros = _Zeros(self, self.value(self.earlier.number))
        inside = [inner for inner in _nested(op) if isinstance(inner, Store | For)]
        places = [v for inner in inside for v in ((inner.ptr,) if isinstance(inner, Store) else operands(inner))]
        zeros.copy(side, self.slice_for(op, places))


class _Iteration(Copier):
    """Code of an iteration of the loop, by its number."""

    def __init__(self, filling: _Filling, at: Value):
        super().__init__(filling.b, filling.plan, filling.lookup, lambda v: None, effects=False)
        self.filling, self.at, self.earlier = filling, at, filling.earlier
        self.structure = filling.plan.structure

    def inside(self) -> _Iteration:
        """For a block inside of the one that this one is for."""
        inner = _Iteration(self.filling, self.at)
        inner.map = dict(self.map)
        return inner

    def copy(self, side: Block, wanted: set[Value]) -> None:
        self.slice, self.stores = wanted, self.filling.stores
        self.get_used(side.ops)
        self.ops(side, taping=False)

    def get_used(self, ops: Iterable[Op]) -> None:
        """What these use, before all else: what loops and branches in them use is not computed there."""
        inside = [inner for op in ops for inner in (op, *_nested(op))]
        own = {v for op in inside for v in (*op.results, *(arg for block in blocks(op) for arg in block.args))}
        used = (v for op in inside if self.is_wanted(op, taping=False) for v in self.used(op))
        for value in used:
            if value not in own:
                self.value(value)

    def used(self, op: Op) -> Iterable[Value]:
        passed = (v for block in blocks(op) for v in block.results if self.slice is None or v in self.slice)
        return (*operands(op), *passed)

    def value(self, v: Value) -> Value:
        if v not in self.map:
            self.map[v] = self.computed(v)
        return self.map[v]

    def computed(self, v: Value) -> Value:
        if not self.structure.is_inside(v, self.earlier.loop):
            return super().value(v)
        op = self.structure.definition.get(v)
        if op is not None and blocks(op):
            return self.nested(op, v)
        if op is not None:
            return self.b.add(rebuild(op, self.value, lambda b: b, results=(Value(v.type, v.name),))).result
        if self.structure.home[v].owner is not self.earlier.loop:
            return self.filling.value(v)  # a counter of a loop that fills
        return self.carried(v)

    def nested(self, op: Op, result: Value) -> Value:
        """Of an operation with blocks, what one result takes."""
        copying = self.inside()
        copying.slice = self.plan.slice_of([result], op)
        copying.get_used((op,))
        copying.op(op, taping=False)
        return copying.map[result]

    def carried(self, arg: Value) -> Value:
        """What the loop carries into the iteration."""
        loop, b = self.earlier.loop, self.b
        rule = self.earlier.inductions.get(arg)
        if rule is not None:
            return rule.at(b, {need: self.value(need) for need in rule.needs}, self.at, arg.name)
        assert isinstance(loop, For)
        moved = b.apply("mul", self.at, b.constant(loop.step, I64))
        return b.convert(b.apply("add", b.convert(self.value(loop.lower), I64), moved), arg.type, arg.name)


class _Zeros(_Iteration):
    """Zeros at the same addresses."""

    def used(self, op: Op) -> Iterable[Value]:
        return (op.ptr,) if isinstance(op, Store) else super().used(op)

    def plain(self, op: Op) -> None:
        if isinstance(op, Store) and id(op) in self.stores:
            self.b.store(self.value(op.ptr), self.b.undef(op.value.type))
        else:
            super().plain(op)
