"""Every kernel of `gradient_cases`: reverse against forward mode against finite differences, float against double, and
no race or stray access in what the gradient does."""

from __future__ import annotations

import numpy as np
import pytest

import kernelgrad as kg
from gradient_cases import ALL, Case, adjoints, run_gradient

EVERY = pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in ALL])


def half(of: int) -> pytest.MarkDecorator:
    """Every other case, in a long run all of them."""
    slow = pytest.mark.slow
    cases = [pytest.param(case, id=case.name, marks=() if k % 2 == of else slow) for k, case in enumerate(ALL)]
    return pytest.mark.parametrize("case", cases)


@EVERY
def test_reverse_forward_and_differences_agree(case: Case) -> None:
    report = kg.check_gradient(case.compiled(), case.listed, case.grid, case.block, case.arguments("f8"))
    assert report.ok or not case.smooth, report


@half(0)
def test_float_gives_what_double_gives(case: Case) -> None:
    single, double = run_gradient(case, "float", "f4"), run_gradient(case, "double", "f8")
    for got, want in zip(single, double, strict=True):
        for name in got.dtype.names or (None,):
            one, other = (got, want) if name is None else (got[name], want[name])
            scale = max(1.0, float(np.abs(other).max())) if other.size else 1.0
            np.testing.assert_allclose(one, other, rtol=0, atol=case.tolerance * scale, err_msg=case.name)


@half(1)
def test_the_check_mode_finds_nothing(case: Case) -> None:
    args = case.arguments("f8")
    gradient = kg.gradient(case.compiled(), case.listed)
    report = gradient.check(case.grid, case.block, *args, *adjoints(case, args), seed=5)
    assert report.ok, report
