"""Inputs that neighbouring threads read far apart, on a GPU."""

from __future__ import annotations

import numpy as np
import pytest

import kernelgrad as kg
from permuted_cases import BODIES, launch, source

cupy = pytest.importorskip("cupy")


@pytest.mark.parametrize("options", [{}, {"primal": False, "keep": "y", "assign": "x"}], ids=str)
@pytest.mark.parametrize("extents", [(3, 16, 20), (1, 33, 9), (70, 64, 128), (2, 1, 40)], ids=str)
@pytest.mark.parametrize("name", BODIES)
def test_gradients(name: str, extents: tuple[int, int, int], options: dict) -> None:
    kernel, n = kg.compile(source(name, "double"))["k"], extents[0] * extents[1] * extents[2]
    x, d_y = (np.random.default_rng(seed).random(n) for seed in range(2))
    expected, d_x = np.zeros(n), cupy.full(n, 7.0 if "assign" in options else 0.0)
    kg.gradient(kernel, "y, x")[launch(name, extents)](np.zeros(n), x, *extents, d_y.copy(), expected)
    given = cupy.zeros(n), cupy.asarray(x), *extents, cupy.asarray(d_y), d_x
    kg.gradient(kernel, "y, x", **options)[launch(name, extents)](*given)
    np.testing.assert_allclose(d_x.get(), expected, rtol=1e-12)
