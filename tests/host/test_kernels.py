"""Kernels of all kinds, recorded: what they were given is overwritten before the reverse."""

from __future__ import annotations

import pytest

from gradient_cases import ALL, Case
from recorded_kernels import compare


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in ALL[::3]])
def test_the_reverse_has_what_it_reads(case: Case) -> None:
    compare(case.compiled(), (case.grid, case.block), case.arguments("f8"))
