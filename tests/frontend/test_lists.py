"""Lists whose elements constructors make, in kernels: with default arguments, in arrays, members and templates."""

from __future__ import annotations

import numpy as np
import pytest

import kernelgrad as kg

CLASSES = """
struct Complex { double re, im; __host__ __device__ Complex(double r = 0, double i = 0) : re(r), im(i) {} };
template <typename T> struct Pair { T re, im; __host__ __device__ Pair(T r = T(), T i = T(1)) : re(r), im(i) {} };
struct Plain { double a, b; };
struct Both { Plain p; Complex c; };
"""
LISTS = {
    "Complex z[3] = {0, x[0]}": ("z[0].re + 10 * z[1].re + 100 * z[1].im + 1000 * z[2].re", 50, 10),
    "Complex z[2] = {{1, 2}, x[0]}": ("z[0].re + 10 * z[0].im + 100 * z[1].re + 1000 * z[1].im", 521, 100),
    "Complex z[2] = {}": ("z[0].re + z[1].im + x[0]", 5, 1),
    "Pair<double> z[3] = {x[0], {3.0}}": ("z[0].im + 10 * z[0].re + 100 * z[1].re + 1000 * z[2].im", 1351, 10),
    "Plain z[2] = {1, x[0], 3, 4}": ("z[0].a + 10 * z[0].b + 100 * z[1].a + 1000 * z[1].b", 4351, 10),
    "Both z = {{x[0], 2}, {x[0]}}": ("z.p.a + 10 * z.p.b + 100 * z.c.re + 1000 * z.c.im", 525, 101),
    "Both z = {x[0], 2, x[0]}": ("z.p.a + 10 * z.p.b + 100 * z.c.re + 1000 * z.c.im", 525, 101),
}


@pytest.mark.parametrize("text", LISTS)
def test_constructors(text: str) -> None:
    value, expected, slope = LISTS[text]
    kernel = kg.compile(f"{CLASSES}__global__ void k(double *y, const double *x) {{ {text}; y[0] = {value}; }}")["k"]
    y, x, d_x = np.zeros(1), np.array([5.0]), np.zeros(1)
    kg.gradient(kernel, "y, x")[1, 1](y, x, np.ones(1), d_x)
    assert (y[0], d_x[0]) == (expected, slope)


KNOWN = """
#include <cuda_fp16.h>
#include <cuComplex.h>
#include <thrust/complex.h>
__global__ void k(float *y, const float *x) {
    dim3 g[2] = {4, {5, 6}};
    __half h[2] = {__float2half(x[0]), 2.0f};
    cuFloatComplex c[2] = {{x[0], 1}, make_cuFloatComplex(2, 3)};
    thrust::complex<float> t[3] = {x[0], {x[0], 3.0f}, thrust::complex<float>(1, 2)};
    float3 f[2] = {1, 2, x[0], {4, 5}};
    y[0] = g[0].x + 10 * g[0].y + 100 * g[1].y;
    y[1] = (float)h[0] + (float)h[1];
    y[2] = c[0].x + 10 * c[1].y;
    y[3] = t[0].real() + 10 * t[1].imag() + 100 * t[2].imag();
    y[4] = f[0].z + 10 * f[1].y + f[1].z;
}"""


def test_types_of_cuda() -> None:
    y = np.zeros(5, np.float32)
    kg.compile(KNOWN)["k"][1, 1](y, np.array([7], np.float32))
    assert y.tolist() == [614, 9, 37, 237, 57]


COPIED = """
struct V {
    double a[2];
    __device__ V(double x, double y = 2) { a[0] = x; a[1] = y; }
    __device__ V(const V &o) { a[0] = o.a[0]; a[1] = o.a[1]; }
};
struct W { V v; double s; };
__device__ W make(double x) { return {{x, 3}, x * x}; }
__global__ void k(double *y, const double *x, int n) {
    int i = threadIdx.x;
    if (i >= n) return;
    W w[2] = {{{x[i]}, x[i]}, make(x[i])};
    double s = 0;
    for (int j = 0; j < i; j++) s += w[j % 2].v.a[0] * w[(j + 1) % 2].s + w[j % 2].v.a[1];
    y[i] = s;
}"""


def test_objects_that_copy_themselves() -> None:
    x, y = np.linspace(0.5, 1.5, 6), np.zeros(6)
    kernel = kg.compile(COPIED)["k"]
    kernel[1, 8](y, x, 6)
    steps = [sum(v * (v * v, v)[j % 2] + 2 + j % 2 for j in range(i)) for i, v in enumerate(x)]
    np.testing.assert_allclose(y, steps, rtol=1e-14)
    kg.check_gradient(kernel, "y, x", 1, 8, (y, x, 6))
