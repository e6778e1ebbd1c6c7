"""`tape.program` on a GPU: a CUDA graph, and its gradient as another."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from kernelgrad.kernel import Kernel
from kernelgrad.runtime import graphs
from recorded_programs import N, check_program, check_tangent

cupy = pytest.importorskip("cupy")
NOT_ON_A_GPU = ("wave",)  # a number must be fetched first

SOURCE = r"""
__global__ void heat(double *v, const double *u, const double *kappa, int n, double dt) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) v[i] = u[i] + dt * kappa[i] * u[i] * (u[i - 1] - 2 * u[i] + u[i + 1]);
}
"""


@pytest.fixture(scope="module")
def heat() -> Any:
    return kg.compile(SOURCE)["heat"]


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("budget", [None, 60 * 8 * N])
def test_random_programs(seed: int, budget: int | None) -> None:
    check_program(seed, budget, cupy.asarray, NOT_ON_A_GPU)


@pytest.mark.parametrize("seed", range(20, 24))
def test_random_programs_on_tensors(seed: int) -> None:
    torch = pytest.importorskip("torch")
    check_program(seed, None, lambda a: torch.from_numpy(a).cuda(), NOT_ON_A_GPU)


@pytest.mark.parametrize("seed", range(12))
def test_tangents_of_random_programs(seed: int) -> None:
    check_tangent(seed, None, cupy.asarray, NOT_ON_A_GPU)


def test_tangents_of_numbers() -> None:
    """They come from the CPU, as the numbers do, also in another type than the kernel's, and have adjoints there."""
    scale = kg.compile("""__global__ void scale(double *y, const double *x, double a, float b, int n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) y[i] = a * x[i] * x[i] + b * x[i];
    }""")["scale"]
    n, rng = 1000, np.random.default_rng(0)
    x, y, z, a, b = cupy.zeros(n), cupy.zeros(n), cupy.zeros(n), np.array(1.0), np.array(2.0)
    with kg.record() as tape:
        scale[8, 128](y, x, a, b, n)
        scale[8, 128](z, y, b, 0.5, n)
    p = tape.program((x, a, b), (z,))
    at = cupy.asarray(rng.random(n)), np.array(0.75), np.array(1.25)
    along = cupy.asarray(rng.random(n)), np.array(0.5), np.array(-0.25)
    for stream in (cupy.cuda.Stream.null, cupy.cuda.Stream(non_blocking=True)):
        with stream:
            value, moved = kg.jvp(p)(*at, *along)
            inner, d_inner = _scaled(*at, *along)
            cupy.testing.assert_allclose(value, 1.25 * inner**2 + 0.5 * inner, rtol=1e-12)
            expected = -0.25 * inner**2 + 2.5 * inner * d_inner + 0.5 * d_inner
            cupy.testing.assert_allclose(moved, expected, rtol=1e-12)
            seed = cupy.ones(n)
            found = kg.gradient(kg.jvp(p))(*at, *along, None, seed)
            for one, other in zip(found[3:], kg.gradient(p)(*at, seed), strict=True):
                np.testing.assert_allclose(cupy.asnumpy(one), cupy.asnumpy(other), rtol=1e-6)
            step = 2.0**-12  # b moves by what its float holds
            ends = [kg.gradient(p)(*_moved(at, along, e), seed) for e in (step, -step)]
            for one, higher, lower in zip(found[:3], *ends, strict=True):
                difference = (cupy.asnumpy(higher) - cupy.asnumpy(lower)) / (2 * step)
                np.testing.assert_allclose(cupy.asnumpy(one), difference, rtol=1e-4, atol=1e-4)
            stream.synchronize()


def _moved(at: Any, along: Any, by: float) -> list[Any]:
    return [
        cupy.asarray(v + by * t) if k == 0 else np.asarray(v + by * t)
        for k, (v, t) in enumerate(zip(at, along, strict=True))
    ]


def _scaled(x: Any, a: Any, b: Any, t_x: Any, t_a: Any, t_b: Any) -> tuple[Any, Any]:
    a, b, t_a, t_b = map(float, (a, b, t_a, t_b))
    return a * x * x + b * x, t_a * x * x + 2 * a * x * t_x + t_b * x + b * t_x


def loop(heat: Any, u: Any, v: Any, kappa: Any, dt: Any, steps: int) -> Any:
    """The edges are a halo."""
    n = len(u) - 2
    for _ in range(steps):
        heat[(n + 127) // 128, 128](v[1:-1], u[1:-1], kappa[1:-1], n, dt)
        u, v = v, u
    return u


@pytest.mark.parametrize("stream", [False, True])
def test_a_loop(heat: Any, stream: bool) -> None:
    """Numbers are inputs: the graph is captured anew where they change."""
    with cupy.cuda.Stream(non_blocking=True) if stream else cupy.cuda.Stream.null:
        rng = np.random.default_rng(0)
        n, dt = 5000, np.array(0.1)
        u0, kappa = (cupy.asarray(rng.random(n)) for _ in range(2))
        with kg.record() as tape:
            u = loop(heat, u0, cupy.zeros(n), kappa, dt, 20)
        before = u.get()
        p = tape.program(inputs=(u0, kappa[1:-1], dt), outputs=(u[1:-1],))
        g = kg.gradient(p)
        for number in (0.1, 0.05):
            a, k, w = (cupy.asarray(rng.random(n)) for _ in range(3))
            d, x = np.array(number), a.copy()
            with kg.record() as other:
                out = loop(heat, x, cupy.zeros(n), k, d, 20)
            np.testing.assert_allclose(p(a, k[1:-1], d).get(), out[1:-1].get(), rtol=1e-13)
            other.backward(out[1:-1], w[1:-1].copy())
            found = g(a, k[1:-1], d, w[1:-1].copy())
            for one, array in zip(found[:2], (x, k[1:-1]), strict=True):
                np.testing.assert_allclose(one.get(), other.grad(array).get(), rtol=1e-10, atol=1e-12)
            np.testing.assert_allclose(found[2], other.grad(d), rtol=1e-10)
        assert (u.get() == before).all()


def test_one_call_puts_all_launches_to_work(heat: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two graphs, what memory begins with and the launches, captured once. What it takes is in benchmarks/host.py."""
    u0, kappa = cupy.ones(256), cupy.ones(256)
    with kg.record() as tape:
        u = loop(heat, u0, cupy.zeros(256), kappa, 0.1, 1000)
    p = tape.program((u0,), (u[1:-1],))
    first = p(u0).get()
    ran: list[str] = []
    run = graphs.Graph.run
    monkeypatch.setattr(graphs.Graph, "run", lambda graph, stream: (ran.append("graph"), run(graph, stream))[1])
    monkeypatch.setattr(graphs, "_enqueue", lambda operation, stream: ran.append("captured"))
    monkeypatch.setattr(Kernel, "run", lambda *args: ran.append("launch"))
    np.testing.assert_array_equal(p(u0).get(), first)
    assert ran == ["graph", "graph"]


def test_host_and_device_do_not_mix(heat: Any) -> None:
    u, host = cupy.ones(64), np.zeros(64)
    with kg.record() as tape:
        loop(heat, u, cupy.zeros(64), cupy.ones(64), 0.1, 1)
        kg.copy(host, u)
    with pytest.raises(kg.TapeError, match="one device"):
        tape.program((u,), (host,))
