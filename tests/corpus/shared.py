"""Shared memory: static, dynamic, several dimensions, structs."""

from __future__ import annotations

from typing import Any

import numpy as np

from .case import F64, I32, Theme, floats, ints, zeros

theme = Theme()


@theme.case(
    """
    __global__ void k(float* y, const float* x) {
      __shared__ float s[64];
      int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
      s[t] = x[i];
      __syncthreads();
      y[i] = s[63 - t];
    }
    """,
    zeros(192),
    floats(192),
    grid=3,
    block=64,
    exact=True,
)
def static_array(y: Any, x: Any) -> Any:
    return x.reshape(3, 64)[:, ::-1].ravel()


@theme.case(
    """
    extern __shared__ float s[];
    __global__ void k(float* y, const float* x) {
      int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
      s[t] = x[i] * 2;
      __syncthreads();
      y[i] = s[(t + 1) % blockDim.x];
    }
    """,
    zeros(100),
    floats(100),
    grid=2,
    block=50,
    shared=200,
    exact=True,
)
def dynamic_array(y: Any, x: Any) -> Any:
    return np.roll(x.reshape(2, 50) * 2, -1, 1).ravel()


@theme.case(
    """
    __global__ void k(double* y, const double* x, const int* n) {
      extern __shared__ __align__(8) unsigned char raw[];
      double* a = reinterpret_cast<double*>(raw);
      int* b = (int*)(a + blockDim.x);
      int t = threadIdx.x;
      a[t] = x[t]; b[t] = n[t];
      __syncthreads();
      int u = blockDim.x - 1 - t;
      y[t] = a[u] * b[u];
    }
    """,
    zeros(32, F64),
    floats(32, dtype=F64),
    ints(32),
    shared=32 * 12,
)
def dynamic_memory_carved_up(y: Any, x: Any, n: Any) -> Any:
    return (x * n)[::-1]


@theme.case(
    """
    __global__ void k(float* y, const float* x) {
      __shared__ float tile[8][9];
      int c = threadIdx.x, r = threadIdx.y;
      tile[r][c] = x[r * 8 + c];
      __syncthreads();
      y[r * 8 + c] = tile[c][r];
    }
    """,
    zeros((8, 8)),
    floats((8, 8)),
    block=(8, 8),
    exact=True,
)
def two_dimensions_with_padding(y: Any, x: Any) -> Any:
    return x.T


@theme.case(
    """
    struct Item { float v; int from; };
    __global__ void k(float* y, const float* x) {
      __shared__ Item items[16];
      __shared__ int count;
      __shared__ float2 pair;
      int t = threadIdx.x;
      items[t].v = x[t]; items[t].from = t;
      if (t == 0) { count = 16; pair = make_float2(1, 2); }
      __syncthreads();
      Item it = items[count - 1 - t];
      y[t] = it.v + it.from * pair.y + pair.x;
    }
    """,
    zeros(16),
    floats(16),
    block=16,
)
def structs_and_scalars(y: Any, x: Any) -> Any:
    return x[::-1] + np.arange(16)[::-1] * 2 + 1


@theme.case(
    """
    __device__ void reverse(float* s, int n) {
      int t = threadIdx.x;
      float v = s[t];
      __syncthreads();
      s[n - 1 - t] = v;
      __syncthreads();
    }
    __global__ void k(float* y, const float* x) {
      __shared__ float a[16], b[16];
      int t = threadIdx.x;
      a[t] = x[t]; b[t] = x[16 + t];
      reverse(a, 16);
      reverse(t < 100 ? b : a, 16);
      float* p = t & 1 ? a : b;
      y[t] = p[t];
    }
    """,
    zeros(16),
    floats(32),
    block=16,
    exact=True,
)
def passed_to_functions(y: Any, x: Any) -> Any:
    a, b = x[:16][::-1], x[16:][::-1]
    return np.where(np.arange(16) & 1, a, b)


@theme.case(
    """
    __device__ int* slot() { __shared__ int storage[32]; return storage; }
    template <int N> __device__ int total(int v) {
      __shared__ int parts[N];
      parts[threadIdx.x] = v;
      __syncthreads();
      int s = 0;
      for (int i = 0; i < N; ++i) s += parts[i];
      __syncthreads();
      return s;
    }
    __global__ void k(int* y, const int* x) {
      int t = threadIdx.x;
      slot()[t] = x[t];
      int a = total<32>(x[t]), b = total<32>(1);
      y[t] = slot()[31 - t] + a * 1000 + b;
    }
    """,
    zeros(32, I32),
    ints(32, 0, 10),
)
def declared_in_device_functions(y: Any, x: Any) -> Any:
    return x[::-1] + x.sum() * 1000 + 32


@theme.case(
    """
    __global__ void k(int* y, const int* x) {
      __shared__ int s[32];
      s[threadIdx.x] = x[blockIdx.x * 32 + threadIdx.x];
      __syncthreads();
      if (threadIdx.x == 0) { int t = 0; for (int i = 0; i < 32; ++i) t += s[i]; y[blockIdx.x] = t; }
    }
    """,
    zeros(40, I32),
    ints(40 * 32),
    grid=40,
)
def each_block_has_its_own(y: Any, x: Any) -> Any:
    return x.reshape(40, 32).sum(1)
