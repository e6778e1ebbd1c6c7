"""Launches that choose each plan of accumulation, with the adjoints by a formula: on the CPU and on a GPU.

A case's `arguments` gives the kernel's arguments and the adjoints of what is listed, as NumPy arrays; `expected` what
the adjoints are afterwards (None: not compared). `chosen` says whether a variant has the plan the case is about.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import kernelgrad as kg
from kernelgrad.launches.choice.variant import Variant
from kernelgrad.runtime.config import make_launch

Arrays = list[Any]
INDEX = "int i = blockIdx.x * blockDim.x + threadIdx.x;"
# The linear index of the thread in the grid, for blocks of any shape in a one-dimensional grid.
LINEAR = """int t = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    int i = blockIdx.x * blockDim.x * blockDim.y * blockDim.z + t;"""


@dataclass(frozen=True)
class PlanCase:
    source: str
    launch: tuple[Any, ...]
    arguments: Callable[[], tuple[Arrays, Arrays]]
    expected: Callable[[Arrays, Arrays], Arrays]
    chosen: Callable[[Variant], bool]
    listed: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    rtol: float = 1e-10
    exact: bool = False  # bitwise the same from run to run

    def gradient(self) -> Any:
        return kg.gradient(kg.compile(self.source)["k"], self.listed, **self.options)

    def check(self, to_device: Callable[[Any], Any], to_host: Callable[[Any], Any]) -> None:
        """Launches with arrays where `to_device` puts them, and compares."""
        gradient = self.gradient()
        own, adjoints = self.arguments()
        want = self.expected(own, [np.copy(a) for a in adjoints])
        runs = []
        for _ in range(2 if self.exact else 1):
            placed = [to_device(np.copy(a)) if isinstance(a, np.ndarray) else a for a in own]
            given = [to_device(np.copy(a)) for a in adjoints]
            assert self.chosen(self.variant(gradient, placed)), "the launch did not choose the plan"
            gradient[self.launch](*placed, *given)
            runs.append([to_host(a) for a in given])
        for other in runs[1:]:
            for a, b in zip(runs[0], other, strict=True):
                np.testing.assert_array_equal(a.view(np.uint8), b.view(np.uint8))
        for got, wanted in zip(runs[0], want, strict=True):
            if wanted is not None:
                scale = np.abs(wanted).max(initial=0)
                np.testing.assert_allclose(got, wanted, rtol=self.rtol, atol=self.rtol * 10 * scale)

    def variant(self, gradient: Any, placed: Arrays) -> Variant:
        primal, _ = gradient.kernel.bind(tuple(placed))
        found: Variant = gradient.variant_for(gradient.settings.listed, make_launch(*self.launch), primal)
        return found


def _random(seed: int = 1) -> np.random.Generator:
    return np.random.default_rng(seed)


def _blocks(n: int, block: Any) -> int:
    return -(-n // int(np.prod(block)))


# ---- loops whose tape would be large: strips, derivatives carried along ----------------------------------------------


def _long(n: int, steps: int, block: int, along: bool) -> PlanCase:
    """By a division nothing is carried along."""
    source = f"""__global__ void k(double *y, const double *x, double r, double c, int steps, int n) {{
        {INDEX}
        if (i >= n) return;
        double v = x[i];
        for (int j = 0; j < steps; j++) v = r * v * (1 - v) {"*" if along else "/"} c + 0.01 * x[i];
        y[i] = v;
    }}"""
    c = 0.9
    factor = c if along else 1 / c

    def arguments() -> tuple[Arrays, Arrays]:
        rng = _random()
        return [np.zeros(n), rng.random(n), 0.8, c, steps, n], [rng.standard_normal(n), rng.random(n), np.ones(1)]

    def expected(own: Arrays, adjoints: Arrays) -> Arrays:
        (_, x, r, _, _, _), (seed, d_x, d_r) = own, adjoints
        states = [x]
        for _ in range(steps):
            states.append(r * factor * states[-1] * (1 - states[-1]) + 0.01 * x)
        bar, total = seed.copy(), 0.0
        for v in reversed(states[:-1]):
            total += bar @ (factor * v * (1 - v))
            d_x = d_x + 0.01 * bar
            bar = bar * r * factor * (1 - 2 * v)
        return [None, d_x + bar, d_r + total]

    def chosen(variant: Variant) -> bool:
        return variant.options.facts.strips and ("_slope" in variant.source(0)) == along

    return PlanCase(source, (_blocks(n, block), block), arguments, expected, chosen, "y, x, r", rtol=1e-8)


# ---- many blocks: sums per warp with a finishing step, copies of small adjoints --------------------------------------


def _crowd(n: int, block: Any, weights: int, type: str, **options: Any) -> PlanCase:
    source = f"""__global__ void k({type} *y, const {type} *x, const {type} *w, {type} a, int n) {{
        {LINEAR}
        if (i < n) y[i] = x[i] * w[i % {weights}] * a;
    }}"""
    dtype = np.dtype("f8" if type == "double" else "f4")

    def arguments() -> tuple[Arrays, Arrays]:
        rng = _random(2)
        x, w = rng.random(n).astype(dtype), rng.random(weights).astype(dtype)
        seed = rng.standard_normal(n).astype(dtype)
        return [np.zeros(n, dtype), x, w, 1.5, n], [seed, x * 2, np.ones(weights, dtype), np.full(1, 2, dtype)]

    def expected(own: Arrays, adjoints: Arrays) -> Arrays:
        (_, x, w, a, _), (seed, d_x, d_w, d_a) = own, adjoints
        at = np.arange(n) % weights
        x, w, seed = (v.astype(float) for v in (x, w, seed))
        return [None, d_x + seed * w[at] * a, d_w + a * np.bincount(at, seed * x, weights), d_a + seed @ (x * w[at])]

    def chosen(variant: Variant) -> bool:
        return variant.options.facts.partials and variant.options.facts.copied == {"w"}

    rtol = 1e-9 if type == "double" else 2e-4
    return PlanCase(source, (_blocks(n, block), block), arguments, expected, chosen, None, options, rtol)


def _number(n: int, block: Any) -> PlanCase:
    """A number that all threads of many blocks read, in code where lanes part."""
    source = f"""__global__ void k(double *y, const double *x, double a, int n) {{
        {LINEAR}
        if (i >= n) return;
        double v = x[i];
        for (int j = 0; j < i % 4; j++) v = v * a + 0.5;
        y[i] = v;
    }}"""

    def arguments() -> tuple[Arrays, Arrays]:
        rng = _random(3)
        return [np.zeros(n), rng.random(n), 0.75, n], [rng.standard_normal(n), np.zeros(n), np.zeros(1)]

    def expected(own: Arrays, adjoints: Arrays) -> Arrays:
        (_, x, a, _), (seed, _, _) = own, adjoints
        trips, slope, v = np.arange(n) % 4, np.zeros(n), x.copy()
        for j in range(3):
            on = trips > j
            slope = np.where(on, slope * a + v, slope)
            v = np.where(on, v * a + 0.5, v)
        return [None, seed * a**trips, np.array([seed @ slope])]

    launch = (_blocks(n, block), block)
    return PlanCase(source, launch, arguments, expected, lambda v: v.options.facts.partials, "y, x, a", rtol=1e-9)


# ---- overwritten: adjoints that are written instead of cleared and added to ------------------------------------------


def _overwritten(n: int, spare: int, block: int) -> PlanCase:
    """`spare` elements of x are read by no thread: then the adjoint is cleared first."""
    source = f"""__global__ void k(double *y, const double *x, int n) {{
        {INDEX}
        if (i < n) y[i] = x[i] * x[i];
    }}"""

    def arguments() -> tuple[Arrays, Arrays]:
        rng = _random(4)
        return [np.zeros(n), rng.random(n + spare), n], [rng.standard_normal(n), np.full(n + spare, np.nan)]

    def expected(own: Arrays, adjoints: Arrays) -> Arrays:
        (_, x, _), (seed, _) = own, adjoints
        return [seed, np.concatenate([2 * x[:n] * seed, np.zeros(spare)])]

    def chosen(variant: Variant) -> bool:
        return variant.options.facts.overwritten == (frozenset() if spare else {"x"})

    options = {"primal": False, "keep": "y", "assign": "x"}
    return PlanCase(source, (_blocks(n, block), block), arguments, expected, chosen, "y, x", options)


# ---- together: one atomic for a warp whose lanes have the same address -----------------------------------------------


def _together(index: str, n: int, block: Any, guard: str = "i < n", type: str = "double") -> PlanCase:
    """`w` is read at `index`, an expression of i and of the data `at[i]`."""
    source = f"""__global__ void k({type} *y, const {type} *w, const int *at, int n) {{
        {LINEAR}
        if ({guard}) y[i] = w[{index}] * w[{index}];
    }}"""
    size, dtype = 40, np.dtype("f8" if type == "double" else "f4")

    def arguments() -> tuple[Arrays, Arrays]:
        rng = _random(5)
        at = rng.integers(0, size, n).astype(np.int32)
        at[n // 3 : 2 * n // 3] = 7  # whole warps that agree, beside those that do not
        seed = rng.standard_normal(n).astype(dtype)
        return [np.zeros(n, dtype), rng.random(size).astype(dtype), at, n], [seed, np.ones(size, dtype)]

    def expected(own: Arrays, adjoints: Arrays) -> Arrays:
        (_, w, at, _), (seed, d_w) = own, adjoints
        i = np.arange(n)
        names = {"i": i, "at": at, "n": n, "t": i % int(np.prod(block))}
        place = np.broadcast_to(eval(index.replace("/", "//").replace("at[i]", "at"), names), (n,))
        taken = np.broadcast_to(eval(guard.replace("&&", "&"), names), (n,))
        return [None, d_w + np.bincount(place[taken], (2 * w[place].astype(float) * seed)[taken], size)]

    def chosen(variant: Variant) -> bool:
        return bool(variant.derivative.prepared.accumulation.together) and not variant.options.facts.copied

    rtol = 1e-11 if type == "double" else 2e-4
    return PlanCase(source, (_blocks(n, block), block), arguments, expected, chosen, "y, w", rtol=rtol)


# ---- logs of deterministic gradients ---------------------------------------------------------------------------------


def _logs(n: int, size: int, block: int) -> PlanCase:
    source = f"""__global__ void k(float *y, const float *x, const int *at, float a, int n) {{
        {INDEX}
        if (i < n && at[i] % 3) y[i] = x[at[i]] * x[at[i] / 2] * a;
    }}"""

    def arguments() -> tuple[Arrays, Arrays]:
        rng = _random(6)
        at = rng.integers(0, size, n).astype(np.int32)
        x, seed = rng.random(size).astype("f4"), rng.standard_normal(n).astype("f4")
        return [np.zeros(n, "f4"), x, at, 1.25, n], [seed, np.zeros(size, "f4"), np.zeros(1, "f4")]

    def expected(own: Arrays, adjoints: Arrays) -> Arrays:
        (_, x, at, a, _), (seed, _, _) = own, adjoints
        x, seed = x.astype(float), np.where(at % 3, seed, 0).astype(float)
        d_x = np.bincount(at, seed * a * x[at // 2], size) + np.bincount(at // 2, seed * a * x[at], size)
        return [None, d_x, np.array([seed @ (x[at] * x[at // 2])])]

    def chosen(variant: Variant) -> bool:
        return bool(variant.derivative.logs) and variant.options.deterministic

    options = {"deterministic": True}
    return PlanCase(
        source, (_blocks(n, block), block), arguments, expected, chosen, "y, x, a", options, rtol=2e-5, exact=True
    )


# ---- private and exclusive: proofs about the launch's own shape ------------------------------------------------------


def _private(block: tuple[int, int], blocks: int) -> PlanCase:
    """One row of threads: each has its element. Several rows: they share it."""
    width = block[0] * blocks
    source = f"""__global__ void k(double *y, const double *x, int width) {{
        {INDEX}
        y[i + width * threadIdx.y] = x[i] * x[i] * (threadIdx.y + 1);
    }}"""

    def arguments() -> tuple[Arrays, Arrays]:
        rng = _random(7)
        n = width * block[1]
        return [np.zeros(n), rng.random(width), width], [rng.standard_normal(n), rng.random(width)]

    def expected(own: Arrays, adjoints: Arrays) -> Arrays:
        (_, x, _), (seed, d_x) = own, adjoints
        rows = seed.reshape(block[1], width) * np.arange(1, block[1] + 1)[:, None]
        return [np.zeros(seed.size), d_x + 2 * x * rows.sum(0)]

    def chosen(variant: Variant) -> bool:
        return variant.derivative.prepared.accumulation.private == ({"y", "x"} if block[1] == 1 else {"y"})

    return PlanCase(source, (blocks, block), arguments, expected, chosen)


def _exclusive(block: tuple[int, int], blocks: int) -> PlanCase:
    """Between two barriers, a cell of shared memory has one thread in one row of threads, several in more."""
    width, rows = block
    source = f"""__global__ void k(double *y, const double *x) {{
        __shared__ double s[{width}];
        int t = threadIdx.x, i = blockIdx.x * {width} + t;
        if (threadIdx.y == 0) s[t] = x[i];
        __syncthreads();
        double mine = s[t];
        y[i + gridDim.x * {width} * threadIdx.y] = mine * mine * (1 + threadIdx.y);
    }}"""

    def arguments() -> tuple[Arrays, Arrays]:
        rng = _random(8)
        n = width * blocks
        return [np.zeros(n * rows), rng.random(n)], [rng.standard_normal(n * rows), rng.random(n)]

    def expected(own: Arrays, adjoints: Arrays) -> Arrays:
        (_, x), (seed, d_x) = own, adjoints
        weighted = seed.reshape(rows, -1) * np.arange(1, rows + 1)[:, None]
        return [np.zeros(seed.size), d_x + 2 * x * weighted.sum(0)]

    def chosen(variant: Variant) -> bool:
        plan = variant.derivative.prepared.accumulation
        shared = {name for name, _ in plan.exclusive} | plan.private
        return ("s" in shared) == (rows == 1)

    return PlanCase(source, (blocks, block), arguments, expected, chosen)


# ---- tiles: filled again where the block covers them, taped elsewhere ------------------------------------------------


def _tile(n: int, part: int) -> PlanCase:
    """Only the first `part` cells of a tile of 32 are filled anew each time; the others stay as they were."""
    source = """__global__ void k(double *y, const double *x, int n, int part) {
        __shared__ double s[32];
        int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
        double mine = x[i % n], sum = 0;
        for (int first = 0; first < n; first += 32) {
          __syncthreads();
          double v = first + t < n ? x[first + t] : 0.0;
          if (t < part) s[t] = v;
          else if (first == 0) s[t] = v;
          __syncthreads();
          for (int j = 0; j < 32; j++) sum += mine * s[j] * s[j];
        }
        if (i < n) y[i] = sum;
    }"""

    def arguments() -> tuple[Arrays, Arrays]:
        rng = _random(9)
        return [np.zeros(n), rng.random(n), n, part], [rng.standard_normal(n), np.zeros(n)]

    def expected(own: Arrays, adjoints: Arrays) -> Arrays:
        x, seed = own[1], adjoints[0]
        cell, first = np.arange(n) % 32, np.arange(n) < 32
        times = np.where(cell < part, 1, np.where(first, -(-n // 32), 0))
        return [None, seed * (times @ x**2) + 2 * x * times * (seed @ x)]

    def chosen(variant: Variant) -> bool:
        whole = part == 32
        return variant.options.facts.refill == whole and bool(variant.derivative.prepared.plan.refilled) == whole

    return PlanCase(source, (_blocks(n, 32), 32), arguments, expected, chosen)


# ---- unkept: outputs to be kept that several threads store -----------------------------------------------------------


def _unkept(n: int, rows: int) -> PlanCase:
    source = f"""__global__ void k(double *y, const double *x, int n) {{
        {INDEX}
        if (i < n) y[i] = x[i] * x[i];  // by every row of threads
    }}"""

    def arguments() -> tuple[Arrays, Arrays]:
        rng = _random(10)
        return [np.zeros(n), rng.random(n), n], [rng.standard_normal(n), np.zeros(n)]

    def expected(own: Arrays, adjoints: Arrays) -> Arrays:
        return [adjoints[0], 2 * own[1] * adjoints[0]]

    def chosen(variant: Variant) -> bool:
        return variant.options.facts.unkept == ({"y"} if rows > 1 else frozenset())

    options = {"primal": False, "keep": "y"}
    return PlanCase(source, (_blocks(n, 32), (32, rows)), arguments, expected, chosen, "y, x", options)


CASES: dict[str, PlanCase] = {
    "strips": _long(33_001, 257, 127, along=False),
    "strips, short of a strip": _long(260_001, 33, 256, along=False),
    "carried along": _long(33_001, 257, 127, along=True),
    "crowd": _crowd(3000 * 40 - 7, 40, 3, "double"),
    "crowd of floats": _crowd(4096 * 96 + 1, 96, 1001, "float"),
    "crowd in two dimensions": _crowd(2100 * 35 - 3, (5, 7), 17, "double"),
    "crowd, the reverse alone": _crowd(2500 * 64 - 1, 64, 5, "double", primal=False),
    "number": _number(2049 * 33 + 5, 33),
    "number in three dimensions": _number(2048 * 60 + 7, (3, 4, 5)),
    "number in full warps": _number(2049 * 128 - 100, 128),
    "overwritten": _overwritten(10_007, 0, 96),
    "overwritten by one block": _overwritten(77, 0, 77),
    "not overwritten": _overwritten(10_007, 3, 96),
    "together": _together("i / 64 % 40", 5003, 128),
    "together in partial warps": _together("i / 64 % 40", 5003, 33),
    "together by data": _together("at[i]", 20_011, 96),
    "together by data, floats": _together("at[i]", 20_011, 256, type="float"),
    "together where lanes part": _together("at[i]", 20_011, (5, 7), "(i < n) && (i % 3 != 1)"),
    "together in blocks of rows": _together("at[i]", 9001, (3, 5, 4)),
    "logs": _logs(20_011, 1009, 96),
    "logs of many updates": _logs(100_003, 7001, 256),
    "private": _private((33, 1), 7),
    "not private": _private((33, 3), 7),
    "exclusive": _exclusive((33, 1), 5),
    "not exclusive": _exclusive((33, 3), 5),
    "tile filled again": _tile(173, 32),
    "tile taped": _tile(173, 20),
    "kept": _unkept(1001, 1),
    "unkept": _unkept(1001, 3),
}
