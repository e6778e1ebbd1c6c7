"""Kernels whose threads return between barriers: the emitted text runs as the CPU backend does."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
from run_text import run_emitted

import kernelgrad as kg
from early_returns import SOURCES

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")


@pytest.mark.parametrize("name", SOURCES)
def test_emitted_text(name: str) -> None:
    kernel = kg.compile(SOURCES[name])["k"]
    rng = np.random.default_rng(3)
    x, y = rng.random((2, 32))
    want, got = y.copy(), y.copy()
    kernel[1, 32](want, x, 20)
    run_emitted(kernel.source, "k", 1, 32, (got, x, np.int32(20)))
    np.testing.assert_allclose(got, want, rtol=1e-13)
