"""The threads that run blocks on the CPU's cores, and each thread's scratch memory."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait

import numpy as np

_ALIGN = 64


_THREADS = "KERNELGRAD_CPU_THREADS"


def core_count() -> int:
    """The cores to use: $KERNELGRAD_CPU_THREADS, else all that this process may use."""
    wanted = os.environ.get(_THREADS, "")
    if wanted.isdigit() and int(wanted) > 0:
        return int(wanted)
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on Linux
        return os.cpu_count() or 1


class _Pool:
    """Made on first use, and again in a forked child, which inherits the object but not its threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._executor: ThreadPoolExecutor | None = None
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        self._lock, self._executor = threading.Lock(), None

    def executor(self) -> ThreadPoolExecutor:
        with self._lock:
            if self._executor is None:
                self._executor = ThreadPoolExecutor(core_count(), thread_name_prefix="kernelgrad")
            return self._executor


_pool = _Pool()


def run_chunks(run: Callable[[int, int], None], count: int, chunks_per_worker: int) -> None:
    """Call `run(begin, end)` over [0, count) in pieces, on all cores at once, and wait. The caller's thread helps."""
    workers = min(core_count(), count)
    size = max(1, -(-count // (workers * chunks_per_worker)))
    starts = iter(range(0, count, size))  # `next` on a range iterator is atomic, so workers may share it

    def work() -> None:
        for begin in starts:
            run(begin, min(begin + size, count))

    helpers = [_pool.executor().submit(work) for _ in range(workers - 1)]
    try:
        work()
    finally:
        wait(helpers)  # what they write to must outlive them
    for helper in helpers:
        helper.result()


_local = threading.local()


def scratch_memory(size: int) -> int:
    """The address of `size` bytes, aligned, that belong to the calling thread until it asks again."""
    memory: np.ndarray | None = getattr(_local, "memory", None)
    if memory is None or memory.nbytes < size + _ALIGN:
        memory = _local.memory = np.empty(size + _ALIGN, np.uint8)
    return -(-memory.ctypes.data // _ALIGN) * _ALIGN
