"""Gathers on a CPU: the inside of the domain, where no test is needed, and its border, each in launches of their own.

There the threads of a row are the iterations of one loop, and a test that differs between them would have all of them
carry it along. So the inside is one box without tests; what is left of the domain are slabs in front of it and behind
it, two for each digit. No thread is started for an element that is not there.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from .autodiff.gather import Box, Gather
from .runtime.config import Launch, make_launch

_FEW = 1 << 15  # elements that are gathered sooner than several kernels are launched
_MOST_THREADS = 256  # in a block


def parts(gather: Gather, box: Box) -> Iterator[tuple[Gather, Box]]:
    """Together they have each element of the box once."""
    plain = replace(gather, span=1, contiguous=box.steps[0] == 1)
    if math.prod(box.extents) < _FEW or any(low > high for low, high in box.inner):
        yield replace(plain, part="border"), box
        return
    yield replace(plain, part="inside"), _between(box, box.inner)
    whole = [(first, first + n - 1) for first, n in zip(box.first, box.extents, strict=True)]
    for k, (low, high) in enumerate(box.inner):
        first, last = whole[k]
        for slab in ((first, low - 1), (high + 1, last)):
            if slab[0] <= slab[1]:
                yield replace(plain, part="border"), _between(box, (*box.inner[:k], slab, *whole[k + 1 :]))


def _between(box: Box, ranges: tuple[tuple[int, int], ...]) -> Box:
    return replace(box, first=tuple(low for low, _ in ranges), extents=tuple(high - low + 1 for low, high in ranges))


def launch_of(box: Box, launch: Launch) -> Launch:
    """Exactly one thread for each element."""
    block, left = [], _MOST_THREADS
    for n in box.extents:
        block.append(next(width for width in range(min(n, left), 0, -1) if n % width == 0))
        left //= block[-1]
    return make_launch(
        tuple(n // width for n, width in zip(box.extents, block, strict=True)), tuple(block), 0, launch.stream
    )
