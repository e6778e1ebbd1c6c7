"""Derivatives that kernels and device functions ask for in their source, run on the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from kernelgrad.errors import ArgumentError, KernelGradError

DECLARED = r"""
template <typename R = void, typename... A> __device__ R __enzyme_autodiff(A...);
template <typename R = void, typename... A> __device__ R __enzyme_fwddiff(A...);
int enzyme_dup, enzyme_out, enzyme_dupnoneed;
__device__ int enzyme_const;
"""


def kernel(text: str, name: str) -> Any:
    return kg.compile(DECLARED + text)[name]


def arrays(*lists: Any) -> list[np.ndarray[Any, Any]]:
    return [np.array(values, np.float64) for values in lists]


def test_the_square_of_one_number_declared_plainly() -> None:
    text = r"""
    void __device__ foo_impl(double *x_in, double *x_out) { x_out[0] = x_in[0] * x_in[0]; }
    typedef void (*f_ptr)(double *, double *);
    extern void __device__ __enzyme_autodiff(f_ptr, int, double *, double *, int, double *, double *);
    int __device__ enzyme_dup;
    void __global__ foo_grad(double *x, double *d_x, double *y, double *d_y) {
        __enzyme_autodiff(foo_impl, enzyme_dup, x, d_x, enzyme_dup, y, d_y);
    }
    """
    x, d_x, y, d_y = arrays([1.4], [0.0], [0.0], [1.0])
    found = kg.compile(text)["foo_grad"]
    found[1, 1](x, d_x, y, d_y)
    np.testing.assert_allclose([y[0], d_x[0], d_y[0]], [1.96, 2.8, 0.0], rtol=1e-15)
    assert "_d_" not in found.source and "atomicAdd(address, (T)value)" in found.source


def test_numbers_come_back_as_numbers_and_structs() -> None:
    text = r"""
    struct Two { double a, b; };
    __device__ double f(double x, double y, int n) { return n * x * x * y; }
    __global__ void k(const double *x, const double *y, double *dx, double *dy, double *only) {
        int i = threadIdx.x;
        Two d = __enzyme_autodiff<Two>((void *)f, x[i], enzyme_out, y[i], enzyme_const, 3);
        dx[i] = d.a;
        dy[i] = d.b;
        only[i] = __enzyme_autodiff<double>(f, enzyme_const, x[i], y[i], 3);
    }
    """
    x, y, dx, dy, only = arrays([1, 2, 3], [4, 5, 6], np.zeros(3), np.zeros(3), np.zeros(3))
    kernel(text, "k")[1, 3](x, y, dx, dy, only)
    np.testing.assert_allclose(dx, 6 * x * y)
    np.testing.assert_allclose(dy, 3 * x * x)
    np.testing.assert_allclose(only, 3 * x * x)


def test_threads_that_add_to_the_same_adjoint() -> None:
    text = r"""
    __device__ void f(const float *w, const float *x, float *y) { *y = w[0] * *x * *x + w[1]; }
    __global__ void k(const float *w, float *dw, const float *x, float *dx, float *y, float *dy, int n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) __enzyme_autodiff(f, w, dw, x + i, dx + i, y + i, dy + i);
    }
    """
    n, rng = 300, np.random.default_rng(3)
    w, x, dy = (rng.uniform(0.5, 1.5, k).astype(np.float32) for k in (2, n, n))
    dw, dx, y, seed = np.zeros(2, np.float32), np.zeros(n, np.float32), np.zeros(n, np.float32), dy.copy()
    kernel(text, "k")[5, 64](w, dw, x, dx, y, dy, n)
    np.testing.assert_allclose(dw, [(seed * x * x).sum(), seed.sum()], rtol=1e-4)
    np.testing.assert_allclose(dx, seed * 2 * w[0] * x, rtol=1e-5)
    assert not dy.any()


def test_pointers_that_differ_by_thread_are_never_taken_for_the_same() -> None:
    """By itself, f's threads have elements of their own; with what this kernel passes, all have the same one."""
    text = r"""
    __device__ void f(const double *x, double *y) { y[threadIdx.x] = x[threadIdx.x] * x[threadIdx.x]; }
    __global__ void k(double *x, double *dx, double *y, double *dy) {
        __enzyme_autodiff(f, x - (int)threadIdx.x, dx - (int)threadIdx.x, y, dy);
    }
    """
    x, dx, y, dy = arrays([3.0], [0.0], np.zeros(64), np.ones(64))
    kernel(text, "k")[1, 64](x, dx, y, dy)
    np.testing.assert_allclose(dx, [64 * 6.0])


def test_variables_of_the_thread_and_loops_that_need_a_tape() -> None:
    text = r"""
    __device__ void f(const double *p, double *out) {
        double v = p[0];
        for (int k = 0; k < 20; k++) v = sin(v) * p[1];
        *out = v;
    }
    __global__ void k(const double *p, double *d) {
        int i = threadIdx.x;
        double own[2] = {p[2 * i], p[2 * i + 1]}, grad[2] = {0, 0}, out, seed = 1;
        __enzyme_autodiff(f, own, grad, &out, &seed);
        d[2 * i] = grad[0];
        d[2 * i + 1] = grad[1];
    }
    """
    p, d = np.array([0.3, 1.1, 0.7, 0.9]), np.zeros(4)
    found = kernel(text, "k")
    found[1, 2](p, d)

    def f(a: Any, b: Any) -> Any:
        for _ in range(20):
            a = np.sin(a) * b
        return a

    step = 1e-30j
    expected = [f(p[k] + step, p[k + 1]).imag if k % 2 == 0 else f(p[k - 1], p[k] + step).imag for k in range(4)]
    np.testing.assert_allclose(d, np.array(expected) / 1e-30, rtol=1e-12)
    assert "atomic" not in found.source.lower()


def test_shared_memory_and_barriers() -> None:
    text = r"""
    __device__ void f(const double *x, double *y) {
        __shared__ double s[8];
        int i = threadIdx.x;
        s[i] = x[i] * x[i];
        __syncthreads();
        y[i] = s[i] * s[(i + 1) % 8];
    }
    __global__ void k(const double *x, double *dx, double *y, double *dy) { __enzyme_autodiff(f, x, dx, y, dy); }
    """
    x = np.linspace(1, 2, 8)
    dx, y, dy = np.zeros(8), np.zeros(8), np.ones(8)
    kernel(text, "k")[1, 8](x, dx, y, dy)
    squares = x * x
    np.testing.assert_allclose(dx, 2 * x * (np.roll(squares, -1) + np.roll(squares, 1)))


def test_a_derivative_in_a_device_function_in_a_loop_under_a_condition() -> None:
    text = r"""
    __device__ double f(double x) { return x * x * x; }
    __device__ double slope(double x) { return __enzyme_autodiff<double>((void *)f, x); }
    __global__ void newton(const double *start, double *root, int n, int steps) {
        int i = threadIdx.x;
        if (i >= n) return;
        double x = start[i];
        for (int k = 0; k < steps; k++) {
            double d = slope(x);
            if (d > 0.0) x -= (f(x) - 8.0) / d;
        }
        root[i] = x;
    }
    """
    start, root = np.array([1.0, 3.0, 10.0]), np.zeros(3)
    kernel(text, "newton")[1, 32](start, root, 3, 30)
    np.testing.assert_allclose(root, 2.0)


def test_memory_that_is_the_same_under_two_names() -> None:
    text = r"""
    __device__ void f(double *a, double *b) { b[0] = a[0] * a[0]; b[1] = a[0] * 3.0; }
    __global__ void k(double *x, double *dx) { __enzyme_autodiff(f, x, dx, x, dx); }
    __global__ void two(double *x, double *dx, double *y, double *dy) { __enzyme_autodiff(f, x, dx, y, dy); }
    """
    module = kg.compile(DECLARED + text)
    x, dx = np.array([2.0, 0.0]), np.array([0.0, 1.0])
    module["k"][1, 1](x, dx)
    np.testing.assert_allclose(x, [4.0, 12.0])
    np.testing.assert_allclose(dx, [12.0, 0.0])
    with pytest.raises(ArgumentError, match="share memory"):
        module["two"][1, 1](x, dx, x, dx)


def test_forward_mode() -> None:
    text = r"""
    __device__ double f(double x, const double *w) { return w[0] * x * x + w[1]; }
    __device__ void g(const double *x, double *y) { y[0] = x[0] * x[1]; }
    __global__ void k(const double *w, const double *tw, const double *x, double *o, double *y, double *ty) {
        o[0] = __enzyme_fwddiff<double>((void *)f, x[0], 1.0, enzyme_const, w);
        o[1] = __enzyme_fwddiff<double>(f, enzyme_const, x[0], w, tw);
        __enzyme_fwddiff((void *)g, enzyme_dup, w, tw, enzyme_dup, y, ty);
    }
    """
    w, tw, x, o, y, ty = arrays([2, 3], [10, 100], [5], np.zeros(2), np.zeros(1), np.zeros(1))
    kernel(text, "k")[1, 1](w, tw, x, o, y, ty)
    np.testing.assert_allclose(o, [20.0, 10 * 25 + 100])
    np.testing.assert_allclose([y[0], ty[0]], [6.0, 10 * 3 + 2 * 100])


def test_clad_in_a_kernel() -> None:
    text = r"""
    #include "clad/Differentiator/Differentiator.h"
    __device__ __host__ double gauss(const double *x, double *p, double sigma, int dim) {
        double t = 0;
        for (int i = 0; i < dim; i++) t += (x[i] - p[i]) * (x[i] - p[i]);
        return exp(-t / (2 * sigma * sigma));
    }
    __device__ double square(double v) { return v * v; }
    __global__ void compute(double *x, double *p, int n, double *result, double *slopes) {
        auto grad = clad::gradient(gauss, "p");
        grad.execute(x, p, 2.0, n, result);
        slopes[0] = clad::differentiate(square, "v").execute(3.0);
        double d = 0;
        clad::gradient(square).execute(5.0, &d);
        slopes[1] = d;
    }
    """
    x, p, result, slopes = np.full(3, 2.0), np.ones(3), np.zeros(3), np.zeros(2)
    kg.compile(text)["compute"][1, 1](x, p, 3, result, slopes)
    np.testing.assert_allclose(result, np.exp(-3 / 8) / 4)
    np.testing.assert_allclose(slopes, [6.0, 10.0])


@pytest.mark.parametrize(
    ("body", "call", "problem"),
    [
        ("for (int k = 0; k < 3; k++) t[k] = x[k]; y[0] = t[(int)x[0]];", "f, x, dx, enzyme_const, t, y, dy",
         "derivatives flow through 't'"),
        ("y[0] = x[0];", "f, x, dx, enzyme_const, t, y", "lacks the shadow of 'y'"),
        ("y[0] = x[0];", "f, x, (float *)dx, enzyme_const, t, y, dy", r"the shadow of 'x' must be 'double \*'"),
        ("y[0] = x[0];", "f, (double *)nullptr, dx, enzyme_const, t, y, dy, 1", "more arguments than"),
        ("y[0] = x[0];", "h, rows, rows, y, dy", "'rows' leads to pointers"),
        ("y[0] = x[0];", "f, enzyme_const, x, enzyme_const, t, enzyme_const, y", "nothing to differentiate"),
        ("atomicMax((int *)t, 3); y[0] = x[0];", "f, x, dx, enzyme_const, t, y, dx, dy", "more arguments than"),
    ],
)  # fmt: skip
def test_refused_at_the_line(body: str, call: str, problem: str) -> None:
    text = f"""
    __device__ void f(const double *x, double *t, double *y) {{ {body} }}
    __device__ void h(double **rows, double *y) {{ y[0] = rows[0][0]; }}
    __global__ void k(double *x, double *dx, double *t, double *y, double *dy, double **rows) {{
        __enzyme_autodiff({call});
    }}
    """
    with pytest.raises(KernelGradError, match=problem) as caught:
        kernel(text, "k")
    assert ":10:" in str(caught.value)


def test_half_precision_and_structs() -> None:
    text = r"""
    #include <cuda_fp16.h>
    struct S { double a, b[2]; int n; };
    __device__ __half f(__half x) { return x * x; }
    __device__ void g(const S *s, double *y) { *y = s->a * s->b[1] * s->b[1] * s->n; }
    __global__ void k(double *o) {
        o[0] = (float)__enzyme_autodiff<__half>((void *)f, (__half)3.0f);
        S s = {2, {3, 4}, 5}, d = {};
        double y, one = 1;
        __enzyme_autodiff((void *)g, &s, &d, &y, &one);
        o[1] = d.a; o[2] = d.b[0]; o[3] = d.b[1]; o[4] = y;
    }
    """
    o = np.zeros(5)
    kernel(text, "k")[1, 1](o)
    np.testing.assert_allclose(o, [6, 80, 0, 80, 160])


def test_derivatives_of_derivatives() -> None:
    text = r"""
    __device__ double f(double x) { return x * x * x; }
    __device__ double slope(double x) { return __enzyme_autodiff<double>((void *)f, x); }
    __global__ void k(const double *x, double *o) {
        o[0] = __enzyme_autodiff<double>((void *)slope, x[0]);
        o[1] = __enzyme_fwddiff<double>((void *)slope, x[0], 1.0);
        o[2] = slope(x[0]);
    }
    """
    found, x, o, dx, do = kernel(text, "k"), np.array([2.0]), np.zeros(3), np.zeros(1), np.array([0.0, 0.0, 1.0])
    found[1, 1](x, o)
    np.testing.assert_allclose(o, 12.0)
    kg.gradient(found, "o, x")[1, 1](x, o, do, dx)
    np.testing.assert_allclose(dx, 12.0)


def chain(x: Any, n: int) -> Any:
    for _ in range(n):
        x = np.sin(x) * 1.1
    return x


UNBOUNDED = r"""
__device__ double f(double x, int n) { for (int k = 0; k < n; k++) x = sin(x) * 1.1; return x; }
__device__ double slope(double x, int n) { return __enzyme_autodiff<double>((void *)f, x, n); }
__global__ void k(const double *x, double *o, const int *n) {
    int i = threadIdx.x;
    for (int turn = 0; turn < 2; turn++) o[i] += slope(x[i], n[i]);
}
__device__ void cooperate(const double *x, double *y, int n) {
    __shared__ double s[4];
    double v = x[threadIdx.x];
    for (int k = 0; k < n; k++) {
        s[threadIdx.x] = v;
        __syncthreads();
        v = sin(s[(threadIdx.x + 1) % 4] * v);
        __syncthreads();
    }
    y[threadIdx.x] = v;
}
__global__ void together(const double *x, double *dx, double *y, double *dy, int n) {
    __enzyme_autodiff((void *)cooperate, x, dx, y, dy, n);
}
"""


def test_a_loop_of_any_length() -> None:
    """As much is kept as is needed, and what a launch with too little memory did is undone."""
    found = kernel(UNBOUNDED, "k")
    for lengths in ([0, 3, 7], [0, 90, 7]):
        x, n, o = np.array([0.3, 0.7, 0.9]), np.array(lengths, np.int32), np.full(3, 5.0)
        found[1, 3](x, o, n)
        expected = [5 + 2 * chain(a + 1e-30j, b).imag / 1e-30 for a, b in zip(x, lengths, strict=True)]
        np.testing.assert_allclose(o, expected, rtol=1e-13)
    with pytest.raises(KernelGradError, match="asks for derivatives"):
        kg.gradient(found, "o, x")


@pytest.mark.parametrize(
    ("name", "problem"), [("slope", "in memory that launches provide"), ("together", "threads meet in it")]
)
def test_loops_of_any_length_that_are_refused(name: str, problem: str) -> None:
    with pytest.raises(KernelGradError, match=problem):
        kernel(UNBOUNDED, name)


@pytest.mark.parametrize("kernel", ["forward", "back"])
def test_halves_with_other_activities_are_refused(kernel: str) -> None:
    """They would keep different things: of a product by one factor, the other alone."""
    text = """
    template <typename R, typename... A> __device__ R __enzyme_augmentfwd(A...);
    template <typename... A> __device__ void __enzyme_reverse(A...);
    __device__ int enzyme_dup, enzyme_const, enzyme_allocated;
    struct Tape { double kept[4]; };
    __device__ void f(double *x, double *w, double *y) { *y = *x * *w; }
    __global__ void forward(double *x, double *w, double *y, Tape *t) {
        *t = __enzyme_augmentfwd<Tape>(f, enzyme_allocated, sizeof(Tape), x, x, enzyme_const, w, y, y);
    }
    __global__ void back(double *x, double *w, double *y, Tape *t) {
        __enzyme_reverse(f, enzyme_allocated, sizeof(Tape), x, x, w, w, y, y, *t);
    }
    """
    here, there, line = ("const", "dup", 11) if kernel == "forward" else ("dup", "const", 8)
    problem = f"'w' is enzyme_{here} here, and enzyme_{there} in the other half of the reverse, in line {line}"
    with pytest.raises(KernelGradError, match=problem):
        kg.compile(text)[kernel]
