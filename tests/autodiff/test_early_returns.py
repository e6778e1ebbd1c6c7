"""Rule 7: threads that return between barriers. Read naively, the reverse sweep of a thread that left waits at barriers
which the others pass later, or never."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from derived import gradient_of, kernel_of
from early_returns import LENGTHS, SOURCES
from scrambling import scramble


@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("name", SOURCES)
def test_gradient(name: str, n: int) -> None:
    kernel = kernel_of(SOURCES[name])
    gradient = gradient_of(kernel, "y, x")
    rng = np.random.default_rng(n)
    x, y, seed = rng.random(32) * 0.9 + 0.05, rng.random(32), rng.standard_normal(32)

    def primal(x: Any, y: Any) -> Any:
        y = y.copy()
        kernel[1, 32](y, x, n)
        return y

    after, d_y, d_x = y.copy(), seed.copy(), np.zeros(32)
    gradient[1, 32](after, x, n, d_y, d_x)
    np.testing.assert_allclose(after, primal(x, y), rtol=1e-13)
    step = 2e-5
    for _ in range(4):
        v_x, v_y = rng.standard_normal((2, 32))
        change = primal(x + step * v_x, y + step * v_y) - primal(x - step * v_x, y - step * v_y)
        assert d_x @ v_x + d_y @ v_y == pytest.approx(change @ seed / (2 * step), rel=1e-5, abs=1e-6)
    for order in (None, 1, 2):
        report = gradient.check(1, 32, y.copy(), x, n, seed.copy(), np.zeros(32), seed=order)
        assert report.ok, str(report)


@pytest.mark.parametrize("name", SOURCES)
def test_split(name: str) -> None:
    kernel = kernel_of(SOURCES[name])
    rng = np.random.default_rng(1)
    x, y, seed = rng.random(32) * 0.9 + 0.05, rng.random(32), rng.standard_normal(32)
    d_y, d_x = seed.copy(), np.zeros(32)
    kg.gradient(kernel, "y, x")[1, 32](y.copy(), x, 20, d_y, d_x)
    forward, reverse = kg.split(kernel, "y, x")
    buffer, s_y, s_x = y.copy(), seed.copy(), np.zeros(32)
    tape = forward[1, 32](buffer, x, 20)
    scramble((buffer, x))
    reverse[1, 32](tape, buffer, x, 20, s_y, s_x)
    np.testing.assert_allclose(s_y, d_y, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(s_x, d_x, rtol=1e-12, atol=1e-14)
