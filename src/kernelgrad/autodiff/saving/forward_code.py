"""Forward code, emitted once as it is, and again as pure slices where the reverse sweep reruns it."""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import replace
from typing import TYPE_CHECKING

from ...ir.builder import Builder
from ...ir.effects import PURE
from ...ir.functions import REPLACED
from ...ir.ops import Alloca, Apply, Atomic, Barrier, Block, For, If, Load, Op, Value, Warp, While
from ...ir.traverse import blocks, rebuild, walk
from ...ir.types import I64
from .plan import Plan, conditions_of

if TYPE_CHECKING:
    from ...analysis.tiles import Tile

_RERUN = (*PURE, Alloca, Load, Warp)


class Copier:
    """Emits forward operations. `effects`: the first and only real run, which keeps the original values; otherwise a
    rerun without stores and the like (rule 4), which defines fresh ones. `push` saves a block's frame on the tape."""

    def __init__(
        self,
        b: Builder,
        plan: Plan,
        lookup: Callable[[Value], Value | None],
        push: Callable[[Value], None],
        effects: bool,
    ):
        self.b, self.plan, self.lookup, self.push_value, self.effects = b, plan, lookup, push, effects
        self.map: dict[Value, Value] = {}
        self.slice: set[Value] | None = None  # the values that a rerun is for; None for all
        self.stores: frozenset[int] = frozenset()  # the stores that a rerun does: those that fill a tile

    def value(self, v: Value) -> Value:
        if v in self.map:
            return self.map[v]
        found = v if self.effects else self.lookup(v)
        # What a rerun does not need was not kept: nothing that matters depends on it.
        return self.b.undef(v.type, v.name) if found is None else found

    def define(self, v: Value) -> Value:
        self.map[v] = new = v if self.effects else Value(v.type, v.name)
        return new

    # ---- operations

    def ops(self, block: Block, taping: bool) -> None:
        for op in block.ops:
            self.op(op, taping)

    def op(self, op: Op, taping: bool) -> None:
        if not self.is_wanted(op, taping):
            return
        match op:
            case If():
                self.if_(op, taping)
            case For() | While():
                self.loop(op, taping and id(op) not in self.plan.rerun)
            case _:
                self.plain(op)

    def is_wanted(self, op: Op, taping: bool) -> bool:
        if self.slice is None or any(r in self.slice for r in op.results):
            return True
        if self.stores and any(id(nested) in self.stores for nested in (op, *_nested(op))):
            return True
        return taping and id(op) not in self.plan.rerun and any(map(self.has_frame, blocks(op)))

    def has_frame(self, block: Block) -> bool:
        """Whether something in the block goes on the tape."""
        return bool(self.plan.frame(block)) or any(self.is_wanted(op, True) for op in block.ops if blocks(op))

    def rerun(self, loop: For | While) -> Value | None:
        """The loop once more, for what its reverse needs of it: on the tape."""
        nested = (loop, *_nested(loop))
        frames = [self.plan.frame(b) for op in nested for b in blocks(op)]
        counts = {self.plan.counts[id(op)]: op for op in nested if id(op) in self.plan.counts}
        wanted = list(self.plan.wanted_of(loop))
        for value in (v for frame in frames for v in frame):
            # A count is known when its loop has run.
            wanted.append(counts[value].results[0] if value in counts else value)
        self.slice = self.plan.slice_of(wanted, loop)
        return self.loop(loop, taping=True)

    def count_again(self, loop: While) -> Value:
        """How often the loop runs: what decides about that once more."""
        self.slice = self.plan.slice_of(conditions_of(loop), loop)
        count = self.while_(loop, tuple(map(self.value, loop.inits)), taping=False, counting=True)
        assert count is not None
        return count

    def plain(self, op: Op) -> None:
        op = self.plan.held.get(id(op), op)
        if self.effects:
            if id(op) not in self.plan.silent:
                self.real(op)
        elif isinstance(op, Apply) and op.fn in REPLACED and op.args[-1] not in self.map:
            from .in_reverse import replacement

            self.map[op.result] = self.value(replacement(op, self.plan.structure))
        elif isinstance(op, _RERUN) or id(op) in self.stores:
            new = rebuild(op, self.value, lambda b: b)
            self.b.add(replace(new, results=tuple(map(self.define, op.results))))
        else:
            for result in op.results:
                self.map[result] = self.b.undef(result.type, result.name)

    def real(self, op: Op) -> None:
        """The operation itself; of an atomic that the source spells in its own way, the code that spells it."""
        if not isinstance(op, Atomic):
            self.b.add(op)
            return
        from ...transforms.spellings import emit

        emit(self.b, op)

    def block(self, block: Block, taping: bool) -> None:
        """The operations of a nested block and, where it has one, its frame."""
        self.ops(block, taping)
        if taping:
            self.push(block)

    def push(self, block: Block) -> None:
        for v in self.plan.frame(block):
            self.push_value(self.value(v))

    # ---- control

    def if_(self, op: If, taping: bool) -> None:
        cond = self.value(op.cond)
        exports = [(side, v, out) for side in (op.then, op.orelse) for v, out in self.exports(side)]
        sides = []
        for side in (op.then, op.orelse):
            with self.b.region() as region:
                self.block(side, taping)
                results = [self.value(v) for v in side.results]
                for owner, v, _ in exports:
                    results.append(self.value(v) if owner is side else self.b.undef(v.type))
            sides.append(region.block((), tuple(results)))
        results_out = (*map(self.define, op.results), *(out for _, _, out in exports))
        self.b.add(If(cond, sides[0], sides[1], op.exits, results=results_out, span=op.span))

    def exports(self, side: Block) -> list[tuple[Value, Value]]:
        return list(self.plan.exported.get(id(side), {}).items()) if self.effects else []

    def loop(self, op: For | While, taping: bool) -> Value | None:
        """The loop, pushing a frame in each iteration if `taping`. Returns a while loop's count in a rerun."""
        inits = tuple(map(self.value, op.inits))
        if isinstance(op, For):
            lower, upper = self.value(op.lower), self.value(op.upper)
            with self.b.region() as region:
                args = tuple(map(self.define, op.body.args))
                self.block(op.body, taping)
                results = tuple(map(self.value, op.body.results))
            body = region.block(args, results)
            new = replace(op, lower=lower, upper=upper, inits=inits, body=body)
            self.b.add(replace(new, results=tuple(map(self.define, op.results))))
            return None
        counting = self.plan.has_adjoint(op) and taping and id(op) not in self.plan.counted_again
        return self.while_(op, inits, taping, counting)

    def while_(self, op: While, inits: tuple[Value, ...], taping: bool, counting: bool) -> Value | None:
        counter = Value(I64, "~trips")
        with self.b.region() as region:
            args = tuple(map(self.define, op.body.args))
            self.block(op.body, taping)
            results = tuple(map(self.value, op.body.results))
            following = self.b.apply("add", counter, self.b.constant(1, I64)) if counting else counter
        passed = tuple(Value(v.type, v.name) for v in args)
        ends = tuple(map(self.define, op.results))
        if not counting:
            before, body = Block(passed, (), (passed[0], *passed)), region.block(args, results)
            self.b.add(replace(op, inits=inits, before=before, body=body, results=ends))
            return None
        count = self.plan.counts.get(id(op), Value(I64, "~trips")) if self.effects else Value(I64, "~trips")
        passed_count = Value(I64, "~trips")
        before = Block((*passed, passed_count), (), (passed[0], *passed, passed_count))
        body = region.block((*args, counter), (*results, following))
        zero = self.b.constant(0, I64)
        self.b.add(replace(op, inits=(*inits, zero), before=before, body=body, results=(*ends, count)))
        self.map[count] = count
        return count


def _nested(op: Op) -> list[Op]:
    return [inner for block in blocks(op) for inner in walk(block)]


class Rematerialized:
    """Entering the reverse of a block: runs again what its reverse needs of its forward, in the forward's order."""

    def __init__(self, b: Builder, block: Block, plan: Plan, lookup: Callable[[Value], Value | None]):
        self.b, self.block, self.plan, self.lookup = b, block, plan, lookup
        self.needed = plan.needed.get(id(block), {})
        self.found: dict[Value, Value] = {}

    def find(self, v: Value) -> Value | None:
        return self.found[v] if v in self.found else self.lookup(v)

    def run(self) -> dict[Value, Value]:
        tiles = self.plan.refilled.get(id(self.block), [])
        for op in self.block.ops:
            ready = [tile for tile in tiles if tile.ready is op]
            if ready:
                self.refill(ready)
            self.again(op)
        return self.found

    def again(self, op: Op) -> None:
        missing = [r for r in op.results if r in self.needed and self.find(r) is None]
        if not missing:
            return
        copier = self.copier(missing, op)
        copier.op(op, taping=False)
        for result in op.results:
            # A result that was kept cannot be recomputed: what the rerun gives for it means nothing.
            if self.find(result) is None and result in copier.map:
                self.found[result] = copier.map[result]

    def refill(self, tiles: list[Tile]) -> None:
        """Between barriers, where it is not the thread's own: others may still read what is there, and wait for what
        comes."""
        shared = any(tile.barrier is not None for tile in tiles)
        if shared:
            self.b.effect(Barrier, "block")
        for tile in (tile for tile in tiles if not tile.looks_back):
            for op in tile.fill:
                copier = self.copier(tile.stored(op), op, tile.inner)
                copier.stores = tile.stores
                copier.op(op, taping=False)
        self.look_back([tile for tile in tiles if tile.looks_back])
        if shared:
            self.b.effect(Barrier, "block")

    def look_back(self, tiles: list[Tile]) -> None:
        """Those that the same operations fill at once."""
        together: dict[tuple[int, ...], list[Tile]] = {}
        for tile in tiles:
            together.setdefault(tuple(map(id, tile.fill)), []).append(tile)
        for group in together.values():
            from .earlier_fills import fill_again

            fill_again(self.b, self.plan, self.find, group)

    def copier(self, wanted: list[Value], op: Op, inner: Set[int] = frozenset()) -> Copier:
        copier = Copier(self.b, self.plan, self.find, lambda v: None, effects=False)
        copier.slice = self.plan.slice_of(wanted, op, inner) if blocks(op) else set(wanted)
        return copier
