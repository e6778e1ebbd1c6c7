"""Which additions a launch defers (see `autodiff/accumulate/deferred`): of reads that a thread makes once, if with them
an element may be several threads' and without them it is one's."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace

from ...analysis.access.affine import Affine, Basis, Part, Sums
from ...analysis.access.executions import executions
from ...analysis.ownership.private import is_private, places_of
from ...analysis.roots import Memory, place_of
from ...analysis.structure import Place
from ...autodiff.accumulate.deferred import Deferred, reads_of, slots_of_block
from ...autodiff.calculus.shadows import adjoint_type
from ...autodiff.prepare.prepared import Prepared
from ...ir.ops import Load, Value
from ...ir.types import F32, F64, I64, Pointer

_FEW = 8  # times fewer threads of a block make a read than there are
_PASSES = 2  # over the slots: they are cleared, and read


def deferred_additions(prepared: Prepared, sums: Sums, sizes: Mapping[str, int]) -> frozenset[Deferred]:
    """`sizes`: the buffers of which elements may be several threads'."""
    places = places_of(prepared.structure)
    found = (_of(name, nbytes, prepared, places, sums) for name, nbytes in sizes.items())
    return frozenset(own for some in found for own in some)


def but_deferred(memory: Memory, deferred: frozenset[Deferred]) -> Memory:
    """What happens to memory while the launch runs."""
    reads = reads_of(memory, deferred)
    return replace(memory, loads=[op for op in memory.loads if id(op) not in reads]) if reads else memory


def _of(name: str, nbytes: int, prepared: Prepared, places: dict[int, Place], sums: Sums) -> frozenset[Deferred]:
    memory = prepared.memory
    root = next(p.value for p in prepared.function.params if p.name == name)
    loads = [op for op in memory.loads if root in memory.of(op.ptr)]
    floats = isinstance(root.type, Pointer) and adjoint_type(root.type.pointee) in (F32, F64)
    if not floats or root in memory.written() or any(memory.of(op.ptr) != {root} for op in loads):
        return frozenset()
    for chosen in _choices(loads, root, prepared, places, sums):
        found = frozenset(Deferred(name, where, every) for where, every in _by_place(chosen, name, places, sums))
        rest = but_deferred(memory, found)
        size, block = adjoint_type(loads[0].result.type).size + I64.size, sums.shape.block
        slots = sum(own.slots(block) for own in reads_of(memory, found).values()) * math.prod(sums.shape.grid)
        few = _PASSES * slots * size <= nbytes and len(memory.loads) - len(rest.loads) == len(chosen)
        if few and is_private(root, rest, places, sums):
            return found
    return frozenset()


def _choices(
    loads: list[Load], root: Value, prepared: Prepared, places: dict[int, Place], sums: Sums
) -> Iterator[list[Load]]:
    """Reads that a thread makes once, besides others: those of which nobody knows where they are, with them those of
    few threads, or all."""
    assert isinstance(root.type, Pointer)
    single = [op for op in loads if prepared.plan.has_adjoint(op) and op.result.type == root.type.pointee]
    once = [op for op in single if not places[id(op)].in_loop]
    known = executions(sums)
    unknown = {id(op) for op in once if known.address(op.ptr, root) is None}
    most = math.prod(sums.shape.block) // _FEW
    rare = {id(op) for op in once if slots_of_block(_every(known.fixed(places[id(op)])), sums.shape.block) <= most}
    tried = list[set[int]]()
    for chosen in (unknown, unknown | rare, {id(op) for op in once}):
        if chosen and chosen not in tried and len(chosen) < len(loads):
            tried.append(chosen)
            yield [op for op in once if id(op) in chosen]


def _by_place(
    loads: list[Load], name: str, places: dict[int, Place], sums: Sums
) -> Iterator[tuple[tuple[str, str], tuple[int, int, int]]]:
    found: dict[tuple[str, str], set[tuple[int, int, int]]] = {}
    known = executions(sums)
    for op in loads:
        found.setdefault(place_of(op, name), set()).add(_every(known.fixed(places[id(op)])))
    for where, ways in found.items():
        yield where, ways.pop() if len(ways) == 1 else (1, 1, 1)


def _every(fixed: Mapping[Basis, int]) -> tuple[int, int, int]:
    """Of how many neighbours along each axis conditions leave one."""
    found = [1, 1, 1]
    for axis in range(3):
        index: Basis = ("thread_idx", axis)
        if index in fixed:
            found[axis] = 0
            continue
        parts = (basis for basis in fixed if isinstance(basis, Part) and not basis.is_quotient)
        found[axis] = max((part.by for part in parts if part.of == Affine(0, ((index, 1),))), default=1)
    return found[0], found[1], found[2]
