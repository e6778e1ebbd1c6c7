"""Cases of which the suite runs some, and a long run (`-m slow`) all."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytest


def some(names: Iterable[str], one_in: int, first: int = 0) -> list[Any]:
    """All of them in a long run, else one in so many, from the first one on."""
    return [pytest.param(n, marks=() if k % one_in == first else pytest.mark.slow) for k, n in enumerate(names)]


def in_turn(cases: Iterable[Any], ways: Sequence[Any], rarely: Sequence[Any] = ()) -> list[Any]:
    """Pairs of a case and a way: the suite runs each case in one of the ways, and each way with its share of the cases;
    a long run has all pairs, and the ways that only it has. For ways that have most of their code in common, as a
    gradient with the kernel's own results has with the one without."""
    return [
        pytest.param(case, way, marks=() if j == k % len(ways) else pytest.mark.slow)
        for k, case in enumerate(cases)
        for j, way in enumerate((*ways, *rarely))
    ]
