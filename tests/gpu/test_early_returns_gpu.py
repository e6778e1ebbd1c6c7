"""Threads that return between barriers, on a GPU: no hang, and what the CPU gives."""

from __future__ import annotations

import numpy as np
import pytest

import kernelgrad as kg
from early_returns import LENGTHS, SOURCES

cupy = pytest.importorskip("cupy")


@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("name", SOURCES)
def test_gpu_gives_what_the_cpu_gives(name: str, n: int) -> None:
    gradient = kg.gradient(kg.compile(SOURCES[name])["k"], "y, x")
    rng = np.random.default_rng(n)
    x, y, seed = rng.random(32) * 0.9 + 0.05, rng.random(32), rng.standard_normal(32)
    host = [y, x, seed, np.zeros(32)]
    device = [cupy.asarray(a) for a in host]
    for y_, x_, d_y, d_x in (host, device):
        gradient[1, 32](y_, x_, n, d_y, d_x)
    for want, got in zip(host, device, strict=True):
        np.testing.assert_allclose(got.get(), want, rtol=1e-10, atol=1e-12)
