"""Templates, specialisations, packs, constexpr."""

from __future__ import annotations

from typing import Any

import numpy as np

from .case import F64, I32, I64, Theme, floats, ints, zeros

theme = Theme()

SCALE = """
    template <typename T, int N> __global__ void scale(T* y, const T* x, T a) {
      int i = threadIdx.x;
      for (int j = 0; j < N; ++j) y[i * N + j] = a * x[i * N + j] + N;
    }
    """


@theme.case(SCALE, zeros(32), floats(32), 2.5, kernel="scale<float, 4>", block=8)
def kernel_of_float(y: Any, x: Any, a: float) -> Any:
    return a * x + 4


@theme.case(SCALE, zeros(16, I64), ints(16, dtype=I64), -3, kernel="scale<long long, 2>", block=8)
def kernel_of_long(y: Any, x: Any, a: int) -> Any:
    return a * x + 2


@theme.case(
    """
    template <typename T> __device__ T sq(T x) { return x * x; }
    template <> __device__ float sq<float>(float x) { return x * x + 0.5f; }     // specialised
    template <typename T, int N = 3> __device__ T power(T x) { T r = 1; for (int i = 0; i < N; ++i) r *= x;
    return r; }
    template <typename A, typename B> __device__ auto add(A a, B b) { return a + b; }
    template <typename A, typename B> __device__ decltype(A() * B()) mul(A a, B b) { return a * b; }
    __global__ void k(double* y) {
      y[0] = sq(3); y[1] = sq(3.0f); y[2] = sq<double>(3); y[3] = power(2.0); y[4] = power<int, 5>(2);
      y[5] = add(1, 2.5);
      y[6] = mul(2, 0.25f); y[7] = sq((char)20);
    }
    """,
    zeros(8, F64),
    block=1,
)
def function_templates(y: Any) -> Any:
    return np.array([9, 9.5, 9, 8, 32, 3.5, 0.5, -112])


@theme.case(
    """
    template <typename T, int N> struct Vec {
      T v[N];
      static constexpr int size = N;
      __device__ Vec(T x) { for (int i = 0; i < N; ++i) v[i] = x + i; }
      __device__ T& operator[](int i) { return v[i]; }
      __device__ T dot(const Vec& o) const { T s = 0; for (int i = 0; i < N; ++i) s += v[i] * o.v[i]; return s; }
      template <typename U> __device__ Vec<U, N> cast() const { Vec<U, N> r(0); for (int i = 0; i < N;
      ++i) r[i] = (U)v[i]; return r; }
    };
    __global__ void k(float* y) {
      Vec<float, 3> a(1.5f); Vec<int, 4> b(2);
      a[1] = 10;
      y[0] = a.dot(a); y[1] = b.dot(b); y[2] = a.cast<int>()[2]; y[3] = Vec<int, 7>::size + b.size;
    }
    """,
    zeros(4),
    block=1,
)
def class_templates(y: Any) -> Any:
    return np.array([1.5**2 + 100 + 3.5**2, 4 + 9 + 16 + 25, 3, 11])


@theme.case(
    """
    template <typename T> struct Traits { static constexpr int id = 0; using wide = T; };
    template <> struct Traits<float> { static constexpr int id = 1; using wide = double; };
    template <typename T> struct Traits<T*> { static constexpr int id = 10 + Traits<T>::id; using wide = T; };
    template <int N> struct Fact { enum { value = N * Fact<N - 1>::value }; };
    template <> struct Fact<0> { enum { value = 1 }; };
    template <bool B, class T, class U> struct If { typedef T type; };
    template <class T, class U> struct If<false, T, U> { typedef U type; };
    __global__ void k(double* y) {
      y[0] = Traits<int>::id; y[1] = Traits<float>::id; y[2] = Traits<float*>::id; y[3] = Fact<5>::value;
      Traits<float>::wide w = 0.1; y[4] = w; y[5] = sizeof(If<(sizeof(int) > 4), char, short>::type);
    }
    """,
    zeros(6, F64),
    block=1,
)
def specialisations(y: Any) -> Any:
    return np.array([0, 1, 11, 120, 0.1, 2])


@theme.case(
    """
    __device__ int sum() { return 0; }
    template <typename T, typename... R> __device__ int sum(T first, R... rest) { return first + sum(rest...); }
    template <typename... T> __device__ float fold(T... v) { return (v + ... + 0); }
    template <typename... T> __device__ int count(T...) { return sizeof...(T); }
    template <typename... T> __device__ bool all(T... v) { return (... && (v > 0)); }
    template <int... I> __device__ int digits() { int r = 0; ((r = r * 10 + I), ...); return r; }
    __global__ void k(float* y) {
      y[0] = sum(1, 2, 3, 4); y[1] = fold(1, 2.5f, 3); y[2] = count(1, 'a', 2.0); y[3] = all(1, 2) + 2 * all(1, -1);
      y[4] = digits<4, 2, 7>();
    }
    """,
    zeros(5),
    block=1,
)
def packs_and_folds(y: Any) -> Any:
    return np.array([10, 6.5, 3, 1, 427])


@theme.case(
    """
    #include <type_traits>
    template <typename T> __device__ float kind(T v) {
      if constexpr (std::is_same<T, float>::value) return v + 0.5f;
      else if constexpr (std::is_integral_v<T>) return v * 10;
      else return -1;
    }
    template <int N> __device__ int down() { if constexpr (N > 0) return N + down<N - 1>(); else return 0; }
    template <bool FLAG> __device__ void maybe(float* p) { if (FLAG) *p += 1; else *p -= 1; }
    __global__ void k(float* y) {
      y[0] = kind(1.0f); y[1] = kind(2); y[2] = kind(3.0); y[3] = down<4>(); maybe<true>(y + 4); maybe<false>(y + 5);
    }
    """,
    zeros(6),
    block=1,
)
def if_constexpr(y: Any) -> Any:
    return np.array([1.5, 20, -1, 10, 1, -1])


@theme.case(
    """
    constexpr int SIZE = 4 * 2;
    constexpr int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
    constexpr float weights[3] = {0.5f, 0.25f, 0.125f};
    constexpr int squared(int x) { int r = x; r *= x; return r; }
    struct P { int a, b; };
    constexpr P p = {3, 4};
    const float scale = 1.5f;
    static const int offsets[2][2] = {{1, 2}, {3, 4}};
    __global__ void k(float* y) {
      int local[squared(2)] = {1, 2, 3, 4};
      constexpr int f = fib(10);
      y[0] = SIZE; y[1] = f; y[2] = weights[threadIdx.x + 1]; y[3] = p.a * p.b; y[4] = scale;
      y[5] = offsets[1][threadIdx.x];
      y[6] = local[3] + squared(threadIdx.x + 3);
      static_assert(SIZE == 8, "size");
    }
    """,
    zeros(7),
    block=1,
)
def constexpr(y: Any) -> Any:
    return np.array([8, 55, 0.25, 12, 1.5, 3, 13])


@theme.case(
    """
    template <typename T, template <typename> class Op> __device__ T reduce(const T* x, int n) {
      T r = x[0];
      for (int i = 1; i < n; ++i) r = Op<T>::apply(r, x[i]);
      return r;
    }
    template <typename T> struct Max { static __device__ T apply(T a, T b) { return a > b ? a : b; } };
    template <typename T> struct Add { static __device__ T apply(T a, T b) { return a + b; } };
    template <typename T> __global__ void k(T* y, const T* x, int n) { y[0] = reduce<T, Max>(x, n);
    y[1] = reduce<T, Add>(x, n); }
    """,
    zeros(2, I32),
    ints(9),
    9,
    kernel="k<int>",
    block=1,
)
def policies(y: Any, x: Any, n: int) -> Any:
    return np.array([x.max(), x.sum()])


@theme.case(
    """
    template <typename T> __device__ T pi = T(3.14159265358979);
    template <int N> constexpr int twice = 2 * N;
    template <typename T> constexpr bool is_big = sizeof(T) > 4;
    template <class T> using Pair = T[2];
    __global__ void k(double* y) { y[0] = twice<21>; y[1] = is_big<double> + 2 * is_big<float>;
    Pair<int> p = {5, 6}; y[2] = p[1]; }
    """,
    zeros(3, F64),
    block=1,
)
def variable_and_alias_templates(y: Any) -> Any:
    return np.array([42, 1, 6])


@theme.case(
    """
    template <typename T, int BLOCK> __global__ void k(T* y, const T* x) {
      __shared__ T tile[BLOCK];
      int i = threadIdx.x;
      tile[i] = x[i];
      __syncthreads();
      y[i] = tile[BLOCK - 1 - i];
    }
    template __global__ void k<float, 16>(float*, const float*);
    """,
    zeros(16),
    floats(16),
    kernel="k<float, 16>",
    block=16,
    exact=True,
)
def shared_array_of_template_size(y: Any, x: Any) -> Any:
    return x[::-1]


@theme.case(
    """
    template <class Derived> struct Shape {
      __device__ float twice_area() const { return 2 * static_cast<const Derived*>(this)->area(); }
    };
    struct Square { float s; __device__ float area() const { return s * s; } };
    struct Box : Shape<Box> { float w, h; __device__ float area() const { return w * h; } };
    __global__ void k(float* y) { Box b; b.w = 3; b.h = 4; y[0] = b.twice_area(); y[1] = Square{2}.area(); }
    """,
    zeros(2),
    block=1,
)
def static_polymorphism(y: Any) -> Any:
    return np.array([24, 4])


@theme.case(
    """
    template <int LEVEL> struct Loop {
      template <class F> static __device__ void run(F f) { f(LEVEL - 1); Loop<LEVEL - 1>::run(f); }
    };
    template <> struct Loop<0> { template <class F> static __device__ void run(F) {} };
    __global__ void k(int* y) { Loop<5>::run([&](int i) { y[i] = i * i; }); }
    """,
    zeros(5, I32),
    block=1,
)
def unrolled_by_recursion_of_templates(y: Any) -> Any:
    return np.arange(5) ** 2
