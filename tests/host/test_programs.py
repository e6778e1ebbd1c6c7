"""Whole programs against finite differences, in double: time loops in place and with two buffers, within budgets."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from kernelgrad.host import launch_tapes

SOURCE = r"""
__global__ void collide(double *src, double *dst) {
    int i = threadIdx.x;
    if (i < 100) dst[i] += 1e-3 * (src[i] * src[i] - 3 * src[i]);
}
__global__ void heat(double *v, const double *u, const double *kappa, int n, double dt) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    double left = u[i > 0 ? i - 1 : 0], right = u[i < n - 1 ? i + 1 : n - 1];
    v[i] = u[i] + dt * kappa[i] * (1 + 0.5 * u[i] * u[i]) * (left - 2 * u[i] + right);
}
__global__ void react(double *u, const double *rate, int n, double dt) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) u[i] += dt * rate[i] * u[i] * (1 - u[i]);
}
__global__ void residual(double *r, const double *a, const double *b, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(r, (a[i] - b[i]) * (a[i] - b[i]));
}
__global__ void jacobi(double *y, const double *x, const double *b, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    double left = i > 0 ? x[i - 1] : 0, right = i < n - 1 ? x[i + 1] : 0;
    y[i] = (b[i] + left + right + 0.1 * sin(x[i])) / 3;
}
__global__ void forces(double *f, const double *q, double softening, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    double x = 0, y = 0;
    for (int j = 0; j < n; j++) {
        double dx = q[2 * j] - q[2 * i], dy = q[2 * j + 1] - q[2 * i + 1];
        double s = rsqrt(dx * dx + dy * dy + softening);
        x += dx * s * s * s;
        y += dy * s * s * s;
    }
    f[2 * i] = x;
    f[2 * i + 1] = y;
}
__global__ void blend(double *y, const double *x, int n) {
    int i = 4 * threadIdx.x;
    if (i >= n) return;
    double s = sin(x[i] + x[i + 1] + x[i + 2] + x[i + 3]);
    for (int k = 0; k < 4; k++) y[i + k] = s * 0.2 * k;
}
__global__ void axpy(double *y, const double *x, double a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] += a * x[i];
}
__global__ void lbm(double *out, const double *in, double omega, int w, int h) {
    const int cx[9] = {0, 1, 0, -1, 0, 1, -1, -1, 1}, cy[9] = {0, 0, 1, 0, -1, 1, 1, -1, -1};
    const double wt[9] = {4. / 9, 1. / 9, 1. / 9, 1. / 9, 1. / 9, 1. / 36, 1. / 36, 1. / 36, 1. / 36};
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= w || y >= h) return;
    double f[9], rho = 0, ux = 0, uy = 0;
    for (int k = 0; k < 9; k++) {
        int xs = (x - cx[k] + w) % w, ys = (y - cy[k] + h) % h;
        f[k] = in[(k * h + ys) * w + xs];
        rho += f[k];
        ux += cx[k] * f[k];
        uy += cy[k] * f[k];
    }
    ux /= rho;
    uy /= rho;
    for (int k = 0; k < 9; k++) {
        double cu = 3 * (cx[k] * ux + cy[k] * uy);
        double eq = wt[k] * rho * (1 + cu + 0.5 * cu * cu - 1.5 * (ux * ux + uy * uy));
        out[(k * h + y) * w + x] = f[k] + omega * (eq - f[k]);
    }
}
"""


@cache
def kernels() -> kg.Module:
    return kg.compile(SOURCE)


def agrees(run: Callable[[float], Any], weights: Any, found: float, step: float = 1e-6, rtol: float = 2e-7) -> None:
    """`run(e)`: what comes out with all inputs moved by e along their directions."""
    differences = float(weights @ (np.ravel(run(step)) - np.ravel(run(-step)))) / (2 * step)
    np.testing.assert_allclose(found, differences, rtol=rtol)


def directions(*arrays: Any) -> list[Any]:
    rng = np.random.default_rng(7)
    return [rng.uniform(-1, 1, np.shape(a)) for a in arrays]


def test_the_loop_with_which_enzyme_introduces_itself() -> None:
    kern = kernels()["collide"][1, 100]
    src0, dst0 = np.linspace(-1, 1, 100), np.linspace(0, 2, 100)
    d_src, d_dst = directions(src0, dst0)

    def iterate(src: Any, dst: Any) -> Any:
        for _ in range(50):
            kern(src, dst)
            kern(dst, src)
        return src

    src, dst = src0.copy(), dst0.copy()
    with kg.record() as tape:
        iterate(src, dst)
    assert tape.nbytes == 99 * 100 * 8  # what each launch reads is overwritten by the next
    weights = np.linspace(1, 2, 100)
    tape.backward(src, weights)
    found = float(tape.grad(src) @ d_src + tape.grad(dst) @ d_dst)
    agrees(lambda e: iterate(src0 + e * d_src, dst0 + e * d_dst), weights, found)


@pytest.mark.parametrize("share", [None, 10, 40])
@pytest.mark.parametrize("in_place", [False, True])
def test_a_thousand_steps_of_heat(share: int | None, in_place: bool) -> None:
    n, steps = 16, 1000
    heat, react = kernels()["heat"][1, 16], kernels()["react"][1, 16]
    u0, kappa0 = np.linspace(0.2, 0.8, n), np.linspace(0.5, 1, n)
    d_u, d_kappa = directions(u0, kappa0)

    def run(u: Any, v: Any, kappa: Any, dt: Any) -> Any:
        for _ in range(steps):
            if in_place:
                react(u, kappa, n, dt)
            else:
                heat(v, u, kappa, n, dt)
                u, v = v, u
        return u

    u, v, kappa, dt = u0.copy(), np.zeros(n), kappa0.copy(), np.array(1e-2)
    budget = None if share is None else steps * 8 * n // share
    with kg.record(tape_budget=budget) as tape:
        out = run(u, v, kappa, dt)
    assert tape.nbytes == (999 + in_place) * 8 * n if budget is None else tape.store.peak <= budget
    after, weights = out.copy(), np.linspace(1, 2, n)
    tape.backward(out, weights)
    np.testing.assert_array_equal(out, after)
    found = float(tape.grad(u) @ d_u + tape.grad(kappa) @ d_kappa + 0.3 * tape.grad(dt))
    assert tape.grad("dt") == pytest.approx(float(tape.grad(dt)), rel=1e-12)

    def moved(e: float) -> Any:
        return run(u0 + e * d_u, np.zeros(n), kappa0 + e * d_kappa, 1e-2 + 0.3 * e)

    agrees(moved, weights, found)


def test_a_solver_that_reads_its_residual() -> None:
    n = 12
    jacobi, residual = kernels()["jacobi"][1, 16], kernels()["residual"][1, 16]
    b0 = np.linspace(0.1, 1, n)
    (d_b,) = directions(b0)

    def solve(b: Any) -> tuple[Any, int]:
        x, y, r = np.zeros(n), np.zeros(n), np.full(1, 1.0)
        turns = 0
        while r[0] > 1e-24:
            jacobi(y, x, b, n)
            kg.fill(r, 0.0)
            residual(r, y, x, n)
            x, y, turns = y, x, turns + 1
        return x, turns

    b = b0.copy()
    with kg.record(tape_budget=30 * 8 * n) as tape:
        x, turns = solve(b)
    assert turns > 30
    weights = np.linspace(1, 2, n)
    tape.backward(x, weights)
    agrees(lambda e: solve(b0 + e * d_b)[0], weights, float(tape.grad(b) @ d_b))


@pytest.mark.parametrize("budget", [None, "8 KB"])
def test_leapfrog_of_a_few_bodies(budget: str | None) -> None:
    n, steps, dt = 6, 60, 1e-2
    forces, axpy = kernels()["forces"][1, 8], kernels()["axpy"][1, 16]
    rng = np.random.default_rng(1)
    q0, p0 = rng.uniform(-1, 1, 2 * n), rng.uniform(-0.1, 0.1, 2 * n)
    d_q, d_p = directions(q0, p0)

    def run(q: Any, p: Any, softening: float) -> Any:
        f = np.zeros(2 * n)
        for _ in range(steps):
            forces(f, q, softening, n)
            axpy(p, f, dt / 2, 2 * n)
            axpy(q, p, dt, 2 * n)
            forces(f, q, softening, n)
            axpy(p, f, dt / 2, 2 * n)
        return q

    q, p = q0.copy(), p0.copy()
    with kg.record(tape_budget=budget) as tape:
        run(q, p, 0.1)
    weights = np.linspace(1, 2, 2 * n)
    tape.backward(q, weights)
    found = float(tape.grad(q) @ d_q + tape.grad(p) @ d_p + 0.05 * tape.grad("forces.softening"))
    agrees(lambda e: run(q0 + e * d_q, p0 + e * d_p, 0.1 + 0.05 * e), weights, found)


@pytest.mark.parametrize("share", [None, 10])
def test_a_lattice_boltzmann_loop(share: int | None) -> None:
    w, h, steps = 6, 5, 150
    lbm = kernels()["lbm"][(1, 1), (8, 8)]
    rng = np.random.default_rng(2)
    f0 = rng.uniform(0.9, 1.1, 9 * w * h) / 9
    (d_f,) = directions(f0)
    size = 9 * w * h

    def run(memory: Any, omega: float) -> Any:
        """Both grids in one allocation, with a margin, as the benchmark has them."""
        source, target = memory[7 : 7 + size], memory[7 + size :]
        for _ in range(steps):
            lbm(target, source, omega, w, h)
            source, target = target, source
        return source

    memory = np.concatenate([np.zeros(7), f0, np.zeros(size)])
    budget = None if share is None else steps * 8 * size // share
    with kg.record(tape_budget=budget) as tape:
        out = run(memory, 1.2)
    weights = np.linspace(-1, 2, size)
    tape.backward(out, weights)
    found = float(tape.grad(memory[7 : 7 + size]) @ d_f + 0.1 * tape.grad("lbm.omega"))

    def moved(e: float) -> Any:
        return run(np.concatenate([np.zeros(7), f0 + e * d_f, np.zeros(size)]), 1.2 + 0.1 * e)

    agrees(moved, weights, found)


@pytest.mark.parametrize("in_place", [False, True])
def test_tapes_of_launches_where_these_are_smaller(in_place: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four numbers are read, and one is needed that is made of them."""
    n, steps = 64, 24
    blend = kernels()["blend"][1, 16]
    x0 = np.linspace(0.1, 1, n)
    (d_x,) = directions(x0)

    def run(x: Any, y: Any) -> Any:
        for _ in range(steps):
            blend(y, x, n)
            x, y = y, x
        return x

    def moved(e: float) -> Any:
        x = x0 + e * d_x
        return run(x, x if in_place else np.zeros(n))

    def recorded() -> tuple[Any, Any]:
        x = x0.copy()
        y = x if in_place else np.zeros(n)
        with kg.record() as tape:
            out = run(x, y)
        saved = tape.nbytes
        weights = np.linspace(1, 2, n)
        tape.backward(out, weights, keep=True)
        first = tape.grad(x)
        tape.backward(out, weights)
        np.testing.assert_array_equal(tape.grad(x), first)
        agrees(moved, weights, float(first @ d_x))
        return saved, tape.explain()

    copies, _ = recorded()
    monkeypatch.setattr(launch_tapes, "WORTH", 4 * 8 * n)
    tapes, told = recorded()
    assert copies == (steps - 1 + in_place) * 8 * n
    assert tapes < 0.7 * copies and "on a tape of its own" in told


def test_ten_thousand_steps_within_little() -> None:
    """A hundredth of what all of it takes, by binomial checkpoints."""
    n, steps, budget = 32, 10_000, 26_000
    u0, kappa, w = np.linspace(0.2, 0.8, n), np.linspace(0.5, 1, n), np.linspace(1, 2, n)

    def run(u: Any) -> Any:
        v = np.zeros(n)
        for _ in range(steps):
            kernels()["heat"][1, n](v, u, kappa, n, 0.1)
            u, v = v, u
        return u

    first = u0.copy()
    with kg.record(tape_budget=budget, check=False) as tape:
        u = run(first)
    assert tape.store.peak <= budget < steps * 8 * n / 85
    tape.backward(u, w)
    step = 1e-5 * np.cos(np.arange(n))
    expected = w @ (run(u0 + step) - run(u0 - step)) / 2
    np.testing.assert_allclose(tape.grad(first) @ step, expected, rtol=1e-6)
