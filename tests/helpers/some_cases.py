"""Cases of which the suite runs some, and a long run (`-m slow`) all."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def some(names: Iterable[str], one_in: int) -> list[Any]:
    """All of them in a long run, else one in so many."""
    return [pytest.param(n, marks=() if k % one_in == 0 else pytest.mark.slow) for k, n in enumerate(names)]
