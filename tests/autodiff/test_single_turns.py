"""Rows that a block has in one turn, or in part of one: what tells its elements from those of other rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from derived import gradient_of, kernel_of
from kernelgrad.runtime.config import make_launch

ROTARY = """__global__ void k(double *y, const double *q, int n, int heads, int hs) {
    int e = hs / 2;
    for (int i = threadIdx.x; i < heads * e; i += blockDim.x) {
        int at = blockIdx.x * n + i / e * hs, r = i % e;
        double a = q[at + r], b = q[at + e + r];
        y[at + r] = a * 0.6 - b * b * 0.8;
        y[at + e + r] = b * 0.6 + a * a * 0.8;
    }
}"""
ROWS, HEADS, WIDTH = 5, 4, 16
N = HEADS * WIDTH


def launched(gradient: Any, block: int, n: int) -> tuple[np.ndarray, Any]:
    rng = np.random.default_rng(block)
    y, q, d_y, d_q = (rng.uniform(-1, 1, ROWS * N) for _ in range(4))
    plan = gradient.planned(make_launch(ROWS, block), (y, q, n, HEADS, WIDTH), {}, on_gpu=True).plan
    seed, before = d_y.copy(), d_q.copy()
    gradient[ROWS, block](y, q, n, HEADS, WIDTH, d_y, d_q)
    t_q, t_y = rng.uniform(-1, 1, q.size), np.zeros_like(y)
    if n == N:
        kg.jvp(kernel_of(ROTARY), "y, q")[ROWS, block](y, q, n, HEADS, WIDTH, t_y, t_q)
        np.testing.assert_allclose((d_q - before) @ t_q, seed @ t_y, rtol=1e-12)
    return d_q, plan.variant.source(0)


@pytest.mark.parametrize("block", [8, 16, 32, 33, 64, 100, 128])
def test_rows_in_one_turn(block: int) -> None:
    gradient = gradient_of(kernel_of(ROTARY), "y, q", primal=False, keep="y")
    _, text = launched(gradient, block, N)
    assert ("atomicAdd" not in text and "warp_add" not in text) or block in (33, 100)


@pytest.mark.parametrize("block", [16, 32, 64, 128])
def test_rows_that_overlap(block: int) -> None:
    """A row begins in the one before: elements are several blocks'."""
    gradient = gradient_of(kernel_of(ROTARY), "y, q", primal=False)
    _, text = launched(gradient, block, N - WIDTH)
    assert "atomicAdd" in text or "warp_add" in text
