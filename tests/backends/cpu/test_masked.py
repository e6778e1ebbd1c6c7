"""Indices that wrap at a power of two: LLVM 22.1 takes them for consecutive (Note [Masked indices])."""

import numpy as np
import pytest

import kernelgrad as kg

SOURCE = """
__global__ void k(double* y, const double* x) {
  int t = threadIdx.x, first = blockIdx.x * blockDim.x;
  y[first + t] = x[first + (INDEX)];
}
__global__ void loop(double* y, const double* x) {
  int first = threadIdx.x * 64;
  for (int t = 0; t < 64; ++t) y[first + t] = x[first + (t + 3) % 64];
}
"""


@pytest.mark.parametrize("size", [8, 16, 32, 64, 256])
@pytest.mark.parametrize("index", ["(t + 1) % blockDim.x", "(t + 3) & (SIZE - 1)", "(unsigned char)(t + 200)"])
def test_neighbours_in_a_block(size: int, index: str) -> None:
    module = kg.compile(SOURCE, defines={"SIZE": size, "INDEX": index})
    x = np.arange(4 * 256.0)
    y = np.zeros(4 * size)
    module["k"][4, size](y, x)
    t = np.arange(size)
    wrapped = {"(t + 1) % blockDim.x": (t + 1) % size, "(t + 3) & (SIZE - 1)": (t + 3) % size}
    within = wrapped.get(index, (t + 200) % 256)
    np.testing.assert_array_equal(y, np.concatenate([x[b * size + within] for b in range(4)]))


def test_a_loop_of_the_users() -> None:
    x = np.arange(256.0)
    y = np.zeros(256)
    kg.compile(SOURCE, defines={"SIZE": 64, "INDEX": "t"})["loop"][1, 4](y, x)
    np.testing.assert_array_equal(y, np.roll(x.reshape(4, 64), -3, axis=1).ravel())
