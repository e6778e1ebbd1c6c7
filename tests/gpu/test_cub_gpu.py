"""CUB's collectives on the GPU: values and gradients as on the CPU."""

from __future__ import annotations

import numpy as np
import pytest

import kernelgrad as kg
from cub_cases import CASES, SOURCE

cupy = pytest.importorskip("cupy")


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients(name: str) -> None:
    case = CASES[name]
    x = case.input()
    expected = case.expected(x)
    rng = np.random.default_rng(4)
    seeds = [rng.normal(size=y.shape) for y in expected]
    gradient = kg.gradient(kg.compile(SOURCE)[case.kernel])
    found = []
    for asarray, back in ((np.array, np.array), (cupy.array, cupy.asnumpy)):
        outputs, d_x = [asarray(np.zeros_like(y)) for y in expected], asarray(np.zeros_like(x))
        adjoints = [asarray(seed) for seed in seeds]
        gradient[case.grid, case.block](*outputs, asarray(x), *case.numbers, *adjoints, d_x)
        found.append((*map(back, outputs), back(d_x)))
    for y, right in zip(found[1], expected, strict=False):
        np.testing.assert_allclose(y, right, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(found[1][-1], found[0][-1], rtol=1e-9, atol=1e-9)
