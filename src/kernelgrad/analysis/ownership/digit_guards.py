"""Guards in terms of the digits of an address: `i < n` where an address is made of `i / C` and `i % C`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from math import gcd

from ..access.affine import Affine, Basis, Guard, Part, remainder


def without_implied(guards: Collection[Guard]) -> set[Guard]:
    """But for those that another one says, too: `b < 10` where `256 * b + t < 2500`."""
    found = set(guards)
    for guard in guards:
        if any(_implies(other, guard) for other in found - {guard}):
            found.discard(guard)
    return found


def _implies(one: Guard, other: Guard) -> bool:
    if not other.sum.terms:
        return False
    basis, step = other.sum.terms[0]
    times, left = divmod(one.sum.slope(basis), step)
    if left or times <= 0:
        return False
    rest = one.sum.plus(other.sum, -times)
    return rest.const >= 0 and all(c >= 0 for _, c in rest.terms) and one.bound <= times * other.bound


def in_digits(guard: Guard, sum_: Affine) -> Guard:
    """With the quotients and remainders of which a sum is made instead of what was divided."""
    of = guard.sum
    for part in _quotients(sum_):
        times = _times(of, part.of)
        if times:
            digits = Affine(0, ((part, part.by), (remainder(part.of, part.by), 1)))
            of = of.plus(part.of, -times).plus(digits, times)
    return Guard(of, guard.bound)


def _quotients(sum_: Affine) -> Iterator[Part]:
    there = {basis for basis, _ in sum_.terms}
    for basis in there:
        if isinstance(basis, Part) and basis.is_quotient and remainder(basis.of, basis.by) in there:
            yield basis


def _times(sum_: Affine, inner: Affine) -> int:
    """How often another sum is in it, as a whole."""
    found = {sum_.slope(basis) // c if sum_.slope(basis) % c == 0 else 0 for basis, c in inner.terms}
    return found.pop() if len(found) == 1 else 0


def of_upper(guard: Guard, upper: Collection[Basis], reach: Mapping[Basis, int]) -> Guard | None:
    """What a guard says of the upper digits, if whatever the lower ones are, it says the same. `reach`: of the lower
    ones, how far each goes."""
    own = [(basis, c) for basis, c in guard.sum.terms if basis in upper]
    rest = [(basis, c) for basis, c in guard.sum.terms if basis not in upper]
    if {basis for basis, _ in own} != set(upper) or any(basis not in reach or c < 0 for basis, c in rest):
        return None
    step, bound = gcd(*(c for _, c in own)), guard.bound - guard.sum.const
    if rest and (bound % step or _furthest(rest, reach) >= step):
        return None
    return Guard(Affine(0, tuple(own)), bound)


def _furthest(terms: Iterable[tuple[Basis, int]], reach: Mapping[Basis, int]) -> int:
    return sum(c * reach[basis] for basis, c in terms)
