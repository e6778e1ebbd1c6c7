"""Whether launches are being recorded (`kg.record`), or written down to be run as one (Note [Traces]): what kernels
look at when they are launched.

A `ContextVar` for each: other threads are not recorded, and to look costs tens of nanoseconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol

from ..errors import TapeError

if TYPE_CHECKING:
    from .tracing import Trace


class Recorder(Protocol):
    """What takes the place of a launch while it is recorded."""

    def launch(self, kernel: Any, launch: Any, args: tuple[Any, ...], keywords: Mapping[str, Any]) -> None: ...

    def derivative(self, target: Any, launch: Any, args: tuple[Any, ...], keywords: Mapping[str, Any]) -> None: ...


RECORDER: ContextVar[Recorder | None] = ContextVar("kernelgrad recorder", default=None)
TRACE: ContextVar[Trace | None] = ContextVar("kernelgrad trace", default=None)


@contextmanager
def unrecorded() -> Iterator[None]:
    """For launches that are a part of what is recorded."""
    token = RECORDER.set(None)
    try:
        yield
    finally:
        RECORDER.reset(token)


def refuse_while_recording(what: str) -> None:
    """For what changes arrays and has no reverse of its own."""
    if _recorder() is not None:
        raise TapeError(f"{what} cannot be recorded: run it before or after kg.record()")


def is_recorded(target: Any, launch: Any, args: tuple[Any, ...], keywords: Mapping[str, Any]) -> bool:
    """Whether a recording has taken the launch of a derivative."""
    recorder = _recorder()
    if recorder is not None:
        recorder.derivative(target, launch, args, keywords)
    return recorder is not None


def _recorder() -> Recorder | None:
    """Not inside a step whose reverse is the user's."""
    recorder = RECORDER.get()
    return None if getattr(recorder, "is_open", False) else recorder


def refuse_look() -> None:
    """For who would read memory."""
    if TRACE.get() is not None:
        raise TapeError(
            "this program cannot be fixed: how its reverse goes depends on what memory holds (how long a tape must be,"
            " or whether an adjoint is zero); use tape.backward"
        )
