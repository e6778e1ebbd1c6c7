"""Room for the elements of a row, and whether it is worth taking.

In registers, elements of a few turns of a loop: they cost nothing. In a block's shared memory, those of many: it leaves
room for few threads at a time, so that is done only where the rows that blocks are working on do not stay in the
device's cache, where each loop over a row would otherwise find it again.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from ...analysis.access.affine import Shape
from ...analysis.machine import (
    BUSY_THREADS,
    CACHED_BYTES,
    MULTIPROCESSOR_THREADS,
    MULTIPROCESSORS,
    REGISTERS,
    SHARED_BYTES,
)
from ...ir.types import Scalar

MOST_SHORT = 32  # turns, whose elements may be in registers
_MOST_LONG = 4096
_STEP = 8  # of long loops: few different numbers of turns have code of their own
_OTHERS = 40  # registers of a thread that are not elements
_MOST_REGISTERS = 112  # for elements, so that some warps are under way
_WORD = 4


class Turns(NamedTuple):
    """That all threads take, and that any takes; rounded."""

    least: int
    most: int

    @property
    def are_long(self) -> bool:
        return self.most > MOST_SHORT


class Room(NamedTuple):
    """`shared`: bytes of shared memory that a block has left; only asked for where rows are long."""

    threads: int
    blocks: int
    shared: Callable[[], int]

    def of_thread(self, are_long: bool) -> int:
        """Bytes for the elements of a thread."""
        if are_long:
            return self.shared() // self.threads
        return _WORD * min(_MOST_REGISTERS, REGISTERS // self.threads - _OTHERS)

    def pays(self, wanted: int, taken: int) -> bool:
        """Whether rows are better kept in shared memory than read again. `wanted`: bytes of what a thread's
        loops read several times; `taken`: of what would be kept."""
        under_way = min(self.blocks, MULTIPROCESSORS * (MULTIPROCESSOR_THREADS // self.threads))
        left = SHARED_BYTES // max(1, taken * self.threads) * self.threads
        return under_way * self.threads * wanted > CACHED_BYTES and left >= BUSY_THREADS


def room(shape: Shape, shared: Callable[[], int]) -> Room:
    return Room(math.prod(shape.block), math.prod(shape.grid), shared)


def bytes_of(type: Scalar, turns: Turns) -> int:
    """What a thread's elements take, one of each turn."""
    return turns.most * (type.size if turns.are_long else max(_WORD, type.size))


def registers_for(words: int) -> int:
    return words + _OTHERS


def rounded(least: int, most: int) -> Turns | None:
    """So that few different numbers have code of their own: powers of two if they are few, unless all threads take
    equally many turns. Turns before `least` are taken by all. None: they are too many."""
    if most > _MOST_LONG:
        return None
    if most > MOST_SHORT:
        return Turns(least // _STEP * _STEP, -(-most // _STEP) * _STEP)
    if least == most:
        return Turns(least, most)
    above = 1 << (most - 1).bit_length()
    return Turns(above // 2 if least >= above // 2 else 0, above)
