"""Whether launches are being recorded (`kg.record`): what kernels look at when they are launched.

A `ContextVar`: other threads are not recorded, and to look costs tens of nanoseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any, Protocol

from ..errors import TapeError


class Recorder(Protocol):
    """What takes the place of a launch while it is recorded."""

    def launch(self, kernel: Any, launch: Any, args: tuple[Any, ...], keywords: Mapping[str, Any]) -> None: ...


RECORDER: ContextVar[Recorder | None] = ContextVar("kernelgrad recorder", default=None)


def refuse_while_recording(what: str) -> None:
    """For what changes arrays and has no reverse of its own."""
    recorder = RECORDER.get()
    if recorder is not None and not getattr(recorder, "is_open", False):  # inside a step whose reverse is the user's
        raise TapeError(f"{what} cannot be recorded: run it before or after kg.record()")
