"""What phases are asked to do, and for whom."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from llvmlite import ir

from ...ir.ops import Value


@dataclass(frozen=True)
class Step:
    """Something to do for each thread at the end of a phase, with the values it needs."""

    uses: tuple[Value, ...]
    emit: Callable[[], None]


@dataclass(frozen=True)
class Active:
    """The threads that take part (Note [Masks] in `blocks`). `parted`: some that are live may not."""

    mask: ir.Value | None = None
    parted: bool = False
