"""Lambdas: captures, generic ones, passed to templates."""

from __future__ import annotations

from typing import Any

import numpy as np

from .case import I32, Theme, floats, zeros

theme = Theme()


@theme.case(
    """
    __global__ void k(int* y) {
      int i = threadIdx.x, a = 10;
      auto none = [](int v) { return v * 2; };
      auto copy = [a](int v) { return v + a; };
      auto ref = [&a](int v) { a += v; return a; };
      auto all_copy = [=] { return a + i; };
      auto all_ref = [&] { a++; return i; };
      a = 100;
      y[5 * i] = none(i); y[5 * i + 1] = copy(i); y[5 * i + 2] = ref(i) + a; y[5 * i + 3] = all_copy();
      y[5 * i + 4] = all_ref() + a;
    }
    """,
    zeros((4, 5), I32),
    block=4,
)
def captures(y: Any) -> Any:
    i = np.arange(4)
    return np.stack([2 * i, i + 10, 200 + 2 * i, 10 + i, i + 101 + i], 1)


@theme.case(
    """
    __global__ void k(float* y, const float* x) {
      constexpr int TWO = 2; const int three = 3; constexpr float four = 4; static constexpr float five = 5;
      auto step = [&](int i) {                                   // the values of constants are not captured
        for (int j = 0; j < TWO; ++j) y[i] += x[i] * three;
        y[i] = max(y[i], four) + five;                           // a reference to one is
        auto twice = [=](float v) { return v * TWO; };
        y[i] = twice(y[i]);
      };
      step(0); step(1);
    }
    """,
    zeros(2),
    floats(2),
    block=1,
)
def constants(y: Any, x: Any) -> Any:
    return 2 * (np.maximum(6 * x, 4) + 5)


@theme.case(
    """
    __global__ void k(float* y) {
      auto add = [](auto a, auto b) { return a + b; };
      y[0] = add(1, 2); y[1] = add(1.5f, 2); y[2] = [](float v) -> int { return v; }(3.7f);
      auto compose = [](auto f, auto g) { return [=](auto x) { return f(g(x)); }; };
      auto h = compose([](float x) { return x * x; }, [](float x) { return x + 1; });
      y[3] = h(3.0f);
    }
    """,
    zeros(4),
    block=1,
)
def generic(y: Any) -> Any:
    return np.array([3, 3.5, 3, 16])


@theme.case(
    """
    template <class F> __device__ void for_each(float* x, int n, F f) { for (int i = 0; i < n; ++i) f(x[i], i); }
    template <class F> __device__ float integrate(float a, float b, int n, const F& f) {
      float s = 0, h = (b - a) / n;
      for (int i = 0; i < n; ++i) s += f(a + (i + 0.5f) * h);
      return s * h;
    }
    __global__ void k(float* y, float w) {
      for_each(y, 4, [w](float& v, int i) { v += w * i; });
      y[4] = integrate(0, 1, 64, [=](float x) { return w * x * x; });
    }
    """,
    zeros(5),
    3.0,
    block=1,
    rtol=1e-3,
)
def passed_to_templates(y: Any, w: float) -> Any:
    return np.array([0, 3, 6, 9, 1.0])


@theme.case(
    """
    __global__ void k(int* y) {
      int n = 0;
      auto counter = [n]() mutable { return ++n; };
      y[0] = counter() + 10 * counter();
      auto other = counter;
      y[1] = other() * 10 + counter();
      y[2] = n;
      auto init = [m = n + 7, &r = n](int v) { r = v; return m; };
      y[3] = init(55) + n;
    }
    """,
    zeros(4, I32),
    block=1,
)
def mutable_and_init_captures(y: Any) -> Any:
    return np.array([21, 33, 0, 62])


@theme.case(
    """
    struct Poly {
      float a, b;
      __device__ float eval(float x) const { auto f = [this](float v) { return a * v + b; };
      return f(x) + [=](float v) { return v * a; }(x); }
    };
    __global__ void k(float* y, const float* x) { Poly p = {2, 3}; y[threadIdx.x] = p.eval(x[threadIdx.x]); }
    """,
    zeros(8),
    floats(8),
    block=8,
)
def capturing_this(y: Any, x: Any) -> Any:
    return 4 * x + 3


@theme.case(
    """
    __global__ void k(int* y) {
      int table[3] = {1, 2, 3};
      auto sum = [&](int from) { int s = 0; for (int i = from; i < 3; ++i) { if (table[i] == 2) continue;
      s += table[i]; } return s; };
      auto copy = [table](int i) { return table[i]; };
      table[2] = 50;
      auto early = [](int v) { if (v < 0) return -1; if (v == 0) return 0; return 1; };
      y[0] = sum(0); y[1] = copy(2); y[2] = early(-5) * 100 + early(0) * 10 + early(3);
    }
    """,
    zeros(3, I32),
    block=1,
)
def arrays_and_returns(y: Any) -> Any:
    return np.array([51, 3, -99])


@theme.case(
    """
    __global__ void k(float* y, const float* x, int n) {
      int i = threadIdx.x;
      const auto load = [x, n](int j) { return j >= 0 && j < n ? x[j] : 0.0f; };
      y[i] = load(i - 1) + load(i) + load(i + 1);
    }
    """,
    zeros(16),
    floats(16),
    16,
    block=16,
)
def guarded_load(y: Any, x: Any, n: int) -> Any:
    p = np.pad(x, 1)
    return p[:-2] + p[1:-1] + p[2:]
