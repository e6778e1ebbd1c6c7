"""A thread's index along an axis of the grid, written in digits: `i % W`, `i / W % H` and `i / (W * H)` are three
numbers that together are i, and so are `threadIdx.x` and `blockIdx.x`.

Where they start is taken from the quotients and remainders that a kernel computes. Each start must divide the next, so
that whatever lies between two of them is a sum of multiples of digits.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from .affine import Affine, Basis, Part, Shape


class Span(NamedTuple):
    """Of an index i, `i / start % (end / start)`; without an end, `i / start`."""

    start: int
    end: int | None


@dataclass(frozen=True)
class AxisDigits:
    """Of the indices below `threads`: the digits' starts, from 1 on. The last one may not reach its last value with all
    values of the others."""

    threads: int
    starts: tuple[int, ...] = (1,)

    @property
    def extents(self) -> tuple[int, ...]:
        return (*(end // start for start, end in pairwise(self.starts)), -(-self.threads // self.starts[-1]))

    @property
    def complete(self) -> int:
        """So many values of the last digit come with all values of the others."""
        return self.threads // self.starts[-1]

    def factors(self, span: Span) -> tuple[int, ...] | None:
        """What is between two places as multiples of the digits; None where digits reach over them."""
        start, end = span.start, self.threads if span.end is None else min(span.end, self.threads)
        if start >= self.threads:
            return (0,) * len(self.starts)
        if start not in self.starts or (end < self.threads and end not in self.starts):
            return None
        return tuple(at // start if start <= at < end else 0 for at in self.starts)

    def inside(self, span: Span) -> tuple[int, int, int | None] | None:
        """The digit that has all of what is between two places: its number, what it is divided by, and what of that
        remains, if not all does. None where several have a part of it, and where a digit ends in the middle of it when
        it comes round: `i % 5` does not tell `i % 2`."""
        start, end = span.start, self.threads if span.end is None else min(span.end, self.threads)
        for k, (first, behind) in enumerate(pairwise((*self.starts, self.threads))):
            comes_round = k < len(self.starts) - 1 and behind % end != 0
            if first <= start < end <= behind and start % first == 0 and not comes_round:
                return k, start // first, None if end == behind else end // start
        return None


def span_of(basis: Basis, shape: Shape) -> tuple[int, Span] | None:
    """The axis of whose index a basis is a part, and which."""
    match basis:
        case ("thread_idx", int(axis)):
            return axis, Span(1, shape.block[axis])
        case ("block_idx", int(axis)):
            return axis, Span(shape.block[axis], None)
        case Part(of, by, is_quotient):
            inner = _span_of_sum(of, shape)
            span = None if inner is None else _divided(inner[1], by, is_quotient)
            return None if inner is None or span is None else (inner[0], span)
    return None


def index_along(axis: int, shape: Shape) -> dict[Basis, int]:
    """The index itself as a sum."""
    factors: dict[Basis, int] = {("block_idx", axis): shape.block[axis], ("thread_idx", axis): 1}
    return {basis: factor for basis, factor in factors.items() if shape.extent(*basis) > 1}  # type: ignore[misc]


def _span_of_sum(sum_: Affine, shape: Shape) -> tuple[int, Span] | None:
    for axis in range(3):
        if sum_.terms and not sum_.const and sum_.coefficients == index_along(axis, shape):
            return axis, Span(1, None)
    return _span_of_digits(sum_, shape) if sum_.only is None else span_of(sum_.only, shape)


def _span_of_digits(sum_: Affine, shape: Shape) -> tuple[int, Span] | None:
    """Of several together: `16 * blockIdx.x + threadIdx.x / 16` of blocks of 256 threads is `i / 16`."""
    parts = [span_of(basis, shape) for basis, _ in sum_.terms]
    axes = {None if part is None else part[0] for part in parts}
    axis = axes.pop() if len(axes) == 1 and not sum_.const else None
    found = {} if axis is None else spans_in(sum_, axis, shape)
    return (axis, next(iter(found))) if axis is not None and list(found.values()) == [1] else None


def _divided(span: Span, by: int, is_quotient: bool) -> Span | None:
    start, end = span
    if end is not None and end % (start * by):
        return None
    return Span(start * by, end) if is_quotient else Span(start, start * by)


def digits_for(axis: int, shape: Shape, wanted: Iterable[Affine], others: Iterable[Affine] = ()) -> AxisDigits | None:
    """The fewest digits of which the parts of an index in some sums are made; None where there are none such. And
    those in `others`, where they go into these and cut none of them."""
    threads = shape.grid[axis] * shape.block[axis]
    parts = [span for sum_ in wanted for span in spans_in(sum_, axis, shape)]
    starts = _starts({1}, parts, threads)
    for sum_ in others if starts else ():
        more = _starts(starts, spans_in(sum_, axis, shape), threads)
        if more and not any(_cuts(place, span) for place in more - starts for span in parts):
            starts = more
    return AxisDigits(threads, tuple(sorted(starts))) if starts else None


def _starts(known: set[int], spans: Iterable[Span], threads: int) -> set[int]:
    """With the ends of spans; none where they do not divide each other."""
    places = known | {place for span in spans for place in span if place is not None and place < threads}
    return places if all(end % start == 0 for start, end in pairwise(sorted(places))) else set()


def _cuts(place: int, span: Span) -> bool:
    return span.start < place and (span.end is None or place < span.end)


def spans_in(sum_: Affine, axis: int, shape: Shape) -> dict[Span, int]:
    """Which parts of an index are in a sum, and how often each; those that make up a larger part as one."""
    found: dict[Span, int] = {}
    terms, whole = sum_.coefficients, index_along(axis, shape)
    each = next((terms.get(basis, 0) for basis, factor in whole.items() if factor == 1), 0)
    if each and all(terms.get(basis) == each * factor for basis, factor in whole.items()):
        found[Span(1, None)] = each
        terms = {basis: factor for basis, factor in terms.items() if basis not in whole}
    for basis, factor in terms.items():
        part = span_of(basis, shape)
        if part is not None and part[0] == axis:
            found[part[1]] = found.get(part[1], 0) + factor
    return _joined(found)


def _joined(spans: dict[Span, int]) -> dict[Span, int]:
    """`t + 256 * (b % 4)`, of blocks of 256 threads, is `i % 1024`."""
    found: dict[Span, int] = {}
    for span in sorted(spans, key=lambda s: s.start):
        before = next((s for s in found if s.end == span.start), None)
        if before is not None and found[before] * (span.start // before.start) == spans[span]:
            span, times = Span(before.start, span.end), found.pop(before)
        else:
            times = spans[span]
        found[span] = found.get(span, 0) + times
    return found
