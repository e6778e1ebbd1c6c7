"""Room behind a block's dynamic shared memory, for launches that ask for too little of it.

A kernel that indexes past what it was given then meets neither its own values nor the end of the worker's memory:
behind it lies as much as any block may have. The first bytes of it hold a pattern. Kernels use their shared memory
from the front, so one that needs more than it got writes there, which is found after its blocks have run; it costs a
normal launch the comparison. Arbitrary accesses are for the check mode to find.
"""

from __future__ import annotations

from .config import MAX_SHARED_BYTES

ROOM = MAX_SHARED_BYTES
MARKED = 4096  # bytes, all of them 0xff: as floating-point numbers, NaN, so that what is only read there shows
