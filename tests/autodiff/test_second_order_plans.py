"""Second derivatives of gradients that have a GPU's plans: the same numbers, also where adjoints are zero."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cooperation_cases
import kernelgrad as kg
from kernelgrad.derivatives.gradient import Gradient
from kernelgrad.runtime.integers import Ways
from some_cases import some

CASES = """double_buffered_scan tree_sum tiled_product shuffles dynamic_shared_memory views_of_bytes layer_norm
    histogram_in_shared_memory bitonic_sort lanes_leave_by_data group_sum shared_total"""


def found(name: str) -> list[Any]:
    """What the gradient of the gradient leaves in all its arrays. Its tangents are random, its adjoints zero."""
    case, rng = cooperation_cases.CASES[name], np.random.default_rng(0)
    y, x, _ = cooperation_cases.inputs(3)
    made = kg.gradient(kg.gradient(case.compiled(), "y, x"))
    shapes = {"y": y.shape, "x": x.shape}
    slots = [rng.uniform(-1, 1, shapes[slot.of]) * (slot.role != "adjoint") for slot in made.slots]
    given = [y.copy(), x.copy(), case.n, *slots]
    made[case.launch](*given)
    return given


@pytest.mark.parametrize("name", some(CASES.split(), 4))
def test_zero_adjoints(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    want = found(name)
    monkeypatch.setattr(Gradient, "ways", staticmethod(lambda *_: Ways(on_gpu=True)))
    for got, right in zip(found(name), want, strict=True):
        np.testing.assert_allclose(got, right, rtol=1e-9, atol=1e-9)
