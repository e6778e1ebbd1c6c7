"""Blocks that do the work of many, and loops that are blocks of a larger grid, on a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from block_turn_cases import SMALLER, STAYS
from derived import kernel_of
from every_plan import forced

cupy = pytest.importorskip("cupy")
CASES = {**SMALLER, **STAYS}
OPTIONS: dict[str, dict[str, Any]] = {"added": {}, "kept": {"keep": "y"}, "assigned": {"assign": "x, w"}}


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("name", CASES)
def test_values(name: str, options: str) -> None:
    """Those of the CPU, in which each block does its own work."""
    case, rng = CASES[name], np.random.default_rng(6)
    if options == "kept" and name == "read and stored":
        return  # it is no pure output
    adjoints = [rng.uniform(-1, 1, size) for size in case.sizes]
    host = [*case.arrays(), *case.numbers, *adjoints]
    device = [cupy.asarray(a) if isinstance(a, np.ndarray) else a for a in host]
    kg.gradient(kernel_of(case.source), "y, x, w", primal=False, **OPTIONS[options])[case.launch](*host)
    with forced("blocks in turns"):
        kg.gradient(kernel_of(case.source), "y, x, w", primal=False, **OPTIONS[options])[case.launch](*device)
    for want, got in zip(host, device, strict=True):
        if isinstance(want, np.ndarray):
            np.testing.assert_allclose(got.get(), want, rtol=1e-10, atol=1e-10)


def test_a_bias_of_very_many_rows() -> None:
    """As large as launches are that get it by themselves."""
    kernel = kernel_of("""__global__ void k(float *y, const float *x, const float *w, int n, int c) {
        int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] = tanhf(x[i] + w[i % c]); }""")
    n, c = 1 << 23, 768
    rng = cupy.random.default_rng(1)
    x, w, d_y = (rng.standard_normal(size, dtype=np.float32) for size in (n, c, n))
    gradient = kg.gradient(kernel, "y, x, w", primal=False, keep="y", assign="x, w")
    d_x, d_w = cupy.full(n, np.nan, np.float32), cupy.full(c, np.nan, np.float32)
    arguments = (cupy.zeros(n, np.float32), x, w, n, c)
    assert "_blocks" in gradient.source_for(n // 256, 256, *arguments)
    gradient[n // 256, 256](*arguments, d_y, d_x, d_w)
    each = cupy.asarray(d_y, np.float64) / cupy.cosh(x.astype(np.float64) + w[cupy.arange(n) % c]) ** 2
    np.testing.assert_allclose(d_x.get(), each.get(), rtol=1e-4, atol=1e-5)
    rows = cupy.concatenate([each, cupy.zeros(-n % c)]).reshape(-1, c)
    np.testing.assert_allclose(d_w.get(), rows.sum(axis=0).get(), rtol=1e-4, atol=1e-3)
