"""Half precision and bfloat16."""

from __future__ import annotations

from typing import Any

import numpy as np

from .case import F16, F32, U16, Theme, floats, zeros

theme = Theme()


def bfloat(x: Any) -> Any:
    """float32 rounded to bfloat16, to nearest even."""
    bits = np.asarray(x, F32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).astype(np.uint32).view(F32)


@theme.case(
    """
    #include <cuda_fp16.h>
    __global__ void k(__half* y, const __half* x, float a) {
      int i = threadIdx.x;
      float v = __half2float(x[i]);
      y[i] = __float2half(v * a);
    }
    """,
    zeros(32, F16),
    floats(32, dtype=F16),
    0.3,
    exact=True,
)
def conversions(y: Any, x: Any, a: float) -> Any:
    return (x.astype(F32) * F32(a)).astype(F16)


@theme.case(
    """
    #include <cuda_fp16.h>
    __global__ void k(half* y, const half* a, const half* b) {
      int i = threadIdx.x;
      half s = a[i] + b[i];
      s = __hmul(s, a[i]);
      s -= b[i];
      if (a[i] > b[i]) s = -s;
      y[i] = __hadd(s, __float2half(0.5f));
    }
    """,
    zeros(32, F16),
    floats(32, dtype=F16),
    floats(32, dtype=F16),
)
def arithmetic(y: Any, a: Any, b: Any) -> Any:
    s = (a + b).astype(F16)
    s = (s * a).astype(F16)
    s = (s - b).astype(F16)
    s = np.where(a > b, -s, s)
    return (s + F16(0.5)).astype(F16)


@theme.case(
    """
    #include <cuda_fp16.h>
    __global__ void k(half2* y, const half2* x, float* f) {
      int i = threadIdx.x;
      half2 v = x[i];
      y[i] = __hadd2(v, __floats2half2_rn(1.0f, 2.0f));
      float2 w = __half22float2(v);
      f[2 * i] = w.y; f[2 * i + 1] = __low2float(v);
    }
    """,
    zeros((8, 2), F16),
    floats((8, 2), dtype=F16),
    zeros(16),
    block=8,
)
def pairs(y: Any, x: Any, f: Any) -> Any:
    return (x + np.array([1, 2], F16)).astype(F16), x, x[:, ::-1].astype(F32).ravel()


@theme.case(
    """
    #include <cuda_fp16.h>
    __global__ void k(unsigned short* y, const float* x, float* z) {
      int i = threadIdx.x;
      y[i] = __half_as_ushort(__float2half_rn(x[i]));
      z[i] = __half2float(__ushort_as_half(y[i])) + __half2float(__int2half_rn(i)) +
        (float)__half2int_rz(__float2half(2.75f));
    }
    """,
    zeros(16, U16),
    floats(16, -100, 100),
    zeros(16),
    block=16,
)
def bits_of_half(y: Any, x: Any, z: Any) -> Any:
    h = x.astype(F16)
    return h.view(U16), x, h.astype(F32) + np.arange(16) + 2


@theme.case(
    """
    #include <cuda_bf16.h>
    __global__ void k(float* y, const float* x) {
      int i = threadIdx.x;
      __nv_bfloat16 b = __float2bfloat16(x[i]);
      __nv_bfloat16 c = b * __float2bfloat16(1.5f);
      y[2 * i] = __bfloat162float(b); y[2 * i + 1] = __bfloat162float(c + b);
    }
    """,
    zeros(32),
    floats(16),
    block=16,
    rtol=1e-2,  # a GPU may fuse the product into the sum
)
def bfloat16(y: Any, x: Any) -> Any:
    b = bfloat(x)
    c = bfloat(b * F32(1.5))
    return np.stack([b, bfloat(c + b)], 1).ravel()


@theme.case(
    """
    #include <cuda_fp16.h>
    __global__ void k(float* y, const half* x, int n) {
      float s = 0;
      half m = x[0];
      for (int i = 0; i < n; ++i) { s += __half2float(x[i]); m = __hmax(m, x[i]); }
      y[0] = s; y[1] = __half2float(m); y[2] = __half2float(hsqrt(__float2half(2.25f)));
      y[3] = __hlt(x[0], x[1]) ? 1 : 0;
      y[4] = sizeof(half) + sizeof(half2);
    }
    """,
    zeros(5),
    floats(20, dtype=F16),
    20,
    block=1,
)
def reduction_in_float(y: Any, x: Any, n: int) -> Any:
    return np.array([x.astype(F32).sum(), x.max(), 1.5, x[0] < x[1], 6])


@theme.case(
    """
    #include <cuda_fp16.h>
    template <typename T> __device__ float to_float(T v) { return (float)v; }
    template <> __device__ float to_float<__half>(__half v) { return __half2float(v); }
    template <typename T> __global__ void k(float* y, const T* x) { y[threadIdx.x] = to_float(x[threadIdx.x]) * 2; }
    """,
    zeros(8),
    floats(8, dtype=F16),
    kernel="k<__half>",
    block=8,
)
def template_of_half(y: Any, x: Any) -> Any:
    return x.astype(F32) * 2
