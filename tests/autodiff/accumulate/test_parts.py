"""Launches with parts of larger arrays, of which a kernel may reach more than their size tells."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from every_plan import PLANS, forced

SOURCE = """__global__ void k(double *y, const double *x, const double *w, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * w[(int)(x[i] * 9) - 2];
}"""
N = 3197


@pytest.mark.parametrize("plan", PLANS)
def test_an_array_and_a_part_of_the_same_size(plan: str) -> None:
    """What was found for the first is not for the second."""
    x, w = np.random.default_rng(1).random((2, N))
    expected, d_w = np.zeros(14), np.zeros(14)
    np.add.at(expected, 3 + (x * 9).astype(int) - 2, x)
    with forced(plan):
        gradient: Any = kg.gradient(kg.compile(SOURCE)["k"], "y, x, w")
        for inside, weights, total in ((0.25 + x / 2, w[:6].copy(), np.zeros(6)), (x, w[3:9], d_w[3:9])):
            gradient[50, 64](np.zeros(N), inside, weights, N, np.ones(N), np.zeros(N), total)
    np.testing.assert_allclose(d_w, expected, rtol=1e-11)
