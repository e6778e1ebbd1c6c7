"""Floating-point arithmetic: precision of each operation, conversions, special values."""

from __future__ import annotations

from typing import Any

import numpy as np

from .case import F32, F64, I32, U32, Theme, floats, ints, of, zeros

theme = Theme()


@theme.case(
    """
    __global__ void k(float* y, const float* x) {
      int i = threadIdx.x;
      y[i] = x[i] * 0.1 + 1e-3;                     // double literals: computed in double
      y[i] += x[i] * 0.1f;
    }
    """,
    zeros(32),
    floats(32),
    rtol=1e-6,
)
def double_literals(y: Any, x: Any) -> Any:
    first = (x.astype(F64) * 0.1 + 1e-3).astype(F32)
    return first + x * F32(0.1)


@theme.case(
    """
    __global__ void k(double* y, const float* x, const double* z, const int* n) {
      int i = threadIdx.x;
      y[i] = x[i] / 3 + z[i] / 3 + n[i] / 3 + n[i] / 3.0 + (float)n[i] / 3;
    }
    """,
    zeros(16, F64),
    floats(16),
    floats(16, dtype=F64),
    ints(16),
    block=16,
)
def mixed_precision(y: Any, x: Any, z: Any, n: Any) -> Any:
    third = F32(3)
    # the first two terms and the last are rounded to float
    return (x / third).astype(F64) + z / 3 + np.trunc(n / 3) + n / 3.0 + (n.astype(F32) / third)


@theme.case(
    """
    __global__ void k(int* y, const float* x) {
      int i = threadIdx.x;
      float v = x[i];
      y[i] = (v == v) + 2 * (v < 1.0f) + 4 * (v > 1.0f) + 8 * (v != v) + 16 * (v >= v) + 32 * !(v <= 0.0f)
           + 64 * (v ? 1 : 0) + 128 * !v;
    }
    """,
    zeros(6, I32),
    of([np.nan, np.inf, -np.inf, 0.0, -0.0, 0.5]),
    block=6,
)
def comparisons_with_nan(y: Any, x: Any) -> Any:
    def one(v: float) -> int:
        truth = v != 0  # NaN counts as true
        parts = [v == v, v < 1, v > 1, v != v, v >= v, not v <= 0, truth, not truth]
        return sum(1 << k for k, p in enumerate(parts) if p)

    return np.array([one(float(v)) for v in x])


@theme.case(
    """
    __global__ void k(float* y, float z) {
      y[0] = 1.0f / z; y[1] = -1.0f / z; y[2] = z / z; y[3] = -z; y[4] = 1e38f * 10.0f; y[5] = 1e-38f / 1e8f;
      y[6] = INFINITY; y[7] = -INFINITY; y[8] = NAN; y[9] = 0.0f * -1.0f;
    }
    """,
    zeros(10),
    0.0,
    block=1,
    exact=True,
)
def special_values(y: Any, z: float) -> Any:
    inf = np.inf
    return np.array([inf, -inf, np.nan, -0.0, inf, 1e-46, inf, -inf, np.nan, -0.0], F32)


@theme.case(
    """
    __global__ void k(unsigned* y, float z) {
      y[0] = __float_as_uint(-z); y[1] = __float_as_uint(0.0f * -1.0f); y[2] = __float_as_uint(z - z);
    }
    """,
    zeros(3, U32),
    0.0,
    block=1,
)
def negative_zero(y: Any, z: float) -> Any:
    return np.array([0x80000000, 0x80000000, 0], U32)


@theme.case(
    """
    __global__ void k(float* y, const float* x) {
      float s = 0.0f, c = 0.0f;                    // Kahan: no reassociation allowed
      for (int i = 0; i < 1000; ++i) {
        float t = x[i] - c, n = s + t;
        c = (n - s) - t;
        s = n;
      }
      y[0] = s;
    }
    """,
    zeros(1),
    floats(1000, 0, 1),
    block=1,
    rtol=1e-7,
    atol=0.0,
)
def compensated_sum(y: Any, x: Any) -> Any:
    return np.array([x.astype(F64).sum()])


@theme.case(
    """
    __global__ void k(float* y, const unsigned* u, const int* n, const long long* l) {
      int i = threadIdx.x;
      y[3 * i] = u[i]; y[3 * i + 1] = n[i]; y[3 * i + 2] = l[i];
    }
    """,
    zeros(9),
    of([0, 4294967295, 16777217], U32),
    of([-2147483648, 16777219, -1], I32),
    of([-(2**62), 2**53 + 1, 7], np.int64),
    block=3,
    exact=True,
)
def integer_to_float(y: Any, u: Any, n: Any, a: Any) -> Any:
    return np.stack([u.astype(F32), n.astype(F32), a.astype(F32)], 1).ravel()


@theme.case(
    """
    __global__ void k(double* y, const double* x) {
      int i = threadIdx.x;
      y[i] = (double)(float)x[i] - x[i];
    }
    """,
    zeros(16, F64),
    floats(16, dtype=F64),
    block=16,
    exact=True,
)
def rounding_to_float(y: Any, x: Any) -> Any:
    return x.astype(F32).astype(F64) - x


@theme.case(
    """
    __global__ void k(float* y, const float* x) {
      int i = threadIdx.x;
      float v = x[i];
      y[i] = ((v * 3.0f - 1.0f) * v + 2.0f) * v - +v + -v * -1.0f;
    }
    """,
    zeros(32),
    floats(32),
    rtol=1e-5,
    atol=1e-5,
)
def polynomial(y: Any, x: Any) -> Any:
    v = x.astype(F64)
    return 3 * v**3 - v**2 + 2 * v


@theme.case(
    """
    __global__ void k(float* y, double* z) {
      y[0] = 1.f; y[1] = .5f; y[2] = 1e3f; y[3] = 0x1.8p1f; y[4] = 3; y[5] = 1.0e-2f; y[6] = FLT_MAX;
      y[7] = FLT_EPSILON;
      z[0] = 1e300; z[1] = 0.1; z[2] = DBL_MAX; z[3] = M_PI; z[4] = 0.1f;
    }
    """,
    zeros(8),
    zeros(5, F64),
    block=1,
    exact=True,
)
def literals(y: Any, z: Any) -> Any:
    a, b = np.finfo(F32), np.finfo(F64)
    return (
        np.array([1, 0.5, 1000, 3, 3, 0.01, a.max, a.eps], F32),
        np.array([1e300, 0.1, b.max, np.pi, float(F32(0.1))]),
    )
