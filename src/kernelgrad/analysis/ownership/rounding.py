"""Buffers that could hold narrower numbers than the code computes with, and no result would be rounded more often: of
which each element is stored once in a launch, by nobody loaded after that. Zeros are exact, and stored at will."""

from __future__ import annotations

from dataclasses import replace

from ...ir.effects import CHANGES
from ...ir.ops import Atomic, Constant, For, Load, Store, Value, While
from ...ir.traverse import holds, walk
from ..access.affine import Sums
from ..roots import Memory
from ..structure import Place
from .private import places_of
from .single_stores import is_stored_once

_MEETINGS = tuple(kind for kind in CHANGES if kind not in (Store, Atomic))


def is_rounded_once(root: Value, memory: Memory, sums: Sums) -> bool:
    """Whether what a buffer gets is rounded once in a launch, if it is rounded when it is stored."""
    stores = [op for op in memory.stores if root in memory.of(op.ptr)]  # type: ignore[attr-defined]
    rounding = [op for op in stores if not _is_zero(op, sums)]
    if not rounding:
        return True
    places = places_of(sums.structure)
    if not is_stored_once(root, replace(memory, stores=rounding), places, sums):
        return False
    loads = [op for op in memory.loads if root in memory.of(op.ptr)]
    order = {id(op): number for number, op in enumerate(walk(sums.structure.top.block))}
    pairs = [(load, store) for load in loads for store in rounding]
    return all(isinstance(store, Store) and _is_before(load, store, order, places) for load, store in pairs)


def _is_zero(op: object, sums: Sums) -> bool:
    if not isinstance(op, Store):
        return False
    value = sums.structure.definition.get(op.value)
    return isinstance(value, Constant) and value.value == 0


def _is_before(load: Load, store: Store, order: dict[int, int], places: dict[int, Place]) -> bool:
    """Whether no element is loaded after it was stored: in turns of one loop, since who loads it is who stores it."""
    if order[id(load)] > order[id(store)]:
        return False
    both = _loops(places[id(load)]) & _loops(places[id(store)])
    owners = (place.owner for place in places[id(load)].around() if id(place.owner) in both)
    return not both or (load.ptr is store.ptr and not any(holds(op, *_MEETINGS) for op in owners if op is not None))


def _loops(place: Place) -> frozenset[int]:
    return frozenset(id(p.owner) for p in place.around() if isinstance(p.owner, For | While))
