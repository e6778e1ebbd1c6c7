"""Loops that go through the same elements by quotients and remainders share a counter: their addresses are equal then.

    for (i = t; i < n; i += 256) sum += x[i / m * p + i % m];        and again        y[...] = f(x[i / m * p + i % m]);

Both divide `t + 256 * k`, each with a k of its own. Which thread owns an element is asked for every k that any of the
loops has, so that they may share a counter with as many values as the longest one's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from ...ir.ops import Value
from ...ir.types import I64
from ..access.affine import Access, Affine, Basis, Guard, Part, Sums

Steps = tuple[int, ...]  # what a counter is multiplied with in dividends, sorted: 256 above


def with_same_counters(accesses: list[Access], sums: Sums) -> list[Access]:
    """The accesses with one counter for all of the same steps; unchanged where two of one access have the same."""
    found = [own for access in accesses if (own := _by_steps(access)) is not None]
    if len(found) < len(accesses) or len({frozenset(own.values()) for own in found if own}) < 2:
        return accesses
    alike = dict[Steps, set[Value]]()
    for own in found:
        for steps, counter in own.items():
            alike.setdefault(steps, set()).add(counter)
    shared = {steps: _shared(counters, sums) for steps, counters in alike.items()}
    names = [{counter: shared[steps] for steps, counter in own.items()} for own in found]
    return [_renamed(access, own, sums) for access, own in zip(accesses, names, strict=True)]


def _by_steps(access: Access) -> dict[Steps, Value] | None:
    """The counters in an address's dividends; None where two have the same steps."""
    steps = dict[Value, set[int]]()
    for basis, _ in access.address.terms:
        for counter, step in _in_dividends(basis):
            steps.setdefault(counter, set()).add(step)
    found = {tuple(sorted(own)): counter for counter, own in steps.items()}
    return found if len(found) == len(steps) else None


def _in_dividends(basis: Basis) -> Iterator[tuple[Value, int]]:
    if isinstance(basis, Part):
        for inner, factor in basis.of.terms:
            if isinstance(inner, Value):
                yield inner, factor
            yield from _in_dividends(inner)


def _shared(counters: set[Value], sums: Sums) -> Value:
    """A new counter, with as many values as the longest one's."""
    shared = Value(I64, "~turn")
    sums.extents[shared] = _longest(sums.extents[counter] for counter in counters)
    most = _longest(sums.extents[counter] or sums.most.get(counter) for counter in counters)
    if most is not None:
        sums.most[shared] = most
    if not sums.wrapping.isdisjoint(counters):
        sums.wrapping.add(shared)
    return shared


def _longest(extents: Iterable[int | None]) -> int | None:
    known = list(extents)
    return None if None in known else max(each for each in known if each is not None)


def _renamed(access: Access, names: Mapping[Value, Value], sums: Sums) -> Access:
    if not names:
        return access
    guards = {Guard(_sum(guard.sum, names, sums), guard.bound) for guard in access.guards}
    return Access(_sum(access.address, names, sums), access.size, guards)


def _sum(sum_: Affine, names: Mapping[Value, Value], sums: Sums) -> Affine:
    return Affine(sum_.const, tuple((_basis(basis, names, sums), factor) for basis, factor in sum_.terms))


def _basis(basis: Basis, names: Mapping[Value, Value], sums: Sums) -> Basis:
    if isinstance(basis, Value):
        return names.get(basis, basis)
    if not isinstance(basis, Part):
        return basis
    found = Part(_sum(basis.of, names, sums), basis.by, basis.is_quotient)
    extents = sums.extents.get(found, 1), sums.extents.get(basis)
    sums.extents[found] = _longest(extents)
    return found
