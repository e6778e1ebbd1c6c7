"""Atomic functions on shared and global memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from .case import F64, I32, I64, U32, U64, Theme, bits, floats, full, ints, of, zeros

theme = Theme()


@theme.case(
    """
    __global__ void k(int* a, float* f, double* d, unsigned long long* u, const int* x) {
      int v = x[blockIdx.x * blockDim.x + threadIdx.x];
      atomicAdd(a, v); atomicAdd(f, 0.5f * v); atomicAdd(d, 0.25 * v); atomicAdd(u, (unsigned long long)(v + 100));
      atomicSub(a + 1, v);
    }
    """,
    zeros(2, I32),
    zeros(1),
    zeros(1, F64),
    zeros(1, U64),
    ints(256),
    grid=8,
)
def add(a: Any, f: Any, d: Any, u: Any, x: Any) -> Any:
    s = x.sum()
    return np.array([s, -s]), np.array([s / 2]), np.array([s / 4]), np.array([s + 25600])


@theme.case(
    """
    __global__ void k(int* m, unsigned* u, long long* l, const int* x, const unsigned* z) {
      int i = threadIdx.x;
      atomicMin(&m[0], x[i]); atomicMax(&m[1], x[i]); atomicMin(&u[0], z[i]); atomicMax(&u[1], z[i]);
      atomicMax(l, (long long)x[i] << 20);
    }
    """,
    of([1000, -1000], I32),
    of([0xFFFFFFFF, 0], U32),
    of([-(2**60)], I64),
    ints(32),
    bits(32),
)
def min_and_max(m: Any, u: Any, a: Any, x: Any, z: Any) -> Any:
    return np.array([x.min(), x.max()]), np.array([z.min(), z.max()]), np.array([int(x.max()) << 20])


@theme.case(
    """
    __global__ void k(unsigned* u, const unsigned* x) {
      int i = threadIdx.x;
      atomicAnd(&u[0], x[i] | 0xff); atomicOr(&u[1], x[i] & 0xf0f0); atomicXor(&u[2], x[i]);
      atomicInc(&u[3], 9); atomicDec(&u[4], 5);
    }
    """,
    of([0xFFFFFFFF, 0, 0, 0, 0], U32),
    bits(32),
)
def bitwise_and_wrapping(u: Any, x: Any) -> Any:
    a = np.bitwise_and.reduce(x | U32(0xFF))
    o = np.bitwise_or.reduce(x & U32(0xF0F0))
    return np.array([a, o, np.bitwise_xor.reduce(x), 32 % 10, (-32) % 6], np.uint64)


@theme.case(
    """
    __global__ void k(int* y, int* counter) {
      int i = blockIdx.x * blockDim.x + threadIdx.x;
      int p = atomicAdd(counter, 1);
      y[p] = 1;
      if (i == 0) atomicExch(&counter[1], 42);
      int old = atomicCAS(&counter[2], 7, 100);
      if (old == 7) counter[3] = 5;              // exactly one thread wins
    }
    """,
    zeros(64, I32),
    of([0, 0, 7, 0], I32),
    grid=2,
)
def returned_values(y: Any, counter: Any) -> Any:
    return np.ones(64), np.array([64, 42, 100, 5])


@theme.case(
    """
    __device__ float atomic_max(float* p, float v) {
      int* q = (int*)p;
      int old = *q, seen;
      do {
        seen = old;
        old = atomicCAS(q, seen, __float_as_int(fmaxf(v, __int_as_float(seen))));
      } while (seen != old);
      return __int_as_float(old);
    }
    __global__ void k(float* y, const float* x) { atomic_max(y, x[blockIdx.x * 32 + threadIdx.x]); }
    """,
    full(1, -100),
    floats(128),
    grid=4,
    exact=True,
    races=True,
)
def compare_and_swap_loop(y: Any, x: Any) -> Any:
    return np.array([x.max()])


@theme.case(
    """
    __device__ double add_double(double* address, double val) {
      unsigned long long* p = (unsigned long long*)address;
      unsigned long long old = *p, assumed;
      do {
        assumed = old;
        old = atomicCAS(p, assumed, __double_as_longlong(val + __longlong_as_double(assumed)));
      } while (assumed != old);
      return __longlong_as_double(old);
    }
    __global__ void k(double* y, const double* x) { add_double(&y[threadIdx.x % 3], x[threadIdx.x]); }
    """,
    zeros(3, F64),
    floats(64, dtype=F64),
    block=64,
    races=True,
)
def double_add_by_hand(y: Any, x: Any) -> Any:
    return np.array([x[i::3].sum() for i in range(3)])


@theme.case(
    """
    __global__ void k(int* y, const int* x) {
      __shared__ int bins[8];
      int t = threadIdx.x;
      if (t < 8) bins[t] = 0;
      __syncthreads();
      atomicAdd(&bins[x[blockIdx.x * blockDim.x + t] & 7], 1);
      __syncthreads();
      if (t < 8) atomicAdd(&y[t], bins[t]);
    }
    """,
    zeros(8, I32),
    ints(256, 0, 1000),
    grid=4,
    block=64,
)
def in_shared_memory(y: Any, x: Any) -> Any:
    return np.bincount(x & 7, minlength=8)


@theme.case(
    """
    struct Stats { int count; float sum; int range[2]; };
    __global__ void k(float* y, const float* x) {
      __shared__ Stats s;
      if (threadIdx.x == 0) { s.count = 0; s.sum = 0; s.range[0] = 1000; s.range[1] = -1000; }
      __syncthreads();
      float v = x[threadIdx.x];
      if (v > 0) { atomicAdd(&s.count, 1); atomicAdd(&s.sum, v); atomicMin(s.range, (int)(v * 100));
      atomicMax(s.range + 1, (int)(v * 100)); }
      __syncthreads();
      if (threadIdx.x == 0) { y[0] = s.count; y[1] = s.sum; y[2] = s.range[0]; y[3] = s.range[1]; }
    }
    """,
    zeros(4),
    floats(64),
    block=64,
)
def struct_members(y: Any, x: Any) -> Any:
    p = x[x > 0]
    h = (p * np.float32(100)).astype(int)
    return np.array([len(p), p.sum(), h.min(), h.max()])


@theme.case(
    """
    __device__ unsigned done = 0;
    __global__ void k(float* y, float* partial, const float* x) {
      __shared__ bool last;
      int t = threadIdx.x;
      atomicAdd(&partial[blockIdx.x], x[blockIdx.x * 32 + t]);
      __syncthreads();
      if (t == 0) { __threadfence(); last = atomicInc(&done, gridDim.x - 1) == gridDim.x - 1; }
      __syncthreads();
      if (last && t == 0) { float s = 0; for (int b = 0; b < gridDim.x; ++b) s += atomicAdd(&partial[b], 0.0f);
      y[0] = s; }
    }
    """,
    zeros(1),
    zeros(4),
    floats(128),
    grid=4,
)
def last_block_finishes(y: Any, partial: Any, x: Any) -> Any:
    return np.array([x.sum()]), x.reshape(4, 32).sum(1)


@theme.case(
    """
    __global__ void k(int* y, float* e) {
      atomicAdd_block(&y[0], 2); atomicAdd_system(&y[1], 3);
      float old = atomicExch(&e[threadIdx.x], threadIdx.x + 0.5f);
      e[threadIdx.x] += old;
    }
    """,
    zeros(2, I32),
    full(8, 10),
    block=8,
)
def scopes_and_exchange(y: Any, e: Any) -> Any:
    return np.array([16, 24]), np.arange(8) + 10.5
