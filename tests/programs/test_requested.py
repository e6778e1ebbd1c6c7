"""Derivatives that host code asks for in its source, `main` included."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from in_source_cases import CLAD, ENZYME, ITER, KERNELS, LAUNCHES, TOTAL, iterated
from kernelgrad.errors import KernelGradError


def test_plain_cpp_and_its_main(capsys: Any) -> None:
    text = r"""
    #include <stdio.h>
    void foo(double *x_in, double *x_out) { x_out[0] = x_in[0] * x_in[0]; }
    int enzyme_dup;
    typedef void (*f_ptr)(double *, double *);
    extern void __enzyme_autodiff(f_ptr, int, double *, double *, int, double *, double *);
    int main() {
        double x = 1.4, d_x = 0.0, y, d_y = 1.0;
        __enzyme_autodiff(foo, enzyme_dup, &x, &d_x, enzyme_dup, &y, &d_y);
        printf("%f %f\n", x, y);
        printf("%f %f\n", d_x, d_y);
    }
    """
    kg.compile(text)["main"](device="cpu")
    assert capsys.readouterr().out == "1.400000 1.960000\n2.800000 0.000000\n"


def test_numbers() -> None:
    text = r"""
    double cube(double x, int n) { double r = 1; for (int k = 0; k < n; k++) r *= sin(x); return r; }
    struct Two { double a, b; };
    double product(double a, double b) { return a * a * b; }
    double reverse(double x) { return __enzyme_autodiff<double>(cube, x, 3); }
    double forward(double x) { return __enzyme_fwddiff<double>((void *)cube, enzyme_dup, x, 2.0, enzyme_const, 3); }
    double both(double a, double b) {
        Two d = __enzyme_autodiff<Two>((void *)product, a, b);
        return d.a + 100 * d.b;
    }
    """
    module = kg.compile(ENZYME + text)
    slope = 3 * np.sin(0.7) ** 2 * np.cos(0.7)
    np.testing.assert_allclose(module["reverse"](0.7, device="cpu"), slope)
    np.testing.assert_allclose(module["forward"](0.7, device="cpu"), 2 * slope)
    np.testing.assert_allclose(module["both"](3.0, 5.0, device="cpu"), 30 + 100 * 9)


def test_a_loop_of_launches() -> None:
    text = r"""
    void grad_iter(int nTimeSteps, float *src, float *dsrc, float *dst, float *ddst) {
        __enzyme_autodiff(iter, nTimeSteps, src, dsrc, dst, ddst);
    }
    """
    rng = np.random.default_rng(1)
    src, dst = (rng.uniform(0.1, 0.4, 100) for _ in range(2))
    given = [a.astype(np.float32) for a in (src, np.zeros(100), dst, np.ones(100))]
    kg.compile(ENZYME + ITER + text)["grad_iter"](4, *given, device="cpu")
    ends = iterated(4, src, dst)
    np.testing.assert_allclose(given[0], ends[0], rtol=1e-4)
    np.testing.assert_allclose(given[2], ends[1], rtol=1e-4)
    expected = [iterated(4, src + 1e-30j, dst)[1].imag / 1e-30, iterated(4, src, dst + 1e-30j)[1].imag / 1e-30]
    np.testing.assert_allclose(given[1], expected[0], rtol=1e-3)
    np.testing.assert_allclose(given[3], expected[1], rtol=1e-3)


@pytest.mark.parametrize("configuration", ["dim3(1), dim3(10)", "1, 10, 0, stream", "dim3(1), 10, 128, stream"])
def test_launches_of_a_kernels_gradient(configuration: str, capsys: Any) -> None:
    kg.compile(CLAD + KERNELS + LAUNCHES.replace("CONFIGURATION", configuration))["main"](device="cpu")
    assert capsys.readouterr().out == "35 35 950\n70 70\n"


def test_misuse_is_told_as_clad_does(capsys: Any) -> None:
    text = r"""
    void fake(double *a) { *a *= *a; }
    int main() {
        double a[1] = {3}, d_a[1] = {1};
        auto error_1 = clad::gradient(fake);
        error_1.execute_kernel(dim3(1), dim3(1), a, d_a);
        auto error_2 = clad::gradient(nested);
        error_2.execute(a, d_a);
        error_1.execute(a, d_a);
        printf("%g %g\n", a[0], d_a[0]);
    }
    """
    kg.compile(CLAD + KERNELS + text)["main"](device="cpu")
    told = "Use execute() for non-global CUDA kernels\nUse execute_kernel() for global CUDA kernels\n"
    assert capsys.readouterr().out == f"{told}9 6\n"


def test_memory_and_launches_inside_what_is_differentiated(capsys: Any) -> None:
    kg.compile(CLAD + TOTAL)["main"](device="cpu")
    assert capsys.readouterr().out == "8 16 24 32, 120\n120\n"


REFUSED = r"""
__global__ void f(double *x) { x[0] *= 2; }
void launched(double *x) { f<<<1, 1>>>(x); }
void forward(double *x, double *t) {
    __enzyme_fwddiff((void *)launched, x, t);
}
void nothing(int *n) { n[0] = 1; }
void unseeded(int *n) {
    __enzyme_autodiff((void *)nothing, enzyme_const, n);
}
"""


@pytest.mark.parametrize(
    ("name", "args", "problem", "line"),
    [
        ("forward", (np.zeros(1), np.zeros(1)), "forward mode of 'launched'.*use reverse mode", 10),
        ("unseeded", (np.zeros(1, np.int32),), "nothing to differentiate", 14),
    ],
)
def test_refused_at_the_line(name: str, args: Any, problem: str, line: int) -> None:
    with pytest.raises(KernelGradError, match=f"(?s){problem}") as caught:
        kg.compile(ENZYME + REFUSED)[name](*args, device="cpu")
    assert f":{line}:" in str(caught.value)


def test_no_derivative_of_what_asks_for_one() -> None:
    text = r"""
    double f(double x) { return x * x; }
    double slope(double x) { return __enzyme_autodiff<double>(f, x); }
    """
    module = kg.compile(ENZYME + text)
    assert module["slope"](3.0, device="cpu") == 6.0
    with pytest.raises(KernelGradError) as caught:
        kg.gradient(module["slope"]).execute(3.0, np.zeros(1), device="cpu")
    assert ":8:" in str(caught.value)


@pytest.mark.parametrize("attribute", ["__attribute__((enzyme_inactive))", "[[enzyme::inactive]]"])
def test_attributes_that_change_derivatives_are_refused(attribute: str) -> None:
    text = f"{attribute} double g(double x) {{ return 2 * x; }}\ndouble f(double x) {{ return g(x); }}\n"
    text += "double slope(double x) { return __enzyme_autodiff<double>(f, x); }"
    with pytest.raises(KernelGradError, match="the attribute 'enzyme") as caught:
        kg.compile(ENZYME + text)["slope"](1.0)
    assert ":6:" in str(caught.value)


def test_a_value_that_is_not_there() -> None:
    """Declared to return a number and giving none, a request may stand for itself alone."""
    text = r"""
    void f(double *x) { x[0] *= x[0]; }
    void plain(double *x, double *dx) { __enzyme_autodiff<double>(f, x, dx); }
    double used(double *x, double *dx) { return __enzyme_autodiff<double>(f, x, dx); }
    """
    x, dx = np.array([3.0]), np.ones(1)
    kg.compile(ENZYME + text)["plain"](x, dx, device="cpu")
    np.testing.assert_allclose(dx, 6.0)
    with pytest.raises(KernelGradError, match="without a value is used as one") as caught:
        kg.compile(ENZYME + text)["used"]
    assert ":9:" in str(caught.value)


SLIPS = {
    "use of undeclared identifier 'dsr'": """
        __global__ void collide(float *src, float *dst) {
            dsr[threadIdx.x] += src[threadIdx.x] * src[threadIdx.x];  // here
        }
        void run(float *src, float *dst) { collide<<<1, 100>>>(src, dst); }
    """,
    "use of undeclared identifier 'd_x'": """
        #include "clad/Differentiator/Differentiator.h"
        __device__ double fn(double *a) { return *a * *a; }
        __global__ void run(double *d_a, double *d_result) {
            auto fn_grad = clad::gradient(fn, "a");
            fn_grad.execute(d_x, d_result);  // here
        }
    """,
    "assigning to 'float' from incompatible type 'void *'": """
        template <typename... A> __device__ void *__enzyme_augmentfwd(A...);
        __device__ int enzyme_allocated;
        __device__ void f(float *src, float *dst) { *dst += *src * *src; }
        __global__ void run(float *src, float *d_src, float *dst, float *d_dst, float *tape) {
            tape[0] = __enzyme_augmentfwd(f, enzyme_allocated, sizeof(float), src, d_src, dst, d_dst);  // here
        }
    """,
    "unknown type name 'x'": """
        void run(x, n) double *x; int n; { x[0] = n; }  // here
    """,
    "'map' of 'map' has no body here": """
        #include <map>
        int run(int n) {
            cudaDeviceSynchronize();
            std::map<int, int> found;  // here
            return found[n];
        }
    """,
}


@pytest.mark.parametrize("told", SLIPS)
def test_slips_are_told_at_their_line(told: str) -> None:
    line = next(k for k, text in enumerate(SLIPS[told].splitlines(), 1) if text.endswith("// here"))
    with pytest.raises(KernelGradError, match=re.escape(told)) as caught:
        kg.compile(SLIPS[told])["run"]
    assert f":{line}:" in str(caught.value)


@pytest.mark.parametrize("qualifiers", ["", "__host__ __device__"])
@pytest.mark.parametrize("allocates", ["", "double *p; cudaMalloc(&p, 8); cudaFree(p);"], ids=["plain", "allocates"])
def test_custom_derivatives_of_functions_for_both(qualifiers: str, allocates: str, capsys: Any) -> None:
    """What the host calls is another function in the IR than what kernels call: both have the derivative."""
    text = f"""
    #include "clad/Differentiator/Differentiator.h"
    #include <stdio.h>
    {qualifiers} double f(double x) {{ return x * x; }}
    namespace clad {{ namespace custom_derivatives {{
    {qualifiers} void f_pullback(double x, double d_y, double *d_x) {{ *d_x += 7 * d_y * x; }}
    }} }}
    double h(double x) {{ {allocates} return f(x) * 3; }}
    int main() {{ double d = 0; auto g = clad::gradient(h); g.execute(2, &d); printf("%g\\n", d); }}
    """
    module = kg.compile(text)
    module["main"](device="cpu")
    assert capsys.readouterr().out == "42\n"
    d_x = np.zeros(1)
    kg.gradient(module["h"]).execute(2.0, d_x)
    assert d_x[0] == 42


PARTS = r"""
#include <cstdio>
template <typename... A> void __enzyme_autodiff(A...);
__global__ void add(const double *a, const double *b, double *c, int n) {
    int i = threadIdx.x;
    if (i < n) c[i] = a[i] * b[i] + c[i];
}
void run(double *a, double *b, double *c, int n) {
    add<<<1, 32>>>(a, b, c, n);
    add<<<1, 32>>>(c, b, a, n);
}
void twice(double *a, double *b, int n) { add<<<1, 32>>>(a, b, b, n); }
int main() {
    double h[6] = {0.5, 0.7, 2, 3, 5, 7}, d[6] = {1, 2, 3, 4, 5, 6}, *m, *g;
    cudaMalloc(&m, 48); cudaMalloc(&g, 48);
    cudaMemcpy(m, h, 48, cudaMemcpyHostToDevice); cudaMemcpy(g, d, 48, cudaMemcpyHostToDevice);
    __enzyme_autodiff(run, m, g, m + 2, g + 2, m + 4, g + 4, 2);
    cudaMemcpy(d, g, 48, cudaMemcpyDeviceToHost);
    for (double v : d) printf("%.4f ", v);
    cudaMemcpy(m, h, 48, cudaMemcpyHostToDevice); cudaMemset(g, 0, 48);
    d[0] = 1;
    cudaMemcpy(g, d, 8, cudaMemcpyHostToDevice);
    __enzyme_autodiff(twice, m, g, m, g, 1);
    cudaMemcpy(d, g, 8, cudaMemcpyDeviceToHost);
    printf("%.4f\n", d[0]);
}
"""


def test_parts_of_one_memory_have_adjoints_once(capsys: pytest.CaptureFixture[str]) -> None:
    """c' = c + ab, a' = a + c'b: d_c' = d_c + b d_a, d_b = d_b + c' d_a + a d_c', d_a = d_a + b d_c'."""
    kg.compile(PARTS)["main"](device="cpu")
    found = [float(word) for word in capsys.readouterr().out.split()]
    a, b, c = (0.5, 0.7), (2, 3), (5, 7)
    of_c = [5 + b[0] * 1, 6 + b[1] * 2]
    of_b = [k + (c[i] + a[i] * b[i]) * (i + 1) + a[i] * of_c[i] for i, k in enumerate((3, 4))]
    of_a = [i + 1 + b[i] * of_c[i] for i in range(2)]
    assert found == pytest.approx([*of_a, *of_b, *of_c, 2 * 0.5 + 1])
