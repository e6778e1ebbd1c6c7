"""What a step made, in short: whether it makes the same when it runs again, but for the order in which threads add."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np

from ..runtime.arrays import ArrayView
from ..runtime.scratch import read_bytes
from .arrays import device_of

_FLOATS = (np.dtype("f8"), np.dtype("f4"), np.dtype("f2"))


class Summary(NamedTuple):
    """A sum with random weights, and how far off it may be."""

    total: float
    allowed: float


def summary(array: ArrayView, limit: int) -> Summary | None:
    """None of what is larger than so many bytes, not finite, or holds no floating-point numbers."""
    if array.dtype not in _FLOATS or array.nbytes > limit:
        return None
    numbers = np.frombuffer(read_bytes(array.address, array.nbytes, device_of(array)), array.dtype)
    wide = np.promote_types(numbers.dtype, np.float32)  # sums of few halves leave their range
    weights = np.resize(_weights(), len(numbers)).astype(wide)
    with np.errstate(over="ignore", invalid="ignore"):
        allowed = np.sqrt(np.finfo(numbers.dtype).eps) * np.abs(numbers).sum(dtype="f8")
        found = np.dot(numbers.astype(wide, copy=False), weights)
    return Summary(float(found), float(allowed)) if np.isfinite(found) else None


def differ(once: Summary | None, again: Summary | None) -> bool:
    return once is not None and again is not None and abs(once.total - again.total) > once.allowed


@cache
def _weights() -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.random.default_rng(2).uniform(0.5, 1.5, 4099)
