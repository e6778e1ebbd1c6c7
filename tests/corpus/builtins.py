"""threadIdx, blockIdx, blockDim, gridDim in three dimensions."""

from __future__ import annotations

from typing import Any

import numpy as np

from .case import I32, Theme, floats, zeros

theme = Theme()


@theme.case(
    """
    __global__ void k(int* y) {
      int x = blockIdx.x * blockDim.x + threadIdx.x;
      int yy = blockIdx.y * blockDim.y + threadIdx.y;
      int z = blockIdx.z * blockDim.z + threadIdx.z;
      int w = gridDim.x * blockDim.x, h = gridDim.y * blockDim.y;
      y[(z * h + yy) * w + x] = x + 100 * yy + 10000 * z;
    }
    """,
    zeros((6, 4, 6), I32),
    grid=(2, 1, 3),
    block=(3, 4, 2),
)
def three_dimensions(y: Any) -> Any:
    z, yy, x = np.indices((6, 4, 6))
    return x + 100 * yy + 10000 * z


@theme.case(
    """
    __global__ void k(unsigned* y) {
      if (threadIdx.x == 1 && threadIdx.y == 2 && threadIdx.z == 1 && blockIdx.x == 1 && blockIdx.y == 0 &&
        blockIdx.z == 2) {
        dim3 g = gridDim, b(blockDim.x, blockDim.y, blockDim.z);
        uint3 t = threadIdx;
        y[0] = g.x; y[1] = g.y; y[2] = g.z; y[3] = b.x; y[4] = b.y; y[5] = b.z; y[6] = t.x + t.y + t.z;
        y[7] = warpSize;
      }
    }
    """,
    zeros(8, np.uint32),
    grid=(2, 1, 3),
    block=(3, 4, 2),
)
def as_objects(y: Any) -> Any:
    return np.array([2, 1, 3, 3, 4, 2, 4, 32])


@theme.case(
    """
    __device__ int global_id() { return blockIdx.x * blockDim.x + threadIdx.x; }
    __global__ void k(float* y, const float* x, int n) {
      for (int i = global_id(); i < n; i += blockDim.x * gridDim.x) y[i] = x[i] + gridDim.x;
    }
    """,
    zeros(1000),
    floats(1000),
    1000,
    grid=3,
    block=64,
)
def grid_stride_loop(y: Any, x: Any, n: int) -> Any:
    return x + 3


@theme.case(
    """
    __global__ void k(int* y, int n) {
      int i = n - 1 - threadIdx.x;               // unsigned arithmetic, converted back
      if (i >= 0) y[i] = (int)threadIdx.x - (int)blockDim.x;
      if (threadIdx.x - 1 > 100u) y[n] = 7;      // only thread 0: wraps
    }
    """,
    zeros(7, I32),
    6,
    block=16,
)
def unsigned_indices(y: Any, n: int) -> Any:
    return np.array([5 - 16, 4 - 16, 3 - 16, 2 - 16, 1 - 16, -16, 7])


@theme.case(
    """
    __global__ void k(int* y) {
      int tid = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
      int bid = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
      atomicAdd(y, 1);
      if (tid == 0) y[1 + bid] = bid;
    }
    """,
    zeros(9, I32),
    grid=(2, 2, 2),
    block=(4, 2, 8),
)
def linear_ids(y: Any) -> Any:
    return np.array([512, *range(8)])
