"""Room behind a block's dynamic shared memory, for launches that ask for too little of it.

A kernel that indexes past what it was given then meets neither its own values nor the end of the worker's memory:
behind it lies as much as any block may have. The first bytes of it hold a pattern. Kernels use their shared memory
from the front, so one that needs more than it got writes there, which is found after its blocks have run; it costs a
normal launch the comparison. Arbitrary accesses are for the check mode to find.
"""

from __future__ import annotations

import ctypes

from .config import MAX_SHARED_BYTES

ROOM = MAX_SHARED_BYTES
_MARKED = 4096
_PATTERN = b"\xff" * _MARKED  # as floating-point numbers, NaN: what is only read there shows


def mark(address: int) -> None:
    ctypes.memset(address, 0xFF, _MARKED)


def written(address: int) -> int:
    """How many bytes from there on have been written to, 0 for none."""
    found = ctypes.string_at(address, _MARKED)
    return 0 if found == _PATTERN else len(found.rstrip(b"\xff"))
