"""Gathers on a CPU: the rows of the domain's inside and those of its border, in launches of their own.

There the threads of a row are the iterations of one loop, and tests in it would have all of them carry them along. Of
the rows inside, only the ends need tests, and the backend has loops of their own for them (Note [Sections] in
backends/cpu/sections.py). What is left of the domain are slabs in front of these rows and behind them, two for each
digit but the first. No thread is started for an element that is not there.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from ...autodiff.accumulate.gather.plan import Box, Gather, by_axes
from ...runtime.config import Launch, make_launch

_FEW = 1 << 15  # elements that are gathered sooner than several kernels are launched
_MOST_THREADS = 256  # in a block
_MOST_ALONG = (_MOST_THREADS, _MOST_THREADS, 64)  # the axes of one


def parts(gather: Gather, box: Box) -> Iterator[tuple[Gather, Box]]:
    """Together they have each element of the box once."""
    plain = replace(gather, span=1, contiguous=box.steps[0] == 1, taps=0)
    if math.prod(box.extents) < _FEW or any(low > high for low, high in box.inner):
        yield replace(plain, part="border"), box
        return
    row, *whole = ((first, first + n - 1) for first, n in zip(box.first, box.extents, strict=True))
    inner = box.inner[1:]
    yield replace(plain, part="inside"), _between(box, (row, *inner))
    for k, ((first, last), (low, high)) in enumerate(zip(whole, inner, strict=True)):
        for slab in ((first, low - 1), (high + 1, last)):
            if slab[0] <= slab[1]:
                yield replace(plain, part="border"), _between(box, (row, *inner[:k], slab, *whole[k + 1 :]))


def _between(box: Box, ranges: tuple[tuple[int, int], ...]) -> Box:
    return replace(box, first=tuple(low for low, _ in ranges), extents=tuple(high - low + 1 for low, high in ranges))


def launch_of(box: Box) -> Launch:
    """Exactly one thread for each element."""
    block, left, extents = [], _MOST_THREADS, by_axes(box.extents)
    for n, most in zip(extents, _MOST_ALONG, strict=False):
        block.append(next(width for width in range(min(n, left, most), 0, -1) if n % width == 0))
        left //= block[-1]
    return make_launch(tuple(n // width for n, width in zip(extents, block, strict=True)), tuple(block))
