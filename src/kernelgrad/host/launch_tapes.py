"""Which launches had better keep what their reverse needs on a tape of their own than have whole buffers saved.

A launch that reads four numbers and needs one that it made of them has a tape a fourth as large as a copy. How large it
is shows when it is made. So once much was saved on behalf of one kind of launches, the next of them is tried with a
tape; if that takes at most `_SHARE` of what copies take, the others follow.

Not within a budget: steps that may be run again must not keep anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from .memory_map import Cell
from .steps import LaunchStep, Step

WORTH = 1 << 24  # bytes saved for one kind of launches, before a tape is tried
_SHARE = 0.6


@dataclass
class Kind:
    """`saved`: bytes of buffers that were overwritten, and that the reverses of so many launches alone read."""

    way: Literal["copies", "tried", "tape", "never"] = "copies"
    saved: int = 0
    launches: int = 0
    last: int = -1


class LaunchTapes:
    def __init__(self) -> None:
        self._kinds: dict[Any, Kind] = {}

    def choose(self, step: LaunchStep) -> None:
        """Before a launch."""
        kind = self._kinds.get(_key(step))
        if kind is None or kind.way == "never" or step.form.gradient is None:
            return
        if kind.way == "tape" or (kind.way == "copies" and kind.saved >= WORTH):
            kind.way = kind.way if step.use_tape() and kind.way == "tape" else "tried"

    def overwritten(self, steps: list[Step], by: Step, cells: list[Cell]) -> None:
        """Cells are about to be saved, since the next step writes them."""
        for cell in cells:
            if cell.need is None or cell.is_shared:
                continue
            reader = steps[cell.need.step] if cell.need.step < len(steps) else by
            if isinstance(reader, LaunchStep):
                kind = self._kinds.setdefault(_key(reader), Kind())
                kind.saved += cell.nbytes
                kind.launches += kind.last != cell.need.step
                kind.last = cell.need.step

    def done(self, step: Step) -> None:
        """After a launch."""
        kind = self._kinds.get(_key(step)) if isinstance(step, LaunchStep) else None
        if kind is not None and kind.way == "tried":
            kind.way = "tape" if 0 < step.tape_bytes <= _SHARE * kind.saved / kind.launches else "never"


def _key(step: LaunchStep) -> Any:
    return step.kernel, step.launch.grid, step.launch.block, tuple([b.nbytes for b in step.bound.buffers])
