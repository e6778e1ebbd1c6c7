"""Segments that the user promises to be apart: `kg.assume(disjoint=("offset", "count"))`, or `disjoint="row"` for those
from row[s] to row[s + 1].

An access is in segment s if the conditions around it say so: `k < offset[s] + count[s]` for a k that began with
offset[s], or `j < count[s]` for offset[s] + j. Two accesses then meet only where s is the same, and in it where they
would if all segments began at the same place: they are rewritten to segments that begin very far apart.
"""

from __future__ import annotations

from math import inf
from typing import NamedTuple

from ...ir.ops import Value
from ...ir.types import I64
from ..access.affine import Access, Affine, Basis, Guard, Looked, Sums

_APART = 1 << 50  # bytes between segments, more than there are in any


class _In(NamedTuple):
    """An access in a segment: which, how many bytes an element has, and how far from where; `of`: the promise, and what
    of the segment's ends the distance is from."""

    place: Affine
    each: int
    rest: Affine
    of: tuple[object, ...]


def without_segments(accesses: list[Access], sums: Sums) -> list[Access] | None:
    """The accesses as if all segments had the same length; None where one is not known to be in its segment."""
    for begin, count in sums.promised.segments:
        found = [_in_segment(access, begin, count, sums) for access in accesses]
        known = [one for one in found if one is not None]
        if len(known) == len(accesses) and len({(one.each, one.of) for one in known}) == 1:
            loops: dict[tuple[Basis, bool], Basis] = {}
            return [
                Access(_forwards(one.rest, sums, loops).plus(one.place, _APART), access.size, access.guards)
                for one, access in zip(known, accesses, strict=True)
            ]
    return None


def _in_segment(access: Access, begin: Value, count: Value | None, sums: Sums) -> _In | None:
    for looked, each in access.address.terms:
        if not isinstance(looked, Looked) or looked.root is not begin or each <= 0:
            continue
        index, within = _split(access.address, each)
        low, high = _ends(within, sums)
        if low < 0 or high + access.size > each:
            continue
        for place in (looked.place, looked.place.plus(Affine(1), -1)):
            start = _held(begin, place, looked)
            end = _held(begin, place.plus(Affine(1)), looked)
            if count is not None:
                end = start.plus(_held(count, place, looked, sums))
            if _is_positive(index.plus(start, -1).plus(Affine(1)), access, sums) and _is_positive(
                end.plus(index, -1), access, sums
            ):
                rest = access.address.plus(start, -each)
                inner = tuple((b, c) for b, c in rest.terms if isinstance(b, Looked))
                ends = frozenset((b.root, b.place.plus(place, -1), c) for b, c in inner if isinstance(b, Looked))
                return _In(place, each, rest.plus(Affine(0, inner), -1), (begin, count, ends))
    return None


def _held(root: Value, place: Affine, like: Looked, sums: Sums | None = None) -> Affine:
    """What a buffer holds at a place; of another buffer, as something that the conditions speak of."""
    if sums is None:
        return Affine(0, ((Looked(root, place, like.type), 1),))
    known = (b for b in sums.extents if isinstance(b, Looked) and b.root is root and b.place == place)
    return Affine(0, ((next(known, Looked(root, place, like.type)), 1),))


def _split(address: Affine, each: int) -> tuple[Affine, Affine]:
    """Whole elements, and bytes in one."""
    index = Affine(address.const // each, tuple((b, c // each) for b, c in address.terms if c % each == 0))
    return index, address.plus(index, -each)


def _is_positive(sum_: Affine, access: Access, sums: Sums) -> bool:
    """By itself, or since a condition around the access says so of something that is no more."""
    sure = [Guard(Affine(0), 1), *access.guards]  # sum < bound: bound - sum is at least 1
    for guard in sure:
        rest = sum_.plus(guard.sum).plus(Affine(guard.bound), -1)
        if not any(isinstance(b, Looked) for b, _ in rest.terms) and _ends(rest, sums)[0] >= 0:
            return True
    return False


def _ends(sum_: Affine, sums: Sums) -> tuple[float, float]:
    low: float = sum_.const
    high: float = sum_.const
    for basis, coefficient in sum_.terms:
        extent = sums.extents[basis]
        reach = coefficient * (extent - 1) if extent is not None else inf if coefficient > 0 else -inf
        low, high = low + min(0, reach), high + max(0, reach)
    return low, high


def _forwards(rest: Affine, sums: Sums, loops: dict[tuple[Basis, bool], Basis]) -> Affine:
    """Loops of unknown length end in their segment; those that go down are counted from their end."""
    terms: list[tuple[Basis, int]] = []
    for basis, coefficient in rest.terms:
        if sums.extents[basis] is None and isinstance(basis, Value):
            bounded = loops.setdefault((basis, coefficient > 0), Value(I64, basis.name))
            sums.extents[bounded] = _APART // 4 // abs(coefficient) + 1
            sums.loops[bounded] = sums.loops[basis]
            basis, coefficient = bounded, abs(coefficient)
        terms.append((basis, coefficient))
    return Affine(rest.const, tuple(terms))
