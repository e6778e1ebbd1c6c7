"""Whether the lanes of a warp still read memory together where each of them runs another iteration of a loop."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from ...ir.ops import For, Load, Value
from ...ir.traverse import free_values, walk
from ...ir.types import Pointer
from ..machine import WARP
from .affine import Affine
from .block_affine import BlockAffine

_NEAR = 16  # bytes: lanes that read global memory this far apart read it together
_BANKS = 32
_FEW = 2  # words that a bank may give to a warp
_RECORD = 4  # words: of neighbouring records of 16 bytes, as many as a load of all takes


def stay_together(loop: For, sums: BlockAffine, width: int, turn: Any = np.add) -> bool:
    """`turn`: how a lane's iteration comes from its number and the step's."""
    fixed = set(free_values(loop.body))
    loads = [op for op in walk(loop.body) if isinstance(op, Load) and op.ptr not in fixed]
    return all(_stays_together(op, sums, loop, width, turn) for op in loads)


def _stays_together(op: Load, sums: BlockAffine, loop: For, width: int, turn: Any) -> bool:
    assert isinstance(op.ptr.type, Pointer)
    address, space = sums.address(op.ptr), op.ptr.type.space
    if address is None:
        return space in ("shared", "local")
    by = address.slope(loop.body.args[0]) * loop.step
    if space != "shared":
        return space == "local" or (abs(by) <= _NEAR and not _moves_otherwise(address, loop))
    lane = np.arange(WARP)
    straight = address.slope(("thread_idx", 0)) * (lane % width)
    turned = (turn(lane, step) % width for step in range(width if turn is np.bitwise_xor else 1))
    return max(_conflicts(straight + by * iteration) for iteration in turned) <= max(_RECORD, _conflicts(straight))


def _moves_otherwise(address: Affine, loop: For) -> bool:
    """Whether the loop moves it by what is no multiple of its counter, such as `counter * stride`."""
    inside = {v for op in walk(loop.body) for v in op.results}
    return any(isinstance(basis, Value) and basis in inside for basis in address.coefficients)


def exchange_together(loads: Iterable[Load], sums: BlockAffine, loop: For, width: int) -> bool:
    """Whether lanes read shared memory together, and nothing else, where each runs the iteration of its own number for
    one thread of the row after the other, all of them for the same."""
    lane = np.arange(WARP)
    for op in loads:
        assert isinstance(op.ptr.type, Pointer)
        address = sums.address(op.ptr)
        if address is None or op.ptr.type.space != "shared":
            return False
        own = address.slope(loop.body.args[0]) * loop.step * (lane % width)
        if _conflicts(own + address.slope(("thread_idx", 1)) * (lane // width)) > _FEW:
            return False
    return True


def _conflicts(addresses: np.ndarray[tuple[int], np.dtype[np.int64]]) -> int:
    """How many words the busiest bank of shared memory gives to a warp."""
    words = np.unique(addresses // 4)
    return int(np.bincount(words % _BANKS).max())
