"""Device arrays of Numba in recorded programs, alone and beside those of CuPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg

cupy = pytest.importorskip("cupy")
cuda = pytest.importorskip("numba.cuda")

SOURCE = r"""
__global__ void heat(double *v, const double *u, const double *kappa, int n, double dt) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    double left = u[i > 0 ? i - 1 : 0], right = u[i < n - 1 ? i + 1 : n - 1];
    v[i] = u[i] + dt * kappa[i] * (1 + 0.5 * u[i] * u[i]) * (left - 2 * u[i] + right);
}
__global__ void positive(double *y, const double *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && x[i] > 0) y[i] = x[i] * x[i];
}
"""
N, STEPS = 1000, 30
BLOCKS = (N + 255) // 256


@pytest.fixture(scope="module")
def module() -> kg.Module:
    return kg.compile(SOURCE)


def host(array: Any) -> Any:
    return array.copy_to_host() if hasattr(array, "copy_to_host") else cupy.asnumpy(array)


def loop(module: kg.Module, u: Any, v: Any, kappa: Any, stream: Any = None) -> Any:
    for _ in range(STEPS):
        module["heat"][BLOCKS, 256, 0, stream](v, u, kappa, N, 0.1)
        u, v = v, u
    return u


def start() -> tuple[Any, Any, Any]:
    return np.linspace(0.2, 0.8, N), np.linspace(0.5, 1, N), np.linspace(1, 2, N)


def expected(module: kg.Module) -> tuple[Any, Any, Any, float]:
    """By the CPU."""
    u0, kappa, weights = start()
    with kg.record() as tape:
        u = loop(module, u0, np.zeros(N), kappa)
    tape.backward(u, weights)
    return u, tape.grad(u0), tape.grad(kappa), tape.grad("heat.dt")


ARRAYS = {
    "numba": (cuda.to_device, cuda.to_device, cuda.to_device),
    "u of numba": (cuda.to_device, cupy.asarray, cupy.asarray),
    "kappa of numba": (cupy.asarray, cupy.asarray, cuda.to_device),
}


@pytest.mark.parametrize("arrays", ARRAYS)
@pytest.mark.parametrize("budget", [None, 10 * 8 * N])
def test_a_recording(module: kg.Module, arrays: str, budget: int | None) -> None:
    u0, kappa0, weights = start()
    of_u, of_v, of_kappa = ARRAYS[arrays]
    first, v, kappa = of_u(u0), of_v(np.zeros(N)), of_kappa(kappa0)
    with kg.record(tape_budget=budget) as tape:
        u = loop(module, first, v, kappa)
    after, (value, *want, d_dt) = host(u), expected(module)
    np.testing.assert_allclose(after, value, rtol=1e-12)
    tape.backward(u, of_u(weights))
    np.testing.assert_array_equal(host(u), after)
    for array, adjoint in zip((first, kappa), want, strict=True):
        found = tape.grad(array)
        assert type(found) is type(array)
        np.testing.assert_allclose(host(found), adjoint, rtol=1e-10)
    assert tape.grad("heat.dt") == pytest.approx(d_dt, rel=1e-10)


def test_a_stream_of_numbas(module: kg.Module) -> None:
    u0, kappa0, weights = start()
    stream = cuda.stream()
    first, v, kappa = (cuda.to_device(a, stream=stream) for a in (u0, np.zeros(N), kappa0))
    with kg.record(tape_budget=10 * 8 * N) as tape:
        u = loop(module, first, v, kappa, stream)
    stream.synchronize()
    tape.backward(u, cuda.to_device(weights))
    _, d_u, d_kappa, _ = expected(module)
    np.testing.assert_allclose(host(tape.grad(first)), d_u, rtol=1e-10)
    np.testing.assert_allclose(host(tape.grad(kappa)), d_kappa, rtol=1e-10)


def test_a_program_and_its_gradient(module: kg.Module) -> None:
    u0, kappa0, weights = start()
    first, v, kappa = map(cuda.to_device, (u0, np.zeros(N), kappa0))
    with kg.record() as tape:
        u = loop(module, first, v, kappa)
    p = tape.program(inputs=(first, kappa), outputs=(u,))
    g, (value, d_u, d_kappa, _) = kg.gradient(p), expected(module)
    for of in (cuda.to_device, cupy.asarray):
        found = p(of(u0), of(kappa0))
        assert type(found) is type(first)
        np.testing.assert_allclose(host(found), value, rtol=1e-12)
        for got, want in zip(g(of(u0), of(kappa0), of(weights)), (d_u, d_kappa), strict=True):
            np.testing.assert_allclose(host(got), want, rtol=1e-10)


def test_copies_fills_zeros_and_parts(module: kg.Module) -> None:
    x = np.linspace(-1, 1, N)
    given, y, w = cuda.to_device(x), cuda.to_device(np.full(N, 5.0)), cupy.ones(N)
    with kg.record() as tape:
        z = kg.zeros(N, like=given)
        kg.copy(w, given)
        module["positive"][BLOCKS, 256](z, w, N)
        module["positive"][BLOCKS, 256](y[: N // 2], z[N // 2 :], N // 2)
        kg.fill(z[:10], 3.0)
    square = np.where(x > 0, x * x, 0.0)
    want = np.full(N, 5.0)
    want[: N // 2] = np.where(square[N // 2 :] > 0, square[N // 2 :] ** 2, 5.0)
    assert z.dtype == np.float64 and type(z) is type(given)
    np.testing.assert_allclose(host(y), want)
    tape.backward([(y, cuda.to_device(np.ones(N))), (z, cupy.ones(N))])
    d_x = np.where(x > 0, 2 * x, 0.0) * np.where(np.arange(N) < 10, 0.0, 1.0)
    d_x[N // 2 :] += np.where(x[N // 2 :] > 0, 4 * x[N // 2 :] ** 3, 0.0)
    np.testing.assert_allclose(host(tape.grad(given)), d_x, rtol=1e-12)
    p = tape.program(inputs=(given,), outputs=(y,))
    cupy.asarray(y)[:] = 9.0
    np.testing.assert_array_equal(host(p(cuda.to_device(-np.ones(N))))[: N // 2], 5.0)  # as it was before


def test_checkpoints(module: kg.Module) -> None:
    u0, kappa0, weights = start()
    first, v, kappa = map(cuda.to_device, (u0, np.zeros(N), kappa0))

    def step(state: Any, k: int) -> Any:
        u, v = state
        module["heat"][BLOCKS, 256](v, u, kappa, N, 0.1)
        return v, u

    found = kg.checkpoint(step, (first, v), STEPS, budget=6 * 8 * N, wrt=[kappa])
    found.backward(cuda.to_device(weights), None)
    value, d_u, d_kappa, d_dt = expected(module)
    np.testing.assert_allclose(host(found.state[0]), value, rtol=1e-12)
    np.testing.assert_allclose(host(found.grad(first)), d_u, rtol=1e-10)
    np.testing.assert_allclose(host(found.grad(kappa)), d_kappa, rtol=1e-10)
    assert found.grad("heat.dt") == pytest.approx(d_dt, rel=1e-10)


def test_writes_that_nobody_recorded(module: kg.Module) -> None:
    u, v, kappa = map(cuda.to_device, start())
    with kg.record() as tape:
        module["heat"][BLOCKS, 256](v, u, kappa, N, 0.1)
    u.copy_to_device(np.zeros(N))
    with pytest.raises(kg.TapeError, match="heat: the memory of 'u' was changed"):
        tape.backward(v, cuda.to_device(np.ones(N)))
