"""Gradients by integers on a GPU, asked for from Python."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from kernelgrad.errors import LaunchError

TEXT = """
__global__ void k(int *out, int *in, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(out, in[i] * in[0]);
}
__global__ void cubed(long long *out, const long long *in) { out[threadIdx.x] = in[threadIdx.x] * in[threadIdx.x] * 3; }
"""


def test_kernels() -> None:
    cupy: Any = pytest.importorskip("cupy")
    module = kg.compile(TEXT)
    arrays = [cupy.asarray(np.array(values, np.int32)) for values in ([0], [1, 2, 3, 4, 5], [1], [0] * 5)]
    with cupy.cuda.Stream(non_blocking=True) as stream:
        kg.gradient(module["k"], "out, in")[2, 4, 0, stream](*arrays[:2], 5, *arrays[2:])
        assert arrays[0].tolist() == [15] and arrays[3].tolist() == [16, 1, 1, 1, 1]
    arrays = [cupy.asarray(np.array(values)) for values in ([0, 0], [5, -7], [1, 2], [0, 0])]
    d_in = cupy.zeros(2)
    kg.gradient(module["cubed"], "out, in")[1, 2](*arrays[:3], d_in)
    assert arrays[0].tolist() == [75, 147] and arrays[2].tolist() == [0, 0] and d_in.tolist() == [30.0, -84.0]


def test_numbers_that_do_not_fit() -> None:
    cupy: Any = pytest.importorskip("cupy")
    arrays = [cupy.asarray(np.array(values, np.int32)) for values in ([0], [1 << 20], [1], [0])]
    with pytest.raises(LaunchError, match="has grown past what int32 holds"):
        kg.gradient(kg.compile(TEXT)["k"], "out, in")[1, 1](*arrays[:2], 1, *arrays[2:])
