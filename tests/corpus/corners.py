"""Where lowering and simplification slip: evaluation order, aliasing, folding that must not happen."""

from __future__ import annotations

from typing import Any

import numpy as np

from .case import F32, F64, I32, I64, U32, Theme, floats, ints, of, zeros

theme = Theme()


@theme.case(
    """
    __global__ void k(unsigned* y, float z, float inf, float nan) {
      y[0] = __float_as_uint(-0.0f + z);            // +0
      y[1] = __float_as_uint(-0.0f - z);            // -0
      y[2] = inf - inf == 0.0f; y[3] = inf * 0.0f == 0.0f; y[4] = nan == nan; y[5] = !(nan < 1.0f) && !(nan >= 1.0f);
      y[6] = __float_as_uint(0.0f * -5.0f); y[7] = nan != nan; y[8] = __float_as_uint(-z);
      y[9] = __float_as_uint(0.0f - z);
      y[10] = (nan > 0.0f ? 1 : 2); y[11] = !(nan > 0.0f);
    }
    """,
    zeros(12, U32),
    0.0,
    np.inf,
    np.nan,
    block=1,
)
def float_identities_that_do_not_hold(y: Any, z: float, inf: float, nan: float) -> Any:
    n = 0x80000000
    return np.array([0, n, 0, 0, 0, 1, n, 1, n, 0, 2, 1], U32)


@theme.case(
    """
    __global__ void k(float* y, const float* x) {
      float a = x[0], b = x[1], c = x[2];
      y[0] = (a + b) + c; y[1] = a + (b + c);       // 1e8 - 1e8 + 1 against what rounding leaves
      y[2] = a * b / b;
    }
    """,
    zeros(3),
    of([1e8, -1e8, 1.0]),
    block=1,
    exact=True,
)
def no_reassociation(y: Any, x: Any) -> Any:
    a, b, c = x
    return np.array([(a + b) + c, a + (b + c), F32(a * b) / b], F32)


@theme.case(
    """
    __global__ void k(int* a, int* b, int n) {
      for (int i = 1; i < n; ++i) {
        int before = b[i - 1];
        a[i] = a[i - 1] + before;                   // a and b may be the same array
        b[i] = a[i] * 2 + b[i - 1] - before;
      }
    }
    """,
    ints(8),
    ints(8),
    8,
    block=1,
)
def loads_after_stores(a: Any, b: Any, n: int) -> Any:
    a, b = a.copy(), b.copy()
    for i in range(1, n):
        before = b[i - 1]
        a[i] = a[i - 1] + before
        b[i] = a[i] * 2 + b[i - 1] - before
    return a, b


@theme.case(
    """
    __device__ void f(int* p, int* q) { *p = 1; *q = 2; *p += *q; }
    __global__ void k(int* y) {
      int a = 0, b = 0;
      f(&a, &b); y[0] = a; y[1] = b;
      f(&a, &a); y[2] = a;                          // the same object
      int arr[3] = {0, 0, 0};
      f(&arr[threadIdx.x], arr + threadIdx.x); y[3] = arr[0];
      int i = 0; int& r = arr[i]; i++; r = 50; y[4] = arr[0]; y[5] = arr[i];
    }
    """,
    zeros(6, I32),
    block=1,
)
def aliases(y: Any) -> Any:
    return np.array([3, 2, 4, 4, 50, 0])


@theme.case(
    """
    __global__ void k(int* y, const int* x) {
      const int* p = x; int* q = y;
      while ((*q++ = *p++) != 0) { }
      int v, n = 0;
      const int* s = x;
      while ((v = *s++) > 0 && n < 10) n += v;
      if ((v = n) > 5) *q = v;
      int a, b, c;
      a = b = c = 7; a += b -= 2;
      q[1] = a * 100 + b * 10 + c;
      q[2] = (a < b < c) + (a > b) * 2 + !!a * 4;
    }
    """,
    zeros(8, I32),
    of([5, 3, 9, 0], I32),
    block=1,
)
def assignments_as_values(y: Any, x: Any) -> Any:
    return np.array([5, 3, 9, 0, 17, 12 * 100 + 57, 1 + 2 + 4, 0])


@theme.case(
    """
    __global__ void k(float* y, int n) {
      int c = 0;
      for (float t = 0; t < 1; t += 0.25f) c++;
      y[0] = c;
      for (size_t i = n; i-- > 0;) y[0] += i;
      for (unsigned short s = 65533; s >= 65533; ++s) y[0] += 1000;
      for (long long i = 1; i < (1LL << 40); i <<= 8) y[1] += 1;
      for (int i = 10; i; i -= 2) y[2] += i;
      for (char ch = 'a'; ch <= 'e'; ++ch) y[3] += ch - 'a';
      bool go = true; int guard = 0;
      while (go) { go = ++guard < 6; }
      y[4] = guard;
      int lo = 0, hi = 100;
      while (lo < hi) { int mid = lo + (hi - lo) / 2; if (mid * mid < 2000) lo = mid + 1; else hi = mid; }
      y[5] = lo;
    }
    """,
    zeros(6),
    5,
    block=1,
)
def loop_counters(y: Any, n: int) -> Any:
    return np.array([4 + 10 + 3000, 5, 30, 10, 6, 45])


@theme.case(
    """
    #define GUARD(c) do { if (!(c)) break; hits++; } while (0)
    __global__ void k(int* y) {
      int i = threadIdx.x, hits = 0;
      GUARD(i > 1); GUARD(i > 2);
      int state = 0, steps = 0;
      do {
        switch (state) {
          case 0: state = i & 1 ? 1 : 2; continue;
          case 1: state = 3; break;
          case 2: { if (steps > 2) { state = 3; break; } steps++; continue; }
          default: steps += 100;
        }
        steps += 10;
      } while (state != 3 || steps < 50);
      y[2 * i] = hits; y[2 * i + 1] = steps;
    }
    """,
    zeros((4, 2), I32),
    block=4,
)
def state_machine(y: Any) -> Any:
    def one(i: int) -> list[int]:
        state = steps = 0
        while True:
            if state == 0:
                state = 1 if i & 1 else 2
            elif state == 1:
                state, steps = 3, steps + 10
            elif state == 2:
                if steps > 2:
                    state, steps = 3, steps + 10
                else:
                    steps += 1
            else:
                steps += 110
            if state == 3 and steps >= 50:
                return [(i > 1) + (i > 2), steps]

    return np.array([one(i) for i in range(4)])


@theme.case(
    """
    __device__ int first_pair(const int* x, int n, int sum, int* at) {
      for (int i = 0; i < n; ++i) {
        if (x[i] < 0) continue;
        for (int j = i + 1; j < n; ++j) {
          switch (x[i] + x[j] - sum) {
            case 0: *at = i * 10 + j; return 1;
            case 1: if (j == n - 1) return -1; break;
            default: if (x[j] == 99) goto_next: break;
          }
          if (x[j] == 99) break;
        }
      }
      return 0;
    }
    __global__ void k(int* y, const int* x, int n) { int i = threadIdx.x;
    y[2 * i] = first_pair(x, n, i, &y[2 * i + 1]); }
    """.replace("if (x[j] == 99) goto_next: break;", "break;"),
    zeros((20, 2), I32),
    of([3, -1, 7, 99, 2, 5, 1], I32),
    7,
    block=20,
)
def search_with_every_exit(y: Any, x: Any, n: int) -> Any:
    def one(total: int) -> list[int]:
        for i in range(n):
            if x[i] < 0:
                continue
            for j in range(i + 1, n):
                d = x[i] + x[j] - total
                if d == 0:
                    return [1, i * 10 + j]
                if d == 1 and j == n - 1:
                    return [-1, 0]
                if x[j] == 99:
                    break
        return [0, 0]

    return np.array([one(t) for t in range(20)])


@theme.case(
    """
    struct Node { int value; Node* next; };
    struct Tree { float w[3]; struct { int l, r; } kids[2]; };
    __device__ Tree change(Tree t) { t.w[1] = -1; t.kids[0].r = 77; return t; }
    __global__ void k(float* y) {
      Node a = {1, nullptr}, b = {2, &a}, c = {3, &b};
      int s = 0;
      for (Node* p = &c; p; p = p->next) { s = s * 10 + p->value; p->value++; }
      y[0] = s; y[1] = a.value + b.value + c.value;
      Tree t = {{1, 2, 3}, {{4, 5}, {6, 7}}};
      Tree u = change(t);
      y[2] = t.w[1] + t.kids[0].r; y[3] = u.w[1] + u.kids[0].r + u.kids[1].r;
      Tree* p = threadIdx.x ? &t : &u; p->w[threadIdx.x] += 10;
      y[4] = u.w[0];
      float* w = &t.w[1]; w[1] = 40; *w++ += 1; y[5] = *w + t.w[1];
      Tree v[2] = {t, u}; v[1] = v[0]; v[0].w[0] = 500; y[6] = v[1].w[0] + v[1].w[2];
    }
    """,
    zeros(7),
    block=1,
)
def objects_and_pointers(y: Any) -> Any:
    return np.array([321, 9, 7, -1 + 77 + 7, 11, 43, 41])


@theme.case(
    """
    __global__ void k(float* y, const float* x, int n) {
      const float (*m)[4] = (const float (*)[4])x;        // a flat buffer seen as rows
      float (*out)[4] = reinterpret_cast<float (*)[4]>(y);
      __shared__ float tile[4][4];
      float (*t)[4] = tile;
      int r = threadIdx.y, c = threadIdx.x;
      t[r][c] = m[r][c];
      __syncthreads();
      float* row = t[c];
      out[r][c] = row[r] + *(*(tile + r) + c) * n;
    }
    """,
    zeros((4, 4)),
    floats((4, 4)),
    2,
    block=(4, 4),
)
def rows_of_a_flat_buffer(y: Any, x: Any, n: int) -> Any:
    return x.T + 2 * x


@theme.case(
    """
    __global__ void k(int* y, int a0, int a1, int a2, int a3, int a4, int a5, int a6, int a7, int a8, int a9,
      float f0,
                      double d0, char c0, short s0, long long l0, bool b0, unsigned char u0, float f1, const int* x,
                      unsigned long long v0, float f2[], int a10) {
      y[0] = a0 + a1 + a2 + a3 + a4 + a5 + a6 + a7 + a8 + a9 + a10;
      y[1] = (int)(f0 * 10 + d0 * 100 + f1 + f2[0]); y[2] = c0 + s0 + (int)l0 + b0 + u0 + x[1] + (int)(v0 >> 60);
    }
    """,
    zeros(3, I32),
    *range(10),
    1.5,
    2.5,
    3,
    -4,
    50,
    True,
    200,
    0.25,
    of([1, 1000], I32),
    2**63,
    of([7]),
    10000,
    block=1,
)
def many_parameters(y: Any, *rest: Any) -> Any:
    return np.array([45 + 10000, 15 + 250 + 7, 3 - 4 + 50 + 1 + 200 + 1000 + 8])


@theme.case(
    """
    __global__ void k(long long* y, int big, int n) {
      y[0] = (long long)big * n;                    // 64-bit product
      y[1] = big * 2u;                              // unsigned wrap
      y[2] = (unsigned char)-1 + (signed char)200; y[3] = (short)40000; y[4] = (unsigned)-1 / 2;
      y[5] = -7 / 2 * 2 + -7 % 2; y[6] = 7 / -2; y[7] = (1 << 31) < 0; y[8] = (0u - 1) > 0; y[9] = 5 & 3 | 4 ^ 1;
      y[10] = ~0 == -1; y[11] = 1 + 2 * 3 % 4 - 5; y[12] = -1 >> 1; y[13] = 0xffffffff + 1; y[14] = 0xffffffffu + 1LL;
      y[15] = 'a' + 1; y[16] = (char)('a' + 100); y[17] = true + true; y[18] = sizeof('a' + 1);
      y[19] = 10 - 2u - 9 > 0;
    }
    """,
    zeros(20, I64),
    2**30,
    8,
    block=1,
)
def integer_rules(y: Any, big: int, n: int) -> Any:
    wide = [2**33, 2**31, 255 - 56, 40000 - 65536, 2**31 - 1, -6 - 1, -3, 1, 1, (5 & 3) | (4 ^ 1)]
    return np.array([*wide, 1, 1 + 6 % 4 - 5, -1, 0, 2**32, 98, 197 - 256, 2, 4, 1])


@theme.case(
    """
    __global__ void k(float* y, const float* x, int n) {
      int i = threadIdx.x;
      float v;
      if (i % 3 == 0) v = x[i];
      else if (i % 3 == 1) { v = -x[i]; if (v > 1) v = 1; }
      else { v = 0; for (int j = 0; j <= i; ++j) { if (x[j] > 1.5f) break; v += x[j]; } }
      float w = v;
      for (int j = 0; j < 3; ++j) { float old = w; w = v * 0.5f; v = old + j; }
      y[i] = i < n ? v + w : sqrtf(-1.0f - x[i] * x[i]) * 0.0f;
      if (!(i < n)) y[i] = 0;
    }
    """,
    zeros(16),
    floats(16),
    12,
    block=16,
)
def values_that_swap_in_loops(y: Any, x: Any, n: int) -> Any:
    def one(i: int) -> float:
        if i % 3 == 0:
            v = float(x[i])
        elif i % 3 == 1:
            v = min(-float(x[i]), 1.0)
        else:
            v = 0.0
            for j in range(i + 1):
                if x[j] > 1.5:
                    break
                v += float(x[j])
        w = v
        for j in range(3):
            w, v = v * 0.5, w + j
        return v + w if i < n else 0.0

    return np.array([one(i) for i in range(16)])


@theme.case(
    """
    __global__ void k(double* y, const double* x) {
      int i = threadIdx.x;
      double a = x[i] > 0 ? sqrt(x[i]) : 0;                // never the root of a negative number
      double b = x[i] != 0 ? 1 / x[i] : 5;
      double c = 0;
      if (x[i] > 0) c = log(x[i]);
      y[3 * i] = a; y[3 * i + 1] = b; y[3 * i + 2] = c;
    }
    """,
    zeros((4, 3), F64),
    of([4.0, 0.0, -2.0, 0.25], F64),
    block=4,
)
def guarded_domains(y: Any, x: Any) -> Any:
    return np.array([[2, 0.25, np.log(4)], [0, 5, 0], [0, -0.5, 0], [0.5, 4, np.log(0.25)]])


@theme.case(
    """
    __global__ void k(int* y, int n) {
      __shared__ int s[8];
      __shared__ int stop;
      int t = threadIdx.x;
      s[t] = t;
      if (t == 0) stop = 0;
      __syncthreads();
      for (int r = 0; r < 10; ++r) {
        if (t == r % 8) { s[t] += 10; if (s[t] > n) stop = 1; }
        __syncthreads();
        int seen = stop;
        __syncthreads();
        if (seen) { y[t] = s[(t + 1) % 8] * 100 + r; return; }
      }
      y[t] = -1;
    }
    """,
    zeros(8, I32),
    14,
    block=8,
)
def uniform_return_between_barriers(y: Any, n: int) -> Any:
    s = np.arange(8)
    for r in range(10):
        s[r % 8] += 10
        if s[r % 8] > n:
            return np.roll(s, -1) * 100 + r
    return np.full(8, -1)
