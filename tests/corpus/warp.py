"""Warps: shuffles, votes, matches, partial warps, warp-synchronous code."""

from __future__ import annotations

from typing import Any

import numpy as np

from .case import F64, I32, U32, U64, Theme, bits, floats, ints, zeros

theme = Theme()


@theme.case(
    """
    __global__ void k(float* y, const float* x) {
      float v = x[threadIdx.x];
      for (int d = 16; d > 0; d /= 2) v += __shfl_down_sync(0xffffffff, v, d);
      if ((threadIdx.x & 31) == 0) y[threadIdx.x / 32] = v;
    }
    """,
    zeros(3),
    floats(96),
    block=96,
)
def reduction(y: Any, x: Any) -> Any:
    return x.reshape(3, 32).sum(1)


@theme.case(
    """
    __global__ void k(int* y, const int* x) {
      int t = threadIdx.x, v = x[t];
      y[t] = __shfl_sync(0xffffffffu, v, (t * 7) & 31);
      y[32 + t] = __shfl_up_sync(0xffffffffu, v, 3);
      y[64 + t] = __shfl_xor_sync(0xffffffffu, v, 5);
      y[96 + t] = __shfl_down_sync(0xffffffffu, v, 1, 8);
      y[128 + t] = __shfl_sync(0xffffffffu, v, 2, 8);
      y[160 + t] = __shfl_up_sync(0xffffffffu, v, 2, 4);
    }
    """,
    zeros((6, 32), I32),
    ints(32),
)
def shuffles(y: Any, x: Any) -> Any:
    t = np.arange(32)
    up = np.where(t >= 3, t - 3, t)
    down8 = np.where(t % 8 < 7, t + 1, t)
    up4 = np.where(t % 4 >= 2, t - 2, t)
    return np.stack([x[t * 7 & 31], x[up], x[t ^ 5], x[down8], x[t // 8 * 8 + 2], x[up4]])


@theme.case(
    """
    __global__ void k(double* y, unsigned long long* u, const double* x, const unsigned long long* z) {
      int t = threadIdx.x;
      y[t] = __shfl_xor_sync(~0u, x[t], 31);
      u[t] = __shfl_sync(~0u, z[t], 0);
    }
    """,
    zeros(32, F64),
    zeros(32, U64),
    floats(32, dtype=F64),
    bits(32, U64),
    exact=True,
)
def wide_shuffles(y: Any, u: Any, x: Any, z: Any) -> Any:
    return x[::-1], np.full(32, z[0])


@theme.case(
    """
    __global__ void k(unsigned* y, const int* x) {
      int t = threadIdx.x;
      unsigned b = __ballot_sync(0xffffffff, x[t] > 0);
      y[t] = b;
      y[64 + t] = __popc(b & ((1u << (t & 31)) - 1)) + 100 * __any_sync(0xffffffff, x[t] > 1000)
                + 1000 * __all_sync(0xffffffff, x[t] > -1000) + 10000 * (__activemask() >> (t & 31) & 1);
    }
    """,
    zeros((2, 64), U32),
    ints(64),
    block=64,
)
def votes(y: Any, x: Any) -> Any:
    p = (x > 0).reshape(2, 32)
    ballot = np.array([sum(1 << i for i in range(32) if row[i]) for row in p], np.uint64)
    before = np.cumsum(p, 1) - p
    return np.stack([np.repeat(ballot, 32), before.ravel() + 11000])


@theme.case(
    """
    __global__ void k(int* y, const int* x, int n) {
      int t = threadIdx.x;                     // 48 threads: the second warp is half full
      unsigned mask = __ballot_sync(t < 32 ? 0xffffffffu : 0xffffu, t < n);
      int v = 0;
      if (t < n) {
        v = x[t];
        for (int d = 1; d < 32; d *= 2) { int o = __shfl_up_sync(mask, v, d); if ((t & 31) >= d) v += o; }
        y[t] = v;
      }
    }
    """,
    zeros(48, I32),
    ints(48),
    41,
    block=48,
)
def partial_warp(y: Any, x: Any, n: int) -> Any:
    y[:32] = np.cumsum(x[:32])
    y[32:n] = np.cumsum(x[32:n])
    return y


@theme.case(
    """
    __global__ void k(int* y) {
      int t = threadIdx.y * blockDim.x + threadIdx.x;      // warps go by the linear thread id
      int lane = t & 31;
      y[t] = __shfl_sync(0xffffffffu, t, 31 - lane) + 100 * (t / 32) * (warpSize == 32);
    }
    """,
    zeros(64, I32),
    block=(8, 8),
)
def linear_thread_id(y: Any) -> Any:
    t = np.arange(64)
    return t // 32 * 32 + 31 - t % 32 + 100 * (t // 32)


@theme.case(
    """
    __global__ void k(float* y, const float* x) {
      __shared__ volatile float s[64];
      int t = threadIdx.x;
      s[t] = x[t] + x[t + 32];
      s[t + 32] = 0;
      s[t] += s[t + 16]; s[t] += s[t + 8]; s[t] += s[t + 4]; s[t] += s[t + 2]; s[t] += s[t + 1];
      if (t == 0) y[0] = s[0];
    }
    """.replace(
        "s[t] += s[t + 16]; s[t] += s[t + 8]; s[t] += s[t + 4]; s[t] += s[t + 2]; s[t] += s[t + 1];",
        "__syncwarp();\n"
        + "\n".join(f"float v{d} = s[t + {d}]; __syncwarp(); s[t] += v{d}; __syncwarp();" for d in (16, 8, 4, 2, 1)),
    ),
    zeros(1),
    floats(64),
)
def syncwarp(y: Any, x: Any) -> Any:
    return np.array([x.sum()])


@theme.case(
    """
    __global__ void k(unsigned* y, const int* x) {
      int t = threadIdx.x, all;
      y[t] = __match_any_sync(0xffffffffu, x[t]);
      y[32 + t] = __match_all_sync(0xffffffffu, x[t], &all) + all;
      y[64 + t] = __match_all_sync(0xffffffffu, 7, &all) == 0xffffffffu && all;
    }
    """,
    zeros((3, 32), U32),
    ints(32, 0, 5),
)
def matches(y: Any, x: Any) -> Any:
    same = [sum(1 << j for j in range(32) if x[j] == v) for v in x]
    return np.array([same, [0] * 32, [1] * 32], np.uint64)


@theme.case(
    """
    __global__ void k(unsigned* y, int* z, const unsigned* x) {
      unsigned v = x[threadIdx.x], m = 0xffffffffu;
      unsigned a = __reduce_add_sync(m, v), b = __reduce_min_sync(m, v), c = __reduce_max_sync(m, v);
      unsigned d = __reduce_and_sync(m, v | 1), e = __reduce_or_sync(m, v), f = __reduce_xor_sync(m, v);
      int g = __reduce_min_sync(m, (int)v);
      if (threadIdx.x == 3) { y[0] = a; y[1] = b; y[2] = c; y[3] = d; y[4] = e; y[5] = f; z[0] = g; }
    }
    """,
    zeros(6, U32),
    zeros(1, I32),
    bits(32),
)
def reduce_functions(y: Any, z: Any, x: Any) -> Any:
    total = np.array([int(x.astype(np.uint64).sum()) & 0xFFFFFFFF], U32)[0]
    r = np.bitwise_and.reduce(x | U32(1)), np.bitwise_or.reduce(x), np.bitwise_xor.reduce(x)
    return np.array([total, x.min(), x.max(), *r]), np.array([x.view(I32).min()])


@theme.case(
    """
    __global__ void k(int* y, const int* x) {
      int t = threadIdx.x, v = x[t];
      if (t < 16) v = __shfl_xor_sync(0x0000ffffu, v, 1);       // half a warp
      else v = __shfl_xor_sync(0xffff0000u, v, 2) + 1000;
      for (int i = 0; i < 3; ++i) v += __shfl_sync(~0u, v, i);
      y[t] = v;
    }
    """,
    zeros(32, I32),
    ints(32, 0, 50),
)
def shuffles_in_branches_and_loops(y: Any, x: Any) -> Any:
    t = np.arange(32)
    v = np.where(t < 16, x[t ^ 1], x[t ^ 2] + 1000)
    for i in range(3):
        v = v + v[i]
    return v


@theme.case(
    """
    __global__ void k(int* y, int* count, const int* x) {
      int t = threadIdx.x, lane = t % 32;
      bool keep = x[t] % 3 == 0;
      unsigned m = __ballot_sync(0xffffffffu, keep);
      int base = 0;
      if (lane == 0) base = atomicAdd(count, __popc(m));
      base = __shfl_sync(0xffffffffu, base, 0);
      if (keep) y[base + __popc(m & ((1u << lane) - 1))] = x[t];
    }
    """,
    zeros(32, I32),
    zeros(1, I32),
    ints(32, 0, 100),
)
def compaction(y: Any, count: Any, x: Any) -> Any:
    kept = x[x % 3 == 0]
    y[: len(kept)] = kept
    return y, np.array([len(kept)])
