"""Classes: constructors, methods, operators, conversions, static members, inheritance."""

from __future__ import annotations

from typing import Any

import numpy as np

from .case import F32, I32, Theme, floats, ints, of, zeros

theme = Theme()


@theme.case(
    """
    struct V {
      float x, y;
      __device__ V() : x(1), y(2) {}
      __device__ V(float a) : V(a, a * 10) {}                  // delegates
      __device__ V(float a, float b) : x(a), y{b} { y += 0.5f; }
      __device__ V(const V& o) : x(o.x + 100), y(o.y) {}        // a copy that shows
    };
    __device__ float sum(V v) { return v.x + v.y; }
    __global__ void k(float* y) {
      V a, b(3), c = V(4, 5), d{6, 7}, e = a, f = {8, 9};
      V g[2] = {V(1), V(2, 3)};
      y[0] = a.x + a.y; y[1] = b.x + b.y; y[2] = c.x + c.y; y[3] = d.x + d.y; y[4] = e.x; y[5] = f.y;
      y[6] = g[0].y + g[1].y;
      y[7] = sum(a);
    }
    """,
    zeros(8),
    block=1,
)
def constructors(y: Any) -> Any:
    return np.array([3, 33.5, 9.5, 13.5, 101, 9.5, 14, 103])


@theme.case(
    """
    struct V {
      float x, y;
      __device__ V() : x(7), y(8) {}
      __device__ V(float x) : x(x), y(-1) {}
      __device__ V(float x, float y) : x(y), y(x) {}
      __device__ V(int n) : x(n), y(n + 1) {}
    };
    struct W { V a; float z; V c[2]; };
    __global__ void k(const float *x, float* y) {
      V b[3] = {x[0], {2.0f, 3.0f}};
      W w{x[1] * x[1], 5.0f, {{3}, V(x[2])}};
      V p[] = {4, w.a};
      y[0] = b[0].x; y[1] = b[0].y; y[2] = b[1].x; y[3] = b[1].y; y[4] = b[2].x; y[5] = b[2].y;
      y[6] = w.a.x; y[7] = w.a.y; y[8] = w.z; y[9] = w.c[0].y; y[10] = w.c[1].x; y[11] = p[0].y; y[12] = p[1].x;
    }
    """,
    of([2, 3, 6], np.float32),
    zeros(13),
    block=1,
)
def constructors_of_what_lists_hold(x: Any, y: Any) -> Any:
    y[:] = [2, -1, 3, 2, 7, 8, 9, -1, 5, 4, 6, 5, 9]
    return x, y


@theme.case(
    """
    struct V {
      float a;
      union { float b; int c; };
      union { struct { float d, e; }; float pair[2]; };
      union { float x, r; };
      __device__ V(float q) : a(1), b(q), d(q + 1), e(q + 2), x(q + 3) {}
    };
    template <int N> struct Scaled { float v, w; __device__ Scaled(float q) : v(q * N), w(1) {} };
    template <int N> struct Pair { float v, w; };
    struct Both : Scaled<3>, Scaled<4>, Pair<5> {
      float last;
      __device__ Both(float q) : Scaled<3>(q), Scaled<4>(q + 1), Pair<5>{q, 7}, last(9) {}
    };
    template <int L, class T> struct W;
    template <class T> struct W<2, T> { T x, y; __device__ W(T a, T b); __device__ W(T a); };
    template <class T> __device__ W<2, T>::W(T a, T b) : x(a), y(b) {}
    template <class T> __device__ W<2, T>::W(T a) : W<2, T>(a, a + 1) {}
    __global__ void k(float* y, const float* x) {
      V v(x[0]); Both b(x[0]); W<2, float> w(x[0]);
      y[0] = v.a; y[1] = v.b; y[2] = v.pair[0]; y[3] = v.pair[1]; y[4] = v.r;
      y[5] = b.Scaled<3>::v; y[6] = b.Scaled<4>::v; y[7] = b.Pair<5>::w; y[8] = b.last; y[9] = w.x + 10 * w.y;
    }
    """,
    zeros(10),
    floats(1),
    block=1,
)
def initializers(y: Any, x: Any) -> Any:
    """Members of anonymous members, bases that are instances of one template, classes qualified with numbers."""
    q = x[0]
    return np.array([1, q, q + 1, q + 2, q + 3, 3 * q, 4 * (q + 1), 7, 9, 11 * q + 10])


@theme.case(
    """
    struct Start { float q = 8; };
    union Own { float a; Start s; __device__ Own() : a(3) {} __device__ Own(float z) : s{z} {} };
    union Empty {};
    struct P { Empty none; union { int k; float q = 4; }; float z; };
    struct Q { float a; union { float b = 5; int c; }; __device__ Q(float q) : a(q) {} };
    __global__ void k(float* y, const float* x) {
      Own a, b(x[0]); P c{}, d{{}, {}, 9}; Q e(x[0]);
      y[0] = a.a; y[1] = b.s.q; y[2] = c.q; y[3] = d.q + d.z; y[4] = e.a + 10 * e.b;
    }
    """,
    zeros(5),
    floats(1),
    block=1,
)
def union_defaults(y: Any, x: Any) -> Any:
    return np.array([3, x[0], 4, 13, x[0] + 50])


@theme.case(
    """
    struct V { float x, y; __device__ V(float a, float b) : x(a), y(b) {} };
    struct Plain { float x, y; };
    __global__ void k(float* y, const float* x) {
      V a = V({x[0], x[1]}), b({x[1], 1}); Plain c = Plain({x[0], 2});
      a = V({a.y, a.x});
      y[0] = a.x; y[1] = b.x + b.y; y[2] = c.x * c.y;
    }
    """,
    zeros(3),
    floats(2),
    block=1,
)
def made_of_a_list(y: Any, x: Any) -> Any:
    return np.array([x[1], x[1] + 1, 2 * x[0]])


@theme.case(
    """
    class Counter {
     public:
      __device__ explicit Counter(int start) : n_(start) {}
      __device__ int next() { return n_++; }
      __device__ int peek() const { return n_; }
      __device__ Counter& skip(int k) { n_ += k; return *this; }
      __device__ void reset() { this->n_ = 0; set(5); }
     private:
      __device__ void set(int v) { n_ = v; }
      int n_;
    };
    __global__ void k(int* y) {
      Counter c(threadIdx.x);
      y[0] = c.next() + c.next() * 100;
      y[1] = c.skip(10).skip(20).peek();
      Counter* p = &c;
      p->reset();
      y[2] = p->peek();
      const Counter& r = c;
      y[3] = r.peek() + Counter(7).next();
    }
    """,
    zeros(4, I32),
    block=1,
)
def methods(y: Any) -> Any:
    return np.array([100, 32, 5, 12])


@theme.case(
    """
    struct C {
      float re, im;
      __host__ __device__ C(float r = 0, float i = 0) : re(r), im(i) {}
      __device__ C operator+(const C& o) const { return C(re + o.re, im + o.im); }
      __device__ C operator*(const C& o) const { return C(re * o.re - im * o.im, re * o.im + im * o.re); }
      __device__ C& operator+=(const C& o) { re += o.re; im += o.im; return *this; }
      __device__ C operator-() const { return C(-re, -im); }
      __device__ bool operator==(const C& o) const { return re == o.re && im == o.im; }
      __device__ float operator[](int i) const { return i ? im : re; }
      __device__ float operator()(float a, float b) const { return a * re + b * im; }
      __device__ C& operator++() { re += 1; return *this; }
      __device__ C operator++(int) { C old = *this; re += 1; return old; }
      __device__ C& operator=(float v) { re = v; im = 0; return *this; }
    };
    __device__ C operator-(const C& a, const C& b) { return {a.re - b.re, a.im - b.im}; }
    __device__ C operator*(float s, C c) { return C(s * c.re, s * c.im); }
    __device__ bool operator<(C a, C b) { return a.re < b.re; }
    __global__ void k(float* y) {
      C a(1, 2), b(3, -1);
      C c = a + b * a - 2.0f * b;
      y[0] = c.re; y[1] = c.im;
      c += a; c += 5;
      y[2] = c[0]; y[3] = c[1];
      y[4] = (-a).im; y[5] = a == C(1, 2); y[6] = a(10, 100); y[7] = (a++).re + (++a).re; y[8] = a.re; y[9] = a < b;
      a = 7.0f; y[10] = a.re + a.im;
    }
    """,
    zeros(11),
    block=1,
)
def operators(y: Any) -> Any:
    a, b = 1 + 2j, 3 - 1j
    c = a + b * a - 2 * b
    d = c + a + 5
    return np.array([c.real, c.imag, d.real, d.imag, -2, 1, 210, 1 + 3, 3, 0, 7])


@theme.case(
    """
    struct Fixed {
      int raw;
      __device__ operator float() const { return raw / 256.0f; }
      __device__ explicit operator bool() const { return raw != 0; }
      __device__ explicit operator int() const { return raw >> 8; }
    };
    __device__ float half(float x) { return x / 2; }
    __global__ void k(float* y) {
      Fixed f{640}, z{0};
      y[0] = f; y[1] = half(f); y[2] = f + 1.0f; y[3] = (int)f; y[4] = f ? 1 : 0; y[5] = !z; if (z) y[5] = 9;
    }
    """,
    zeros(6),
    block=1,
)
def conversion_operators(y: Any) -> Any:
    return np.array([2.5, 1.25, 3.5, 2, 1, 1])


@theme.case(
    """
    struct Config {
      static const int N = 4;
      static constexpr float scale = 0.25f;
      static __device__ int twice(int x) { return 2 * x; }
      enum { SHIFT = 3 };
      static constexpr int table[3] = {5, 6, 7};
    };
    __global__ void k(float* y) {
      Config c;
      y[0] = Config::N * Config::scale; y[1] = Config::twice(5) + c.twice(1); y[2] = 1 << Config::SHIFT; y[3] = c.N;
      y[4] = Config::table[threadIdx.x + 1];
    }
    """,
    zeros(5),
    block=1,
)
def static_members(y: Any) -> Any:
    return np.array([1, 12, 8, 4, 6])


@theme.case(
    """
    struct Base {
      int a;
      __device__ Base(int v) : a(v) {}
      __device__ int get() const { return a; }
      __device__ int twice() const { return 2 * get(); }
    };
    struct Middle : Base { float m; __device__ Middle(int v) : Base(v + 1), m(0.5f) {}
    __device__ int get() const { return 1000; } };
    struct Derived : public Middle {
      int b;
      __device__ Derived(int x, int y) : Middle(x), b(y) { a += 10; }
      __device__ int all() const { return a + b + Base::get() + get(); }
    };
    __device__ int of_base(const Base& b) { return b.a; }
    __device__ int of_pointer(Base* b) { b->a++; return b->get(); }
    __global__ void k(int* y) {
      Derived d(1, 2);
      y[0] = d.all(); y[1] = d.twice(); y[2] = of_base(d); y[3] = of_pointer(&d); y[4] = d.a; y[5] = d.m * 10;
      Base copy = d; copy.a = 0; y[6] = d.a;
      static_cast<Base&>(d).a = 77; y[7] = d.a;
    }
    """,
    zeros(8, I32),
    block=1,
)
def inheritance(y: Any) -> Any:
    return np.array([12 + 2 + 12 + 1000, 24, 12, 13, 13, 5, 13, 77])


@theme.case(
    """
    struct A { int x = 1; }; struct B { float y = 2; __device__ float g() const { return y * 10; } };
    struct AB : A, B { int z = 3; };
    struct Agg : A { int w; };
    __global__ void k(float* y) {
      AB ab; ab.y += ab.x;
      B& b = ab; b.y += 100;
      Agg g{{5}, 6};
      y[0] = ab.x + ab.z; y[1] = ab.g(); y[2] = sizeof(AB); y[3] = g.x * 10 + g.w;
    }
    """,
    zeros(4),
    block=1,
)
def several_bases(y: Any) -> Any:
    return np.array([4, 1030, 12, 56])


@theme.case(
    """
    struct Guard {
      int* p;
      __device__ Guard(int* q) : p(q) { *p += 1; }
      __device__ int value() { return *p * 10; }
    };
    struct Ref { int& r; const float& f; __device__ Ref(int& a, const float& b) : r(a), f(b) {} };
    __global__ void k(int* y) {
      int n = 4;
      Guard g(&n);
      float f = 2.5f;
      Ref ref(n, f);
      ref.r += 100;
      f = 7;
      y[0] = g.value(); y[1] = n; y[2] = ref.f;
    }
    """,
    zeros(3, I32),
    block=1,
)
def members_that_refer(y: Any) -> Any:
    return np.array([1050, 105, 7])


@theme.case(
    """
    struct Matrix {
      float m[2][2];
      __device__ Matrix() { for (int i = 0; i < 2; ++i) for (int j = 0; j < 2; ++j) m[i][j] = i == j; }
      __device__ float& operator()(int i, int j) { return m[i][j]; }
      __device__ float operator()(int i, int j) const { return m[i][j]; }
      __device__ const float* row(int i) const { return m[i]; }
    };
    __device__ Matrix operator*(const Matrix& a, const Matrix& b) {
      Matrix c;
      for (int i = 0; i < 2; ++i) for (int j = 0; j < 2; ++j) c(i, j) = a(i, 0) * b(0, j) + a(i, 1) * b(1, j);
      return c;
    }
    __global__ void k(float* y, const float* x) {
      Matrix a;
      a(0, 1) = x[threadIdx.x];
      Matrix p;
      for (int n = 0; n < 5; ++n) p = p * a;
      y[threadIdx.x] = p(0, 1) + p.row(0)[0];
    }
    """,
    zeros(8),
    floats(8),
    block=8,
)
def matrix_class(y: Any, x: Any) -> Any:
    return 5 * x + 1


@theme.case(
    """
    class Span {
      float* p_; int n_;
     public:
      __device__ Span(float* p, int n) : p_(p), n_(n) {}
      __device__ int size() const { return n_; }
      __device__ float& operator[](int i) const { return p_[i]; }
      __device__ Span sub(int from, int count) const { return Span(p_ + from, count); }
      __device__ float* begin() const { return p_; }
    };
    __device__ void fill(Span s, float v) { for (int i = 0; i < s.size(); ++i) s[i] = v; }
    __global__ void k(float* y) {
      Span all(y, 8);
      fill(all.sub(2, 3), 5);
      all[7] = *(all.begin() + 2) + 1;
    }
    """,
    zeros(8),
    block=1,
)
def span_class(y: Any) -> Any:
    return np.array([0, 0, 5, 5, 5, 0, 0, 6])


@theme.case(
    """
    struct Less { __device__ bool operator()(int a, int b) const { return a < b; } };
    struct Scale { int f; __device__ int operator()(int v) const { return v * f; } };
    template <class F> __device__ int best(const int* x, int n, F better) {
      int b = x[0];
      for (int i = 1; i < n; ++i) if (better(x[i], b)) b = x[i];
      return b;
    }
    template <class F> __device__ int apply(F f, int v) { return f(v); }
    __global__ void k(int* y, const int* x, int n) { y[0] = best(x, n, Less()); y[1] = apply(Scale{3}, 5);
    y[2] = Scale{4}(6); }
    """,
    zeros(3, I32),
    ints(10),
    10,
    block=1,
)
def functors(y: Any, x: Any, n: int) -> Any:
    return np.array([x.min(), 15, 24])


@theme.case(
    """
    struct Op { float w; __device__ float operator()(float v) const { return v * w; } };
    __global__ void k(float* y, const float* x, Op op) { y[threadIdx.x] = op(x[threadIdx.x]); }
    """,
    zeros(8),
    floats(8),
    {"w": 3.0},
    block=8,
)
def functor_parameter(y: Any, x: Any, op: Any) -> Any:
    return x * F32(3)


@theme.case(
    """
    struct Outer {
      struct Inner { int v; __device__ int get() const { return v; } };
      Inner in[2];
      int scale;
      __device__ int total() const { int s = 0; for (int i = 0; i < 2; ++i) s += in[i].get() * scale; return s; }
      __device__ Inner& operator[](int i) { return in[i]; }
      friend __device__ int peek(const Outer& o) { return o.in[1].v; }
    };
    __global__ void k(int* y) {
      Outer o = {{{1}, {2}}, 10};
      Outer::Inner i = {5};
      o[0] = i; o[1].v += 2;
      y[0] = o.total(); y[1] = peek(o);
    }
    """,
    zeros(2, I32),
    block=1,
)
def nested_classes(y: Any) -> Any:
    return np.array([90, 4])


@theme.case(
    """
    struct Lazy {
      int a, b;
      __device__ int f() { return b++ + g(); }
      __device__ int g();
    };
    __device__ int Lazy::g() { return a * 2 + b; }
    __global__ void k(int* y) { Lazy l = {3, 4}; y[0] = l.f(); y[1] = l.b; }
    """,
    zeros(2, I32),
    block=1,
)
def method_defined_outside(y: Any) -> Any:
    return np.array([4 + 6 + 5, 5])


@theme.case(
    """
    struct S {
      int v = 1;
      S() = default;
      __device__ S(int a) : v(a) {}
      S(const S&) = default;
      S& operator=(const S&) = default;
    };
    __global__ void k(int* y) {
      S a, b(5), c = b, d[3];
      a = c; c = S{}; d[1] = 9;
      y[0] = a.v; y[1] = c.v; y[2] = d[0].v + d[1].v + d[2].v;
    }
    """,
    zeros(3, I32),
    block=1,
)
def defaulted_functions(y: Any) -> Any:
    return np.array([5, 1, 11])


@theme.case(
    """
    #include <utility>
    struct B { int v; __device__ B(int a) : v(a) {} __device__ B(int a, int b) : v(a * b) {} };
    struct D : B { using B::B; int w = 2; };
    struct A { int v; __device__ A(int x) : v(x) {} __device__ A(A&& o) : v(o.v) { o.v = 0; } };
    __global__ void k(int* y) {
      D d(5), e(3, 4);
      y[0] = d.v * 10 + d.w; y[1] = e.v * 10 + e.w;
      A a(5);
      A b(std::move(a));
      y[2] = a.v * 10 + b.v;
    }
    """,
    zeros(3, I32),
    block=1,
)
def inherited_and_moving_constructors(y: Any) -> Any:
    return np.array([52, 122, 5])


@theme.case(
    """
    struct S { float x; };
    struct Pointer {
      S* p;
      __device__ S* operator->() const { return p; }
      __device__ S& operator*() const { return *p; }
      __device__ explicit operator bool() const { return p != nullptr; }
    };
    struct A { int v, n; __device__ A& operator=(const A& o) { v = o.v; n = o.n + 1; return *this; } };
    __global__ void k(float* y) {
      S s{4};
      Pointer p{&s};
      if (p) { p->x += 1; (*p).x *= 2; }
      y[0] = s.x;
      A a{1, 0}, b{2, 5}, c{3, 9};
      a = b = c;
      y[1] = a.v * 100 + a.n * 10 + b.n;
    }
    """,
    zeros(2),
    block=1,
)
def smart_pointer_and_assignment(y: Any) -> Any:
    return np.array([10, 420])
