"""Shadows of shared memory are clear before any thread adds to them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg

THREADS, BLOCKS = 64, 2
SIZE = THREADS * BLOCKS
HEAD = "int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;"
TAIL = "__syncthreads(); y[i] = 3 * s[blockDim.x - 1 - t];"
# Each thread adds to a cell that another has cleared; in the last three, no barrier of the kernel's is between the two.
KERNELS = {
    "a_cell_for_each_thread": f"__shared__ double s[64]; {HEAD} s[t] = x[i]; {TAIL}",
    "more_cells_than_threads": f"__shared__ double s[160]; {HEAD} s[t] = x[i]; {TAIL}",
    "dynamic": f"extern __shared__ double s[]; {HEAD} s[t] = x[i]; {TAIL}",
    "cells_by_data": f"""__shared__ double s[64]; {HEAD} int c = cell[t];
        s[c] = x[i]; for (int k = 0; k < 3; k++) s[c] = s[c] * 2; y[i] = s[c] * 3;""",
    "cells_by_data_of_dynamic_size": f"""extern __shared__ double s[]; {HEAD} int c = cell[t];
        s[c] = x[i]; for (int k = 0; k < 3; k++) s[c] = s[c] * 2; y[i] = s[c] * 3;""",
    "warps": f"__shared__ double s[64]; {HEAD} int c = (t + 32) % 64; s[c] = x[i]; __syncwarp(); y[i] = 3 * s[c ^ 1];",
}
CELL = np.random.default_rng(4).permutation(THREADS).astype(np.int32)
LAUNCH = BLOCKS, THREADS, THREADS * 8


def made(name: str) -> Any:
    return kg.compile(f"__global__ void k(double *y, const double *x, const int *cell) {{ {KERNELS[name]} }}")["k"]


def wanted(kernel: Any, seed: Any) -> Any:
    """The kernels are linear: from what each element of x gives."""
    found = np.zeros(SIZE)
    for k in range(SIZE):
        x, y = np.zeros(SIZE), np.zeros(SIZE)
        x[k] = 1
        kernel[LAUNCH](y, x, CELL)
        found[k] = seed @ y
    return found


@pytest.mark.parametrize("name", KERNELS)
def test_threads_wait_until_shadows_are_clear(name: str) -> None:
    kernel = made(name)
    x, y, seed = np.random.default_rng(1).standard_normal((3, SIZE))
    want = wanted(kernel, seed)
    for primal in (False, True):
        gradient = kg.gradient(kernel, primal=primal)
        d_x = np.zeros(SIZE)
        gradient[LAUNCH](y.copy(), x, CELL, seed.copy(), d_x)
        np.testing.assert_array_equal(d_x, want)
        for order in (None, 1):
            d_x = np.zeros(SIZE)
            args = y.copy(), x, CELL, seed.copy(), d_x
            report = gradient.check(BLOCKS, THREADS, *args, shared=THREADS * 8, seed=order)
            assert report.ok, str(report)
            np.testing.assert_array_equal(d_x, want)


@pytest.mark.parametrize("name", KERNELS)
def test_of_a_split(name: str) -> None:
    kernel = made(name)
    forward, reverse = kg.split(kernel)
    x, y, seed = np.random.default_rng(2).standard_normal((3, SIZE))
    tape, d_x = forward[LAUNCH](y, x, CELL), np.zeros(SIZE)
    reverse[LAUNCH](tape, y, x, CELL, seed.copy(), d_x)
    np.testing.assert_array_equal(d_x, wanted(kernel, seed))
