"""Every plan of accumulation at sizes that choose it, on a GPU, against formulas."""

from __future__ import annotations

import pytest

from plan_cases import CASES

cupy = pytest.importorskip("cupy")


@pytest.mark.parametrize("name", CASES)
def test_plan(name: str) -> None:
    CASES[name].check(cupy.asarray, lambda a: a.get())
