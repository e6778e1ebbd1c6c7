"""Reverses in Python that give an adjoint's name to another array: `d_u = 3 * u * d_v` changes nothing."""

from __future__ import annotations

import dis
import inspect
from collections.abc import Callable
from functools import lru_cache
from itertools import pairwise
from types import CodeType
from typing import Any

_NEW = ("BINARY_OP", "UNARY_NEGATIVE")  # what an operator gives is an array of its own; that of a call may be a view


def lost_parameters(function: Callable[..., Any]) -> dict[int, tuple[str, str]]:
    """The parameters that become names of new arrays, by position: their names, and where."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return _lost(code) if isinstance(code, CodeType) else {}


@lru_cache(64)
def _lost(code: CodeType) -> dict[int, tuple[str, str]]:
    parameters = code.co_varnames[: code.co_argcount]
    found: dict[int, tuple[str, str]] = {}
    for made, stored in pairwise(dis.get_instructions(code)):
        name = stored.argval[0] if isinstance(stored.argval, tuple) else stored.argval
        new = made.opname in _NEW and not made.argrepr.endswith("=")  # d_u += ... is another one
        if new and stored.opname.startswith("STORE_FAST") and name in parameters:
            line = made.positions.lineno if made.positions is not None else code.co_firstlineno
            found[parameters.index(name)] = name, f"{code.co_filename}:{line}"
    return found
