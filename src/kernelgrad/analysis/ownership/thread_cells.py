"""Shared arrays of which each thread has cells to itself: `float *own = s + threadIdx.x * d`, `row[threadIdx.x][k]`."""

from __future__ import annotations

from typing import NamedTuple

from ...ir.builder import pointee
from ...ir.ops import Atomic, Block, Function, Load, Member, Op, Store
from ...ir.traverse import blocks, walk
from ...ir.types import Array
from ..access.affine import Affine, Basis
from ..access.executions import Executions, hull
from ..access.shared_parts import accesses_of, only_accessed, way_to
from ..block_interpreter.coverage import is_covered
from ..roots import analyse
from ..tiles import Tile, common_place, touches
from .private import places_of

_MOST = 4096  # bytes that a thread has
Access = Load | Store | Atomic


class ThreadCells(NamedTuple):
    """Of a variable, in bytes: how far apart those of neighbours along each axis of the block are, where a thread's
    begin, and how many it has. `scope`: the block that fills them before it reads any of them, each time it runs, by
    its number among those of the function."""

    variable: str
    apart: tuple[int, int, int]
    start: int
    nbytes: int
    scope: int


def all_blocks(function: Function) -> list[Block]:
    return [function.body, *(block for op in walk(function.body) for block in blocks(op))]


def thread_cells(function: Function, variable: str, sums: Executions, variable_bytes: int) -> ThreadCells | None:
    """If all accesses are to the thread's own cells."""
    memory, places = analyse(function), places_of(sums.structure)
    accesses = accesses_of(function, variable)
    if not only_accessed(accesses, function, variable) or not all(map(_is_plain, accesses)):
        return None
    if not _are_alike(accesses, sums):
        return None
    apart: tuple[int, int, int] | None = None
    ends: list[int] = []
    for op in accesses:
        roots = memory.of(op.ptr)
        address = sums.address(op.ptr, next(iter(roots))) if len(roots) == 1 else None
        if address is None:
            return None
        found, rest = _split(address, sums)
        reach = hull(rest, sums, sums.guards(places[id(op)]))
        if reach is None or (apart is not None and found != apart):
            return None
        apart = found
        ends += [reach[0], reach[1] + pointee(op.ptr).size]
    if apart is None or not 0 < max(ends) - min(ends) <= _MOST:
        return None
    scope = _scope(function, variable, accesses, sums, variable_bytes)
    cells = ThreadCells(variable, apart, min(ends), max(ends) - min(ends), scope)
    return cells if _leap(cells, sums) and _fit(cells, accesses[0]) else None


def _scope(function: Function, variable: str, accesses: list[Access], sums: Executions, variable_bytes: int) -> int:
    """The innermost block that has all accesses, if what it stores first covers all that it reads; else the body."""
    place = common_place([*accesses], sums.structure)
    stores, loads = (frozenset(id(op) for op in accesses if isinstance(op, kind)) for kind in (Store, Load))
    ops = place.block.ops
    first = next((k for k, op in enumerate(ops) if touches(op, loads)), len(ops))
    fill = tuple(op for op in ops[:first] if touches(op, stores))
    reads = tuple(op for op in ops[first:] if touches(op, loads))
    tile = Tile(accesses[0].ptr, variable, place, None, fill, stores, loads, reads)
    covered = is_covered(tile, variable_bytes, sums.shape.block, sums.structure, sums.known)
    return next(k for k, block in enumerate(all_blocks(function)) if block is place.block) if covered else 0


def _is_plain(op: Op) -> bool:
    return isinstance(op, Load | Store) and not op.volatile


def _are_alike(accesses: list[Access], sums: Executions) -> bool:
    """Whether all are to elements of one type, and not to members of these."""
    ways = (step for op in accesses for step in way_to(op.ptr, sums.structure.definition))
    return len({pointee(op.ptr) for op in accesses}) == 1 and not any(isinstance(step, Member) for step in ways)


def _split(address: Affine, sums: Executions) -> tuple[tuple[int, int, int], Affine]:
    """How much of it threads add, along each axis that has several; and the rest."""
    axes: list[Basis] = [("thread_idx", axis) for axis in range(3)]
    apart = tuple(address.slope(basis) if sums.shape.block[k] > 1 else 0 for k, basis in enumerate(axes))
    rest = Affine(address.const, tuple((basis, c) for basis, c in address.terms if basis not in axes))
    return (apart[0], apart[1], apart[2]), rest


def _leap(cells: ThreadCells, sums: Executions) -> bool:
    """Whether no thread's cells are another's."""
    below = cells.nbytes
    for apart, extent in sorted(zip(cells.apart, sums.shape.block, strict=True)):
        if extent > 1:
            if apart < below:
                return False
            below = apart * (extent - 1) + below
    return True


def _fit(cells: ThreadCells, access: Access) -> bool:
    """Whether they are whole elements."""
    size = pointee(access.ptr).size
    return not any(number % size for number in (*cells.apart, cells.start, cells.nbytes))


def array_of(cells: ThreadCells, access: Access) -> Array:
    element = pointee(access.ptr)
    return Array(element, cells.nbytes // element.size)
