"""CUDA's math functions in float and double."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from .case import F32, F64, I32, Theme, floats, ints, zeros

theme = Theme()

Reference = Callable[[float], float]


def _sum_of(names: str, suffix: str, type: str, argument: str) -> str:
    lines = "\n".join(f"y[n * {k} + i] = {name}{suffix}({argument});" for k, name in enumerate(names.split()))
    return f"__global__ void k({type}* y, const {type}* x, int n) {{ int i = threadIdx.x; {lines} }}"


def _functions(name: str, functions: dict[str, Reference], low: float, high: float, rtol: float) -> None:
    """Registers one case per precision: every function over the same arguments."""
    for suffix, type, dtype, tolerance in (("f", "float", F32, rtol), ("", "double", F64, 1e-12)):

        def expected(y: Any, x: Any, n: int) -> Any:
            return np.array([[f(float(v)) for v in x] for f in functions.values()])

        expected.__name__ = f"{name}_{type}"
        source = _sum_of(" ".join(functions), suffix, type, "x[i]")
        make = (zeros((len(functions), 32), dtype), floats(32, low, high, dtype), 32)
        theme.case(source, *make, rtol=tolerance, atol=tolerance)(expected)


_functions("trigonometric", {"sin": math.sin, "cos": math.cos, "tan": math.tan, "atan": math.atan}, -1.4, 1.4, 2e-5)
_functions("inverse", {"asin": math.asin, "acos": math.acos, "atanh": math.atanh, "erf": math.erf}, -0.9, 0.9, 2e-5)
_functions("hyperbolic", {"sinh": math.sinh, "cosh": math.cosh, "tanh": math.tanh, "asinh": math.asinh}, -3, 3, 2e-5)
_functions(
    "exponential",
    {"exp": math.exp, "exp2": math.exp2, "expm1": math.expm1, "exp10": lambda v: 10.0**v, "erfc": math.erfc},
    -2,
    2,
    2e-5,
)
_functions(
    "logarithms",
    {"log": math.log, "log2": math.log2, "log10": math.log10, "log1p": math.log1p, "lgamma": math.lgamma},
    0.2,
    9,
    2e-5,
)
_functions(
    "roots",
    {"sqrt": math.sqrt, "cbrt": math.cbrt, "rsqrt": lambda v: 1 / math.sqrt(v), "tgamma": math.gamma},
    0.2,
    6,
    2e-5,
)
_functions(
    "rounding",
    {"floor": math.floor, "ceil": math.ceil, "trunc": math.trunc, "rint": round, "fabs": abs},
    -9,
    9,
    0.0,
)
_functions(
    "special",
    {
        "normcdf": lambda v: 0.5 * math.erfc(-v / math.sqrt(2)),
        "sinpi": lambda v: math.sin(math.pi * v),
        "cospi": lambda v: math.cos(math.pi * v),
        "acosh": lambda v: math.acosh(v) if v >= 1 else math.nan,
    },
    1.05,
    1.4,
    2e-5,
)


@theme.case(
    """
    __global__ void k(float* y, const float* a, const float* b) {
      int i = threadIdx.x, n = 32;
      float u = a[i], v = b[i];
      y[i] = powf(fabsf(u), v); y[n + i] = atan2f(u, v); y[2 * n + i] = hypotf(u, v); y[3 * n + i] = fmodf(u, v);
      y[4 * n + i] = copysignf(u, v); y[5 * n + i] = fmaxf(u, v); y[6 * n + i] = fminf(u, v);
      y[7 * n + i] = fdimf(u, v);
      y[8 * n + i] = fmaf(u, v, 1.0f); y[9 * n + i] = remainderf(u, v); y[10 * n + i] = roundf(u * 3);
      y[11 * n + i] = ldexpf(u, 3);
    }
    """,
    zeros((12, 32)),
    floats(32),
    floats(32),
)
def two_arguments(y: Any, a: Any, b: Any) -> Any:
    u, v = a.astype(F64), b.astype(F64)
    rounded = np.array([math.floor(abs(t) + 0.5) * math.copysign(1, t) for t in (a * F32(3)).astype(F64)])
    return np.stack(
        [
            np.abs(u) ** v,
            np.arctan2(u, v),
            np.hypot(u, v),
            np.fmod(u, v),
            np.copysign(u, v),
            np.maximum(u, v),
            np.minimum(u, v),
            np.maximum(u - v, 0),
            u * v + 1,
            np.array([math.remainder(p, q) for p, q in zip(u, v, strict=True)]),
            rounded,
            u * 8,
        ]
    )


@theme.case(
    """
    #include <cmath>
    __global__ void k(double* y, float f, double d, int n) {
      y[0] = sin(f);                   // the float overload
      y[1] = sin(d); y[2] = sqrt(n); y[3] = std::exp(f); y[4] = pow(d, 2); y[5] = pow(2, n); y[6] = fabs(-f);
      y[7] = abs(-n);
      y[8] = abs(-d); y[9] = std::max(f, 0.5f); y[10] = max(n, 3); y[11] = min(d, 0.25); y[12] = floor(d * 10);
      y[13] = abs(-f);
      y[14] = std::abs(-7); y[15] = log(f);
    }
    """,
    zeros(16, F64),
    0.75,
    0.3,
    5,
    block=1,
    rtol=1e-6,
)
def overloads(y: Any, f: float, d: float, n: int) -> Any:
    e = [math.sin(f), math.sin(d), math.sqrt(5), math.exp(f), d * d, 32, f, 5, d, f, 5, 0.25, 3, f, 7, math.log(f)]
    return np.array(e)


@theme.case(
    """
    __global__ void k(float* y, int* e, const float* x) {
      int i = threadIdx.x;
      float s, c, whole;
      sincosf(x[i], &s, &c);
      y[4 * i] = s; y[4 * i + 1] = c;
      y[4 * i + 2] = modff(x[i] * 10, &whole) + whole * 100;
      y[4 * i + 3] = frexpf(x[i], &e[i]);
    }
    """,
    zeros((16, 4)),
    zeros(16, I32),
    floats(16, 0.1, 2),
    block=16,
    rtol=1e-4,
)
def results_through_pointers(y: Any, e: Any, x: Any) -> Any:
    m, ex = np.frexp(x)
    f, w = np.modf(x * F32(10))
    return np.stack([np.sin(x), np.cos(x), f + w * 100, m], 1), ex


@theme.case(
    """
    __global__ void k(int* y, const float* x) {
      int i = threadIdx.x;
      float v = i == 0 ? INFINITY : i == 1 ? NAN : i == 2 ? -0.0f : x[i];
      y[i] = (isnan(v) ? 1 : 0) + (isinf(v) ? 2 : 0) + (isfinite(v) ? 4 : 0) + (signbit(v) ? 8 : 0);
    }
    """,
    zeros(8, I32),
    floats(8),
    block=8,
)
def classification(y: Any, x: Any) -> Any:
    v = x.copy()
    v[:3] = [np.inf, np.nan, -0.0]
    return np.isnan(v) * 1 + np.isinf(v) * 2 + np.isfinite(v) * 4 + np.signbit(v) * 8


@theme.case(
    """
    __global__ void k(int* y, long long* z, const float* x, const double* d) {
      int i = threadIdx.x;
      y[i] = lrintf(x[i]); y[16 + i] = lroundf(x[i]); y[32 + i] = ilogbf(x[i]);
      z[i] = llrint(d[i]); z[16 + i] = llround(d[i]);
    }
    """,
    zeros((3, 16), I32),
    zeros((2, 16), np.int64),
    floats(16, -20, 20),
    floats(16, -1e10, 1e10, F64),
    block=16,
)
def rounding_to_integers(y: Any, z: Any, x: Any, d: Any) -> Any:
    def away(v: Any) -> Any:
        return np.floor(np.abs(v) + 0.5) * np.sign(v)

    return np.stack([np.rint(x), away(x), np.frexp(x)[1] - 1]), np.stack([np.rint(d), away(d)])


@theme.case(
    """
    __global__ void k(float* y, const float* x, const int* n) {
      int i = threadIdx.x;
      y[i] = fmaxf(x[i], NAN) + fminf(NAN, 1.0f);             // NaN loses
      y[8 + i] = max(n[i], 0) + min(n[i], 10) + abs(n[i]);
      y[16 + i] = norm3df(x[i], 1.0f, 2.0f) + rhypotf(3.0f, 4.0f);
      y[24 + i] = fdividef(x[i], 4.0f) + __fdividef(x[i], 2.0f);
    }
    """,
    zeros((4, 8)),
    floats(8),
    ints(8),
    block=8,
)
def edges(y: Any, x: Any, n: Any) -> Any:
    order = np.maximum(n, 0) + np.minimum(n, 10) + np.abs(n)
    return np.stack([x + 1, order, np.sqrt(x**2 + 5) + 0.2, x * 0.75])
