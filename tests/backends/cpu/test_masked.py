"""Indices that wrap at a power of two: LLVM 22.1 takes them for consecutive (Note [Masked indices]). Masked loads."""

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


def test_loads_behind_a_guard_stay_behind_it() -> None:
    """The neighbours of the first row are far outside: a load without its mask has no memory there."""
    taps = " + ".join(f"0.{k + 1} * x[(i + {k // 3 - 1}) * 16 + j + {k % 3 - 1}]" for k in range(9))
    kernel = kg.compile(f"""__global__ void k(double *y, const double *x) {{
        int j = threadIdx.x, i = blockIdx.y * blockDim.y + threadIdx.y;
        if (i > 0 && i < 15 && j > 0 && j < 15) y[i * 16 + j] = {taps};
    }}""")["k"]
    x, seed, d_x = np.zeros((16, 16)), np.random.default_rng(0).random((16, 16)), np.zeros((16, 16))
    kg.gradient(kernel, "y, x", primal=False)[(1, 2), (32, 8)](x.copy(), x, seed.copy(), d_x)
    expected = np.zeros((16, 16))
    for k in range(9):
        a, b = k // 3 - 1, k % 3 - 1
        expected[1 + a : 15 + a, 1 + b : 15 + b] += (k + 1) / 10 * seed[1:15, 1:15]
    np.testing.assert_allclose(d_x, expected)
