"""Arithmetic on the digits of addresses: a number by its digits, and the range of a digit that coordinates move."""

from __future__ import annotations

from .conditions import Coordinate, Limit, Range, multiple_of
from .plan import Solved


def digits_of(const: int, steps: tuple[int, ...], nearest: bool) -> tuple[list[int], int]:
    """A number by its digits, and what is left."""
    digits = [0] * len(steps)
    for k in range(len(steps) - 1, 0, -1):
        digits[k] = (const + nearest * (steps[k] // 2)) // steps[k]
        const -= digits[k] * steps[k]
    digits[0], residue = divmod(const, steps[0])
    return digits, residue


def own_part(solved: Solved, ranges: dict[Coordinate, Range]) -> Range:
    """What the coordinate that follows from a digit has a part of it."""
    low, high = sorted(solved.factor * end for end in (ranges[solved.coordinate] if solved.coordinate else (0, 0)))
    return low, high


def moved_by(solved: Solved, ranges: dict[Coordinate, Range]) -> Range:
    """What the others have, and the shift."""
    ends = [sorted(factor * end for end in ranges[coordinate]) for coordinate, factor in solved.moves]
    return solved.shift + sum(low for low, _ in ends), solved.shift + sum(high for _, high in ends)


def within(solved: Solved, limits: list[Limit], range_: Range) -> Range:
    """What conditions on a digit leave of its range."""
    low, high = range_
    for limit in limits:
        multiple = multiple_of(limit.factors, solved.factors)
        if multiple > 0:
            high = min(high, solved.shift + limit.most // multiple)
        elif multiple < 0:
            low = max(low, solved.shift - limit.most // -multiple)
    return low, high
