"""Work in child processes, so that a crash or an endless loop in generated code ends only itself."""

from __future__ import annotations

import os
import pickle
import signal
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")


class Child:
    """A forked process that runs functions, each for at most `seconds` of work, and passes on what they return."""

    def __init__(self, *runs: Callable[[], Any], seconds: int = 60):
        self._reading, writing = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                for run in runs:
                    signal.setitimer(signal.ITIMER_PROF, seconds)
                    signal.alarm(10 * seconds)  # in case that it only waits
                    data = pickle.dumps(run())
                    os.write(writing, len(data).to_bytes(8, "little") + data)
            finally:
                os._exit(0)
        os.close(writing)

    def wait(self) -> Any:
        """What the only function returned; None if it did not."""
        os.waitpid(self.pid, 0)
        return next(iter(self.answers()), None)

    def answers(self) -> list[Any]:
        """What the functions returned, up to the one that did not."""
        with os.fdopen(self._reading, "rb") as pipe:
            found = []
            while header := pipe.read(8):
                found.append(pickle.loads(pipe.read(int.from_bytes(header, "little"))))
            return found


def spread(run: Callable[[T], Any], tasks: Iterable[T], jobs: int, each: int = 1) -> Iterator[tuple[T, Any]]:
    """The answers for all tasks as they come, `jobs` processes at a time, which do `each` so many."""
    running: dict[int, tuple[list[T], Child]] = {}
    waiting = list(tasks)[::-1]
    while True:
        while len(running) < jobs and waiting:
            batch = [waiting.pop() for _ in range(min(each, len(waiting)))]
            child = Child(*(partial(run, task) for task in batch))
            running[child.pid] = (batch, child)
        if not running:
            return
        pid, _ = os.wait()
        batch, child = running.pop(pid)
        answers = child.answers()
        yield from zip(batch, answers, strict=False)
        if len(answers) < len(batch):  # one ended its process: the others go on in a new one
            yield batch[len(answers)], None
            waiting += batch[len(answers) + 1 :][::-1]
