"""`__constant__` and `__device__` variables: listed by name, or derivatives flow through them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg

SOURCE = """
__constant__ double weights[2] = {1.5, 2.5};
__constant__ double pair[2][2] = {{1, 2}, {3, 4}};
__device__ double buffer[4];
__device__ double scale = 2.0;
__device__ int counter;
__global__ void weighted(double *y, const double *x) { int i = threadIdx.x; y[i] = weights[i % 2] * x[i] * weights[0]; }
__global__ void nested(double *y, const double *x) { int i = threadIdx.x; y[i] = pair[i % 2][1] * x[i]; }
__global__ void through(double *y, const double *x, int n) {
    int i = threadIdx.x;
    for (int j = 0; j < n; j++) buffer[i] = buffer[i] * x[j] + x[i];
    y[i] = buffer[i] * buffer[i];
}
__global__ void counted(double *y, const double *x) {
    int i = threadIdx.x;
    while (buffer[i] < 2.0) buffer[i] = buffer[i] * buffer[i] + x[i];
    y[i] = buffer[i] * scale;
}
__global__ void inactive(double *y, const double *x) {
    int i = threadIdx.x;
    atomicAdd(&counter, 1);
    y[i] = x[i] * x[i];
}
__device__ double f(double a) { return a * weights[1] * weights[1]; }
"""

X = np.array([0.5, 0.6, 0.7, 0.8])


@pytest.fixture
def module() -> kg.Module:
    return kg.compile(SOURCE)


def test_listed_constant(module: kg.Module) -> None:
    gradient = kg.gradient(module["weighted"], "y, x, weights")
    assert repr(gradient).endswith("double *d_y, double *d_x, double *d_weights)>")
    y, d_weights = np.zeros(4), np.zeros(2)
    gradient[1, 4](y, X, np.ones(4), np.zeros(4), d_weights)
    w = np.array([1.5, 2.5])
    np.testing.assert_allclose(y, w[[0, 1, 0, 1]] * X * w[0])
    np.testing.assert_allclose(d_weights, [2 * w[0] * (X[0] + X[2]) + w[1] * (X[1] + X[3]), w[0] * (X[1] + X[3])])


def test_a_constant_set_from_python_counts(module: kg.Module) -> None:
    module.constant("weights")[...] = [3.0, 4.0]
    d_x = np.zeros(4)
    kg.gradient(module["weighted"], "y, x, weights")[1, 4](np.zeros(4), X, np.ones(4), d_x, np.zeros(2))
    np.testing.assert_allclose(d_x, [9, 12, 9, 12])


@pytest.mark.parametrize(
    ("name", "listed", "extra"),
    [
        ("weighted", "y, x, weights", ()),
        ("nested", "y, x, pair", ()),
        ("through", "y, x", (3,)),
        ("through", "y, x, buffer", (3,)),
        ("counted", "y, x", ()),
        ("counted", "y, x, buffer, scale", ()),
    ],
)
def test_all_modes_agree(module: kg.Module, name: str, listed: str, extra: tuple[Any, ...]) -> None:
    assert kg.check_gradient(module[name], listed, 1, 4, (np.zeros(4), X, *extra)).ok
    assert not module.variable("buffer")[...].any()


def test_counting_leaves_variables_alone(module: kg.Module) -> None:
    gradient = kg.gradient(module["counted"], "y, x")
    assert gradient.tape_bytes(1, 4, np.zeros(4), X) > 0
    assert not module.variable("buffer")[...].any()
    gradient[1, 4](np.zeros(4), X, np.ones(4), np.zeros(4))
    assert (module.variable("buffer")[...] >= 2).all()


def test_split(module: kg.Module) -> None:
    forward, reverse = kg.split(module["through"], "y, x")
    args, d_x = (np.zeros(4), X, 3), np.zeros(4)
    reverse[1, 4](forward[1, 4](*args), *args, np.ones(4), d_x)
    assert d_x.all()


def test_integers_are_no_concern(module: kg.Module) -> None:
    d_x = np.zeros(4)
    kg.gradient(module["inactive"], "y, x")[1, 4](np.zeros(4), X, np.ones(4), d_x)
    np.testing.assert_allclose(d_x, 2 * X)
    assert module.variable("counter")[()] == 4
    with pytest.raises(kg.ArgumentError, match="no parameter 'counter'"):
        kg.gradient(module["inactive"], "y, counter")


def test_function(module: kg.Module) -> None:
    d_a, d_weights = np.zeros(1), np.zeros(2)
    assert kg.gradient(module["f"], "a, weights").execute(2.0, d_a, d_weights) == 12.5
    np.testing.assert_allclose([d_a[0], *d_weights], [6.25, 0, 10])
    assert kg.jvp(module["f"], "a, weights").execute(2.0, np.ones(1), np.ones(2)) == (12.5, 16.25)


def test_jvp(module: kg.Module) -> None:
    t = kg.jvp(module["weighted"], "y, weights")
    t_y = np.zeros(4)
    t[1, 4](np.zeros(4), X, t_y, np.array([1.0, 0.0]))
    np.testing.assert_allclose(t_y, [3 * X[0], 2.5 * X[1], 3 * X[2], 2.5 * X[3]])
