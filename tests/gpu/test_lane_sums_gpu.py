"""Lanes that add up in strips, and blocks side by side: products of matrices on a GPU, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import kernelgrad as kg
from contraction import CONTRACTION

cupy = pytest.importorskip("cupy")


# rows, inner, columns, block: few blocks and many, blocks that are rows or two of them and others, iterations left over
SHAPES = [
    (100, 64, 64, 64),
    (100, 37, 48, 64),
    (40000, 32, 64, 64),
    (40000, 27, 64, 64),
    (40001, 32, 16, 32),
    (40001, 32, 40, 64),
    (70000, 24, 8, 32),
    (32768, 31, 128, 256),
    (32768, 16, 256, 256),
    (32768, 8, 1024, 1024),
]


@pytest.mark.parametrize("primal", [True, False])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_product(shape: tuple[int, int, int, int], primal: bool) -> None:
    rows, inner, columns, block = shape
    settings = {} if primal else {"primal": False, "keep": "c"}
    gradient = kg.gradient(kg.compile(CONTRACTION)["k"], "c, a, b", **settings)
    random = np.random.default_rng(2)
    a, b, seed = random.random((rows, inner)), random.random((inner, columns)), random.standard_normal((rows, columns))
    device = [cupy.asarray(v) for v in (np.zeros_like(seed), a, b, np.array([rows, inner, columns], "u8"), seed)]
    d_a, d_b = cupy.ones((rows, inner)), cupy.ones((inner, columns))
    gradient[-(-rows * columns // block), block](*device, d_a, d_b)
    np.testing.assert_allclose(d_a.get(), 1 + seed @ b.T, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(d_b.get(), 1 + a.T @ seed, rtol=1e-9, atol=1e-9)
