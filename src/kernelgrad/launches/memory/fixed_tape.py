"""Tapes of a size that the user gives, for launches whose tape would be counted: while a CUDA graph is captured the
host cannot wait for the count.

Every thread gets the same room. What is kept is counted all the same: the host looks whether that is room enough, or,
while a graph is captured, a kernel does so, and ends everything where it is not.
"""

from __future__ import annotations

import struct
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import Any

from ...errors import LaunchError
from ...kernel import Kernel
from ...runtime.arguments import Placement
from ...runtime.config import flat_launch
from ...runtime.launch import BoundArguments, Buffer

TAPE_BYTES: ContextVar[int | None] = ContextVar("kernelgrad tape_bytes", default=None)
_BLOCK = 256


def room_of(kernel: str, nbytes: int, threads: int, element: int) -> int:
    """How many elements of each kind a thread has room for; `element`: the bytes of one of each kind."""
    found = nbytes // (threads * element)
    if found < 1:
        raise LaunchError(f"{kernel}: tape_bytes={nbytes} is too little: one element each takes {threads * element:,}")
    return found


def require_room(counts: int, count: int, room: int, placement: Placement, stream: int | None) -> None:
    """`counts`: where what was counted is."""
    _run("require_room", counts, count, room, placement, stream)


def mark_starts(starts: int, count: int, step: int, placement: Placement, stream: int | None) -> None:
    _run("mark_starts", starts, count, step, placement, stream)


def _run(name: str, address: int, count: int, number: int, placement: Placement, stream: int | None) -> None:
    bound = BoundArguments(struct.pack("<Qqq", address, count, number), (Buffer("memory", address, 8 * count),))
    _kernel(name).run(flat_launch(-(-count // _BLOCK), _BLOCK, stream), bound, placement, {})


@cache
def _kernel(name: str) -> Kernel:
    found: Any = _module()[name]
    assert isinstance(found, Kernel)
    return found


@cache
def _module() -> Any:
    from ...api import load

    return load(Path(__file__).with_suffix(".cu"))
