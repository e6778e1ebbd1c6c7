"""How much work a function is: calls are counted, since seconds depend on the machine."""

from __future__ import annotations

import cProfile
import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kernelgrad
from garbage import collect_for_good

PACKAGE = str(Path(kernelgrad.__file__).parent)


def counted_calls(function: Callable[..., Any], *arguments: Any) -> tuple[int, Any]:
    """How many calls of the package's functions this makes, and its result.

    What others left behind is not collected meanwhile: its finalizers are no work of this function.
    """
    profile = cProfile.Profile()
    collect_for_good()
    gc.disable()
    try:
        result = profile.runcall(function, *arguments)
    finally:
        gc.enable()
    return sum(entry.callcount for entry in profile.getstats() if _is_ours(entry.code)), result  # type: ignore[attr-defined]


def _is_ours(code: Any) -> bool:
    """Builtins come as strings; what dataclasses make has no file."""
    return getattr(code, "co_filename", "").startswith(PACKAGE)
