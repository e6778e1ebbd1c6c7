"""Custom derivatives, `stop_gradient` and steps with a reverse of the user's, on a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from custom_cases import BLOCK, CASES, GRID, N, arguments, kernel

cupy = pytest.importorskip("cupy")


def adjoints(gradient: Any, take: Any) -> np.ndarray:
    y, x, n = arguments()
    d_y, d_x = take(np.linspace(-1, 1, N)), take(np.ones(N))
    gradient[GRID, BLOCK](take(y), take(x), n, d_y, d_x)
    return np.stack([d.get() if hasattr(d, "get") else d for d in (d_y, d_x)])


@pytest.mark.parametrize("form", [{}, {"primal": False}, {"deterministic": True}], ids=["J", "R", "deterministic"])
@pytest.mark.parametrize("name", CASES)
def test_right_pullbacks(name: str, form: dict[str, Any]) -> None:
    expected = adjoints(kg.gradient(kernel(name, custom=False), "y, x"), np.array)
    found = adjoints(kg.gradient(kernel(name), "y, x", **form), cupy.asarray)
    np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("name", ["numbers", "pointers", "a table"])
def test_many_threads(name: str) -> None:
    """In single precision, for a launch that is tuned."""
    n = 1 << 12
    random = np.random.default_rng(5)
    x, seed = random.uniform(0.3, 1.2, n).astype(np.float32), random.uniform(-1, 1, n).astype(np.float32)
    if name == "pointers":
        x[64:] = 0  # sums over few
    found = []
    for custom, take in ((False, np.array), (True, cupy.asarray)):
        gradient = kg.gradient(kernel(name, custom, "float"), "y, x")
        d_x = take(np.zeros(n, np.float32))
        gradient[n // 256, 256](take(np.zeros(n, np.float32)), take(x), n, take(seed), d_x)
        found.append(cupy.asnumpy(d_x))
    np.testing.assert_allclose(found[1], found[0], rtol=1e-3, atol=1e-3 * np.abs(found[0]).max())


def test_other_pullbacks_tangents_and_stops() -> None:
    source = """
    __device__ double f(double x) { return x * x; }
    namespace kernelgrad { namespace custom_derivatives {
    __device__ void f_pullback(double x, double d, double *dx) { *dx += 10 * d * x; }
    __device__ double f_tangent(double x, double t) { return 7 * t * x; }
    } }
    __global__ void k(double *y, const double *x, int n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) y[i] = f(x[i]) * kernelgrad::stop_gradient(x[i]);
    }"""
    target, x = kg.compile(source)["k"], cupy.linspace(0.1, 1, 1000)
    y, d_x, t_y, ones = cupy.zeros(1000), cupy.zeros(1000), cupy.zeros(1000), cupy.ones(1000)
    kg.gradient(target, "y, x")[4, 256](y, x, 1000, ones.copy(), d_x)
    kg.jvp(target, "y, x")[4, 256](y, x, 1000, t_y, ones)
    for got, expected in ((y, x**3), (d_x, 10 * x * x), (t_y, 7 * x * x)):
        cupy.testing.assert_allclose(got, expected, rtol=1e-13)


@pytest.mark.parametrize("budget", [None, 20_000])
def test_steps(budget: int | None) -> None:
    module = kg.compile("""
    __global__ void cube(double *v, const double *u, int n) { int i = threadIdx.x; if (i < n) v[i] = pow(u[i], 3); }
    __global__ void scale(double *u, const double *w, int n) { int i = threadIdx.x; if (i < n) u[i] *= w[i]; }""")
    n = 100

    @kg.custom_gradient(writes="v")
    def cubed(v: Any, u: Any) -> None:
        module["cube"][1, 128](v, u, n)

    @cubed.reverse
    def _(v: Any, u: Any, d_v: Any, d_u: Any) -> None:
        d_u += 3 * u * u * d_v

    found = []
    for own in (False, True):
        u, v, w = cupy.linspace(0.99, 1.01, n), cupy.zeros(n), cupy.linspace(1, 1.01, n)
        first = u
        with kg.record(tape_budget=budget) as tape:
            for _ in range(5):
                module["scale"][1, 128](u, w, n)
                if own:
                    cubed(v, u)
                else:
                    module["cube"][1, 128](v, u, n)
                u, v = v, u
        tape.backward(u, cupy.ones(n))
        found.append((tape.grad(first).get(), tape.grad(w).get(), u.get()))
    for plain, custom in zip(*found, strict=True):
        np.testing.assert_allclose(custom, plain, rtol=1e-11)
