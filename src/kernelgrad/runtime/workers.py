"""The threads that run blocks on the CPU's cores, and each thread's scratch memory."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from queue import SimpleQueue
from time import perf_counter, sleep

import numpy as np

Run = Callable[[int, int], None]

_ALIGN = 64
_CALL_SECONDS = 0.05
_GROWTH = 16
_TICK = 0.001

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
    """Threads that wait for tasks, started as tasks need them, and anew in a forked child, which inherits none.

    They are daemons: an interrupt may come while one starts, and an interpreter that joined a thread nobody knows of
    would never end. No task runs at that time, since a launch waits for its own.
    """

    def __init__(self) -> None:
        self._forget()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        self._tasks: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._count = 0

    def submit(self, task: Callable[[], None], threads: int) -> None:
        """Has one of at least `threads` threads do the task. It must not raise."""
        while self._count < threads:
            threading.Thread(target=_serve, args=(self._tasks,), name="kernelgrad", daemon=True).start()
            self._count += 1
        self._tasks.put(task)


def _serve(tasks: SimpleQueue[Callable[[], None]]) -> None:
    while True:
        tasks.get()()


_pool = _Pool()


class Pace:
    """How many blocks one call runs. Python looks for signals between calls, so Ctrl-C waits for as long as one takes:
    sizes grow from `first` until a call takes some time, and go down to single blocks."""

    def __init__(self, first: int):
        self._size = first

    def run(self, run: Run, begin: int, end: int, crew: Crew | None = None) -> None:
        """`run` over [begin, end), as long as nobody stops the crew."""
        while begin < end and not (crew and crew.stopped):
            upto, start = min(begin + self._size, end), perf_counter()
            run(begin, upto)
            took = max(perf_counter() - start, 1e-9)
            self._size = max(1, int(self._size * min(_GROWTH, _CALL_SECONDS / took)))
            begin = upto


class Crew:
    """The threads that help with one launch. None of them works on when the launch is over, however it ended."""

    def __init__(self, body: Callable[[Crew], None]):
        self._body, self._changed, self._active = body, threading.Condition(), 0
        self._over = False
        self._error: BaseException | None = None
        self.stopped = False

    def help(self) -> None:
        with self._changed:
            if self._over:
                return
            self._active += 1
        error: BaseException | None = None
        try:
            self._body(self)
        except BaseException as raised:
            error = raised
        with self._changed:
            self._error = self._error or error
            self._active -= 1
            self._changed.notify_all()

    def finish(self) -> None:
        """Waits for those that work, tells the others that nothing is left, and raises what one of them raised."""
        with self._changed:
            self._over = True
            while self._active:
                self._changed.wait()
        if self._error is not None:
            raise self._error

    def dismiss(self) -> None:
        """Has them stop at the next block, and waits: what they write to must outlive them. Interrupts wait too."""
        interrupt: BaseException | None = None
        self.stopped = self._over = True
        while self._active:
            try:
                sleep(_TICK)
            except BaseException as error:
                interrupt = error
        if interrupt is not None:
            raise interrupt


def run_chunks(run: Run, count: int, chunks_per_worker: int, first: int = 1) -> None:
    """Call `run(begin, end)` over [0, count) in pieces, on all cores at once, and wait. The caller's thread helps.
    `first`: see `Pace`."""
    workers = min(core_count(), count)
    size = max(1, -(-count // (workers * chunks_per_worker)))
    starts = iter(range(0, count, size))  # `next` on a range iterator is atomic, so workers may share it

    def work(crew: Crew) -> None:
        pace = Pace(first)
        for begin in starts:
            pace.run(run, begin, min(begin + size, count), crew)

    crew = Crew(work)
    try:
        for _ in range(workers - 1):
            _pool.submit(crew.help, workers - 1)
        work(crew)
        crew.finish()
    finally:
        crew.dismiss()


_local = threading.local()


def scratch_memory(size: int) -> int:
    """The address of `size` bytes, aligned, that belong to the calling thread until it asks again."""
    memory: np.ndarray | None = getattr(_local, "memory", None)
    if memory is None or memory.nbytes < size + _ALIGN:
        memory = _local.memory = np.empty(size + _ALIGN, np.uint8)
    return -(-memory.ctypes.data // _ALIGN) * _ALIGN
