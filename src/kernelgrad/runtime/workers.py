"""The threads that run blocks on the CPU's cores.

Note [Worker pool]
A launch is a job: its code, its arguments, and the number of the next block, which whoever works on it advances. The
thread that launches puts the job into a list and works on it; threads of the pool sleep on a condition variable, take
the first job that still wants helpers, and work on it until no block is left. All of that is machine code without the
interpreter: waking them costs what the system takes.

The launching thread comes back to Python now and then, which looks for signals; so does a job that is waited for. An
interrupt has everybody stop at the next block, and waits until nobody works on the job: it lies in the launch's memory,
as its arguments do. Pieces of blocks between two looks grow until one takes some time, and go down to single blocks.

Threads are made as jobs want them and never end. A forked child has none of them, and begins with an empty pool; the
old one's memory is left alone. Threads of the pool block all signals: those are for Python's own.
"""

from __future__ import annotations

import ctypes
import os
import threading
from typing import Any, NamedTuple

import numpy as np

from ..cache import DiskCache, digest
from ..locks import once
from .worker_code import POOL_BYTES, SOURCE, Job

_ALIGN = 64
_SLICE = 50_000_000  # nanoseconds until Python looks for signals
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


class _Functions(NamedTuple):
    work: Any
    open: Any
    share: Any
    finish: Any
    code: tuple[Any, ...]


_TYPES = {
    "work": ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64),
    "open": ctypes.CFUNCTYPE(None, ctypes.c_void_p),
    "share": ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64),
    "finish": ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64),
}


@once
def _functions() -> _Functions:
    from ..backends.cpu.native import LoadedCode, compile_object, target_id

    key = digest("worker pool", SOURCE, target_id())
    made = DiskCache("cpu").get(key)
    if made is None:
        made = compile_object(SOURCE)
        DiskCache("cpu").put(key, made)
    code = {name: LoadedCode(made, f"kg.{name}") for name in _TYPES}
    found = {name: type(code[name].address) for name, type in _TYPES.items()}
    return _Functions(**found, code=tuple(code.values()))


class _Pool:
    """`address`: of its memory, which is never freed: threads sleep in it until the process ends."""

    def __init__(self) -> None:
        self._forget()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        self._memory: Any = None

    @property
    def address(self) -> int:
        if self._memory is None:
            memory = ctypes.create_string_buffer(POOL_BYTES + _ALIGN)
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(memory))
            _functions().open(_aligned(memory))
            self._memory = memory
        return _aligned(self._memory)


def _aligned(memory: Any) -> int:
    return -(-ctypes.addressof(memory) // _ALIGN) * _ALIGN


_pool_of_threads = _Pool()


def run_job(job: Job, helpers: int) -> None:
    """All blocks, with the help of so many threads."""
    functions, where = _functions(), ctypes.addressof(job)
    state = (ctypes.c_int64 * 3)(0, 0, job.first)
    scratch = scratch_memory(job.scratch_bytes)
    pool = _pool_of_threads.address if helpers else 0
    try:
        if helpers:
            functions.share(pool, where, helpers)
        while functions.work(where, ctypes.addressof(state), scratch, _SLICE):
            pass
        while helpers and functions.finish(pool, where, _SLICE):
            pass
    except BaseException:
        job.stopped = 1
        _wait(functions, pool, where)
        raise


def _wait(functions: _Functions, pool: int, job: int) -> None:
    """Until nobody works on it, whatever comes in between: the memory it lies in goes away."""
    left = bool(pool)
    while left:
        try:
            left = bool(functions.finish(pool, job, _SLICE))
        except BaseException:  # another interrupt: the first one is raised
            continue


_local = threading.local()


def scratch_memory(size: int) -> int:
    """The address of `size` bytes, aligned, that belong to the calling thread until it asks again."""
    memory: np.ndarray | None = getattr(_local, "memory", None)
    if memory is None or memory.nbytes < size + _ALIGN:
        memory = _local.memory = np.empty(size + _ALIGN, np.uint8)
    return -(-memory.ctypes.data // _ALIGN) * _ALIGN
