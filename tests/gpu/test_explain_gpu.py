"""On a GPU: `explain` and `source_for` are of the plan that runs there."""

from __future__ import annotations

import numpy as np
import pytest

import kernelgrad as kg

cupy = pytest.importorskip("cupy")
N = 1 << 21
SQUARE = """__global__ void k(float *y, const float *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * x[i];
}"""


@pytest.mark.parametrize("first", [0, 1])
def test_what_is_explained_runs(first: int) -> None:
    """`first`: buffers that begin there are not aligned, and threads do one element each."""
    gradient = kg.gradient(kg.compile(SQUARE)["k"], "y, x")
    x = np.random.default_rng(4).random(N, dtype=np.float32)
    given = [cupy.zeros(N + first, cupy.float32)[first:] for _ in range(4)]
    given[1][...] = cupy.asarray(x)
    given[2][...] = 1
    args = (*given[:2], N, *given[2:])
    told, text = gradient.explain(N // 256, 256, *args), gradient.source_for(N // 256, 256, *args)
    gradient[N // 256, 256](*args)
    (plan,) = gradient._plans._found.values()  # one for all three
    (step,) = plan.steps
    assert "kernels, on a GPU:" in told and "on the CPU:" not in told
    assert (plan.variant.options.facts.vector is None) == bool(first)
    assert ("float4" in text) == (not first) and ("16 bytes at a time" in told) == (not first)
    assert step.kernel.source.split('extern "C"')[1] in text
    np.testing.assert_array_equal(cupy.asnumpy(given[3]), 2 * x)
