"""Work in child processes, so that a crash or an endless loop in generated code ends only itself."""

from __future__ import annotations

import os
import pickle
import signal
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

T = TypeVar("T")


class Child:
    """A forked process that runs a function. It dies after `seconds` of work."""

    def __init__(self, run: Callable[[], Any], seconds: int = 60):
        self._reading, writing = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            signal.setitimer(signal.ITIMER_PROF, seconds)
            signal.alarm(10 * seconds)  # in case that it only waits
            try:
                os.write(writing, pickle.dumps(run()))
            finally:
                os._exit(0)
        os.close(writing)

    def wait(self) -> Any:
        """What the function returned; None if it did not."""
        os.waitpid(self.pid, 0)
        return self.answer()

    def answer(self) -> Any:
        with os.fdopen(self._reading, "rb") as pipe:
            data = pipe.read()
        return pickle.loads(data) if data else None


def spread(run: Callable[[T], Any], tasks: Iterable[T], jobs: int) -> Iterator[tuple[T, Any]]:
    """The answers for all tasks as they come, `jobs` at a time."""
    running: dict[int, tuple[T, Child]] = {}
    waiting = iter(tasks)
    while True:
        while len(running) < jobs and (task := next(waiting, None)) is not None:
            child = Child(lambda task=task: run(task))  # type: ignore[misc]
            running[child.pid] = (task, child)
        if not running:
            return
        pid, _ = os.wait()
        task, child = running.pop(pid)
        yield task, child.answer()
