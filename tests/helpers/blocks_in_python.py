"""Blocks that are Python functions, for the threads that run a launch's."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

from kernelgrad.runtime.cpu import ENTRY_TYPE
from kernelgrad.runtime.worker_code import Job
from kernelgrad.runtime.workers import run_job


def run_blocks(run: Callable[[int, int], object], count: int, helpers: int, first: int = 1, chunk: int = 1) -> None:
    """`run(begin, end)` over [0, count), by the caller and so many more threads."""

    def entry(_args: int, _launch: int, begin: int, end: int, _scratch: int, _status: int) -> None:
        run(begin, end)

    code = ENTRY_TYPE(entry)
    address = ctypes.cast(code, ctypes.c_void_p).value
    run_job(Job(address, b"", b"", None, count, chunk, first, 64, -1), helpers)
