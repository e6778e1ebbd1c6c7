"""Local arrays: several dimensions, initialisers, dynamic indices, tables."""

from __future__ import annotations

from typing import Any

import numpy as np

from .case import F32, I8, I16, I32, U8, Theme, floats, ints, of, zeros

theme = Theme()


@theme.case(
    """
    __global__ void k(float* y, const float* x) {
      float m[3][3], t[3][3];
      for (int i = 0; i < 3; ++i) for (int j = 0; j < 3; ++j) m[i][j] = x[9 * threadIdx.x + 3 * i + j];
      for (int i = 0; i < 3; ++i) for (int j = 0; j < 3; ++j) {
        t[i][j] = 0;
        for (int l = 0; l < 3; ++l) t[i][j] += m[i][l] * m[l][j];
      }
      for (int i = 0; i < 9; ++i) y[9 * threadIdx.x + i] = t[i / 3][i % 3];
    }
    """,
    zeros((4, 3, 3)),
    floats((4, 3, 3)),
    block=4,
)
def two_dimensions(y: Any, x: Any) -> Any:
    return x @ x


@theme.case(
    """
    __global__ void k(int* y) {
      int a[2][3][4];
      for (int i = 0; i < 24; ++i) a[i / 12][i / 4 % 3][i % 4] = i;
      int s = 0;
      for (int i = 0; i < 2; ++i) for (int j = 0; j < 3; ++j) for (int l = 0; l < 4;
      ++l) s = s * 3 + a[i][2 - j][l] % 5;
      y[0] = s; y[1] = a[1][2][3]; y[2] = sizeof a / sizeof a[0][0];
    }
    """,
    zeros(3, I32),
    block=1,
)
def three_dimensions(y: Any) -> Any:
    a = np.arange(24).reshape(2, 3, 4)
    s = 0
    for v in a[:, ::-1].ravel():
        s = s * 3 + int(v) % 5
    return np.array([(s + 2**31) % 2**32 - 2**31, 23, 6])


@theme.case(
    """
    __global__ void k(int* y) {
      int a[5] = {1, 2};                       // the rest is zero
      int b[] = {7, 8, 9};
      int c[2][3] = {{1, 2, 3}, {4, 5, 6}};
      int d[2][3] = {1, 2, 3, 4};              // brace elision
      int e[4] = {};
      int f[3]{5, 6, 7};
      float g[2] = {1, 2.5f};
      int s = 0;
      for (int i = 0; i < 5; ++i) s = 10 * s + a[i];
      y[0] = s; y[1] = b[2] + sizeof(b) / sizeof(*b); y[2] = c[1][0] * 10 + c[0][2]; y[3] = d[1][0] * 10 + d[1][1];
      y[4] = e[0] + e[3]; y[5] = f[1]; y[6] = g[1] * 2;
      int n = threadIdx.x + 3;
      int h[3] = {n, n * 2, n - 1}; y[7] = h[0] * 100 + h[1] * 10 + h[2];
    }
    """,
    zeros(8, I32),
    block=1,
)
def initialisers(y: Any) -> Any:
    return np.array([12000, 12, 43, 40, 0, 6, 5, 362])


@theme.case(
    """
    __global__ void k(int* y, const int* x) {
      int counts[8] = {0};
      for (int i = 0; i < 32; ++i) counts[x[i] & 7]++;
      for (int i = 0; i < 8; ++i) y[i] = counts[i];
    }
    """,
    zeros(8, I32),
    ints(32, 0, 100),
    block=1,
)
def dynamic_index(y: Any, x: Any) -> Any:
    return np.bincount(x & 7, minlength=8)


@theme.case(
    """
    __global__ void k(float* y, const float* x) {
      float r[4];
      #pragma unroll
      for (int i = 0; i < 4; ++i) r[i] = x[threadIdx.x * 4 + i];
      #pragma unroll
      for (int i = 0; i < 2; ++i) { float t = r[i]; r[i] = r[3 - i]; r[3 - i] = t; }
      #pragma unroll
      for (int i = 0; i < 4; ++i) y[threadIdx.x * 4 + i] = r[i];
    }
    """,
    zeros((8, 4)),
    floats((8, 4)),
    block=8,
)
def register_arrays(y: Any, x: Any) -> Any:
    return x[:, ::-1]


@theme.case(
    """
    __device__ void sort(float* a, int n) {
      for (int i = 1; i < n; ++i) {
        float v = a[i]; int j = i - 1;
        while (j >= 0 && a[j] > v) { a[j + 1] = a[j]; --j; }
        a[j + 1] = v;
      }
    }
    __global__ void k(float* y, const float* x) {
      float a[9];
      for (int i = 0; i < 9; ++i) a[i] = x[9 * threadIdx.x + i];
      sort(a, 9);
      y[threadIdx.x] = a[4];
    }
    """,
    zeros(6),
    floats((6, 9)),
    block=6,
    exact=True,
)
def array_passed_to_function(y: Any, x: Any) -> Any:
    return np.median(x, 1)


@theme.case(
    """
    template <int N> __device__ int total(const int (&a)[N]) { int s = 0; for (int v : a) s += v;
    return s * 100 + N; }
    __device__ int first(int a[3]) { return a[0]; }
    __global__ void k(int* y) {
      int a[3] = {1, 2, 3}; int b[5] = {1, 1, 1, 1, 1};
      y[0] = total(a); y[1] = total(b); y[2] = first(a);
    }
    """,
    zeros(3, I32),
    block=1,
)
def array_references_as_parameters(y: Any) -> Any:
    return np.array([603, 505, 1])


@theme.case(
    """
    __global__ void k(float* y, int which) {
      const float weights[3][2] = {{0.25f, 0.5f}, {1.0f, 2.0f}, {4.0f, 8.0f}};
      static const int order[3] = {2, 0, 1};
      constexpr float half[2] = {0.5f, 0.125f};
      y[0] = weights[order[which]][1] * half[which & 1];
    }
    """,
    zeros(1),
    2,
    block=1,
)
def constant_tables(y: Any, which: int) -> Any:
    return np.array([2.0 * 0.5])


@theme.case(
    """
    __global__ void k(unsigned char* y) {
      char text[] = "kernel";
      const char* p = "grad";
      int n = 0;
      for (; text[n]; ++n) y[n] = text[n];
      for (int i = 0; p[i] != '\\0'; ++i) y[n + i] = p[i];
      y[15] = sizeof(text);
    }
    """,
    zeros(16, U8),
    block=1,
)
def strings(y: Any) -> Any:
    return np.frombuffer(b"kernelgrad\0\0\0\0\0\7", U8)


@theme.case(
    """
    __global__ void k(int* y) {
      int stack[16], top = 0, s = 0;
      stack[top++] = 1;
      while (top > 0) {                        // a binary tree walked without recursion
        int node = stack[--top];
        s = s * 2 + node;
        if (node * 2 < 8) { stack[top++] = node * 2; stack[top++] = node * 2 + 1; }
      }
      y[0] = s;
    }
    """,
    zeros(1, I32),
    block=1,
)
def explicit_stack(y: Any) -> Any:
    stack, s = [1], 0
    while stack:
        node = stack.pop()
        s = s * 2 + node
        if node * 2 < 8:
            stack += [node * 2, node * 2 + 1]
    return np.array([s])


@theme.case(
    """
    __global__ void k(float* y) {
      float a[4] = {1, 2, 3, 4};
      float b[4];
      for (int i = 0; i < 4; ++i) { b[i] = a[i]; a[i] = 0; }
      int i = threadIdx.x;
      a[i] = b[3 - i]; b[(i + 1) & 3] = -1;
      for (int j = 0; j < 4; ++j) y[8 * i + j] = a[j], y[8 * i + 4 + j] = b[j];
    }
    """,
    zeros((4, 8)),
    block=4,
    exact=True,
)
def arrays_are_private(y: Any) -> Any:
    for i in range(4):
        y[i, i] = 4 - i
        y[i, 4:] = [1, 2, 3, 4]
        y[i, 4 + (i + 1) % 4] = -1
    return y


@theme.case(
    """
    __global__ void k(float* y, const float* x) {
      float acc[8] = {0};
      for (int t = 0; t < 16; ++t) acc[t % 8] += x[t] * (t < 8 ? 1.0f : -1.0f);
      float s = acc[0];
      for (int j = 1; j < 8; ++j) s = fmaxf(s, acc[j]);
      y[0] = s;
    }
    """,
    zeros(1),
    floats(16),
    block=1,
)
def accumulators(y: Any, x: Any) -> Any:
    return np.array([(x[:8] - x[8:]).max()], F32)


@theme.case(
    """
    enum Flag : bool { no, yes };
    __global__ void k(float* y, const float* x, const float* w, const bool* m) {
      __shared__ float s[2][2];
      int t = threadIdx.x;
      if (t < 4) s[t / 2][t % 2] = x[t];
      __syncthreads();
      bool b = w[t] > 0;
      Flag f = b ? yes : no;
      float l[2] = {w[t], 2 * w[t]};
      l[b] *= 3;
      const float* p = x;
      p += f;
      y[t] = x[w[t] > 0] + 2 * s[b][!b] + 3 * l[b] + 5 * *(x + 2 + b) + 7 * (x + 1)[-b]
           + 11 * f[x + 1] + 13 * *p + x[m[t]];
    }
    """,
    zeros(32),
    floats(4),
    floats(32),
    of(np.arange(32) % 3 == 0, np.bool_),
)
def a_bool_as_an_index(y: Any, x: Any, w: Any, m: Any) -> Any:
    b = (w > 0).astype(I32)
    shared = x.reshape(2, 2)[b, 1 - b]
    one = np.where(b, 6, 3) * w
    return x[b] + 2 * shared + 3 * one + 5 * x[2 + b] + 7 * x[1 - b] + 11 * x[1 + b] + 13 * x[b] + x[m.astype(I32)]


@theme.case(
    """
    __global__ void k(float* y, const float* x, const signed char* c, const unsigned char* u, const short* s) {
      int t = threadIdx.x;
      unsigned short us = (unsigned short)(40000 + t);
      unsigned large = 4294967295u;
      y[t] = (x + 128)[c[t]] + 2 * x[u[t]] + 3 * (x + 128)[s[t]] + 5 * (x - 40000)[us]
           + 7 * (x + 1 - (size_t)large)[large] + 11 * (x - 97)['a'] + 13 * *(x + 255 - u[t]);
    }
    """,
    zeros(32),
    floats(256),
    of(np.arange(32) * 8 - 128, I8),
    of(255 - np.arange(32) * 8, U8),
    of(np.arange(32) * -4, I16),
)
def narrow_and_unsigned_indices(y: Any, x: Any, c: Any, u: Any, s: Any) -> Any:
    wide = [v.astype(I32) for v in (c, u, s)]
    fixed = 5 * x[:32] + 7 * x[1] + 11 * x[0]
    return x[128 + wide[0]] + 2 * x[wide[1]] + 3 * x[128 + wide[2]] + fixed + 13 * x[255 - wide[1]]
