"""Whether the fill of a tile writes every cell that is read from it, decided for one launch.

All threads of a block at once (`threads`). Writes count only where they surely happen, reads wherever they may.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from ...ir.ops import For, If, Load, Op, Store, While
from ...ir.traverse import blocks, walk
from ..access.affine import Known
from ..structure import Structure
from ..tiles import Tile
from .threads import Numbers, Threads


@dataclass(frozen=True)
class Access:
    """`size` bytes from `address`, by the threads in `mask`."""

    address: Numbers
    mask: Numbers
    size: int


def is_covered(tile: Tile, nbytes: int, block: tuple[int, int, int], structure: Structure, known: Known) -> bool:
    threads = Threads(block, structure, known)
    everyone = np.ones(block[0] * block[1] * block[2], bool)
    written = np.zeros(nbytes, bool)
    for access in _writes(tile.fill, everyone, threads, tile):
        if not _mark(written, access):
            return False
    if written.all():
        return True
    wanted = np.zeros(nbytes, bool)
    for read in _reads(tile.reads, everyone, threads, tile):
        if read is None or not _mark(wanted, read):
            return False
    return not (wanted & ~written).any()


def is_stored_apart(tile: Tile, nbytes: int, block: tuple[int, int, int], structure: Structure, known: Known) -> bool:
    """Whether each cell is stored by one thread in one place, in whatever iterations of a loop around: guards that are
    not known are taken to hold."""
    threads = Threads(block, structure, known)
    written = np.zeros(nbytes, np.int32)
    for access in _possible_writes(tile.fill, np.ones(threads.count, bool), threads, tile):
        if access is None:
            return False
        at = access.address[access.mask]
        if at.size and (at.min() < 0 or at.max() + access.size > nbytes):
            return False
        for k in range(access.size):
            np.add.at(written, at + k, 1)
    return bool(written.max(initial=0) <= 1)


def _possible_writes(ops: Iterable[Op], mask: Numbers, threads: Threads, tile: Tile) -> Iterator[Access | None]:
    """None where it is not known which."""
    for op in ops:
        if isinstance(op, Store) and id(op) in tile.stores:
            address = threads.address(op.ptr)
            yield None if address is None else Access(address, mask, op.value.type.size)
        elif isinstance(op, If):
            chosen = threads.value(op.cond)
            sides = (mask, mask) if chosen is None else (mask & chosen, mask & ~chosen)
            yield from _possible_writes(op.then.ops, sides[0], threads, tile)
            yield from _possible_writes(op.orelse.ops, sides[1], threads, tile)
        elif any(id(nested) in tile.stores for b in blocks(op) for nested in walk(b)):
            assert isinstance(op, For | While)
            for iteration in threads.iterations(op, mask):
                if not iteration.sure:
                    yield None
                yield from _possible_writes(op.body.ops, iteration.mask, iteration.threads, tile)


def _mark(cells: Numbers, access: Access) -> bool:
    """False for an access beyond the array."""
    at = access.address[access.mask]
    if at.size and (at.min() < 0 or at.max() + access.size > len(cells)):
        return False
    for k in range(access.size):
        cells[at + k] = True
    return True


# ---- what is written for sure -------------------------------------------------------------------------------------


def _writes(ops: Iterable[Op], mask: Numbers, threads: Threads, tile: Tile) -> Iterator[Access]:
    for op in ops:
        if isinstance(op, Store) and id(op) in tile.stores:
            address = threads.address(op.ptr)
            if address is not None:
                yield Access(address, mask, op.value.type.size)
        elif any(isinstance(nested, Store) and id(nested) in tile.stores for b in blocks(op) for nested in walk(b)):
            yield from _nested_writes(op, mask, threads, tile)


def _nested_writes(op: Op, mask: Numbers, threads: Threads, tile: Tile) -> Iterator[Access]:
    match op:
        case If(cond, then, orelse):
            chosen = threads.value(cond)
            if chosen is not None:
                yield from _writes(then.ops, mask & chosen, threads, tile)
                yield from _writes(orelse.ops, mask & ~chosen, threads, tile)
                return
            others = list(_writes(orelse.ops, mask, threads, tile))
            for access in _writes(then.ops, mask, threads, tile):
                if any(_equal(access, other) for other in others):  # written on either side
                    yield access
        case For() | While():
            for iteration in threads.iterations(op, mask):
                if iteration.sure:
                    yield from _writes(op.body.ops, iteration.mask, iteration.threads, tile)


def _equal(one: Access, other: Access) -> bool:
    return one.size == other.size and bool((one.address == other.address).all() and (one.mask == other.mask).all())


# ---- what may be read ---------------------------------------------------------------------------------------------


def _reads(ops: Iterable[Op], mask: Numbers, threads: Threads, tile: Tile) -> Iterator[Access | None]:
    """None for a read of anything."""
    for op in ops:
        if isinstance(op, Load) and id(op) in tile.loads:
            address = threads.address(op.ptr)
            yield None if address is None else Access(address, mask, op.result.type.size)
        elif isinstance(op, If):
            chosen = threads.value(op.cond)
            yield from _reads(op.then.ops, mask if chosen is None else mask & chosen, threads, tile)
            yield from _reads(op.orelse.ops, mask if chosen is None else mask & ~chosen, threads, tile)
        elif isinstance(op, For | While):
            for iteration in threads.iterations(op, mask):
                yield from _reads(op.body.ops, iteration.mask, iteration.threads, tile)
