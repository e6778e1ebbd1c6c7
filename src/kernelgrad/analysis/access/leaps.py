"""Sums as numbers are written: each digit's step leaps over all that the smaller digits reach."""

from __future__ import annotations

from typing import NamedTuple

from .affine import Basis, Guard


class Digit(NamedTuple):
    basis: Basis | None
    coefficient: int
    extent: int | None


def leaps(digits: list[Digit], width: int, shared: dict[Basis, int], guards: set[Guard]) -> bool:
    """Whether each digit's step leaps over all that the smaller digits and the window of one thread reach."""
    digits = sorted(digits, key=lambda d: d.coefficient)
    reach = 0
    below: dict[Basis, int] | None = {}  # how far each reaches; None: loops are among them, of which no guard speaks
    for number, digit in enumerate(digits):
        if digit.coefficient < reach + width:
            return False
        if digit.extent is None:
            return number == len(digits) - 1
        reach += digit.coefficient * (digit.extent - 1)
        if below is not None and digit.basis is not None:
            below = {**below, digit.basis: digit.coefficient * (digit.extent - 1)}
            reach = min(reach, _reach(below, shared, guards))
        else:
            below = None
    return True


def _reach(below: dict[Basis, int], shared: dict[Basis, int], guards: set[Guard]) -> int:
    """How far some digits together can reach: guards bound groups of them, `row < n` and `col < m`."""
    free, total = dict(below), 0
    found = [(set(guard.sum.coefficients), bound) for guard in guards for bound in bounds(guard, shared)]
    for group, bound in sorted(found, key=lambda pair: (-len(pair[0]), pair[1])):
        if group <= free.keys() and bound < sum(free[basis] for basis in group):
            total += bound
            free = {basis: reach for basis, reach in free.items() if basis not in group}
    return total + sum(free.values())


def bounds(guard: Guard, shared: dict[Basis, int]) -> list[int]:
    """How far the digits of which a guard speaks can reach together."""
    terms = guard.sum.coefficients
    if any(c <= 0 or b not in shared or shared[b] % c for b, c in terms.items()):
        return []
    factors = {shared[b] // c for b, c in terms.items()}
    if len(factors) != 1 or min(factors) <= 0:
        return []
    return [min(factors) * max(0, guard.bound - 1 - guard.sum.const)]
