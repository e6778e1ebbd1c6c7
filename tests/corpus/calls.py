"""Device functions, namespaces, overloads, default arguments."""

from __future__ import annotations

from typing import Any

import numpy as np

from .case import I32, Theme, floats, ints, zeros

theme = Theme()


@theme.case(
    """
    namespace a { __device__ int f(int x) { return x + 1; } namespace b { __device__ int f(int x) {
      return x + 10; } const int C = 5; } }
    namespace { __device__ int hidden(int x) { return x * 3; } }
    namespace c { using namespace a::b; __device__ int g(int x) { return f(x) + C; } }
    inline namespace v1 { struct T { int v; }; }
    namespace short_name = a::b;
    namespace outer {
    __global__ void k(int* y) {
      y[0] = a::f(1); y[1] = a::b::f(1); y[2] = hidden(4); y[3] = c::g(1); y[4] = short_name::C;
      using a::f; y[5] = f(7); ::T t = {8}; y[6] = t.v;
    }
    }
    """,
    zeros(7, I32),
    kernel="outer::k",
    block=1,
)
def namespaces(y: Any) -> Any:
    return np.array([2, 11, 12, 16, 5, 8, 8])


@theme.case(
    """
    __device__ int f(int) { return 1; }
    __device__ int f(float) { return 2; }
    __device__ int f(double) { return 3; }
    __device__ int f(const int*) { return 4; }
    __device__ int f(int, int = 0) = delete;
    __device__ int g(int a, int b = 2, int c = 3) { return a * 100 + b * 10 + c; }
    __device__ int h(unsigned) { return 5; }
    __device__ int h(long long) { return 6; }
    __global__ void k(int* y) {
      short s = 1;
      y[1] = f(1.0f); y[2] = f(1.0); y[3] = f(y); y[5] = g(1); y[6] = g(1, 5); y[7] = g(1, 5, 6); y[8] = h(3u);
      y[9] = h(s * 1LL);
    }
    """,
    zeros(10, I32),
    block=1,
)
def overloads_and_defaults(y: Any) -> Any:
    return np.array([0, 2, 3, 4, 0, 123, 153, 156, 5, 6])


@theme.case(
    """
    __global__ void k(float* y, float s) { y[threadIdx.x] = s; }
    __global__ void k(int* y, int s) { y[threadIdx.x] = s + 1; }
    """,
    zeros(4, I32),
    7,
    kernel="k(int *, int)",
    block=4,
)
def overloaded_kernel(y: Any, s: int) -> Any:
    return np.full(4, 8)


@theme.case(
    """
    __device__ float late(float x);
    __device__ __forceinline__ float a(float x) { return late(x) * 2; }
    __device__ __noinline__ float b(float x) { return a(x) + a(x + 1); }
    __host__ __device__ inline float c(float x) { return b(x) - x; }
    static __device__ float late(float x) { return x * x; }
    __global__ void k(float* y, const float* x) { y[threadIdx.x] = c(x[threadIdx.x]); }
    """.replace("static __device__ float late", "__device__ float late"),
    zeros(8),
    floats(8),
    block=8,
)
def chains_of_calls(y: Any, x: Any) -> Any:
    return 2 * x**2 + 2 * (x + 1) ** 2 - x


@theme.case(
    """
    __device__ float add(float a, float b) { return a + b; }
    __device__ void bump(int x) { x += 100; }
    __device__ int clamp_(int x, int lo, int hi) { if (x < lo) x = lo; if (x > hi) x = hi; return x; }
    __global__ void k(float* y, const float* x, const int* n) {
      int i = threadIdx.x, v = n[i];
      bump(v);                                      // by value: nothing happens
      y[i] = add(x[i], x[i]) + clamp_(v, -5, 5) + add(clamp_(1, 2, 3), add(1, 2));
    }
    """,
    zeros(8),
    floats(8),
    ints(8),
    block=8,
)
def arguments_by_value(y: Any, x: Any, n: Any) -> Any:
    return 2 * x + np.clip(n, -5, 5) + 5


@theme.case(
    """
    __device__ int order(int* log, int v) { *log = *log * 10 + v; return v; }
    __device__ int three(int a, int b, int c) { return a * 100 + b * 10 + c; }
    __global__ void k(int* y) {
      int log = 0;
      int r = order(&log, 1) + order(&log, 2) * order(&log, 3);
      y[0] = r; y[1] = log;
      int a[3] = {0, 0, 0}, i = 0;
      a[i] = ++i;                                   // the right side first, since C++17
      y[2] = a[1];
      y[3] = (order(&log, 4), order(&log, 5)) + log;
    }
    """,
    zeros(4, I32),
    block=1,
)
def order_of_evaluation(y: Any) -> Any:
    return np.array([7, 123, 1, 12350])


@theme.case(
    """
    __device__ bool solve(float a, float b, float c, float& x0, float& x1) {
      float d = b * b - 4 * a * c;
      if (d < 0) return false;
      float r = sqrtf(d);
      x0 = (-b - r) / (2 * a); x1 = (-b + r) / (2 * a);
      return true;
    }
    __global__ void k(float* y, const float* c) {
      int i = threadIdx.x;
      float p = -9, q = -9;
      bool ok = solve(1.0f, 3.0f, c[i], p, q);
      y[3 * i] = ok; y[3 * i + 1] = p; y[3 * i + 2] = q;
    }
    """,
    zeros((16, 3)),
    floats(16, -3, 6),
    block=16,
    rtol=1e-4,
    atol=1e-4,
)
def several_results(y: Any, c: Any) -> Any:
    d = 9 - 4 * c.astype(float)
    r = np.sqrt(np.abs(d))
    return np.where((d < 0)[:, None], [[0, -9, -9]], np.stack([np.ones(16), (-3 - r) / 2, (-3 + r) / 2], 1))


@theme.case(
    """
    extern "C" __global__ void __launch_bounds__(128, 2) k(float* y, float v) { y[threadIdx.x] = v; }
    """,
    zeros(8),
    2.5,
    block=8,
)
def launch_bounds_and_c_linkage(y: Any, v: float) -> Any:
    return np.full(8, 2.5)


@theme.case(
    """
    static __inline__ __device__ int twice(int x) { return 2 * x; }
    [[nodiscard]] __device__ constexpr int thrice(int x) noexcept { return 3 * x; }
    __device__ auto pick(bool b) -> float { return b ? 1.5f : 2; }
    __device__ [[gnu::unused]] int unused(int) { return 0; }
    __global__ void k(float* y, [[maybe_unused]] int, bool flag, char c, signed char s, unsigned short u, double d) {
      y[0] = twice(3) + thrice(4); y[1] = pick(flag); y[2] = c; y[3] = s; y[4] = u; y[5] = d;
    }
    """,
    zeros(6),
    0,
    True,
    65,
    -3,
    60000,
    0.25,
    block=1,
)
def signatures(y: Any, *rest: Any) -> Any:
    return np.array([18, 1.5, 65, -3, 60000, 0.25])
