"""After how many blocks along an axis of the grid a sum is the same again: a column `i % C`, a channel `i / HW % C`, or
what has nothing to do with that axis."""

from __future__ import annotations

from math import gcd, lcm

from .affine import Affine, Basis, Part


def period(sum_: Affine, axis: int, modulo: int = 0) -> int | None:
    """In blocks: shifted by any multiple of that, the sum is what it was; None if it never is. `modulo`: but for
    multiples of that, where it is not 0."""
    found = 1
    for basis, coefficient in sum_.terms:
        left = modulo // gcd(modulo, coefficient) if modulo else 0
        own = _of_basis(basis, axis, left)
        if own is None:
            return None
        found = lcm(found, own)
    return found


def _of_basis(basis: Basis, axis: int, modulo: int) -> int | None:
    if modulo == 1:
        return 1
    match basis:
        case ("block_idx", at) if at == axis:
            return modulo or None
        case Part(of, by, is_quotient):
            # What is divided is not negative: a quotient is the same but for multiples of m, if that is but for
            # multiples of m times the divisor.
            if is_quotient:
                return period(of, axis, by * modulo)
            return period(of, axis, modulo if modulo and by % modulo == 0 else by)
    return 1
