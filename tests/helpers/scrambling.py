"""Buffers that change between the two launches of a split, and both ways to be ready for that."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

from kernelgrad.launches.memory import saved_buffers

WAYS = ("chosen", "copied", "taped")  # how a split saves what may change


def scramble(arguments: Iterable[Any]) -> None:
    """Writes over all arrays, also those in structs: floats become NaN, integers zero."""
    for argument in arguments:
        if isinstance(argument, dict | list):
            scramble(argument.values() if isinstance(argument, dict) else argument)
        elif hasattr(argument, "dtype") and not isinstance(argument, np.generic):
            argument[...] = _nothing(np.dtype(argument.dtype))


def _nothing(dtype: np.dtype[Any]) -> Any:
    if dtype.names is not None:
        return tuple(_nothing(dtype[name]) for name in dtype.names)
    return np.full(dtype.shape, _nothing(dtype.base)) if dtype.shape else np.nan if dtype.kind == "f" else 0


def force(monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    """Has splits copy all buffers, or tape what is read of all of them."""
    if way != "chosen":
        monkeypatch.setattr(
            saved_buffers.Choice, "taped", lambda self, *_: self.options.changing if way == "taped" else frozenset()
        )
