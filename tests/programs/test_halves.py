"""The two halves of a reverse, asked for in host code."""

from __future__ import annotations

import numpy as np
import pytest

import kernelgrad as kg
from kernelgrad.errors import ProgramError, UnsupportedError

HEAD = r"""
int enzyme_dup, enzyme_const, enzyme_out, enzyme_allocated;
template <typename R = void *, typename... A> R __enzyme_augmentfwd(void *, A...);
template <typename R = void, typename... A> R __enzyme_reverse(void *, A...);
"""
STEPS = r"""
__global__ void step(double *y, const double *x, double a) { y[threadIdx.x] = a * x[threadIdx.x] * x[threadIdx.x]; }
double steps(double *x, double a, int n, int times) {
    double *y, sum = 0;
    cudaMalloc(&y, n * sizeof(double));
    for (int t = 0; t < times; t++) {
        step<<<1, n>>>(y, x, a);
        cudaMemcpy(x, y, n * sizeof(double), cudaMemcpyDeviceToDevice);
    }
    cudaMemcpy(&sum, y, sizeof(double), cudaMemcpyDeviceToHost);
    cudaFree(y);
    return sum;
}
double halves(double *x, double *dx, double a, int n, int times) {
    void *tape = __enzyme_augmentfwd((void *)steps, enzyme_dup, x, dx, enzyme_out, a, n, times);
    void *other = __enzyme_augmentfwd((void *)steps, enzyme_dup, x, dx, enzyme_out, a, n, times);
    cudaMemset(x, 0, n * sizeof(double));
    return __enzyme_reverse<double>((void *)steps, enzyme_dup, x, dx, enzyme_out, a, n, times, 10.0, tape);
}
"""
PLAIN = r"""
void products(double *x, int n) { for (int i = 1; i < n; i++) x[i] *= x[i - 1]; }
void *augmented(double *x, double *dx, int n) {
    return __enzyme_augmentfwd((void *)products, enzyme_dup, x, dx, enzyme_const, n);
}
void reverse(double *x, double *dx, int n, void *tape) {
    __enzyme_reverse((void *)products, enzyme_dup, x, dx, enzyme_const, n, tape);
}
void called(double *x, int n) { products(x, n); }
void *__enzyme_register_gradient_called[3] = {(void *)called, (void *)augmented, (void *)reverse};
template <typename... A> void __enzyme_autodiff(A...);
void twice(double *x, int n) { called(x, n); called(x, n); }
void gradient(double *x, double *dx, int n) { __enzyme_autodiff(twice, x, dx, n); }
void slip(double *x, double *dx, int n) {
    void *tape = augmented(x, dx, n);
    reverse(x, dx, n, tape);
    reverse(x, dx, n, tape);
}
void inlined(double *x, double *dx, int n) {
    __enzyme_augmentfwd<double>((void *)products, enzyme_allocated, sizeof(double), x, dx, n);
}
"""


def test_what_launches_in_halves_with_anything_in_between() -> None:
    x, dx = np.array([0.9, 1.1]), np.array([1.0, 2.0])
    slope = kg.compile(HEAD + STEPS)["halves"](x, dx, 1.5, 2, 2, device="cpu")
    np.testing.assert_array_equal(x, [0, 0])
    given, weights = np.array([0.9, 1.1]), np.array([11.0, 2.0])  # steps twice: a**3 x**4
    np.testing.assert_allclose(dx, weights * 4 * 1.5**3 * given**3)
    np.testing.assert_allclose(slope, weights @ (3 * 1.5**2 * given**4))


def test_plain_functions_in_halves_that_are_registered() -> None:
    x, dx = np.array([1.1, 0.9, 1.3]), np.array([0.0, 0.0, 1.0])
    kg.compile(HEAD + PLAIN)["gradient"](x, dx, 3, device="cpu")
    np.testing.assert_allclose(x[2], 1.1**3 * 0.9**2 * 1.3)  # a, a**2 b, a**3 b**2 c
    np.testing.assert_allclose(dx, [3 * x[2] / 1.1, 2 * x[2] / 0.9, x[2] / 1.3])


@pytest.mark.parametrize(
    ("name", "error", "problem"),
    [("slip", ProgramError, "was used before"), ("inlined", UnsupportedError, "lies behind a pointer")],
)
def test_refused(name: str, error: type[Exception], problem: str) -> None:
    with pytest.raises(error, match=problem):
        kg.compile(HEAD + PLAIN)[name](np.ones(3), np.ones(3), 3, device="cpu")
