"""Arrays that a Python function uses and does not get as arguments: those of globals and closures."""

from __future__ import annotations

import dis
import inspect
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import CodeType
from typing import Any

from ..runtime.arrays import ArrayView, view


def captured_arrays(function: Callable[..., Any]) -> Iterator[tuple[str, ArrayView]]:
    """With the names that it uses for them."""
    for name, value in _captured(inspect.unwrap(function)):
        array = view(value)
        if array is not None and array.nbytes:
            yield name, array


def _captured(function: Any) -> Iterator[tuple[str, Any]]:
    code = getattr(function, "__code__", None)
    if not isinstance(code, CodeType):
        return  # it does not tell
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        with suppress(ValueError):  # a name that has no value yet
            yield name, cell.cell_contents
    names = {i.argval for i in dis.get_instructions(code) if i.opname == "LOAD_GLOBAL"}
    yield from ((name, function.__globals__[name]) for name in sorted(names) if name in function.__globals__)
