"""Stores by which no two threads write the same element.

Several threads may store the same value in one cell: CUDA takes one of the writes, and the adjoint goes to one of the
threads. A store that keeps its threads apart takes its shadow plainly, any other with an atomic exchange. The proof
depends on the launch (rule 11): by arithmetic on the address, else, in shared memory, by playing the block through.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...ir.ops import Function, Store, Value
from ..access.affine import Sums
from ..roots import Memory
from ..structure import Structure
from .exclusive import Place, crowded_stores, is_shared, place_of
from .private import is_apart, places_of

if TYPE_CHECKING:
    from ..block_interpreter.coverage import Threads


def stores_apart(
    function: Function,
    memory: Memory,
    structure: Structure,
    active: frozenset[Value],
    sums: Sums,
    threads: Threads | None,
) -> frozenset[Place]:
    """By variable and place in the source. `threads`: of a block, where there is shared memory."""
    places = places_of(structure)
    names = {**{p.value: p.name for p in function.params}, **{r: n for n, r in memory.global_names.items()}}
    found, contested = set[Place](), set[Place]()
    others: list[tuple[Store, Value, Place]] = []
    for op in (op for op in memory.stores if isinstance(op, Store)):
        for root in memory.of(op.ptr) & active & names.keys():
            where = place_of(op, names[root])
            if is_apart(op, root, memory, places, sums):
                found.add(where)
            else:
                others.append((op, root, where))
    crowded = None
    if threads is not None and any(is_shared(r) for _, r, _ in others):
        crowded = crowded_stores(function, memory, active, threads)
    for op, root, where in others:
        apart = crowded is not None and is_shared(root) and op not in crowded
        (found if apart else contested).add(where)
    return frozenset(found - contested)
