"""Recorded programs on a GPU: the same adjoints as on the CPU, on the streams of their packages."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from recorded_programs import N, check

cupy = pytest.importorskip("cupy")
NOT_ON_A_GPU = ("wave",)  # a number must be fetched first

SOURCE = r"""
#define I int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return
__device__ double state[4] = {1, 2, 3, 4};
__constant__ double weights[3] = {1.0, 0.5, 0.25};
__global__ void heat(double *v, const double *u, const double *kappa, int n, double dt) {
    I;
    double left = u[i > 0 ? i - 1 : 0], right = u[i < n - 1 ? i + 1 : n - 1];
    v[i] = u[i] + dt * kappa[i] * (1 + 0.5 * u[i] * u[i]) * (left - 2 * u[i] + right);
}
__global__ void sine(double *x, int n) { I; x[i] = sin(x[i]); }
__global__ void remember(const double *x, int n) { I; if (i < 4) state[i] = x[i] * state[i]; }
__global__ void recall(double *y, int n) { I; y[i] = state[i % 4] * weights[i % 3]; }
__global__ void slots(double *y, const double *x, int *used, int n) { I; y[atomicAdd(used, 1)] = x[i] * x[i]; }
"""


@pytest.fixture(autouse=True)
def quiet() -> Any:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "grad: this memory was written before")
        yield


@pytest.fixture(scope="module")
def module() -> kg.Module:
    return kg.compile(SOURCE)


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("budget", [None, 60 * 8 * N])
def test_random_programs(seed: int, budget: int | None) -> None:
    check(seed, budget, cupy.asarray, NOT_ON_A_GPU)


@pytest.mark.parametrize("seed", range(300, 306))
def test_random_programs_on_tensors(seed: int) -> None:
    torch = pytest.importorskip("torch")
    check(seed, 60 * 8 * N, lambda a: torch.from_numpy(a).cuda(), NOT_ON_A_GPU)


def heat(module: kg.Module, arrays: Any, steps: int, budget: Any, stream: Any = None) -> tuple[Any, Any, float, Any]:
    n = 4096
    u0, kappa0, weights = np.linspace(0.2, 0.8, n), np.linspace(0.5, 1, n), np.linspace(1, 2, n)
    u, v, kappa = arrays.asarray(u0), arrays.zeros(n), arrays.asarray(kappa0)
    start = u
    launch = module["heat"][n // 256, 256] if stream is None else module["heat"][n // 256, 256, 0, stream]
    with kg.record(tape_budget=budget) as tape:
        for _ in range(steps):
            launch(v, u, kappa, n, 1e-2)
            u, v = v, u
    if stream is not None:
        stream.synchronize()
    after = u.copy()
    tape.backward(u, arrays.asarray(weights))
    assert bool((u == after).all())
    return tape.grad(start), tape.grad(kappa), tape.grad("heat.dt"), tape


@pytest.mark.parametrize("share", [None, 10, 50])
def test_a_long_loop_agrees_with_the_cpu(module: kg.Module, share: int | None) -> None:
    steps = 500
    budget = None if share is None else steps * 8 * 4096 // share
    expected = heat(module, np, steps, None)
    found = heat(module, cupy, steps, budget)
    np.testing.assert_allclose(found[0].get(), expected[0], rtol=1e-10)
    np.testing.assert_allclose(found[1].get(), expected[1], rtol=1e-10)
    assert found[2] == pytest.approx(expected[2], rel=1e-10)


def test_a_stream_of_its_own(module: kg.Module) -> None:
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.Device().synchronize()
    expected = heat(module, np, 100, None)
    found = heat(module, cupy, 100, 40 * 8 * 4096, stream)
    np.testing.assert_allclose(found[0].get(), expected[0], rtol=1e-10)


def test_module_variables(module: kg.Module) -> None:
    n = 8
    x, y = cupy.linspace(0.2, 1.6, n), cupy.zeros(n)
    variable, weights = module.variable("state"), module.constant("weights")
    variable[...] = [1, 2, 3, 4]
    with kg.record() as tape:
        module["remember"][1, 8](x, n)
        module["remember"][1, 8](x, n)
        module["recall"][1, 8](y, n)
    host = np.linspace(0.2, 1.6, n)
    np.testing.assert_allclose(variable[...], [1, 2, 3, 4] * host[:4] ** 2)
    tape.backward(y, cupy.ones(n))
    np.testing.assert_allclose(variable[...], [1, 2, 3, 4] * host[:4] ** 2)
    w = np.array([1, 0.5, 0.25])[np.arange(n) % 3].reshape(2, 4).sum(0)
    np.testing.assert_allclose(tape.grad(x).get()[:4], 2 * host[:4] * [1, 2, 3, 4] * w)
    assert weights.shape == (3,)


@pytest.mark.parametrize("budget", [None, 60 * 8 * 256])
def test_slots_are_not_handed_out_again(module: kg.Module, budget: int | None) -> None:
    """Which thread gets which slot differs from run to run: the reverse must know the first."""
    n = 256
    x0 = np.linspace(0.2, 1.2, n)
    x, y, used = cupy.asarray(x0), cupy.zeros(n), cupy.zeros(1, np.int32)
    with kg.record(tape_budget=budget) as tape:
        module["slots"][8, 32](y, x, used, n)
        for _ in range(30):
            module["sine"][8, 32](y, n)
    weights = cupy.linspace(1, 2, n)
    order = np.argsort(y.get())  # sines keep the order of what lies below pi/2
    tape.backward(y, weights)
    at, expected = np.sort(x0**2), np.ones(n)
    for _ in range(30):
        expected, at = expected * np.cos(at), np.sin(at)
    np.testing.assert_allclose(tape.grad(x).get(), 2 * x0 * expected * weights.get()[order])


def test_copies_between_the_devices(module: kg.Module) -> None:
    n = 64
    x0 = np.linspace(0.2, 1.6, n)
    x, y, back = x0.copy(), cupy.zeros(n), np.zeros(n)
    with kg.record() as tape:
        kg.copy(y, x)
        module["sine"][1, 64](y, n)
        kg.copy(back, y)
        module["sine"][1, 64](back, n)
        z = kg.zeros(n, np.float64, like=y)
        kg.fill(z, 2.5)
        kg.copy(z, back)
    np.testing.assert_allclose(z.get(), np.sin(np.sin(x0)))
    tape.backward(z, cupy.ones(n))
    np.testing.assert_allclose(tape.grad(x), np.cos(np.sin(x0)) * np.cos(x0))


def test_unseen_writes_are_found(module: kg.Module) -> None:
    n = 64
    x, y = cupy.linspace(0.2, 1.6, n), cupy.zeros(n)
    with kg.record() as tape:
        module["heat"][1, 64](y, x, cupy.ones(n), n, 0.1)
    x += 1
    with pytest.raises(kg.TapeError, match="heat: the memory of 'u' was changed after the recorded launch"):
        tape.backward(y, cupy.ones(n))


def test_half_precision(module: kg.Module) -> None:
    torch = pytest.importorskip("torch")
    source = """#include <cuda_bf16.h>
    __global__ void square(__nv_bfloat16 *y, const __nv_bfloat16 *x, int n) {
        int i = threadIdx.x;
        if (i < n) y[i] = x[i] * x[i];
    }"""
    square = kg.compile(source)["square"][1, 64]
    x, y = (torch.full((64,), v, dtype=torch.bfloat16, device="cuda") for v in (1.5, 0.0))
    with kg.record() as tape:
        square(y, x, 64)
        square(x, y, 64)
    tape.backward(x, torch.ones_like(x))
    assert (tape.grad(x) == 4 * 1.5**3).all()


@pytest.mark.parametrize(("of_state", "of_seed"), [(cupy, np), (np, cupy), (cupy, cupy)])
@pytest.mark.parametrize("n", [0, 3])
def test_seeds_of_checkpoints_lie_where_they_like(module: kg.Module, of_state: Any, of_seed: Any, n: int) -> None:
    u = of_state.linspace(0.2, 0.8, 300)
    seed = of_seed.linspace(1, 2, 300)
    expected, at = np.linspace(1, 2, 300), np.linspace(0.2, 0.8, 300)
    for _ in range(n):
        expected, at = expected * np.cos(at), np.sin(at)
    found = kg.checkpoint(lambda state, k: module["sine"][2, 256](state[0], 300), u, n)
    found.backward(seed)
    assert type(found.grad(u)) is type(u)
    np.testing.assert_allclose(cupy.asnumpy(found.grad(u)), expected, rtol=1e-12)
    assert bool((seed == of_seed.linspace(1, 2, 300)).all())
