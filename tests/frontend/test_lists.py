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
