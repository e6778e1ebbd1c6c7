"""Which launches store to all of a buffer, so that nothing is left of what it held (Note [Dead contents]).

It is tried out, once for a kind of launch: where numbers alone decide what a launch stores to, and it reads nothing of
what it writes, it may run as often as one likes. Two runs, on memory filled with one byte and then with another, tell:
a byte that nobody stored to is each time the one that was filled in.
"""

from __future__ import annotations

import numpy as np

from ..runtime.recording import TRACE
from ..runtime.scratch import Scratch, is_captured
from . import transfers
from .steps import LaunchStep, Step, meet
from .versions import Store

_MOST = 16  # kinds of launches of a kernel that are tried
_BYTES = (0xA5, 0x5A)


def find_coverage(step: Step, store: Store) -> None:
    """Before a step runs, within a budget."""
    if not isinstance(step, LaunchStep) or (kind := step.coverage_kind) is None or TRACE.get() is not None:
        return
    found, nbytes = step.facts.covered, sum(span.nbytes for span in step.writes)
    if kind in found or len(found) >= _MOST or nbytes > store.room or not _may_run_twice(step):
        return
    store.take(nbytes)
    try:
        found[kind] = frozenset(_covered(step))
    finally:
        store.take(-nbytes)


def _may_run_twice(step: LaunchStep) -> bool:
    if step.varies or step.reach or step.form.forward is not None or is_captured(step.device, step.stream):
        return False
    read = (*step.reads, *step.reread)
    return not any(meet(a, b) for k, a in enumerate(step.writes) for b in (*read, *step.writes[:k]))


def _covered(step: LaunchStep) -> list[str]:
    held = [Scratch(s.nbytes, s.device, step.stream).copy_from(s.address) for s in step.writes]
    left = [np.ones(span.nbytes, np.bool_) for span in step.writes]
    try:
        for byte in _BYTES:
            _fill(step, byte)
            step.run_again(step.stream)
            for span, bytes_left in zip(step.writes, left, strict=True):
                bytes_left &= transfers.read(span.address, span.nbytes, span.device, step.stream) == byte
    finally:
        for span, memory in zip(step.writes, held, strict=True):
            transfers.move(span.address, memory.address, span.nbytes, span.device, step.stream)
    return [span.name for span, bytes_left in zip(step.writes, left, strict=True) if not bytes_left.any()]


def _fill(step: LaunchStep, byte: int) -> None:
    for span in step.writes:
        transfers.fill(span.address, span.nbytes, bytes((byte,)), span.device, step.stream)
