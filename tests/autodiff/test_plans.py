"""Every plan of accumulation at sizes that choose it, on the CPU, against formulas."""

from __future__ import annotations

from typing import Any

import pytest

from plan_cases import CASES


def _same(array: Any) -> Any:
    return array


@pytest.mark.parametrize("name", CASES)
def test_plan(name: str) -> None:
    CASES[name].check(_same, _same)
