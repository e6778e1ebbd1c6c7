"""Work in processes of its own: libraries that do not get on with one another take turns, and where one crashes, the
others go on."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from typing import Any

Make = Callable[..., tuple[Mapping[str, Callable[[], float]], Any]]


class Crashed(Exception):
    """A process is gone; `name` says which."""

    def __init__(self, name: str):
        super().__init__(f"{name} crashed")
        self.name = name


class Apart:
    """A process in which `make(*arguments)` gives runs by name, and something about them, `told`. Both the function
    and what it is given go by pickle, the runs stay there."""

    def __init__(self, name: str, make: Make, *arguments: Any):
        context = multiprocessing.get_context("spawn")
        self.name = name
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, make, arguments), daemon=True)
        self._process.start()
        theirs.close()  # or the end of the process would not be seen
        self.names, self.told = self._answer()

    def runs(self) -> dict[str, Callable[[], float]]:
        return {name: lambda name=name: self._run(name) for name in self.names}  # type: ignore[misc]

    def _run(self, name: str) -> float:
        self._pipe.send(name)
        return float(self._answer())

    def _answer(self) -> Any:
        try:
            answer = self._pipe.recv()
        except (EOFError, ConnectionResetError):
            raise Crashed(self.name) from None
        if isinstance(answer, Exception):
            raise answer
        return answer

    def close(self) -> None:
        self._pipe.close()  # which ends it
        self._process.join()


def _serve(pipe: Connection, make: Make, arguments: tuple[Any, ...]) -> None:
    try:
        runs, told = make(*arguments)
        pipe.send((tuple(runs), told))
    except Exception as error:
        pipe.send(RuntimeError(f"{type(error).__name__}: {error}"))
        return
    while True:
        try:
            name = pipe.recv()
        except EOFError:
            return
        pipe.send(runs[name]())
