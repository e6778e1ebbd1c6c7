"""What gets derivative code and what does not; effects and clocks beside active values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg


def kernel(text: str) -> Any:
    return kg.compile(text, name="activity.cu")["k"]


def test_what_does_not_depend_on_a_listed_input_gets_no_code() -> None:
    target = kernel("""__global__ void k(double *y, const double *x, const double *w, double a) {
        int i = threadIdx.x;
        double scale = sin(w[i]) * exp(a);
        y[i] = scale * x[i];
    }""")
    source = kg.gradient(target, "y, x").source
    assert "cos" not in source and "_d_w" not in source and "_d_a" not in source
    assert source.count("exp(") == 1 and "atomicAdd" not in source


def test_what_does_not_reach_a_listed_output_gets_no_code() -> None:
    target = kernel("""__global__ void k(double *y, double *log, const double *x) {
        int i = threadIdx.x;
        log[i] = sin(x[i]);
        y[i] = 3 * x[i];
    }""")
    source = kg.gradient(target, "y, x").source
    assert "cos" not in source and "_d_log" not in source


def test_loops_without_active_values_are_not_reversed() -> None:
    target = kernel("""__global__ void k(double *y, const double *x, const int *kind, int n) {
        int i = threadIdx.x, votes = 0;
        for (int j = 0; j < n; j++) if (kind[j] == i) votes += j;
        y[i] = votes * x[i];
    }""")
    gradient = kg.gradient(target, "y, x")
    assert gradient.source.count("for (") == 1
    assert gradient.tape_bytes(1, 4, np.zeros(4), np.zeros(4), np.zeros(4, "i4"), 4) == 0


def test_constant_factors_need_no_forward_values() -> None:
    """Linear code needs nothing from the forward sweep, nothing linear is taped."""
    target = kernel("""__global__ void k(double *y, const double *x, int n) {
        int i = threadIdx.x;
        double v = x[i];
        for (int j = 0; j < n; j++) v = 0.5 * v + x[j];
        y[i] = v;
    }""")
    gradient = kg.gradient(target, "y, x")
    assert gradient.tape_bytes(1, 4, np.zeros(4), np.zeros(4), 4) == 0
    assert kg.check_gradient(target, "y, x", 1, 4, (np.zeros(4), np.linspace(0, 1, 4), 4)).ok


def test_only_wanted_adjoints_get_code() -> None:
    target = kernel("__global__ void k(double *y, const double *x, double a) { y[threadIdx.x] = x[threadIdx.x] * a; }")
    variant = kg.gradient(target, "y, x, a").variant(("y", "x"))
    assert "_d_a" not in variant.kernels[0].source


def test_a_clock_is_a_number_that_is_not_read_twice() -> None:
    target = kernel("""__global__ void k(double *y, const double *x, int n) {
        int i = threadIdx.x;
        double s = x[i];
        for (int j = 0; j < n; j++) { double t = (double)(clock64() % 1000 + 1); y[i * n + j] = t; s = s * t; }
        y[16 + i] = s;
    }""")
    y, x, d_y, d_x = np.zeros(24), np.ones(4), np.zeros(24), np.zeros(4)
    d_y[16:20] = 1
    kg.gradient(target, "y, x")[1, 4](y, x, 3, d_y, d_x)
    np.testing.assert_allclose(d_x, y[:12].reshape(4, 3).prod(axis=1))


def test_assertions_run_once_and_still_fail() -> None:
    target = kernel("""__global__ void k(double *y, const double *x) {
        int i = threadIdx.x;
        assert(x[i] > 0);
        y[i] = x[i] * x[i];
    }""")
    d_x = np.zeros(2)
    kg.gradient(target, "y, x")[1, 2](np.zeros(2), np.ones(2), np.ones(2), d_x)
    assert d_x.tolist() == [2, 2]
    with pytest.raises(kg.KernelError, match="assertion failed"):
        kg.gradient(target, "y, x")[1, 2](np.zeros(2), np.array([1.0, -1.0]), np.ones(2), d_x)


def test_comparisons_and_classification_pass_no_derivative() -> None:
    target = kernel("""__global__ void k(double *y, const double *x) {
        int i = threadIdx.x;
        double v = isnan(x[i]) || signbit(x[i]) ? 0.0 : x[i];
        y[i] = v * v * (x[i] > 1.0) + (double)(x[i] < 0.5);
    }""")
    d_x = np.zeros(4)
    kg.gradient(target, "y, x")[1, 4](np.zeros(4), np.array([2.0, 0.2, -1.0, np.nan]), np.ones(4), d_x)
    np.testing.assert_array_equal(d_x, [4, 0, 0, 0])


def test_the_lowest_level_check_for_nan_by_bits_is_fine() -> None:
    """Bits that are only compared have no derivative to lose."""
    target = kernel("""__global__ void k(float *y, const float *x) {
        int i = threadIdx.x;
        bool special = (__float_as_int(x[i]) & 0x7f800000) == 0x7f800000;
        y[i] = special ? 0.0f : x[i] * x[i];
    }""")
    d_x = np.zeros(2, "f4")
    kg.gradient(target, "y, x")[1, 2](np.zeros(2, "f4"), np.array([3, np.inf], "f4"), np.ones(2, "f4"), d_x)
    assert d_x.tolist() == [6, 0]
