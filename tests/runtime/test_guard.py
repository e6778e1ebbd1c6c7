"""A launch with too little dynamic shared memory, on the CPU: an error that says so, and no harm done."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from kernelgrad.errors import LaunchError

_TURN = """
__global__ void turn(double *y, const double *x, int n) {
  extern __shared__ double s[];
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  double kept = x[i] * 2;  // lives across the barrier: beside the shared memory
  s[t + n] = x[i] * x[i];
  __syncthreads();
  y[i] = s[blockDim.x - 1 - t + n] + kept;
}"""


def _turned(x: Any) -> Any:
    return (x.reshape(-1, 64) ** 2)[:, ::-1].ravel() + 2 * x


@pytest.mark.parametrize("blocks", [1, 3, 700])
@pytest.mark.parametrize(("given", "offset"), [(0, 0), (8, 0), (100, 0), (504, 0), (512, 1), (512, 400)])
def test_too_little_is_an_error_that_names_both_sizes(given: int, offset: int, blocks: int) -> None:
    kernel = kg.compile(_TURN)["turn"]
    x = np.random.default_rng(1).random(64 * blocks)
    with pytest.raises(LaunchError) as caught:
        kernel[blocks, 64, given](np.zeros(x.size), x, offset)
    words = str(caught.value).split()
    needed = int(words[words.index("least") + 1])
    assert given < needed <= (64 + offset) * 8
    assert f"got {given}" in str(caught.value)


@pytest.mark.parametrize("blocks", [1, 3, 700])
def test_enough_is_enough_before_and_after(blocks: int) -> None:
    kernel = kg.compile(_TURN)["turn"]
    x = np.random.default_rng(1).random(64 * blocks)
    for given in (512, 0, 512, 1024, 8, 512):
        y = np.zeros(x.size)
        if given < 512:
            with pytest.raises(LaunchError, match="dynamic shared memory"):
                kernel[blocks, 64, given](y, x, 0)
        else:
            kernel[blocks, 64, given](y, x, 0)
            np.testing.assert_array_equal(y, _turned(x))


def test_memory_that_is_read_only_shows_as_nan() -> None:
    kernel = kg.compile("""
        __global__ void k(double *y) { extern __shared__ double s[]; if (threadIdx.x == 0) s[0] = 1;
          __syncthreads(); y[threadIdx.x] = s[threadIdx.x]; }""")["k"]
    y = np.zeros(4)
    kernel[1, 4, 8](y)
    assert y[0] == 1 and np.isnan(y[1:]).all()


@pytest.mark.parametrize("given", [0, 16, 256, 496])
def test_derivatives(given: int) -> None:
    kernel = kg.compile(_TURN)["turn"]
    x, seed = np.random.default_rng(2).random((2, 64))
    for launch in (
        lambda size: kg.gradient(kernel, "y, x")[1, 64, size](np.zeros(64), x, 0, seed.copy(), np.zeros(64)),
        lambda size: kg.jvp(kernel, "y, x")[1, 64, size](np.zeros(64), x, 0, np.zeros(64), seed),
    ):
        launch(512)
        with pytest.raises(LaunchError, match=f"needs at least .* bytes of dynamic shared memory, got {given}"):
            launch(given)
