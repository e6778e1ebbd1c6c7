"""Simulations of many launches, as users write them, on the arrays of any package: what recordings are for. Each is
checked against finite differences in double."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np

import kernelgrad as kg

SOURCE = r"""
#define I int i = blockIdx.x * blockDim.x + threadIdx.x
#define XY int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y, c = y * w + x
__global__ void logistic(double *x, const double *p, int n) { I; if (i < n) x[i] = p[i] * x[i] * (1 - x[i]); }
__global__ void heat(double *v, const double *u, const double *k, int w, int h, double dt) {
    XY;
    if (x >= w || y >= h) return;
    double l = x > 0 ? u[c - 1] : u[c], r = x < w - 1 ? u[c + 1] : u[c];
    double d = y > 0 ? u[c - w] : u[c], t = y < h - 1 ? u[c + w] : u[c];
    v[c] = u[c] + dt * k[c] * (1 + u[c] * u[c]) * (l + r + d + t - 4 * u[c]);
}
__global__ void relax(double *u, const double *k, int w, int h, double dt, int colour) {
    XY;
    if (x < 1 || y < 1 || x >= w - 1 || y >= h - 1 || ((x + y) & 1) != colour) return;
    u[c] += dt * k[c] * (1 + u[c] * u[c]) * (u[c - 1] + u[c + 1] + u[c - w] + u[c + w] - 4 * u[c]);
}
__constant__ int ex[9] = {0, 1, 0, -1, 0, 1, -1, -1, 1}, ey[9] = {0, 0, 1, 0, -1, 1, 1, -1, -1};
__constant__ int opposite[9] = {0, 3, 4, 1, 2, 7, 8, 5, 6};
__device__ double weight(int q) { return q == 0 ? 4. / 9 : q < 5 ? 1. / 9 : 1. / 36; }
__global__ void collide(double *f, const unsigned char *solid, int w, int h, double omega, double force) {
    XY;
    if (x >= w || y >= h || solid[c]) return;
    double rho = 0, ux = 0, uy = 0, g[9];
    for (int q = 0; q < 9; q++) {
        g[q] = f[q * w * h + c];
        rho += g[q];
        ux += ex[q] * g[q];
        uy += ey[q] * g[q];
    }
    ux = ux / rho + force;
    uy /= rho;
    for (int q = 0; q < 9; q++) {
        double e = 3 * (ex[q] * ux + ey[q] * uy);
        double eq = weight(q) * rho * (1 + e + 0.5 * e * e - 1.5 * (ux * ux + uy * uy));
        f[q * w * h + c] = g[q] + omega * (eq - g[q]);
    }
}
__global__ void stream(double *out, const double *f, const unsigned char *solid, int w, int h) {
    XY;
    if (x >= w || y >= h) return;
    for (int q = 0; q < 9; q++) {
        int from = (y - ey[q] + h) % h * w + (x - ex[q] + w) % w;
        out[q * w * h + c] = solid[from] ? f[opposite[q] * w * h + c] : f[q * w * h + from];
    }
}
__global__ void accelerate(double *a, const double *p, const double *m, int n, double soft) {
    I;
    if (i >= n) return;
    double ax = 0, ay = 0, az = 0;
    for (int j = 0; j < n; j++) {
        double dx = p[3 * j] - p[3 * i], dy = p[3 * j + 1] - p[3 * i + 1], dz = p[3 * j + 2] - p[3 * i + 2];
        double r = dx * dx + dy * dy + dz * dz + soft, s = m[j] / (r * sqrt(r));
        ax += s * dx;
        ay += s * dy;
        az += s * dz;
    }
    a[3 * i] = ax;
    a[3 * i + 1] = ay;
    a[3 * i + 2] = az;
}
__global__ void axpy(double *y, const double *x, double s, int n) { I; if (i < n) y[i] += s * x[i]; }
__global__ void jacobi(double *v, const double *u, const double *b, const double *a, int n) {
    I;
    if (i < n) v[i] = (b[i] + (i > 0 ? u[i - 1] : 0) + (i < n - 1 ? u[i + 1] : 0) + 0.1 * sin(u[i])) / (2 + a[i]);
}
__global__ void residual(double *r, const double *v, const double *u, int n) {
    I;
    if (i < n) atomicAdd(r, (v[i] - u[i]) * (v[i] - u[i]));
}
"""
W, H = 13, 9
GRID, BLOCK = (3, 3), (5, 3)
Arrays = dict[str, Any]


class Simulation(NamedTuple):
    """`arrays`: what goes in. `run`: launches, and what comes out. `wanted`: the inputs that have adjoints. `number`:
    one that has, too."""

    arrays: Arrays
    run: Callable[[Arrays, float], Any]
    wanted: str
    number: tuple[str, float] | None


@cache
def kernels() -> kg.Module:
    return kg.compile(SOURCE)


def _map(a: Arrays, _: float) -> Any:
    for _step in range(30):
        kernels()["logistic"][2, 32](a["x"], a["p"], 50)
    return a["x"]


def _two_buffers(a: Arrays, dt: float) -> Any:
    u, v = a["u"], a["v"]
    for _ in range(1000):
        kernels()["heat"][GRID, BLOCK](v, u, a["k"], W, H, dt)
        u, v = v, u
    return u


def _in_place(a: Arrays, dt: float) -> Any:
    for t in range(1000):
        kernels()["relax"][GRID, BLOCK](a["u"], a["k"], W, H, dt, t & 1)
    return a["u"]


def _lattice_boltzmann(a: Arrays, omega: float) -> Any:
    f, g = a["f"], a["g"]
    for _ in range(150):
        kernels()["collide"][GRID, BLOCK](f, a["solid"], W, H, omega, 1e-3)
        kernels()["stream"][GRID, BLOCK](g, f, a["solid"], W, H)
        f, g = g, f
    return f


def _leapfrog(a: Arrays, soft: float) -> Any:
    p, v, acc, n, dt = a["p"], a["v"], a["a"], 9, 0.02
    accelerate, axpy = kernels()["accelerate"][2, 5], kernels()["axpy"][4, 7]
    accelerate(acc, p, a["m"], n, soft)
    for _ in range(50):
        axpy(v, acc, dt / 2, 3 * n)
        axpy(p, v, dt, 3 * n)
        accelerate(acc, p, a["m"], n, soft)
        axpy(v, acc, dt / 2, 3 * n)
    return p


def _solver(a: Arrays, _: float) -> Any:
    u, v, r, left = a["u"], a["v"], a["r"], 1.0
    while left > 1e-6:
        kernels()["jacobi"][3, 16](v, u, a["b"], a["c"], 40)
        kg.fill(r, 0.0)
        kernels()["residual"][3, 16](r, v, u, 40)
        left = float(r[0])
        u, v = v, u
    return u


def _views(a: Arrays, s: float) -> Any:
    all, n = a["all"], 24
    for t in range(15):
        at = 3 * t % n
        kernels()["logistic"][2, 8](all[at : at + n // 2], all[2 * n : 2 * n + n // 2], n // 2)
        kernels()["axpy"][2, 16](all[n : 2 * n], all[at // 3 : at // 3 + n - 8], s, n - 8)
        kernels()["jacobi"][2, 16](all[3 * n : 4 * n], all[n : 2 * n], all[2 * n : 3 * n], all[:n], n)
        kernels()["axpy"][1, 8](all[5 : 5 + n // 3], all[3 * n + 2 : 3 * n + 2 + n // 3], s, n // 3)
    return all


def _made() -> dict[str, Simulation]:
    rng = np.random.default_rng(0)
    u, k, zeros = rng.random((H, W)), rng.random((H, W)), np.zeros((H, W))
    weights = np.array([4 / 9, *[1 / 9] * 4, *[1 / 36] * 4])[:, None, None]
    f, solid = weights * (1 + 0.1 * rng.random((9, H, W))), (rng.random((H, W)) < 0.15).astype(np.uint8)
    p, v = rng.standard_normal((9, 3)), 0.1 * rng.standard_normal((9, 3))
    system = {"u": rng.random(40), "v": np.zeros(40), "b": rng.random(40), "c": 0.5 + rng.random(40), "r": np.zeros(1)}
    heat = {"u": u, "v": zeros, "k": k}
    return {
        "map": Simulation({"x": 0.1 + 0.8 * rng.random(50), "p": 2 + rng.random(50)}, _map, "x p", None),
        "two buffers": Simulation(heat, _two_buffers, "u k", ("heat.dt", 0.06)),
        "in place": Simulation(heat, _in_place, "u k", ("relax.dt", 0.06)),
        "lattice-Boltzmann": Simulation(
            {"f": f, "g": np.zeros_like(f), "solid": solid}, _lattice_boltzmann, "f", ("collide.omega", 1.1)
        ),
        "leapfrog": Simulation(
            {"p": p, "v": v, "a": np.zeros((9, 3)), "m": rng.random(9)}, _leapfrog, "p v m", ("accelerate.soft", 0.1)
        ),
        "solver": Simulation(system, _solver, "u b c", None),
        "views": Simulation({"all": 0.2 + 0.5 * rng.random(104)}, _views, "all", ("axpy.s", 0.07)),
    }


SIMULATIONS = _made()


def check_simulation(name: str, share: int | None, array: Callable[[Any], Any], back: Callable[[Any], Any]) -> None:
    """`share`: of the full tape, how small a part is the budget; 0 for the least that is enough. `array`, `back`: to
    arrays of some package, and to NumPy's."""
    simulation = SIMULATIONS[name]
    number = 0.0 if simulation.number is None else simulation.number[1]
    rng, wanted = np.random.default_rng(1), simulation.wanted.split()
    tangents = {n: rng.uniform(-1, 1, simulation.arrays[n].shape) for n in wanted}

    def moved(step: float) -> Any:
        given = {n: array(a + step * tangents[n] if n in wanted else a.copy()) for n, a in simulation.arrays.items()}
        return back(simulation.run(given, number + 0.3 * step))

    given, out, tape = _recorded(simulation, number, array, None)
    if share is not None:
        budget = max(_least(simulation, number, array), tape.nbytes // share if share else 0)
        given, out, tape = _recorded(simulation, number, array, budget)
    held, weights = back(out).copy(), rng.uniform(-1, 1, out.shape)
    expected = float(np.sum(weights * (moved(1e-6) - moved(-1e-6)))) / 2e-6
    for keep in (True, False):
        tape.backward(out, array(weights), keep=keep)
        found = sum(float(np.sum(back(tape.grad(given[n])) * tangents[n])) for n in wanted)
        found += 0.0 if simulation.number is None else 0.3 * tape.grad(simulation.number[0])
        np.testing.assert_allclose(found, expected, rtol=2e-6)
        np.testing.assert_array_equal(back(out), held)
    assert share is None or tape.store.peak <= budget


def _recorded(simulation: Simulation, number: float, array: Any, budget: int | None) -> tuple[Arrays, Any, Any]:
    given = {name: array(a.copy()) for name, a in simulation.arrays.items()}
    with kg.record(tape_budget=budget) as tape:
        out = simulation.run(given, number)
    return given, out, tape


def _least(simulation: Simulation, number: float, array: Any) -> int:
    try:
        _recorded(simulation, number, array, 1)
    except kg.TapeError as error:
        return int(str(error).partition("it takes ")[2].partition(", twice")[0].replace(",", ""))
    raise AssertionError("a byte is enough?")
