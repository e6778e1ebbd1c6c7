"""Which of a kernel's operations the sweeps of its gradient run, by the plan: in the forward sweep, and as often as the
reverse computes them again. What nobody needs is not there in the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Set

from ...analysis.roots import is_shared
from ...analysis.structure import Place
from ...analysis.tiles import Tile
from ...ir.ops import Atomic, Barrier, Block, Fence, For, If, Load, Op, Store, Value, While
from ...ir.traverse import blocks, operands, walk
from ..prepare.prepared import Prepared
from ..saving.plan import Needs


class Executed:
    """`forward`: the operations that the forward sweep runs, by their ids. `again`: how often the reverse runs one."""

    def __init__(self, prepared: Prepared):
        self.plan, self.structure = prepared.plan, prepared.structure
        self.function, self.mode = prepared.function, prepared.options.mode
        self.needs = Needs(prepared.plan, prepared.memory, prepared.activity, prepared.shadowed.of, prepared.winners)
        self.again: Counter[int] = Counter()
        self._wanted: dict[Value, None] = {}  # by the reverse, of the forward sweep
        for op in walk(self.function.body):
            self._reversed(op)
        for tiles in self.plan.refilled.values():
            for tile in tiles:
                self._refill(tile)
        for key, values in self.plan.needed.items():
            self._recomputed(self.structure.places[key], values)
        self.forward = frozenset(self._forward(prepared))

    # ---- again

    def _reversed(self, op: Op) -> None:
        self._want(self.needs.of(op))
        if id(op) in self.plan.rerun and self.plan.has_adjoint(op):
            assert isinstance(op, For | While)
            frames = [v for inner in _inside(op) for v in self.plan.frame(inner)]
            self._slice([*self.plan.wanted_of(op), *frames], op)

    def _recomputed(self, place: Place, values: Iterable[Value]) -> None:
        kept = {**self.plan.frame(place.block), **self.plan.exported.get(id(place.block), {})}
        self._want(v for v in values if v in kept)
        found: dict[int, tuple[Op, list[Value]]] = {}
        for value in values:
            op = self.structure.definition.get(value)
            if op is not None and value not in kept and self.structure.home[value] is place:
                found.setdefault(id(op), (op, []))[1].append(value)
        for op, wanted in found.values():
            if blocks(op):
                self._slice(wanted, op)
            else:
                self._run_again(op)

    def _refill(self, tile: Tile) -> None:
        for op in tile.fill:
            if blocks(op):
                self._slice(tile.stored(op), op, tile.inner)
            for nested in (op, *_nested(op)):
                if id(nested) in tile.stores:
                    self._run_again(nested)

    def _slice(self, wanted: Iterable[Value], op: Op, inner: Set[int] = frozenset()) -> None:
        values = self.plan.slice_of(list(wanted), op, inner)
        for nested in (op, *_nested(op)):
            if any(r in values for r in nested.results):
                self._run_again(nested)

    def _run_again(self, op: Op) -> None:
        self.again[id(op)] += 1
        self._want(operands(op))

    def _want(self, values: Iterable[Value]) -> None:
        for value in values:
            home = self.structure.home.get(value)
            if home is not None and (home.in_scope or self._is_kept(value, home)):
                self._wanted[value] = None

    def _is_kept(self, value: Value, home: Place) -> bool:
        return value in self.plan.frame(home.block) or value in self.plan.exported.get(id(home.block), {})

    # ---- forward

    def _forward(self, prepared: Prepared) -> Iterator[int]:
        if self.mode == "reverse":
            return
        if not prepared.options.silent:
            yield from (id(op) for op in walk(self.function.body))
            return
        yield from _Live(prepared, self._wanted, self._reread(prepared)).ops

    def _reread(self, prepared: Prepared) -> frozenset[Value]:
        """Memory that the reverse reads as the forward sweep left it: not tiles that it fills itself."""
        refilled = {key for tiles in self.plan.refilled.values() for tile in tiles for key in tile.loads}
        loads = (op for op in prepared.memory.loads if self.again[id(op)] and id(op) not in refilled)
        return frozenset[Value]().union(*(prepared.memory.of(op.ptr) for op in loads))


class _Live:
    """What a forward sweep without stores to the user's memory leaves to do. `wanted`: values that the reverse uses.
    `read`: memory that it reads."""

    def __init__(self, prepared: Prepared, wanted: Iterable[Value], read: Iterable[Value]):
        self.structure, self.memory = prepared.structure, prepared.memory
        self.ops: set[int] = set()
        self._values: set[Value] = set()
        self._work: list[Value] = []
        self._read: set[Value] = set()
        self._stores: dict[Value, list[tuple[Op, Place]]] = {}
        plan = prepared.plan
        self._exported = {outside: value for kept in plan.exported.values() for value, outside in kept.items()}
        loops = (op for op in walk(prepared.function.body) if id(op) in plan.counts)
        self._counting = {plan.counts[id(op)]: op for op in loops}
        others = []
        for place in self.structure.places.values():
            for op in place.block.ops:
                if isinstance(op, Store | Atomic) and id(op) not in prepared.plan.silent:
                    for root in self.memory.of(op.ptr):
                        self._stores.setdefault(root, []).append((op, place))
                elif isinstance(op, Barrier | Fence):
                    others.append((op, place))
        self._need(wanted)
        self._load(read)
        while self._work:
            self._follow(self._work.pop())
        if any(is_shared(root) for root in self._read):
            for op, place in others:
                self._run(op, place)

    def _load(self, roots: Iterable[Value]) -> None:
        """Who writes what is read."""
        for root in roots:
            if root not in self._read:
                self._read.add(root)
                for op, place in self._stores.get(root, ()):
                    self._run(op, place)

    def _need(self, values: Iterable[Value]) -> None:
        for value in values:
            if value not in self._values:
                self._values.add(value)
                self._work.append(value)

    def _run(self, op: Op, place: Place | None) -> None:
        if id(op) not in self.ops:
            self.ops.add(id(op))
            self._need(_decides(op) if blocks(op) else operands(op))
            if isinstance(op, Load):
                self._load(self.memory.of(op.ptr))
        while place is not None and place.owner is not None and id(place.owner) not in self.ops:
            self.ops.add(id(place.owner))
            self._need(_decides(place.owner))
            place = place.parent

    def _follow(self, value: Value) -> None:
        op, home = self.structure.definition.get(value), self.structure.home.get(value)
        if value in self._exported:  # what an If is to have for a result, of a value inside of it
            self._need((self._exported[value],))
        elif value in self._counting:
            self._run(self._counting[value], home)
        elif op is not None:
            self._run(op, home)
            self._follow_into(op, op.results.index(value) if value in op.results else 0)
        elif home is not None and home.owner is not None:
            self._need(self.structure.argument_sources(value))
            self._run(home.owner, home.parent)

    def _follow_into(self, op: Op, k: int) -> None:
        """Where result number `k` of an operation with blocks comes from."""
        if isinstance(op, If):
            self._need(side.results[k] for side in blocks(op))
        elif isinstance(op, For | While):
            self._need((op.inits[k], op.body.results[k]))


def _decides(op: Op) -> tuple[Value, ...]:
    match op:
        case If(cond):
            return (cond,)
        case For(lower, upper):
            return lower, upper
        case While():
            return op.inits[0], op.body.results[0]
    return ()


def _nested(op: Op) -> list[Op]:
    return [inner for block in blocks(op) for inner in walk(block)]


def _inside(op: Op) -> Iterator[Block]:
    for nested in (op, *_nested(op)):
        yield from blocks(nested)
