"""Guards that say how small a sum is at least: `threadIdx.x > 0` is `-threadIdx.x < 0`."""

from __future__ import annotations

from collections.abc import Iterator

from ...ir.ops import Apply, If, Value
from ..structure import Place
from .affine import Affine, Guard, Sums
from .wrapping import signed

_NEGATED = {"lt": "ge", "ge": "lt", "gt": "le", "le": "gt", "eq": "ne", "ne": "eq"}
_TURNED = {"gt": "lt", "ge": "le"}


def lower_guards(sums: Sums, place: Place | None) -> set[Guard]:
    """Those that hold in a block, from the conditions around it."""
    found = set[Guard]()
    while place is not None:
        if isinstance(place.owner, If):
            found.update(_of_condition(sums, place.owner.cond, place.block is place.owner.then))
        place = place.parent
    return found


def _of_condition(sums: Sums, cond: Value, holds: bool) -> Iterator[Guard]:
    match sums.condition(cond):
        case Apply("not", (inner,)):
            yield from _of_condition(sums, inner, not holds)
        case Apply("and" | "or" as fn, args) if (fn == "and") == holds:
            for arg in args:
                yield from _of_condition(sums, arg, holds)
        case Apply(fn, (left, right)) if fn in _NEGATED:
            yield from _of_comparison(sums, fn if holds else _NEGATED[fn], left, right)


def _of_comparison(sums: Sums, fn: str, left: Value, right: Value) -> Iterator[Guard]:
    if fn in _TURNED:
        fn, left, right = _TURNED[fn], right, left
    small, large = sums.of(left), sums.of(right)
    if small is None and large is not None:
        yield from _of_unsigned(sums, fn, left, large)
    if small is None or large is None:
        return
    if fn in ("lt", "le") and not small.terms and large.terms:
        yield Guard(large.times(-1), (fn == "le") - small.const)
    if fn == "ne":
        yield from _unequal(sums, small.plus(large, -1))


def _of_unsigned(sums: Sums, fn: str, left: Value, bound: Affine) -> Iterator[Guard]:
    """`i - 1u < n`: i is not 0."""
    sum_ = signed(sums, left) if fn in ("lt", "le") and not bound.terms and 0 <= bound.const < 2**31 else None
    if sum_ is not None:
        yield Guard(sum_.times(-1), 1)
        yield Guard(sum_, bound.const + (fn == "le"))


def _unequal(sums: Sums, difference: Affine) -> Iterator[Guard]:
    """An index is not the first that it may be, or not the last."""
    if len(difference.terms) != 1:
        return
    ((basis, factor),) = difference.terms
    at, left = divmod(-difference.const, factor)
    extent = sums.extents.get(basis)
    if left == 0 and at == 0:
        yield Guard(Affine(0, ((basis, -1),)), 0)
    if left == 0 and extent is not None and at == extent - 1:
        yield Guard(Affine(0, ((basis, 1),)), at)
