"""Buffers that each element is read of before it is stored, if at all: `v[i] += ...`, `p[i] = 2 * q[i] - p[i]`.

Where each element is stored once, who stores it finds the adjoint as the launch was given it: no adjoint of what was
read has been added to it by then, since in reverse that comes later. Threads that read what others store do so before a
barrier, or on their own risk.
"""

from __future__ import annotations

from ...ir.ops import For, Function, Load, Store, Value, While
from ...ir.traverse import walk
from ..access.affine import Sums
from ..roots import Memory
from ..structure import Place
from .single_stores import is_stored_once


def is_read_first(root: Value, function: Function, memory: Memory, places: dict[int, Place], sums: Sums) -> bool:
    """In program order; in a loop, by the same execution."""
    loads = [op for op in memory.loads if root in memory.of(op.ptr)]
    written = [op for op in memory.stores if root in memory.of(op.ptr)]  # type: ignore[attr-defined]
    stores = [op for op in written if isinstance(op, Store) and not op.volatile and memory.of(op.ptr) == {root}]
    if len(stores) < len(written) or not is_stored_once(root, memory, places, sums):
        return False
    number = {id(op): k for k, op in enumerate(walk(function.body))}

    def first(load: Load) -> bool:
        same = [op for op in stores if _is_same(load, op, root, sums) and number[id(load)] < number[id(op)]]
        if any(places[id(load)] is places[id(op)] for op in same):
            return memory.of(load.ptr) == {root}
        looping = any(map(_is_in_loop, (places[id(op)] for op in (load, *stores))))
        before = all(number[id(load)] < number[id(op)] for op in stores)
        return bool(same) and memory.of(load.ptr) == {root} and before and not looping

    return bool(loads) and all(map(first, loads))


def is_read_by_its_writer(root: Value, memory: Memory, places: dict[int, Place], sums: Sums) -> bool:
    """Whether nobody reads an element but who stores it in the same iteration, where each is stored once: a read that
    more threads get to than a store may be of what others store."""
    stores = [op for op in memory.stores if isinstance(op, Store) and root in memory.of(op.ptr)]
    loads = (op for op in memory.loads if root in memory.of(op.ptr))
    return all(any(places[id(op)] is places[id(s)] and _is_same(op, s, root, sums) for s in stores) for op in loads)


def _is_same(load: Load, store: Store, root: Value, sums: Sums) -> bool:
    """Whether both are at one address."""
    found, other = sums.address(load.ptr, root), sums.address(store.ptr, root)
    same_size = load.result.type.size == store.value.type.size
    return (
        found is not None
        and other is not None
        and same_size
        and found.const == other.const
        and (found.coefficients == other.coefficients)
    )


def _is_in_loop(place: Place) -> bool:
    return any(isinstance(around.owner, For | While) for around in place.around())
