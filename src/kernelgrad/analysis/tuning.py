"""What a gradient is made fast for: data that the choice of a form fills in and `schedule` works with."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

from ..ir.types import Scalar
from .machine import WARP


class Totals(NamedTuple):
    """Sums of pieces of a loop's sums (see `transforms/sum_pieces`). `by_nests`: no loop alone is long, so that those
    of the loops in it are its pieces."""

    type: Scalar
    by_nests: bool = False


@dataclass(frozen=True)
class Tuning:
    """`row`: a power of two that the rows of a block are multiples of, where its warps are whole; 1 if not known.
    `block`: its shape, where that is known. `each`: how many rows of it a thread may do. `refilled`: the tiles that are
    filled again wherever they are read. `totals`: loops may add so much to one float that they are to add up pieces."""

    row: int = 1
    block: tuple[int, int, int] | None = None
    each: int = 1
    refilled: frozenset[str] = frozenset()
    totals: Totals | None = None

    @property
    def is_plain(self) -> bool:
        """Whether nothing is known that code could be made fast for: loops are summed up in pieces all the same."""
        return self.row == 1 and self.block is None and not self.refilled

    @property
    def on_cpu(self) -> Tuning:
        """Lanes that exchange values cost more there than they save."""
        return self if self.block is None else replace(self, row=1, each=1)

    def __str__(self) -> str:
        return f"{self.row} {self.block} {self.each} {sorted(self.refilled)} {self.totals}"


PLAIN = Tuning()
USUAL = PLAIN  # what a launch of any shape can use


def tuning_for(block: tuple[int, int, int], each: int = 1) -> Tuning:
    return Tuning(row_of(block), block, each)


def row_of(block: tuple[int, int, int]) -> int:
    return math.gcd(block[0], WARP) if math.prod(block) % WARP == 0 else 1


@dataclass(frozen=True)
class Vectorization:
    """`width`: how many elements a thread does. `wide`: which of the function's loads and stores, counted in its order,
    go together: those at the addresses of neighbours, behind nothing but guards. `aligned`: the buffers they are in,
    which must begin at multiples of 16 bytes. `turns`: of the loop that is spread over blocks before, 0 if there is
    none; `tested`: whether not all threads take all of them (see `schedule/vectorize/spread`)."""

    width: int
    wide: tuple[int, ...]
    aligned: tuple[str, ...]
    turns: int = 0
    tested: bool = False


@dataclass(frozen=True)
class TurnLoop:
    """A loop that takes at least `least` turns in every thread, and at most `most`. `number`: in the function's order;
    `first`: that of the first loop with the same turns, which tests them. `is_long`: its elements are in shared memory,
    too many for registers."""

    number: int
    first: int
    least: int
    most: int
    is_long: bool = False


@dataclass(frozen=True)
class KeptRows:
    """Loops over rows, and what stays in registers or shared memory between them: of the function's loads and stores,
    counted in its order, those of each element (see `schedule/rows`). `early`: loads of one loop alone that the first
    makes. `sums`: of its atomics, those that a loop around adds up in registers. `block`: its extents, where it keeps
    elements in shared memory."""

    loops: tuple[TurnLoop, ...]
    slots: tuple[tuple[int, ...], ...]
    early: tuple[int, ...] = ()
    sums: tuple[int, ...] = ()
    block: tuple[int, int, int] | None = None

    @property
    def text(self) -> str:
        """Where, and for how many turns, for people."""
        places = (("registers", False), ("shared memory", True))
        ends = {where: {(o.least, o.most) for o in self.loops if o.is_long == is_long} for where, is_long in places}
        return " and ".join(
            f"in {where}: for launches whose loops over it take {_spans(sorted(e))}" for where, e in ends.items() if e
        )


def _spans(ends: list[tuple[int, int]]) -> str:
    return " and ".join(f"{low} turns" if low == high else f"{low} to {high} turns" for low, high in ends)
