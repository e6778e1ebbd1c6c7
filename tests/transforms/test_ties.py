"""Maxima and minima of equal numbers: what is one number in many threads has one origin, what is sorted stays."""

from __future__ import annotations

import numpy as np
import pytest

import kernelgrad as kg
import tie_cases
from some_cases import some
from tie_cases import BLOCK_MAXIMA, MAXIMA, ONLINE, PAIRS, SORTS, N


@pytest.mark.parametrize("ties", ["all", "two", "none"])
@pytest.mark.parametrize("name", MAXIMA)
def test_softmax(name: str, ties: str) -> None:
    tie_cases.check_softmax(tie_cases.softmax(MAXIMA[name]), 32, tie_cases.inputs(ties))


@pytest.mark.parametrize("name", some(BLOCK_MAXIMA, 2))
def test_softmax_of_a_block(name: str) -> None:
    for ties in ("all", "two"):
        tie_cases.check_softmax(tie_cases.block_softmax(name), N, tie_cases.inputs(ties))


@pytest.mark.parametrize("name", ONLINE)
def test_online_softmax(name: str) -> None:
    for ties in ("all", "two"):
        tie_cases.check_softmax(tie_cases.online_softmax(ONLINE[name]), N, tie_cases.inputs(ties))


@pytest.mark.parametrize("name", PAIRS)
def test_online_softmax_of_lanes(name: str) -> None:
    for ties in ("all", "two"):
        tie_cases.check_softmax(tie_cases.online_softmax_of_pairs(PAIRS[name]), N, tie_cases.inputs(ties))


SMOOTH = {  # with their slopes at zero
    "fmax(v, 0.0) + log1p(exp(-fabs(v)))": 0.5,
    "fmax(0.0, v) + log1p(exp(-fabs(v)))": 0.5,
    "(v > 0 ? v : 0) - 0.25 * v + log1p(exp(-fabs(v)))": 0.25,
    "-fmin(v, 0.0) + log1p(exp(-fabs(v)))": -0.5,
    "(v >= 0 ? 1 / (1 + exp(-fabs(v))) : exp(-fabs(v)) / (1 + exp(-fabs(v))))": 0.25,
    "fmax(v, 0.0) * fmax(v, 0.0) + fmin(v, 0.0) + fmax(v, 0.0)": 1.0,
    "fmax(v, w[0]) + log1p(exp(-fabs(v - w[0])))": 0.5,
    "fmax(w[0], v) + log1p(exp(-fabs(v - w[0])))": 0.5,
    "fabs(v) + 2 * fmin(v, 0.0)": 1.0,
    "v + fmax(-v, 0.0) + log1p(exp(-fabs(v)))": 0.5,
    "fmax(v, 0.0) + log1p(exp(fmin(v, -v)))": 0.5,
    "fmax(v, 0.0) - fmax(-v, 0.0)": 1.0,
    "(v > 0) * v + log1p(exp(-fabs(v)))": 0.5,
    "fdim(v, 0.0) + log1p(exp(-fabs(v)))": 0.5,
    "fdim(v, 0.0) - fdim(0.0, v)": 1.0,
    "0.5 * fmax(2 * v, 2 * w[0]) + log1p(exp(-fabs(w[0] - v)))": 0.5,
    "(v - w[0] > 0 ? v : w[0]) + log1p(exp(-fabs(v - w[0])))": 0.5,
    "w[0] + fmax(v - w[0], 0.0) + log1p(exp(-fabs(v - w[0])))": 0.5,
    "fabs(v) + (v > 0 ? w[0] : 2 * w[0])": 0.0,  # no more than a kink
}


@pytest.mark.parametrize("value", SMOOTH)
def test_smooth_functions_of_kinks(value: str) -> None:
    text = f"__global__ void k(double *y, const double *x, const double *w) {{ double v = x[0]; y[0] = {value}; }}"
    kernel, d_x, tangent = kg.compile(text)["k"], np.zeros(1), np.zeros(1)
    kg.gradient(kernel, "y, x, w")[1, 1](np.zeros(1), np.zeros(1), np.zeros(1), np.ones(1), d_x, np.zeros(1))
    assert d_x[0] == SMOOTH[value]
    kg.jvp(kernel, "y, x")[1, 1](np.zeros(1), np.zeros(1), np.zeros(1), tangent, np.ones(1))
    assert tangent[0] == SMOOTH[value]


@pytest.mark.parametrize("x", [0.25, 0.5, 0.75])
def test_distances_from_a_number(x: float) -> None:
    """They are what they are in the kernel, on both sides of the number and at it."""
    text = "__global__ void k(double *y, const double *x) { y[0] = fmax(x[0], 0.5) + log1p(exp(-fabs(x[0] - 0.5))); }"
    kernel, y, d_x = kg.compile(text)["k"], np.zeros(1), np.zeros(1)
    kg.gradient(kernel, "y, x")[1, 1](y, np.array([x]), np.ones(1), d_x)
    assert y[0] == pytest.approx(np.logaddexp(x, 0.5))
    assert d_x[0] == pytest.approx(1 / (1 + np.exp(0.5 - x)))


def test_the_distance_of_negative_zero() -> None:
    kernel = kg.compile("__global__ void k(double *y, double x) { y[0] = fmax(x, 0.0); y[1] = 1 / fabs(x); }")["k"]
    y = np.zeros(2)
    kg.gradient(kernel, "y, x")[1, 1](y, -0.0, np.array([1.0, 0.0]), np.zeros(1))
    assert y[1] == np.inf


@pytest.mark.parametrize("name", SORTS)
def test_sums_of_what_is_sorted(name: str) -> None:
    tie_cases.check_sort(tie_cases.sort(name))


@pytest.mark.parametrize("value", ["fmax(v, 0.0) + 0.1 * fmin(v, 0.0)", "fmax(0.0, v) + 0.1 * fmin(0.0, v)"])
def test_slopes_on_both_sides(value: str) -> None:
    """At the kink it is the one or the other slope, not both and not none."""
    kernel = kg.compile(f"__global__ void k(double *y, const double *x) {{ double v = x[0]; y[0] = {value}; }}")["k"]
    d_x = np.zeros(1)
    kg.gradient(kernel, "y, x")[1, 1](np.zeros(1), np.zeros(1), np.ones(1), d_x)
    assert d_x[0] in (1.0, 0.1)


def test_lanes_that_are_counted_on() -> None:
    """`shfl_sync` takes the number of a thread of a later warp, or of a part of a warp, for that of a lane."""
    text = """__global__ void k(double *y, const double *x) {
        int t = threadIdx.x;
        double m = x[t], s;
        for (int o = 8; o > 0; o >>= 1) m = fmax(m, __shfl_sync(~0u, m, t ^ o, 16));
        s = exp(x[t] - m);
        for (int o = 8; o > 0; o >>= 1) s += __shfl_xor_sync(~0u, s, o);
        y[t] = exp(x[t] - m) / s;
    }"""
    seed, d_x = np.random.default_rng(5).standard_normal((4, 16)), np.zeros((4, 16))
    kg.gradient(kg.compile(text)["k"], "y, x")[1, 64](np.zeros((4, 16)), np.zeros((4, 16)), seed.copy(), d_x)
    np.testing.assert_allclose(d_x, (seed - seed.mean(1, keepdims=True)) / 16, atol=1e-14)
