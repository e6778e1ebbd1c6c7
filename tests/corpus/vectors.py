"""CUDA's vector types."""

from __future__ import annotations

from typing import Any

import numpy as np

from .case import F64, I32, U8, Theme, floats, ints, zeros

theme = Theme()


@theme.case(
    """
    __global__ void k(float4* y, const float4* x, const float2* z) {
      int i = threadIdx.x;
      float4 v = x[i];
      float2 w = z[i];
      v.x += w.x; v.y *= w.y;
      y[i] = make_float4(v.w, v.x, v.y, v.z);
    }
    """,
    zeros((8, 4)),
    floats((8, 4)),
    floats((8, 2)),
    block=8,
)
def float_vectors(y: Any, x: Any, z: Any) -> Any:
    return np.stack([x[:, 3], x[:, 0] + z[:, 0], x[:, 1] * z[:, 1], x[:, 2]], 1)


@theme.case(
    """
    __device__ float3 operator+(float3 a, float3 b) { return make_float3(a.x + b.x, a.y + b.y, a.z + b.z); }
    __device__ float3 operator*(float s, const float3& a) { return {s * a.x, s * a.y, s * a.z}; }
    __device__ void operator+=(float3& a, float3 b) { a.x += b.x; a.y += b.y; a.z += b.z; }
    __device__ float dot(float3 a, float3 b) { return a.x * b.x + a.y * b.y + a.z * b.z; }
    __device__ float3 cross(float3 a, float3 b) {
      return make_float3(a.y * b.z - a.z * b.y, a.z * b.x - a.x * b.z, a.x * b.y - a.y * b.x);
    }
    __global__ void k(float3* y, float* d, const float3* a, const float3* b) {
      int i = threadIdx.x;
      float3 s = a[i] + 2.0f * b[i];
      s += cross(a[i], b[i]);
      y[i] = s; d[i] = dot(a[i], b[i]);
    }
    """,
    zeros((8, 3)),
    zeros(8),
    floats((8, 3)),
    floats((8, 3)),
    block=8,
)
def three_components(y: Any, d: Any, a: Any, b: Any) -> Any:
    return a + 2 * b + np.cross(a, b), (a * b).sum(1)


@theme.case(
    """
    __global__ void k(int4* y, uchar4* c, double2* d, const int2* x) {
      int i = threadIdx.x;
      int2 v = x[i];
      int4 r; r.x = v.x; r.y = v.y; r.z = v.x - v.y; r.w = -1;
      y[i] = r;
      uchar4 b = make_uchar4(v.x, v.y, 255, 1); b.z++;
      c[i] = b;
      d[i] = make_double2(v.x / 2.0, v.y / 4.0);
    }
    """,
    zeros((4, 4), I32),
    zeros((4, 4), U8),
    zeros((4, 2), F64),
    ints((4, 2), 0, 100),
    block=4,
)
def integer_and_double_vectors(y: Any, c: Any, d: Any, x: Any) -> Any:
    a, b = x[:, 0], x[:, 1]
    one = np.ones(4, int)
    return np.stack([a, b, a - b, -one], 1), np.stack([a, b, 0 * one, one], 1), np.stack([a / 2, b / 4], 1)


@theme.case(
    """
    __global__ void k(int* y, float4 p) {
      y[0] = sizeof(float3); y[1] = alignof(float4); y[2] = sizeof(double2); y[3] = sizeof(short4);
      y[4] = alignof(float2);
      y[5] = sizeof(uchar3); y[6] = sizeof(longlong2); y[7] = (int)(p.x + p.y * 10 + p.z * 100 + p.w * 1000);
    }
    """,
    zeros(8, I32),
    (1.0, 2.0, 3.0, 4.0),
    block=1,
)
def sizes_and_parameter(y: Any, p: Any) -> Any:
    return np.array([12, 16, 16, 8, 8, 3, 16, 4321])


@theme.case(
    """
    #include <helper_math.h>
    __global__ void k(float3* y, const float3* x, float3 c) {
      int i = threadIdx.x;
      float3 v = x[i] * 2.0f - c;
      y[i] = normalize(v) + lerp(v, c, 0.5f) * length(c) + fminf(v, c) + make_float3(1.0f);
    }
    """,
    zeros((8, 3)),
    floats((8, 3)),
    (0.5, -0.25, 1.0),
    block=8,
    rtol=1e-4,
)
def helper_math(y: Any, x: Any, c: Any) -> Any:
    c = np.array(c, np.float32)
    v = x * 2 - c
    n = v / np.linalg.norm(v, axis=1, keepdims=True)
    return n + (v + c) / 2 * np.linalg.norm(c) + np.minimum(v, c) + 1


@theme.case(
    """
    __global__ void k(float* y, const float4* x, int n) {
      float4 acc = {0, 0, 0, 0};
      for (int i = 0; i < n; ++i) { float4 v = x[i]; acc.x += v.x; acc.y = fmaxf(acc.y, v.y); acc.z -= v.z;
      acc.w += v.w * v.w; }
      float* p = &acc.x;
      for (int j = 0; j < 4; ++j) y[j] = p[j];
      (&y[4])[0] = ((float*)&acc)[2];
    }
    """,
    zeros(5),
    floats((7, 4)),
    7,
    block=1,
)
def vector_in_a_loop(y: Any, x: Any, n: int) -> Any:
    s = [x[:, 0].sum(), max(0, x[:, 1].max()), -x[:, 2].sum(), (x[:, 3] ** 2).sum()]
    return np.array([*s, s[2]])
