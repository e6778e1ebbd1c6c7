"""Sums of products with infinities in memory and seeds of zero: kernels whose loops are tuned for a GPU."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

SOURCE = Path(__file__).parents[2] / "benchmarks" / "kernels" / "gradients.cu"
Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Problem:
    """`wanted`: the adjoints of the inputs, given the seeds of the outputs."""

    kernel: str
    grid: Any
    block: Any
    outputs: dict[str, Array]
    inputs: dict[str, Array]
    rest: tuple[Any, ...]
    seeds: dict[str, Array]
    wanted: dict[str, Array]


def _known(matrix: Array) -> Array:
    return np.where(np.isfinite(matrix), matrix, 0)


def product(n: int) -> Problem:
    """Rows of one matrix are infinite, columns of the other NaN: the product has no seeds there."""
    a, b, seed = np.random.default_rng(5).standard_normal((3, n, n), dtype=np.float32)
    a[3], a[n - 9], b[:, 7] = np.inf, -np.inf, np.nan
    seed[3], seed[n - 9], seed[:, 7] = 0, 0, 0
    wanted = {"a": seed @ _known(b).T, "b": _known(a).T @ seed}
    outputs = {"c": np.zeros_like(a)}
    return Problem("matmul", (n // 32,) * 2, (32, 32), outputs, {"a": a, "b": b}, (n,), {"c": seed}, wanted)


def bodies(n: int) -> Problem:
    """One is infinitely far away, and nothing is asked for."""
    places = dict(zip("xyz", np.random.default_rng(6).standard_normal((3, n), dtype=np.float32), strict=True))
    places["y"][n // 3] = np.inf
    outputs = {name: np.zeros(n, np.float32) for name in ("fx", "fy", "fz")}
    seeds = {name: np.zeros(n, np.float32) for name in outputs}
    wanted = {name: np.zeros(n, np.float32) for name in places}
    return Problem("nbody", n // 256, 256, outputs, places, (n,), seeds, wanted)


def convolution(n: int) -> Problem:
    """Weights and elements are infinite where there is no seed."""
    rng = np.random.default_rng(7)
    x, w = rng.standard_normal(n + 31, dtype=np.float32), rng.standard_normal(31, dtype=np.float32)
    seed = rng.standard_normal(n, dtype=np.float32)
    x[100:103], seed[60:103] = np.inf, 0
    d_x = np.convolve(seed.astype(float), w.astype(float))
    d_w = np.array([seed.astype(float) @ _known(x)[k : k + n] for k in range(31)])
    wanted = {"x": np.append(d_x, 0).astype(np.float32), "w": d_w.astype(np.float32)}
    return Problem(
        "convolution", n // 256, 256, {"y": np.zeros_like(seed)}, {"x": x, "w": w}, (n,), {"y": seed}, wanted
    )


def contraction(side: int, inner: int) -> Problem:
    """A product of matrices: lines of both are infinite, and have no seeds."""
    rng = np.random.default_rng(8)
    a = rng.standard_normal((side * side, inner), dtype=np.float32)
    b = rng.standard_normal((inner, 256), dtype=np.float32)
    seed = rng.standard_normal((side * side, 256), dtype=np.float32)
    a[5], b[:, 9] = np.inf, np.nan
    seed[5], seed[:, 9] = 0, 0
    dims = np.array([side, side, inner], np.uint64), np.array([inner, 16, 16], np.uint64)
    wanted = {"a": seed @ _known(b).T, "b": _known(a).T @ seed}
    outputs = {"c": np.zeros_like(seed)}
    return Problem("contraction", side * side, 256, outputs, {"a": a, "b": b}, (*dims, 2, 0), {"c": seed}, wanted)


def check(problem: Problem, gradient: Any, to: Any = lambda v: v, back: Any = lambda v: v) -> None:
    """`to` and `back`: where arrays are."""
    values = (*problem.outputs.values(), *problem.inputs.values(), *problem.rest)
    seeds = {name: to(seed.copy()) for name, seed in problem.seeds.items()}
    found = {name: to(np.zeros_like(value)) for name, value in problem.inputs.items()}
    args = [to(v.copy()) if isinstance(v, np.ndarray) else v for v in values]
    gradient[problem.grid, problem.block](*args, *seeds.values(), *found.values())
    for name, want in problem.wanted.items():
        got = back(found[name])
        np.testing.assert_allclose(got, want, rtol=2e-3, atol=2e-4 * max(1e-6, np.abs(want).max()), err_msg=name)
