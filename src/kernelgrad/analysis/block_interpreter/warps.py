"""Integers of all threads of a block of whole warps: besides those of `threads`, lanes, and the bits of ballots."""

from __future__ import annotations

import numpy as np

from ...ir.ops import Builtin, Value
from ...ir.types import U32, Type
from ..machine import WARP
from .threads import Numbers, Threads

ALL = (1 << WARP) - 1
_BITS = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}


class Warps(Threads):
    def _evaluate(self, value: Value) -> Numbers | None:
        op = self.structure.definition.get(value)
        if isinstance(op, Builtin) and op.name == "lane_id":
            return np.arange(self.count) % WARP
        return super()._evaluate(value)

    def _apply(self, fn: str, args: list[Numbers | None], type: Type) -> Numbers | None:
        numbers = [a for a in args if a is not None]
        if type != U32 or len(numbers) < len(args) or not all(((a >= 0) & (a <= ALL)).all() for a in numbers):
            return super()._apply(fn, args, type)
        if fn in _BITS:
            return _BITS[fn](*numbers)
        if fn in ("shl", "shr") and (numbers[1] < WARP).all():
            return numbers[0] << numbers[1] & ALL if fn == "shl" else numbers[0] >> numbers[1]
        return super()._apply(fn, args, type)


def ballot(votes: Numbers) -> Numbers:
    """For each thread, the votes of its warp."""
    bits = (votes.reshape(-1, WARP).astype(np.int64) << np.arange(WARP)).sum(axis=1)
    return np.repeat(bits, WARP)


def sources(fn: str, by: Numbers) -> Numbers | None:
    """For each thread, the one whose value a shuffle gives it, among all lanes."""
    threads = np.arange(len(by))
    lane, by = threads % WARP, by & (WARP - 1)
    asked = {"shfl_idx": by, "shfl_up": lane - by, "shfl_down": lane + by, "shfl_xor": lane ^ by}.get(fn)
    if asked is None:
        return None
    return threads - lane + np.where((asked >= 0) & (asked < WARP), asked, lane)
