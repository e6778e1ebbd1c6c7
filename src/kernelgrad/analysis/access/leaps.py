"""Sums as numbers are written: each digit's step leaps over all that the smaller digits reach."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import inf
from typing import NamedTuple

from .affine import Basis, Guard


class Digit(NamedTuple):
    basis: Basis | None
    coefficient: int
    extent: int | None


def leaps(digits: list[Digit], width: int, coefficients: Mapping[Basis, int], guards: set[Guard]) -> bool:
    """Whether each digit's step leaps over all that the smaller digits and the window of one thread reach.
    `coefficients`: of what guards may speak of."""
    below: dict[object, float] = {}  # how far each reaches
    for digit in sorted(digits, key=lambda d: d.coefficient):
        if digit.coefficient < _reach(below, coefficients, guards) + width:
            return False
        reach = inf if digit.extent is None else digit.coefficient * (digit.extent - 1)
        below[object() if digit.basis is None else digit.basis] = reach
    return True


def _reach(below: dict[object, float], coefficients: Mapping[Basis, int], guards: set[Guard]) -> float:
    """How far some digits together can reach: guards bound groups of them, `row < n` and `col < m`."""
    free, total = dict(below), 0
    found = [(set(guard.sum.coefficients), bound) for guard in guards for bound in bounds(guard, coefficients)]
    for group, bound in sorted(found, key=lambda pair: (-len(pair[0]), pair[1])):
        if group <= free.keys() and bound < sum(free[basis] for basis in group):
            total += bound
            free = {basis: reach for basis, reach in free.items() if basis not in group}
    return total + sum(free.values())


def bounds(guard: Guard, shared: Mapping[Basis, int]) -> list[int]:
    """How far the digits of which a guard speaks can reach together."""
    terms = guard.sum.coefficients
    if any(c <= 0 or b not in shared or shared[b] % c for b, c in terms.items()):
        return []
    factors = {shared[b] // c for b, c in terms.items()}
    if len(factors) != 1 or min(factors) <= 0:
        return []
    return [min(factors) * max(0, guard.bound - 1 - guard.sum.const)]


def spread(starts: Iterable[int]) -> list[tuple[int, int]] | None:
    """Numbers as sums of steps, each taken up to so many times: 0, 1, 8, 9 are 1 and 8, each at most once. None where
    they are no such sums."""
    places = sorted(set(starts))
    digits = []
    while len(places) > 1:
        step = places[1] - places[0]
        count = next(k for k in range(2, len(places) + 1) if k == len(places) or places[k] != places[0] + k * step)
        groups = [places[k : k + count] for k in range(0, len(places), count)]
        if any([p - group[0] for p in group] != [k * step for k in range(count)] for group in groups):
            return None
        digits.append((step, count))
        places = [group[0] for group in groups]
    return digits
