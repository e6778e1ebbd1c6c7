"""A value loaded in a branch, whose memory the branch then overwrites (see backends/cpu/frozen.py)."""

import numpy as np
import pytest

import kernelgrad as kg

SOURCE = """
__global__ void k(double* y, double* p, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  double d = 0;
  if (i < n) { d = p[i]; p[i] = 0; }
  __syncthreads();
  y[i] = d;
}
"""


@pytest.mark.parametrize(("block", "n"), [(32, 50), (64, 64), (16, 7), (256, 500)])
def test_the_value_from_before_the_store(block: int, n: int) -> None:
    kernel = kg.compile(SOURCE)["k"]
    before = np.arange(2 * block) + 1.0
    y, p = np.full(2 * block, -1.0), before.copy()
    kernel[2, block](y, p, n)
    inside = np.arange(2 * block) < n
    np.testing.assert_array_equal(y, np.where(inside, before, 0.0))
    np.testing.assert_array_equal(p, np.where(inside, 0.0, before))
