"""Loads of what the thread itself stored before, over the same elements: computed again. For derivatives.

    for (c = t; c < n; c += width) { e = exp(x[c] - top); y[c] = e; sum += e; }
    ...
    for (c = t; c < n; c += width) y[c] *= 1 / sum;          becomes          y[c] = exp(x[c] - top) * (1 / sum);

What is then stored and overwritten without being read goes too. The reverse needs no copy of what y held on the way,
and y is written once.

A load has the value that its thread stored at its place in the same iteration of a loop that runs alike (`alike`), if
nothing is stored to the buffer in between. In that loop each iteration has another element; another thread's store
there would be a race. A store after the load may be in its loop, if it goes along with it. Nobody meets in the two
loops; if threads meet between them, others can come in with what stands there, which is no store to the buffer.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ..analysis.alike import Alike, Pairs, Region
from ..analysis.decisions import Decisions
from ..analysis.ownership.loads_before_stores import Before, Path, meets, paths
from ..analysis.roots import UNKNOWN
from ..analysis.roots import analyse as roots_of
from ..analysis.structure import analyse
from ..ir.effects import is_clock, is_pure
from ..ir.ops import (
    Assert,
    Atomic,
    Block,
    Fence,
    For,
    Function,
    Load,
    Module,
    Op,
    Store,
    Trap,
    Undef,
    Value,
    While,
)
from ..ir.traverse import blocks, kinds, operands, rebuild, walk, with_body, with_ops
from . import invariant

_MOST_COPIED, _MOST_LOADS = 48, 4  # operations of a value that is computed again


class _Source(NamedTuple):
    """What a load gets: the operations to copy, the value, and what stands for values of the store's loops."""

    ops: tuple[Op, ...]
    value: Value
    pairs: Pairs


def run(function: Function, module: Module) -> Function:
    """The function as it is, where there is nothing to compute again."""
    hoisted = invariant.run(function, module)  # what loops go on by
    finder = _Finder(hoisted)
    sources, dead = dict[Op, _Source](), set[Op]()
    for root in finder.roots():
        found = finder.sources(root)
        sources |= found
        dead |= finder.dead(root) if found else set()
    return with_body(hoisted, _Rewriting(sources, dead).block(hoisted.body)) if sources else function


class _Finder:
    def __init__(self, function: Function):
        self.function, self.memory = function, roots_of(function)
        self.before, self.paths = Before(function, self.memory, False), dict(paths(function.body, ()))
        self.structure = analyse(function, apart=True)
        self.alike = Alike(self.structure.definition)
        self.decisions: Decisions | None = None
        self.written = self.memory.written()
        self.params = {p.value for p in function.params if p.variable is None}

    def roots(self) -> Iterator[Value]:
        """Buffers that are both written and read, by nothing but plain loads and stores. A store through a pointer that
        comes from memory may be one to any of them."""
        if UNKNOWN in self.written or not kinds(self.function.body).isdisjoint((Fence,)):
            return
        loaded = {root for op in self.memory.loads for root in self.memory.of(op.ptr)}
        for root in (p.value for p in self.function.params):
            both = root in loaded & self.written & (self.params - self.memory.escaped)
            if both and all(self._is_plain(op, root) for op in (*self.memory.loads, *self.memory.stores)):
                yield root

    def _is_plain(self, op: Op, root: Value) -> bool:
        assert isinstance(op, Load | Store | Atomic)
        touched = self.memory.of(op.ptr)
        return root not in touched or (len(touched) == 1 and isinstance(op, Load | Store) and not op.volatile)

    def sources(self, root: Value) -> dict[Op, _Source]:
        """For all loads of a buffer; nothing, if one of them has no such store."""
        found: dict[Op, _Source] = {}
        for load in (op for op in self.memory.loads if root in self.memory.of(op.ptr)):
            source = self._source(load, self._stores(root))
            if source is None:
                return {}
            found[load] = source
        self.decisions = self.decisions or Decisions(self.function)
        return {} if any(op.results[0] in self.decisions.values for op in found) else found

    def _stores(self, root: Value) -> list[Store]:
        return [op for op in self.memory.stores if isinstance(op, Store) and root in self.memory.of(op.ptr)]

    def _source(self, load: Load, stores: list[Store]) -> _Source | None:
        for store in reversed(stores):
            pairs = self._matched(store, load)
            if pairs is None or store.value.type != load.result.type:
                continue
            if all(other is store or self._is_harmless(other, store, load) for other in stores):
                ops = self._slice(store, load, pairs)
                return None if ops is None else _Source(ops, store.value, pairs)
        return None

    def _matched(self, store: Store, later: Load | Store) -> Pairs | None:
        """Where the later access goes to what the store did, in the same iterations of loops that run alike: what is
        the same in both."""
        one, other = self.paths[id(store)], self.paths[id(later)]
        common = _divergence(one, other)
        if common is None or one[common][1] >= other[common][1] or len(one) > len(other):
            return None
        if any(meets(path[common][0]) for path in (one, other)):
            return None
        pairs: Pairs | None = {}
        for k in range(common, len(one) - 1):
            if pairs is not None:
                pairs = self.alike.around(_region(one, k), _region(other, k), pairs)
        loops = [op for op, _, _ in one[common:] if isinstance(op, For | While)]
        if pairs is None or not all(self.before.goes_along(loop, store, store) for loop in loops):
            return None
        return pairs if self.alike.same(store.ptr, later.ptr, pairs) else None

    def _is_harmless(self, other: Store, store: Store, load: Load) -> bool:
        """Whether another store cannot come between the store and the load, at the place of both."""
        path, first, last = (self.paths[id(op)] for op in (other, store, load))
        split, common = _divergence(path, last), _divergence(first, last)
        if split is None or common is None:
            return False
        if split <= common:
            at = path[split][1]
            return split < common or at < first[common][1] or at > last[common][1]
        loops = [op for op, _, _ in last[common:split] if isinstance(op, For | While)]
        along = all(self.before.goes_along(loop, other, load) for loop in loops)
        return along and other.ptr is load.ptr and path[split][1] > last[split][1]

    def _slice(self, store: Store, load: Load, pairs: Pairs) -> tuple[Op, ...] | None:
        """What the stored value is computed by inside of the store's loops, in order."""
        path = self.paths[id(store)]
        common = _divergence(path, self.paths[id(load)])
        assert common is not None
        nest, found, todo = path[common][0], set[Op](), [store.value]
        while todo:
            value = todo.pop()
            op = self.structure.definition.get(value)
            if value in pairs or op in found or not self.structure.is_inside(value, nest):
                continue
            if op is None or not self._is_copied(op):
                return None
            found.add(op)
            todo += operands(op)
        loads = sum(isinstance(op, Load) for op in found)
        if len(found) > _MOST_COPIED or loads > _MOST_LOADS:
            return None
        return tuple(op for block in blocks(nest) for op in walk(block) if op in found)

    def _is_copied(self, op: Op) -> bool:
        if isinstance(op, Load):
            touched = self.memory.of(op.ptr)
            return not op.volatile and bool(touched) and touched <= self.params - self.written
        return is_pure(op) and not isinstance(op, Undef) and not is_clock(op)

    def dead(self, root: Value) -> set[Op]:
        """The stores to a buffer that nobody reads, which others overwrite whatever happens."""
        if not kinds(self.function.body).isdisjoint((Trap, Assert)):
            return set()
        stores = self._stores(root)
        return {one for one in stores if any(self._is_overwritten(one, other) for other in stores)}

    def _is_overwritten(self, store: Store, later: Store) -> bool:
        same_depth = len(self.paths[id(store)]) == len(self.paths[id(later)])
        return same_depth and store.value.type == later.value.type and self._matched(store, later) is not None


def _divergence(one: Path, other: Path) -> int | None:
    """How deep two places are in the same block, at last; None if they are in different branches of one operation."""
    for k, ((op, _, region), (partner, _, side)) in enumerate(zip(one, other, strict=False)):
        if region != side:
            return None
        if op is not partner:
            return k
    return None


def _region(path: Path, k: int) -> Region:
    op = path[k][0]
    return op, blocks(op)[path[k + 1][2]]


class _Rewriting:
    def __init__(self, sources: dict[Op, _Source], dead: set[Op]):
        self.sources, self.dead, self.replaced = sources, dead, dict[Value, Value]()

    def value(self, value: Value) -> Value:
        return self.replaced.get(value, value)

    def block(self, block: Block) -> Block:
        ops = [new for op in block.ops if op not in self.dead for new in self._op(op)]
        return with_ops(block, ops, tuple(map(self.value, block.results)))

    def _op(self, op: Op) -> Iterator[Op]:
        source = self.sources.get(op)
        if source is None:
            yield rebuild(op, self.value, self.block)
            return
        copies = dict(source.pairs)  # where the load was: what is told of places in the source knows them apart

        def copied(value: Value) -> Value:
            return self.value(copies.get(value, value))

        for own in source.ops:
            copies[own.result] = Value(own.result.type, own.result.name)
            yield rebuild(own, copied, self.block, results=(copies[own.result],), span=op.span)
        self.replaced[op.results[0]] = copied(source.value)
