"""Divisions of adjoints by one number: where they become products, and that these are right next to zero too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from kernelgrad.ir.ops import Apply, Op
from kernelgrad.ir.traverse import walk
from kernelgrad.runtime.config import make_launch

SOURCE = """__global__ void k(float *y, const float *x, const float *z) {
    __shared__ float s[64];
    int t = threadIdx.x, i = blockIdx.x * 64 + t;
    s[t] = x[i];
    __syncthreads();
    for (int d = 32; d > 0; d >>= 1) {
        if (t < d) s[t] += s[t + d];
        __syncthreads();
    }
    float total = s[0];
    y[i] = RESULT;
}"""
SHARES = SOURCE.replace("RESULT", "z[i] / total")
DECIDES = SOURCE.replace("RESULT", "z[i] / total < 0.5f ? z[i] / total : x[i] * total")
N = 128


def _divisions(gradient: Any) -> list[Op]:
    arrays = (np.zeros(N, np.float32),) * 3
    primal, _ = gradient.kernel.bind(arrays)
    variant = gradient.variant_for(gradient.settings.listed, make_launch(2, 64), primal)
    ops = [op for k in variant.kernels for op in walk(k.function.body)]
    return [op for op in ops if isinstance(op, Apply) and op.fn == "div" and op.result.type.is_float]  # type: ignore[union-attr]


@pytest.mark.parametrize("size", [1.0, 2e-39, 1e-42, 3e36, 1e-30])
def test_values(size: float) -> None:
    """Of a sum that is a denormal number, the reciprocal would be infinite."""
    rng = np.random.default_rng(0)
    x, z = ((rng.random(N) * size).astype(np.float32) for _ in range(2))
    seed = (rng.standard_normal(N) * min(1.0, size)).astype(np.float32)
    gradient = kg.gradient(kg.compile(SHARES)["k"], "y, x, z", primal=False, keep="y")
    assert len(_divisions(gradient)) == 1
    d_x, d_z = np.zeros(N, np.float32), np.zeros(N, np.float32)
    report = gradient.check(2, 64, np.zeros(N, np.float32), x, z, seed, d_x, d_z)
    assert not report.findings, str(report)
    total = x.reshape(2, 64).astype(np.float64).sum(axis=1, keepdims=True)
    g, values = seed.reshape(2, 64).astype(np.float64), z.reshape(2, 64).astype(np.float64)
    rough = 2e-3 if size < 1e-38 else 1e-5  # denormal numbers have few digits
    np.testing.assert_allclose(d_z.reshape(2, 64), g / total, rtol=rough)
    if size < 1e-40:  # beyond what a float holds, also as the rule has it
        return
    expected = -(g * values / total / total).sum(axis=1, keepdims=True) * np.ones((1, 64))
    np.testing.assert_allclose(d_x.reshape(2, 64), expected, rtol=100 * rough, atol=rough * abs(expected).max())


def test_what_the_kernel_stores_is_divided() -> None:
    kernel = kg.compile(SHARES)["k"]
    gradient = kg.gradient(kernel, "y, x, z")
    rng = np.random.default_rng(0)
    x, z = (rng.random(N, dtype=np.float32) for _ in range(2))
    y, value = np.zeros(N, np.float32), np.zeros(N, np.float32)
    kernel[2, 64](y, x, z)
    gradient.check(2, 64, value, x, z, np.ones(N, np.float32), np.zeros(N, np.float32), np.zeros(N, np.float32))
    np.testing.assert_array_equal(value, y)


def test_what_decides_is_divided() -> None:
    def compares(op: Op, ops: list[Op]) -> bool:
        return any(isinstance(o, Apply) and o.fn == "lt" and op.results[0] in o.args for o in ops)

    gradient = kg.gradient(kg.compile(DECIDES)["k"], "y, x, z", primal=False, keep="y")
    arrays = (np.zeros(N, np.float32),) * 3
    primal, _ = gradient.kernel.bind(arrays)
    variant = gradient.variant_for(gradient.settings.listed, make_launch(2, 64), primal)
    ops = [op for k in variant.kernels for op in walk(k.function.body)]
    assert any(compares(op, ops) for op in _divisions(gradient))
