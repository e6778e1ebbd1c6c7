"""Gradients whose gathers are written for a launch: later launches with other numbers get their own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from tests.helpers.every_plan import forced

import kernelgrad as kg

ROUNDS = """
__global__ void k(double *y, const double *x, int n, int shift, int, int) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    y[i] = sin(x[(i + shift) % n]) * x[i];
}"""
ENDS = """
__global__ void k(double *y, const double *x, int n, int m, int last, int all) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    bool at_end = i == last;
    double a = 0, b = 0;
    if (i < n) { if (at_end) a = x[i] * x[i + 1]; }
    if (i < m) { if (at_end) b = sin(x[i + 2]); else b = x[i] * x[i]; }
    if (i < all) y[i] = a + b;
}"""
LAUNCHES = {
    "dividends that have gone round before": (ROUNDS, [(40, shift, 0, 0) for shift in (1, 41, 81, 5, 45)]),
    "dividends that have gone round often": (ROUNDS, [(40, shift, 0, 0) for shift in (2_147_483_600, 1_000_000)]),
    "one comparison under two guards": (ENDS, [(11, 40, 10, 40), (40, 11, 10, 40), (11, 11, 10, 40)]),
}


@pytest.mark.parametrize("name", LAUNCHES)
@pytest.mark.parametrize("plan", ["gathered", "gathered as on a GPU", "in two on a GPU"])
def test_each_launch_gets_the_gather_of_its_numbers(name: str, plan: str) -> None:
    source, numbers = LAUNCHES[name]
    for found, wanted in zip(_adjoints(source, numbers, plan), _adjoints(source, numbers, "one kernel"), strict=True):
        assert_allclose(found, wanted, rtol=1e-12)


def _adjoints(source: str, numbers: list[tuple[int, ...]], plan: str) -> list[Any]:
    """By one gradient, launch after launch."""
    chance = np.random.default_rng(3)
    y, x, d_y = np.zeros(64), chance.random(64), chance.random(64)
    with forced(plan):
        gradient = kg.gradient(kg.compile(source)["k"], "y, x", primal=False, keep="y", assign="x")
        found = [np.full(64, 7.0) for _ in numbers]
        for d_x, own in zip(found, numbers, strict=True):
            gradient[3, 16](y, x, *own, d_y, d_x)
    return found
