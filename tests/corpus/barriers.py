"""__syncthreads in loops, branches and functions; after early exits; its counting forms."""

from __future__ import annotations

from typing import Any

import numpy as np

from .case import I32, Theme, floats, ints, zeros

theme = Theme()


@theme.case(
    """
    __global__ void k(float* y, const float* x, int n) {
      __shared__ float s[32];
      int t = threadIdx.x, i = blockIdx.x * 32 + t;
      if (i >= n) return;                      // before a barrier, as CUDA programs have it
      s[t] = x[i];
      __syncthreads();
      int last = min(32, n - (int)blockIdx.x * 32) - 1;
      y[i] = s[last - t];
    }
    """,
    zeros(80),
    floats(80),
    75,
    grid=3,
    exact=True,
)
def early_return_before_a_barrier(y: Any, x: Any, n: int) -> Any:
    for b in range(0, n, 32):
        e = min(b + 32, n)
        y[b:e] = x[b:e][::-1]
    return y


@theme.case(
    """
    __global__ void k(int* y, const int* x) {
      __shared__ int s[32];
      int t = threadIdx.x;
      s[t] = x[t];
      __syncthreads();
      for (int d = 1; d < 32; d *= 2) {
        int v = t >= d ? s[t - d] : 0;
        __syncthreads();
        s[t] += v;
        __syncthreads();
      }
      y[t] = s[t];
    }
    """,
    zeros(32, I32),
    ints(32),
)
def in_a_loop(y: Any, x: Any) -> Any:
    return np.cumsum(x)


@theme.case(
    """
    __global__ void k(int* y, int rounds, int mode) {
      __shared__ int s[16];
      int t = threadIdx.x;
      s[t] = t;
      __syncthreads();
      if (mode == 1) {
        int v = s[(t + 1) % 16];
        __syncthreads();
        s[t] = v * 2;
      } else {
        __syncthreads();
        s[t] = -1;
      }
      while (rounds-- > 0) {
        __syncthreads();
        int v = s[15 - t];
        __syncthreads();
        s[t] = v + 1;
        if (rounds == 1) break;
      }
      __syncthreads();
      y[t] = s[(t + 3) % 16];
    }
    """,
    zeros(16, I32),
    5,
    1,
    block=16,
)
def in_uniform_branches(y: Any, rounds: int, mode: int) -> Any:
    s = np.roll(np.arange(16), -1) * 2
    for _ in range(4):
        s = s[::-1] + 1
    return np.roll(s, -3)


@theme.case(
    """
    __global__ void k(float* y, const float* x) {
      __shared__ float s[16];
      int t = threadIdx.x;
      float keep = x[t] * 3, arr[4];
      for (int j = 0; j < 4; ++j) arr[j] = x[t] + j;
      int count = t * 2;
      s[t] = keep;
      __syncthreads();
      count += (int)s[0] * 0 + 1;
      float* p = &arr[t & 3];
      __syncthreads();
      y[t] = keep + s[15 - t] + arr[2] + *p + count;
    }
    """,
    zeros(16),
    floats(16),
    block=16,
)
def state_lives_across(y: Any, x: Any) -> Any:
    t = np.arange(16)
    return 3 * x + 3 * x[::-1] + (x + 2) + (x + (t & 3)) + 2 * t + 1


@theme.case(
    """
    __global__ void k(int* y, const int* x) {
      int t = threadIdx.x;
      int c = __syncthreads_count(x[t] > 0);
      int a = __syncthreads_and(x[t] > -1000);
      int o = __syncthreads_or(x[t] == 1000);
      int b = __syncthreads_and(t != 5);
      y[t] = c * 1000 + a * 100 + o * 10 + b;
    }
    """,
    zeros(50, I32),
    ints(50),
    block=50,
)
def counting_forms(y: Any, x: Any) -> Any:
    return np.full(50, (x > 0).sum() * 1000 + 100)


@theme.case(
    """
    __global__ void k(int* y, const int* x, int n) {
      __shared__ int best;
      int t = threadIdx.x;
      if (t == 0) best = -1000;
      __syncthreads();
      for (int base = 0; base < n; base += 8) {
        int i = base + t;
        if (i < n && x[i] > 40) { if (t % 2 == 0) atomicMax(&best, x[i]); }
        __syncthreads();
        if (best > 45) break;                  // the same for all threads
        __syncthreads();
      }
      __syncthreads();
      y[t] = best;
    }
    """,
    zeros(8, I32),
    ints(64, -50, 50),
    64,
    block=8,
)
def break_around_a_barrier(y: Any, x: Any, n: int) -> Any:
    best = -1000
    for base in range(0, n, 8):
        part = x[base : base + 8 : 2]
        best = max([best, *part[part > 40]])
        if best > 45:
            break
    return np.full(8, best)


@theme.case(
    """
    __device__ float block_sum(float v, float* s) {
      int t = threadIdx.x;
      s[t] = v;
      __syncthreads();
      for (int d = blockDim.x / 2; d > 0; d >>= 1) {
        if (t < d) s[t] += s[t + d];
        __syncthreads();
      }
      float r = s[0];
      __syncthreads();
      return r;
    }
    __global__ void k(float* y, const float* x, int n) {
      __shared__ float s[64];
      float m = block_sum(x[threadIdx.x], s) / n;
      float d = x[threadIdx.x] - m;
      float v = block_sum(d * d, s) / n;
      y[threadIdx.x] = d / sqrtf(v);
    }
    """,
    zeros(64),
    floats(64),
    64,
    block=64,
    rtol=1e-4,
    atol=1e-5,
)
def in_a_function_called_twice(y: Any, x: Any, n: int) -> Any:
    return (x - x.mean()) / x.std()


@theme.case(
    """
    __global__ void k(int* y, int n) {
      __shared__ int s[8];
      int t = threadIdx.x;
      if (t >= n) return;
      for (int r = 0; r < 3; ++r) {
        s[t] = t + r;
        __syncthreads();
        if (t == r) { y[t] += 1000; }
        int v = s[(t + 1) % n];
        __syncthreads();
        y[t] += v;
        if (t == 2 && r == 1) continue;
        y[t] += 100;
      }
    }
    """,
    zeros(8, I32),
    6,
    block=8,
)
def exit_then_loop_with_continue(y: Any, n: int) -> Any:
    t = np.arange(8)
    r = sum((t + 1) % n + k for k in range(3)) + 300 - 100 * (t == 2) + 1000 * (t < 3)
    return np.where(t < n, r, 0)


@theme.case(
    """
    __global__ void k(volatile int* y) {
      __shared__ int s[2];
      int t = threadIdx.x;
      if (t < 2) s[t] = t + 5;
      __threadfence_block();
      __syncthreads();
      y[t] = s[t & 1];
      __threadfence();
    }
    """,
    zeros(8, I32),
    block=8,
)
def fences(y: Any) -> Any:
    return 5 + (np.arange(8) & 1)
