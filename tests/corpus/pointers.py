"""Pointers, references, casts between them."""

from __future__ import annotations

from typing import Any

import numpy as np

from .case import F32, F64, I32, I64, U8, U32, Theme, bits, floats, ints, of, zeros

theme = Theme()


@theme.case(
    """
    __global__ void k(float* y, const float* x, int n) {
      const float* end = x + n;
      float s = 0;
      for (const float* p = x; p != end; ++p) s += *p;
      float t = 0;
      for (const float* p = end; p-- > x;) t = t * 0.5f + *p;
      y[0] = s; y[1] = t;
    }
    """,
    zeros(2),
    floats(17),
    17,
    block=1,
)
def walking_a_pointer(y: Any, x: Any, n: int) -> Any:
    t = 0.0
    for v in x[::-1]:
        t = t * 0.5 + v
    return np.array([x.sum(), t])


@theme.case(
    """
    __global__ void k(int* y, const int* x) {
      const int* p = x + 4;
      y[0] = *p; y[1] = p[1]; y[2] = p[-2]; y[3] = *(p + 3); y[4] = *(p - 4); y[5] = 2[p];
      y[6] = *p++; y[7] = *p; y[8] = *++p; y[9] = (*p)++ , y[9] = 0;
    }
    """.replace(" y[9] = (*p)++ , y[9] = 0;", " p += 2; y[9] = *p; p -= 5; y[10] = *p--; y[11] = *p;"),
    zeros(12, I32),
    ints(12),
    block=1,
)
def pointer_arithmetic(y: Any, x: Any) -> Any:
    return x[[4, 5, 2, 7, 0, 6, 4, 5, 6, 8, 3, 2]]


@theme.case(
    """
    __global__ void k(int* y, const int* x) {
      const int *a = x + 2, *b = &x[7];
      y[0] = b - a; y[1] = a < b; y[2] = a == x + 2; y[3] = a - b; y[4] = a >= b; y[5] = a != b;
      y[6] = &b[-5] == a; y[7] = (b - a) / 2;
      const double* d = (const double*)0;
      y[8] = d == nullptr; y[9] = !d; y[10] = x ? 1 : 0; y[11] = a && !d;
    }
    """,
    zeros(12, I32),
    zeros(8, I32),
    block=1,
)
def pointer_comparison(y: Any, x: Any) -> Any:
    return np.array([5, 1, 1, -5, 0, 1, 1, 2, 1, 1, 1, 1])


@theme.case(
    """
    __global__ void k(float* y, const float* x, const float* bias) {
      int i = threadIdx.x;
      y[i] = x[i];
      if (bias) y[i] += bias[i];
      if (bias != nullptr) y[i] += 1;
    }
    """,
    zeros(8),
    floats(8),
    None,
    block=8,
)
def null_parameter(y: Any, x: Any, bias: None) -> Any:
    return x


@theme.case(
    """
    __global__ void k(float* y, float* a, float* b, int n) {
      float *from = a, *to = b;
      for (int s = 0; s < n; ++s) {
        for (int j = 0; j < 8; ++j) to[j] = from[j] * 2.0f + 1.0f;
        float* t = from; from = to; to = t;
      }
      for (int j = 0; j < 8; ++j) y[j] = from[j];
    }
    """,
    zeros(8),
    of(np.arange(8)),
    zeros(8),
    5,
    block=1,
)
def swapped_pointers_in_a_loop(y: Any, a: Any, b: Any, n: int) -> Any:
    values = [np.arange(8.0)]
    for _ in range(n):
        values.append(values[-1] * 2 + 1)
    return values[5], values[4], values[5]


@theme.case(
    """
    __global__ void k(int* y, int* a, int* b) {
      int i = threadIdx.x;
      int* p = i & 1 ? a : b;
      p[i] += 5;
      int* q;
      if (i > 3) q = a; else q = y;
      q[i] += 100;
    }
    """,
    zeros(8, I32),
    ints(8),
    ints(8),
    block=8,
)
def pointer_chosen_at_run_time(y: Any, a: Any, b: Any) -> Any:
    i = np.arange(8)
    return np.where(i > 3, 0, 100), a + np.where(i & 1, 5, 0) + np.where(i > 3, 100, 0), b + np.where(i & 1, 0, 5)


@theme.case(
    """
    __device__ void advance(const int** p, int n) { *p += n; }
    __global__ void k(int* y, const int* x) {
      const int* p = x;
      advance(&p, 3);
      y[0] = *p;
      const int** pp = &p;
      *pp += 2;
      y[1] = **pp;
      y[2] = (*pp)[1];
      const int* table[3] = {x, x + 1, x + 2};
      const int** q = table;
      ++q;
      y[3] = **q + *q[1];
    }
    """,
    zeros(4, I32),
    ints(8),
    block=1,
)
def pointer_to_pointer(y: Any, x: Any) -> Any:
    return np.array([x[3], x[5], x[6], x[1] + x[2]])


@theme.case(
    """
    __global__ void k(int* y) {
      int a[3][4];
      for (int i = 0; i < 12; ++i) a[i / 4][i % 4] = i * i;
      int (*row)[4] = a;
      y[0] = row[1][2]; y[1] = (*row)[3]; ++row; y[2] = (*row)[0];
      int* flat = &a[0][0]; y[3] = flat[7];
      int* r2 = a[2]; y[4] = r2[1];
      int (&ref)[4] = a[1]; ref[0] = -1; y[5] = a[1][0];
      y[6] = *(*(a + 2) + 3);
      y[7] = sizeof(a) / sizeof(a[0]);
    }
    """,
    zeros(8, I32),
    block=1,
)
def pointer_to_array(y: Any) -> Any:
    return np.array([36, 9, 16, 49, 81, -1, 121, 3])


@theme.case(
    """
    __global__ void k(int* y, int* x) {
      int a = 1; int& r = a; r += 4; int& r2 = r; r2 *= 3;
      int* p = &r; *p += 100;
      int& e = x[threadIdx.x]; e = e * 2; e++;
      y[threadIdx.x] = a;
    }
    """,
    zeros(4, I32),
    ints(4),
    block=4,
)
def references(y: Any, x: Any) -> Any:
    return np.full(4, 115), x * 2 + 1


@theme.case(
    """
    __device__ void swap_(float& a, float& b) { float t = a; a = b; b = t; }
    __device__ void minmax(float a, float b, float* lo, float& hi) { *lo = a < b ? a : b; hi = a < b ? b : a; }
    __global__ void k(float* y, float* x) {
      int i = 2 * threadIdx.x;
      float lo, hi;
      minmax(x[i], x[i + 1], &lo, hi);
      y[i] = lo; y[i + 1] = hi;
      swap_(x[i], x[i + 1]);
      swap_(lo, hi);
      y[i] += lo * 0;
    }
    """,
    zeros(16),
    floats(16),
    block=8,
)
def reference_parameters(y: Any, x: Any) -> Any:
    pairs = x.reshape(-1, 2)
    return np.sort(pairs, 1).ravel(), pairs[:, ::-1].ravel()


@theme.case(
    """
    __device__ int& at(int* a, int i) { return a[i]; }
    __device__ int& bigger(int& a, int& b) { return a > b ? a : b; }
    struct Box { int v[2]; __device__ int& operator[](int i) { return v[i]; } __device__ Box& add(int d) {
      v[0] += d; return *this; } };
    __global__ void k(int* y) {
      int i = threadIdx.x;
      at(y, i) = 10; at(y, i) += i;
      int a = i, b = 2;
      bigger(a, b) += 100;
      Box box = {{1, 2}};
      box[1] = 50; box[0]++;
      box.add(1000).add(10000);
      at(y, i) += a + b + box[0] + box[1];
      ++at(y, i);
    }
    """,
    zeros(4, I32),
    block=4,
)
def references_returned(y: Any) -> Any:
    i = np.arange(4)
    return 10 + i + (i + 2 + 100) + (11000 + 2) + 50 + 1


@theme.case(
    """
    __device__ float twice(const float& x) { return 2 * x; }
    __global__ void k(float* y) {
      const float& a = 1.5f + threadIdx.x;
      const float& b = y[threadIdx.x];           // a reference, not a copy
      y[threadIdx.x] = 7;
      int n = 3;
      float s = twice(n) + twice(4) + twice(a);  // from int: temporaries
      y[threadIdx.x] = s + b;
    }
    """,
    zeros(4),
    block=4,
)
def const_references_to_temporaries(y: Any) -> Any:
    return 6 + 8 + 2 * (1.5 + np.arange(4)) + 7


@theme.case(
    """
    __global__ void k(unsigned* y, const float* x, unsigned char* bytes) {
      int i = threadIdx.x;
      y[i] = *reinterpret_cast<const unsigned*>(&x[i]);
      float f = x[i] * 2;
      y[i] ^= *(unsigned*)&f;
      const unsigned char* p = (const unsigned char*)(x + i);
      for (int j = 0; j < 4; ++j) bytes[4 * i + j] = p[3 - j];
    }
    """,
    zeros(8, U32),
    floats(8),
    zeros(32, U8),
    block=8,
)
def reinterpreted_memory(y: Any, x: Any, b: Any) -> Any:
    want = x.view(U32) ^ (x * F32(2)).view(U32)
    return want, x, x.view(U8).reshape(-1, 4)[:, ::-1].ravel()


@theme.case(
    """
    __global__ void k(float* y, const float* x) {
      int i = threadIdx.x;
      float4 v = reinterpret_cast<const float4*>(x)[i];
      float2 w = *(const float2*)(x + 2 * i);
      reinterpret_cast<float4*>(y)[i] = make_float4(v.w, v.z, v.y + w.x, v.x + w.y);
    }
    """,
    zeros(32),
    floats(32),
    block=8,
)
def vector_loads_through_casts(y: Any, x: Any) -> Any:
    v, w = x.reshape(8, 4), x[:16].reshape(8, 2)
    return np.stack([v[:, 3], v[:, 2], v[:, 1] + w[:, 0], v[:, 0] + w[:, 1]], 1).ravel()


@theme.case(
    """
    __global__ void k(float* y, const void* x, void* out, size_t offset) {
      const float* f = (const float*)x;
      const double* d = (const double*)((const char*)x + offset);
      y[threadIdx.x] = f[threadIdx.x];
      static_cast<int*>(out)[threadIdx.x] = (int)d[threadIdx.x];
    }
    """,
    zeros(4),
    np.concatenate([np.arange(4, dtype=F32).view(U8), np.arange(10, 14, dtype=F64).view(U8)]),
    zeros(4, I32),
    16,
    block=4,
)
def void_pointers(y: Any, x: Any, out: Any, offset: int) -> Any:
    return np.arange(4.0), x, np.arange(10, 14)


@theme.case(
    """
    __global__ void k(long long* y, const int* x, const double* z) {
      y[0] = (const char*)(x + 3) - (const char*)x;
      y[1] = &z[4] - z;
      y[2] = (size_t)(z + 2) - (size_t)z;
      y[3] = ((size_t)z) % 8;
    }
    """,
    zeros(4, I64),
    zeros(4, I32),
    zeros(4, F64),
    block=1,
)
def distances(y: Any, x: Any, z: Any) -> Any:
    return np.array([12, 4, 16, 0])


@theme.case(
    """
    __global__ void k(float* __restrict__ y, const float* __restrict__ x, float* const z) {
      int i = threadIdx.x;
      const float* const p = x;
      y[i] = p[i] + z[i];
      volatile float* v = z;
      v[i] = 3.0f;
    }
    """,
    zeros(8),
    floats(8),
    floats(8),
    block=8,
)
def qualifiers(y: Any, x: Any, z: Any) -> Any:
    return x + z, x, np.full(8, 3.0)


@theme.case(
    """
    __global__ void k(int* y, const int* x, unsigned n) {
      int i = threadIdx.x;
      y[i] = x[i + n - 1];                      // unsigned index
      short s = i; y[i] += x[s]; unsigned char c = i; y[i] += x[c];
      y[i] += x[(size_t)i * 2 / 2];
      const int* mid = x + 4; y[i] += mid[-1 - (i > 2)];
    }
    """,
    zeros(4, I32),
    ints(12),
    5,
    block=4,
)
def index_types(y: Any, x: Any, n: int) -> Any:
    i = np.arange(4)
    return x[i + n - 1] + 3 * x[i] + x[3 - (i > 2)]


@theme.case(
    """
    __device__ const float* row(const float* m, int r, int width) { return m + r * width; }
    __global__ void k(float* y, const float* m, int width) {
      const float* r = row(m, threadIdx.x, width);
      float s = 0;
      while (width--) s += *r++;
      y[threadIdx.x] = s;
    }
    """,
    zeros(4),
    floats((4, 6)),
    6,
    block=4,
)
def pointer_returned_and_parameter_changed(y: Any, m: Any, width: int) -> Any:
    return m.sum(1)


@theme.case(
    """
    __global__ void k(int* y) {
      int a[4] = {1, 2, 3, 4};
      int *lo = a, *hi = a + 3;
      while (lo < hi) { int t = *lo; *lo++ = *hi; *hi-- = t; }
      for (int i = 0; i < 4; ++i) *y++ = a[i];
    }
    """,
    zeros(4, I32),
    block=1,
)
def reversing_in_place(y: Any) -> Any:
    return np.array([4, 3, 2, 1])


@theme.case(
    """
    __global__ void k(float* const* rows, int n) {
      float* row = rows[blockIdx.x];
      row[threadIdx.x] += n;
    }
    """,
    zeros(2, I64),
    3,
    grid=2,
    block=2,
    skip=frozenset({"cpu", "gpu", "emulated"}),
)
def array_of_pointers_as_parameter(rows: Any, n: int) -> Any:
    return rows


@theme.case(
    """
    __global__ void k(unsigned* y, const unsigned* x) {
      unsigned v = x[threadIdx.x];
      unsigned char* b = (unsigned char*)&v;
      unsigned char t = b[0]; b[0] = b[3]; b[3] = t;
      t = b[1]; b[1] = b[2]; b[2] = t;
      y[threadIdx.x] = v;
    }
    """,
    zeros(16, U32),
    bits(16),
    block=16,
)
def bytes_of_a_local(y: Any, x: Any) -> Any:
    return x.byteswap()
