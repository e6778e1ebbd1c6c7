"""`kg.copy`, `kg.fill`, `kg.zeros`: what a recorded program does to arrays besides launching kernels."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np

from ..errors import ArgumentError
from ..runtime.arrays import ArrayView
from ..runtime.recording import RECORDER
from ..runtime.streams import current_stream
from .arrays import device_of, seen, zeros_like
from .record import Tape
from .steps import CopyStep, FillStep, Step

_UNFIT = {"b": "fc", "i": "fc", "u": "fc", "f": "c"}  # by an array's kind of numbers: the kinds that it cannot hold


def copy(target: Any, source: Any) -> None:
    to, of = seen("copy", target), seen("copy", source)
    _check_writable("copy", to)
    if to.dtype != of.dtype or to.nbytes != of.nbytes:
        raise ArgumentError(
            f"copy: the target is {to.dtype} of shape {to.shape}, the source {of.dtype} of shape {of.shape}"
        )
    on = target if device_of(to) is not None else source
    _record_or_run(CopyStep(to, of, current_stream(on)))


def fill(array: Any, value: Any) -> None:
    found = seen("fill", array)
    _check_writable("fill", found)
    if not isinstance(value, int | float | complex | np.generic):
        raise ArgumentError(f"fill: wants a number, got {type(value).__name__}")
    if not isinstance(found.dtype, np.dtype):
        raise ArgumentError(f"fill: arrays of {found.dtype} cannot be filled")
    _record_or_run(FillStep(found, _item(value, found.dtype).tobytes(), current_stream(array)))


def _item(value: Any, dtype: np.dtype[Any]) -> Any:
    """The number as the array will hold it: in range, and no float in integers."""
    given = np.asarray(value)
    made: Any = None
    if given.dtype.kind not in _UNFIT.get(dtype.kind, ""):
        with np.errstate(over="ignore"), suppress(OverflowError, TypeError, ValueError):
            made = given.astype(dtype)
    if made is None or (dtype.kind in "iu" and made != given):
        raise ArgumentError(f"fill: {value!r} is no number that an array of {dtype} can hold")
    return made


def zeros(shape: Any, dtype: Any, like: Any) -> Any:
    made = zeros_like(shape, dtype, like)
    tape = RECORDER.get()
    if isinstance(tape, Tape):
        tape.know_zeros(made)
    return made


def _check_writable(what: str, array: ArrayView) -> None:
    if not array.writable or array.tracked:
        raise ArgumentError(f"{what}: the array is read-only, or PyTorch's graph would not see that it is written")


def _record_or_run(step: Step) -> None:
    tape = RECORDER.get()
    if isinstance(tape, Tape):
        tape.do(step)
    else:
        step.run()
