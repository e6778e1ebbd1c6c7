"""__constant__ and __device__ variables."""

from __future__ import annotations

from typing import Any

import numpy as np

from .case import I32, Theme, floats, ints, zeros

theme = Theme()

PARAMS = np.dtype([("a", "f4"), ("n", "i4"), ("w", "f4", (2,))])
W = np.array([0.25, 0.5, 0.25], np.float32)


@theme.case(
    """
    __constant__ float W[3];
    __global__ void k(float* y, const float* x, int n) {
      int i = threadIdx.x + 1;
      if (i < n - 1) y[i] = W[0] * x[i - 1] + W[1] * x[i] + W[2] * x[i + 1];
    }
    """,
    zeros(20),
    floats(20),
    20,
    constants={"W": W},
)
def constant_array(y: Any, x: Any, n: int) -> Any:
    y[1:-1] = 0.25 * x[:-2] + 0.5 * x[1:-1] + 0.25 * x[2:]
    return y


@theme.case(
    """
    __constant__ int table[4] = {3, 1, 4, 1};
    __constant__ float scale = 2.5f;
    __device__ int offsets[2][2] = {{1, 2}, {3}};
    __device__ const double half = 0.5;
    __global__ void k(float* y) { int i = threadIdx.x; y[i] = table[i] * scale + offsets[i / 2][i % 2] + half; }
    """,
    zeros(4),
    block=4,
)
def initialised(y: Any) -> Any:
    return np.array([3, 1, 4, 1]) * 2.5 + np.array([1, 2, 3, 0]) + 0.5


@theme.case(
    """
    __device__ int counter = 10;
    __device__ float scratch[32];
    __global__ void k(float* y, const float* x) {
      int i = threadIdx.x;
      scratch[i] = x[i] * 2;
      __syncthreads();
      y[i] = scratch[31 - i] + counter;
    }
    """,
    zeros(32),
    floats(32),
)
def device_variables(y: Any, x: Any) -> Any:
    return x[::-1] * 2 + 10


@theme.case(
    """
    struct Params { float a; int n; float w[2]; };
    __constant__ Params params;
    namespace cfg { __constant__ int shift = 3; }
    __global__ void k(float* y) { int i = threadIdx.x;
    if (i < params.n) y[i] = params.a * i + params.w[i & 1] + cfg::shift; }
    """,
    zeros(8),
    block=8,
    constants={"params": np.array((2, 6, (0.5, 0.25)), PARAMS)},
)
def constant_struct(y: Any) -> Any:
    i = np.arange(6)
    y[:6] = 2 * i + np.where(i & 1, 0.25, 0.5) + 3
    return y


@theme.case(
    """
    __constant__ int lookup[16];
    __device__ int find(int v) { for (int i = 0; i < 16; ++i) if (lookup[i] == v) return i; return -1; }
    __device__ const int* row(int r) { return &lookup[4 * r]; }
    __global__ void k(int* y, const int* x) { int i = threadIdx.x; y[i] = find(x[i]) * 100 + row(i & 3)[1]; }
    """,
    zeros(8, I32),
    ints(8, 0, 60),
    block=8,
    constants={"lookup": np.arange(0, 48, 3)},
)
def constant_through_pointers(y: Any, x: Any) -> Any:
    found = np.where((x % 3 == 0) & (x < 48), x // 3, -1)
    return found * 100 + np.arange(0, 48, 3)[4 * (np.arange(8) & 3) + 1]


@theme.case(
    """
    static const float K[3] = {1.0f, 2.0f, 4.0f};
    const int N = 3;
    constexpr double EPS = 1e-3;
    #define SCALE 10
    enum { BIAS = 7 };
    __global__ void k(float* y) { float s = 0; for (int i = 0; i < N; ++i) s += K[i]; y[0] = s * SCALE + BIAS + EPS; }
    """,
    zeros(1),
    block=1,
)
def host_constants(y: Any) -> Any:
    return np.array([77.001])


@theme.case(
    """
    __device__ float* pointer;
    __device__ int flags[4];
    __global__ void k(float* y, int n) {
      if (threadIdx.x == 0) { pointer = y + 2; flags[1] = n; }
      __syncthreads();
      pointer[threadIdx.x] = flags[1] + threadIdx.x;
    }
    """,
    zeros(10),
    5,
    block=8,
)
def device_pointer(y: Any, n: int) -> Any:
    y[2:] = n + np.arange(8)
    return y
