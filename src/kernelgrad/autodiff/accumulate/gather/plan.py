"""What a gather is: the reads that it collects, how their threads follow from an element, and a launch's elements."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

from ....analysis.tuning import Totals
from .conditions import Coordinate, Range

Part = Literal["whole", "inside", "border"]

GRID_AXES = 3
WIDTH = 256  # threads of a gather's block, where there is one digit
LANES, ROWS = 32, 8  # of one whose threads add up together: along two coordinates that are summed over


class Index(NamedTuple):
    """An operation of the pattern, by number, that computes a thread's index along an axis, or one digit of it, or a
    digit of that one: `digit / divisor % modulus`."""

    number: int
    axis: int
    digit: int | None
    divisor: int = 1
    modulus: int | None = None


@dataclass(frozen=True)
class Solved:
    """The coordinate that follows from a digit: digit = factor * coordinate + shift + the moves by other coordinates.
    Without a coordinate, the read happens at one value of the digit. Windows in strides, as of pooling, have factors
    other than 1 and -1: then not every digit is one of an execution."""

    coordinate: Coordinate | None
    factor: int
    shift: int
    moves: tuple[tuple[Coordinate, int], ...]

    @property
    def factors(self) -> dict[Coordinate, int]:
        return dict(self.moves) | ({} if self.coordinate is None else {self.coordinate: self.factor})

    @property
    def stride(self) -> int:
        return abs(self.factor)


@dataclass(frozen=True)
class Site:
    """A read: its update's number among the pattern's operations, and how its threads and iterations are found.
    `residue`: bytes from the element that the digits give. `bounds`: so many of the conditions around it, from outside,
    do nothing but bound coordinates. `narrow`: of what is summed over, whose range the launch tells. `rare`: of few
    elements, at the border; inside of the domain there is none of it. `rows`: of LANES threads each, in a block whose
    threads add up together. `derived`: coordinates that follow from those of digits and those that are summed over, as
    sums of them; `told`: operations of the pattern that are such sums (see `exact`). `single`: of what is summed over,
    of which conditions leave as many values as strides have steps: one of them is that of an execution."""

    number: int
    solved: tuple[Solved, ...]
    summed: tuple[Coordinate, ...]
    residue: int
    bounds: int
    narrow: tuple[Coordinate, ...] = ()
    rare: bool = False
    rows: int = ROWS
    derived: tuple[tuple[Coordinate, tuple[tuple[Coordinate, int], ...], int], ...] = ()
    told: tuple[tuple[int, tuple[tuple[Coordinate, int], ...], int], ...] = ()
    single: tuple[Coordinate, ...] = ()

    @property
    def threads(self) -> dict[Coordinate, int]:
        """Of a block whose threads add up together: how many there are along the coordinates that they run over."""
        axes = [c for c in self.summed if c.kind == "axis"]
        return dict(zip(axes, (LANES, self.rows) if len(axes) > 1 else (LANES * self.rows,), strict=False))

    def strided(self, coordinate: Coordinate) -> tuple[int, int] | None:
        """For a coordinate that is summed over, as the last of those that move a digit in strides: the digit's number,
        and the coordinate's factor, which is 1 or -1. Every so many of its values alone belong to executions."""
        for k, solved in enumerate(self.solved):
            moves, own = dict(solved.moves), [c for c in self.summed if c in dict(solved.moves)]
            if solved.stride > 1 and own and own[-1] == coordinate and abs(moves[coordinate]) == 1:
                return k, moves[coordinate]
        return None


@dataclass(frozen=True)
class Gather:
    """How the adjoint of an input is gathered. `axes`: how many digits the thread's index has along each. `doubtful`:
    the axes along which digits may be those of no thread, although each is in its range. `indices`: integers of the
    pattern that are a thread's index along an axis, or one of its digits. `narrow`: 32 bits hold all indices. `span`:
    so many elements, one behind the other along the last digit, are one thread's; where that is the only digit, they
    are a block apart. `covers`: every element of the buffer has its digits. `writes`: and gets its adjoint written, not
    added to. `part`: all of it; or, with a thread for each element and none besides, rows inside of the domain, or some
    at its border. `contiguous`: the first digit is that of neighbours in memory. `taps`: so many executions, the same
    for every element, are written out, and a thread's elements are neighbours (see `windows`); 0 where loops run over
    them. `tile`: so many elements along each of the first digits are a block's, whose threads add up together (see
    `block_sums`); None where they are threads' own. `parts`: so many blocks share the sums of a tile, along a
    coordinate that is summed over, and add theirs atomically. `totals`: how long sums are made. `staged`: operations of
    the pattern, by number, whose results threads have left in memory (see `staging`)."""

    name: str
    sites: tuple[Site, ...]
    digits: int
    indices: tuple[Index, ...]
    narrow: bool
    span: int
    covers: bool
    writes: bool = False
    part: Part = "whole"
    contiguous: bool = False
    taps: int = 0
    tile: tuple[int, ...] | None = None
    parts: int = 1
    divided: Coordinate | None = None
    axes: tuple[int, ...] = (1, 1, 1)
    doubtful: tuple[int, ...] = ()
    totals: Totals | None = None
    staged: tuple[int, ...] = ()


def shape_of(gather: Gather) -> tuple[int, ...]:
    """Of a block whose threads add up together."""
    return tuple(gather.sites[0].threads.values())


@dataclass(frozen=True)
class Box:
    """The digits of a launch: the first of each, how many there are, and their steps in elements. `inner`: between
    these, all executions of all reads exist, and the bounds around them hold. `axes`: the digits of a thread's index
    along each axis, where they start, and how many values each has where something is read. `told`: what loops of the
    pattern are told (see `rectangles`)."""

    first: tuple[int, ...]
    extents: tuple[int, ...]
    steps: tuple[int, ...]
    inner: tuple[Range, ...]
    axes: tuple[tuple[tuple[int, int], ...], ...] = ()
    told: tuple[tuple[str, int], ...] = ()

    @property
    def inner_share(self) -> float:
        """The part of its elements that is in `inner`."""
        elements = math.prod(self.extents)
        return math.prod(max(0, high - low + 1) for low, high in self.inner) / elements if elements else 0.0


def range_names(site: int, coordinate: Coordinate) -> tuple[str, str]:
    """What the launch tells of a coordinate that a site, by its number, is summed over: its first and last value."""
    place = f"{site}_{coordinate.number}_{coordinate.digit}"
    return f"_from_{place}", f"_to_{place}"


def by_axes(extents: tuple[int, ...]) -> tuple[int, ...]:
    """Of a grid whose last axis has all digits that there is none for."""
    return extents if len(extents) < GRID_AXES else (*extents[: GRID_AXES - 1], math.prod(extents[GRID_AXES - 1 :]))
