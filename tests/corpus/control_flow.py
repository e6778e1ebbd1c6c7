"""if, loops, switch, early exits, short circuit, ternaries, commas."""

from __future__ import annotations

from typing import Any

import numpy as np

from .case import F32, I32, U32, Theme, floats, full, ints, of, zeros

theme = Theme()

# ---- early return


@theme.case(
    """
    __global__ void k(float* y, const float* x, int n) {
      int i = blockIdx.x * blockDim.x + threadIdx.x;
      if (i >= n) return;
      y[i] = 2.0f * x[i];
    }
    """,
    full(64, -1),
    floats(50),
    50,
    grid=2,
)
def early_return(y: Any, x: Any, n: int) -> Any:
    y[:n] = 2 * x
    return y


@theme.case(
    """
    __global__ void k(float* y, const float* x, int n) {
      int i = blockIdx.x * blockDim.x + threadIdx.x;
      if (i >= n) {
        return;
      }
      float v = x[i];
      y[i] = v * v;
    }
    """,
    full(64, -1),
    floats(33),
    33,
    grid=2,
)
def early_return_in_braces(y: Any, x: Any, n: int) -> Any:
    y[:n] = x * x
    return y


@theme.case(
    """
    __global__ void k(int* y, const int* x, int n) {
      int i = threadIdx.x;
      for (int j = 0; j < n; ++j) {
        y[i] += 1;
        if (x[j] == i) return;
      }
      y[i] += 100;
    }
    """,
    zeros(32, I32),
    of([3, 7, 31, 0, 12], I32),
    5,
)
def return_in_loop(y: Any, x: Any, n: int) -> Any:
    found = {int(v): j + 1 for j, v in enumerate(x)}
    return np.array([found.get(i, n + 100) for i in range(32)])


@theme.case(
    """
    __global__ void k(int* y, int n) {
      int i = threadIdx.x;
      if (i < n) {
        if (i % 2 == 0) {
          if (i > 10) { y[i] = 1; return; }
          y[i] = 2;
        } else {
          if (i < 5) return;
          y[i] = 3;
        }
        y[i] += 10;
      } else {
        y[i] = 4;
        if (i == 31) return;
      }
      y[i] += 100;
    }
    """,
    zeros(32, I32),
    24,
)
def nested_returns(y: Any, n: int) -> Any:
    def one(i: int) -> int:
        if i < n:
            if i % 2 == 0:
                return 1 if i > 10 else 112
            return 0 if i < 5 else 113
        return 4 if i == 31 else 104

    return np.array([one(i) for i in range(32)])


@theme.case(
    """
    __global__ void k(int* y) {
      int i = threadIdx.x;
      for (int a = 0; a < 4; ++a)
        for (int b = 0; b < 4; ++b) {
          if (a * 4 + b == i) return;
          y[i]++;
        }
    }
    """,
    zeros(20, I32),
    block=20,
)
def return_out_of_two_loops(y: Any) -> Any:
    return np.minimum(np.arange(20), 16)


@theme.case(
    """
    __device__ int find(const int* x, int n, int v) {
      for (int j = 0; j < n; ++j)
        if (x[j] == v) return j;
      return -1;
    }
    __global__ void k(int* y, const int* x, int n) { y[threadIdx.x] = find(x, n, threadIdx.x); }
    """,
    zeros(16, I32),
    of([5, 3, 9, 0, 5], I32),
    5,
    block=16,
)
def return_from_device_loop(y: Any, x: Any, n: int) -> Any:
    return np.array([list(x).index(v) if v in x else -1 for v in range(16)])


@theme.case(
    """
    __device__ float sign(float v) {
      if (v > 0) return 1;
      else if (v < 0) return -1;
      else return 0;
    }
    __global__ void k(float* y, const float* x) { y[threadIdx.x] = sign(x[threadIdx.x]); }
    """,
    zeros(3),
    of([-2, 0, 3]),
    block=3,
)
def return_in_every_branch(y: Any, x: Any) -> Any:
    return np.sign(x)


# ---- if


@theme.case(
    """
    __global__ void k(int* y, const int* x) {
      int i = threadIdx.x, v = x[i];
      if (v < -20) y[i] = 1;
      else if (v < 0) y[i] = 2;
      else if (v < 20) y[i] = 3;
      else y[i] = 4;
    }
    """,
    zeros(32, I32),
    ints(32),
)
def else_if_chain(y: Any, x: Any) -> Any:
    return np.select([x < -20, x < 0, x < 20], [1, 2, 3], 4)


@theme.case(
    """
    __global__ void k(int* y, const int* x) {
      int i = threadIdx.x;
      if (int v = x[i] % 3; v != 0) y[i] = v;
      else y[i] = v - 100;
    }
    """,
    zeros(32, I32),
    ints(32),
)
def if_with_initialiser(y: Any, x: Any) -> Any:
    r = np.fmod(x, 3)
    return np.where(r != 0, r, -100)


@theme.case(
    """
    __global__ void k(int* y, const int* x) {
      if (int v = x[threadIdx.x]) y[threadIdx.x] = v * 2;
      else y[threadIdx.x] = v + 7;
    }
    """,
    zeros(4, I32),
    of([0, 1, -5, 0], I32),
    block=4,
)
def if_with_declaration(y: Any, x: Any) -> Any:
    return np.where(x != 0, x * 2, 7)


# ---- loops


@theme.case(
    """
    __global__ void k(int* y, const int* x, int n) {
      int s = 0;
      for (int j = 0; j < n; j++) {
        if (x[j] < 0) continue;
        if (x[j] > 40) break;
        s += x[j];
      }
      y[0] = s;
    }
    """,
    zeros(1, I32),
    of([5, -3, 10, -1, 20, 45, 7, 8], I32),
    8,
    block=1,
)
def for_break_continue(y: Any, x: Any, n: int) -> Any:
    return np.array([35])


@theme.case(
    """
    __global__ void k(int* y, const int* x, int n) {
      int s = 0, j = -1;
      while (++j < n) {
        if (x[j] < 0) continue;
        if (x[j] > 40) break;
        s = s * 2 + x[j];
      }
      y[0] = s; y[1] = j;
    }
    """,
    zeros(2, I32),
    of([5, -3, 10, -1, 20, 45, 7, 8], I32),
    8,
    block=1,
)
def while_break_continue(y: Any, x: Any, n: int) -> Any:
    return np.array([(5 * 2 + 10) * 2 + 20, 5])


@theme.case(
    """
    __global__ void k(int* y, const int* x, int n) {
      int s = 0, j = 0;
      do {
        int v = x[j++];
        if (v < 0) continue;      // goes to the condition
        if (v > 40) break;
        s += v;
      } while (j < n);
      y[0] = s; y[1] = j;
    }
    """,
    zeros(2, I32),
    of([5, -3, 10, -1, 20, -7], I32),
    6,
    block=1,
)
def do_break_continue(y: Any, x: Any, n: int) -> Any:
    return np.array([35, 6])


@theme.case(
    """
    __global__ void k(int* y) {
      int i = threadIdx.x, c = 0;
      do c++; while (c < i);
      y[i] = c;
    }
    """,
    zeros(8, I32),
    block=8,
)
def do_runs_once(y: Any) -> Any:
    return np.maximum(np.arange(8), 1)


@theme.case(
    """
    __global__ void k(int* y, int n) {
      int i = threadIdx.x, c = 0;
      for (int a = 0; a < n; ++a) {
        if (a == 2) continue;
        for (int b = 0; b < n; ++b) {
          if (b == i) break;
          if ((a + b) % 2) continue;
          c += 10 * a + b;
        }
        if (a == 5) break;
      }
      y[i] = c;
    }
    """,
    zeros(8, I32),
    7,
    block=8,
)
def nested_break_continue(y: Any, n: int) -> Any:
    return np.array(
        [sum(10 * a + b for a in (0, 1, 3, 4, 5) for b in range(min(i, n)) if (a + b) % 2 == 0) for i in range(8)]
    )


@theme.case(
    """
    __global__ void k(int* y, int n) {
      int i = 0, s = 0;
      for (;;) {
        if (i >= n) break;
        s += i;
        i += 3;
      }
      int j = 0;
      for (; j < n;) ++j;
      for (int m = 0;; ++m) if (m * m > n) { s += 1000 * m; break; }
      y[0] = s; y[1] = j;
    }
    """,
    zeros(2, I32),
    20,
    block=1,
)
def for_with_missing_parts(y: Any, n: int) -> Any:
    return np.array([sum(range(0, 20, 3)) + 5000, 20])


@theme.case(
    """
    __global__ void k(int* y, int n) {
      int s = 7;
      for (int i = 0; i < n; ++i) s = 0;
      for (int i = n; i > 0; --i) s = 1;
      while (n > 0) { s = 2; --n; }
      y[0] = s;
    }
    """,
    zeros(1, I32),
    0,
    block=1,
)
def zero_trip_loops(y: Any, n: int) -> Any:
    return np.array([7])


@theme.case(
    """
    __global__ void k(int* y, int n) {
      int s = 0;
      for (int i = 0, j = n; i < j; ++i, j -= 2) s += i * j;
      y[0] = s;
    }
    """,
    zeros(1, I32),
    20,
    block=1,
)
def two_loop_variables(y: Any, n: int) -> Any:
    s, i, j = 0, 0, n
    while i < j:
        s, i, j = s + i * j, i + 1, j - 2
    return np.array([s])


@theme.case(
    """
    __global__ void k(unsigned* y, unsigned n) {
      unsigned c = 0;
      for (unsigned i = n - 1; i < n; --i) c = c * 3 + i;     // ends by wrapping around
      unsigned w = 0;
      for (unsigned i = 0xfffffffau; i != 3u; ++i) w++;
      unsigned z = 0;
      for (unsigned char b = 250; b != 4; ++b) z++;
      y[0] = c; y[1] = w; y[2] = z;
    }
    """,
    zeros(3, U32),
    6,
    block=1,
)
def unsigned_wrap_around(y: Any, n: int) -> Any:
    c = 0
    for i in reversed(range(n)):
        c = c * 3 + i
    return np.array([c, 9, 10])


@theme.case(
    """
    __global__ void k(int* y, const int* x) {
      int s = 0, j = 0;
      while (int v = x[j++]) s += v;
      y[0] = s; y[1] = j;
    }
    """,
    zeros(2, I32),
    of([4, -9, 2, 0, 6], I32),
    block=1,
)
def while_with_declaration(y: Any, x: Any) -> Any:
    return np.array([-3, 4])


@theme.case(
    """
    __global__ void k(int* y, int n) {
      int i = threadIdx.x, c = 0;
      for (int s = 1; s < n; s *= 2) c += s;
      for (int s = n; s > 0; s >>= 1) c += 1000;
      for (int s = 0; s <= i; s += 2) c += 100000;
      for (int s = i; s >= 0; s -= 3) c += 1000000;
      y[i] = c;
    }
    """,
    zeros(8, I32),
    37,
    block=8,
)
def loop_steps(y: Any, n: int) -> Any:
    i = np.arange(8)
    return 63 + 6000 + (i // 2 + 1) * 100000 + (i // 3 + 1) * 1000000


@theme.case(
    """
    __global__ void k(int* y, int n) {
      int c = 0;
      for (int i = 0; i < n; ++i) {
        if (i == 4) i = 8;
        c += i;
      }
      for (int i = 0; i < n; ++i) n -= 2;
      y[0] = c; y[1] = n;
    }
    """,
    zeros(2, I32),
    12,
    block=1,
)
def loop_variable_or_bound_changed_inside(y: Any, n: int) -> Any:
    return np.array([0 + 1 + 2 + 3 + 8 + 9 + 10 + 11, 4])


@theme.case(
    """
    __global__ void k(float* y, const float* x, int n) {
      float s = 1.0f;
      #pragma unroll 4
      for (int i = 0; i < n; ++i) s = s * 0.5f + x[i];
      #pragma unroll
      for (int i = 0; i < 4; ++i) s += x[i];
      y[0] = s;
    }
    """,
    zeros(1),
    floats(11),
    11,
    block=1,
)
def pragma_unroll(y: Any, x: Any, n: int) -> Any:
    s = 1.0
    for v in x:
        s = s * 0.5 + v
    return np.array([s + x[:4].sum()])


@theme.case(
    """
    __global__ void k(int* y) {
      int i = threadIdx.x, a = i, b = 12;
      while (b) { int t = a % b; a = b; b = t; }
      int steps = 0;
      for (int v = i + 1; v != 1; v = v & 1 ? 3 * v + 1 : v / 2) steps++;
      y[2 * i] = a; y[2 * i + 1] = steps;
    }
    """,
    zeros(64, I32),
)
def data_dependent_loops(y: Any) -> Any:
    def collatz(v: int) -> int:
        n = 0
        while v != 1:
            v, n = (3 * v + 1 if v & 1 else v // 2), n + 1
        return n

    return np.array([[np.gcd(i, 12), collatz(i + 1)] for i in range(32)]).ravel()


@theme.case(
    """
    __global__ void k(int* y) {
      int table[5] = {3, 1, 4, 1, 5};
      int s = 0;
      for (int v : table) s = s * 10 + v;
      for (int& v : table) v *= 2;
      for (const auto& v : table) { if (v > 7) break; if (v == 2) continue; s += v; }
      y[0] = s; y[1] = table[4];
    }
    """,
    zeros(2, I32),
    block=1,
)
def range_for(y: Any) -> Any:
    return np.array([31415 + 6, 10])


# ---- switch


@theme.case(
    """
    __global__ void k(int* y) {
      int i = threadIdx.x, v = 0;
      switch (i % 6) {
        case 0: v = 10; break;
        case 1: v = 20;             // falls through
        case 2: v += 30;
        default: v += 1;            // in the middle
        case 3: v += 2; break;
        case 4: { int w = i; v = w * 2; break; }
      }
      y[i] = v;
    }
    """,
    zeros(12, I32),
    block=12,
)
def switch_fall_through(y: Any) -> Any:
    by_case = {0: 10, 1: 53, 2: 33, 3: 2, 5: 3}
    return np.array([i * 2 if i % 6 == 4 else by_case[i % 6] for i in range(12)])


@theme.case(
    """
    __global__ void k(int* y) {
      int i = threadIdx.x, s = 0;
      for (int j = 0; j < 8; ++j) {
        switch ((i + j) & 3) {
          case 0: continue;
          case 1: s += 1; break;
          case 2: s += 10; if (j > 4) continue; s += 100; break;
          default: break;
        }
        s += 1000;
      }
      y[i] = s;
    }
    """,
    zeros(4, I32),
    block=4,
)
def switch_in_loop_with_continue(y: Any) -> Any:
    def one(i: int) -> int:
        s = 0
        for j in range(8):
            c = (i + j) & 3
            if c == 0:
                continue
            if c == 1:
                s += 1
            if c == 2:
                s += 10
                if j > 4:
                    continue
                s += 100
            s += 1000
        return s

    return np.array([one(i) for i in range(4)])


@theme.case(
    """
    __device__ int pick(int a, int b) {
      switch (a) {
        case 0:
          switch (b) { case 0: return 1; case 1: break; default: return 3; }
          return 2;
        case 1: return 4;
      }
      return 5;
    }
    __global__ void k(int* y) { int i = threadIdx.x; y[i] = pick(i / 3, i % 3); }
    """,
    zeros(9, I32),
    block=9,
)
def switch_nested_with_returns(y: Any) -> Any:
    return np.array([1, 2, 3, 4, 4, 4, 5, 5, 5])


@theme.case(
    """
    __global__ void k(int* y, const int* x) {
      int i = threadIdx.x;
      switch (x[i]) { case -1: y[i] = 1; return; case 'a': y[i] = 2; return; case 1 << 4: y[i] = 3; }
      y[i] += 10;
    }
    """,
    zeros(4, I32),
    of([-1, 97, 16, 5], I32),
    block=4,
)
def switch_returning_from_kernel(y: Any, x: Any) -> Any:
    return np.array([1, 2, 13, 10])


@theme.case(
    """
    __global__ void k(int* y) {
      int i = threadIdx.x, n = 0;
      while (true) {
        switch (n) { case 3: n += 5; break; case 9: y[i] = n; return; default: n++; }
      }
    }
    """,
    zeros(2, I32),
    block=2,
)
def switch_in_endless_loop(y: Any) -> Any:
    return np.array([9, 9])


@theme.case(
    """
    __global__ void k(int* y) {
      int i = threadIdx.x;
      switch (i) { default: y[i] = 5; }
      switch (i) { }
      switch (int m = i % 2) { case 1: case 3: y[i] += m; }
      switch (i) { int t; case 0: t = 1; y[i] += 10 * t; break; case 1: ; int u; case 2: u = t = i;
      y[i] += 100 * (u + t); }
    }
    """,
    zeros(4, I32),
    block=4,
)
def switch_odd_shapes(y: Any) -> Any:
    return np.array([15, 206, 405, 6])


# ---- operators that choose


@theme.case(
    """
    __device__ bool count(int* c, bool r) { ++*c; return r; }
    __global__ void k(int* y) {
      int i = threadIdx.x, c = 0;
      bool a = i & 1, b = i & 2;
      bool r = count(&c, a) && count(&c, b) || count(&c, !b);
      bool q = !(a || (c += 10, b));
      y[3 * i] = r; y[3 * i + 1] = c; y[3 * i + 2] = q;
    }
    """,
    zeros(12, I32),
    block=4,
)
def short_circuit_with_side_effects(y: Any) -> Any:
    rows = []
    for i in range(4):
        a, b = bool(i & 1), bool(i & 2)
        c = 1 + a
        if not (a and b):
            c += 1
        r = (a and b) or not b
        rows.append([r, c + (0 if a else 10), not (a or b)])
    return np.array(rows).ravel()


@theme.case(
    """
    __global__ void k(float* y, const float* x, int n) {
      int i = threadIdx.x;
      if (i < n && x[i] > 0.0f) y[i] = 1.0f;      // the second must not run when the first says no
      y[i] += (i >= n || x[i] < 0.0f) ? 2.0f : 3.0f;
    }
    """,
    zeros(16),
    floats(9),
    9,
    block=16,
)
def short_circuit_guards_a_load(y: Any, x: Any, n: int) -> Any:
    y[:n] = np.where(x > 0, 4, 2)
    y[n:] = 2
    return y


@theme.case(
    """
    __global__ void k(int* y, const int* x) {
      int i = threadIdx.x, v = x[i];
      y[i] = v < 0 ? -1 : v == 0 ? 0 : v > 10 ? 2 : 1;
    }
    """,
    zeros(8, I32),
    of([-4, 0, 5, 11, 10, 1, -1, 100], I32),
    block=8,
)
def nested_ternaries(y: Any, x: Any) -> Any:
    return np.array([-1, 0, 1, 2, 1, 1, -1, 2])


@theme.case(
    """
    __global__ void k(int* y) {
      int i = threadIdx.x, a = 1, b = 2;
      (i & 1 ? a : b) = 10 * i;
      (i & 2 ? a : b) += 5;
      int& r = i & 1 ? b : a;
      r -= 100;
      y[2 * i] = a; y[2 * i + 1] = b;
    }
    """,
    zeros(8, I32),
    block=4,
)
def ternary_as_lvalue(y: Any) -> Any:
    rows = []
    for i in range(4):
        v = {"a": 1, "b": 2}
        v["a" if i & 1 else "b"] = 10 * i
        v["a" if i & 2 else "b"] += 5
        v["b" if i & 1 else "a"] -= 100
        rows += [v["a"], v["b"]]
    return np.array(rows)


@theme.case(
    """
    __global__ void k(float* y, const float* x) {
      int i = threadIdx.x;
      y[i] = x[i] > 0 ? x[i] / 2 : 3;             // int branch converts to float
      y[i] += x[i] > 0 ? 1u : -1;                 // -1 converts to unsigned
    }
    """,
    zeros(4),
    of([1, -1, 3, 0]),
    block=4,
)
def ternary_common_type(y: Any, x: Any) -> Any:
    return np.where(x > 0, x / 2 + 1, F32(3 + 2.0**32))


@theme.case(
    """
    __global__ void k(int* y) {
      int i = threadIdx.x, a = 0;
      int b = (a = i, a += 2, a * a);
      y[i] = (y[i]++, b);
      for (int p = 0, q = 5; p < q; p++, q--) y[i] += (p, q);
    }
    """,
    zeros(4, I32),
    block=4,
)
def comma(y: Any) -> Any:
    return (np.arange(4) + 2) ** 2 + 5 + 4 + 3


@theme.case(
    """
    __global__ void k(int* y) {
      int i = threadIdx.x, x = 1;
      { int x = 5; x += i; y[i] = x; }
      for (int x = 0; x < 3; ++x) { int y2 = x; { int x = 7; y[i] += x; } y[i] += y2; }
      y[i] += x;
    }
    """,
    zeros(4, I32),
    block=4,
)
def shadowed_names(y: Any) -> Any:
    return 5 + np.arange(4) + 21 + 3 + 1


@theme.case(
    """
    __global__ void k(int* y, const int* x) {
      int i = threadIdx.x;
      y[i] = 1;
      switch (x[i]) { case 0: y[i] = 100; break; case 1: y[i] = 100 / x[i]; break; case 2: y[i] = 7 % x[i]; }
      if (x[i] != 0) y[i] += 12 / x[i];           // division only where it is safe
    }
    """,
    zeros(4, I32),
    of([0, 1, 2, 3], I32),
    block=4,
)
def division_in_untaken_branch(y: Any, x: Any) -> Any:
    return np.array([100, 112, 7, 5])


@theme.case(
    """
    __global__ void k(float* y, const float* x, int n) {
      int best = 0; float m = x[0];
      for (int j = 1; j < n; ++j) {
        if (x[j] <= m) continue;
        m = x[j]; best = j;
      }
      y[0] = m; y[1] = best;
    }
    """,
    zeros(2),
    floats(20),
    20,
    block=1,
)
def arg_max(y: Any, x: Any, n: int) -> Any:
    return np.array([x.max(), x.argmax()])
