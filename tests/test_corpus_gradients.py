"""The gradient of every kernel of the corpus that has floating-point parameters: right, or refused with an error of
ours. Finite differences may differ where a kernel is not differentiable, which many here are not."""

from __future__ import annotations

import contextlib

import pytest

import kernelgrad as kg

from .corpus import ALL, Case
from .corpus.build import build


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
@pytest.mark.filterwarnings("ignore:.*nothing that is differentiable:UserWarning")
@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in ALL if "gradient" not in case.skip])
def test_right_or_refused(case: Case) -> None:
    kernel = build(case)
    try:
        gradient = kg.gradient(kernel)
    except kg.ArgumentError as error:
        assert "nothing to differentiate" in str(error)
        return
    except kg.UnsupportedError as error:
        assert "^" in str(error) or error.span.line == 0
        return
    assert gradient.source
    with contextlib.suppress(kg.UnsupportedError):  # it cannot be widened to double, or has no forward mode
        kg.check_gradient(kernel, None, case.grid, case.block, case.args(), shared=case.shared)
