"""Loops whose turns a block takes as a whole become blocks, where the reverse would have to keep something else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from kernelgrad.analysis.block_interpreter.threads import Threads
from kernelgrad.launches.choice.spread_turns import LargerLaunches
from kernelgrad.runtime.config import make_launch
from meeting_turn_cases import BLOCK, BLOCKS, SHAPES, SPREAD, STAYING, compiled

OPTIONS: dict[str, dict[str, Any]] = {
    "J": {},
    "R": {"primal": False},
    "kept": {"primal": False, "keep": "y", "assign": "x, g"},
}


@pytest.fixture
def grids(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Of the larger launches that are found."""
    found: list[Any] = []
    find = LargerLaunches.find

    def noted(self: LargerLaunches, *args: Any) -> Any:
        larger = find(self, *args)
        found.extend(() if larger is None else [larger[1]])
        return larger

    monkeypatch.setattr(LargerLaunches, "find", noted)
    return found


def launched(gradient: Any, rows: int, n: int) -> list[Any]:
    rng = np.random.default_rng(n)
    x, d_y = (rng.uniform(-1, 1, rows * n) for _ in range(2))
    g, y, d_x, d_g = rng.uniform(-1, 1, n), np.zeros(rows * n), np.zeros(rows * n), np.zeros(n)
    gradient[BLOCKS, BLOCK](y, x, g, rows, n, d_y, d_x, d_g)
    return [y, d_y, d_x, d_g]


@pytest.mark.parametrize("how", ["kept", *(pytest.param(how, marks=pytest.mark.slow) for how in ("J", "R"))])
@pytest.mark.parametrize("name", SPREAD)
def test_values(name: str, how: str, grids: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """The same as turn by turn."""
    kernel = compiled(SPREAD[name])
    spread, plain = (kg.gradient(kernel, "y, x, g", **OPTIONS[how]) for _ in range(2))
    found = [launched(spread, *shape) for shape in SHAPES]
    assert grids
    monkeypatch.setattr(LargerLaunches, "find", lambda self, launch, known: None)
    for shape, got in zip(SHAPES, found, strict=True):
        for one, other in zip(got, launched(plain, *shape), strict=True):
            np.testing.assert_allclose(one, other, 1e-12, 1e-12, err_msg=str(shape))


@pytest.mark.parametrize("name", {**SPREAD, **STAYING})
def test_finite_differences(name: str) -> None:
    """Of a kernel that reads what an output held, where nobody wrote it, too."""
    rows, n = 7, 70
    rng = np.random.default_rng(1)
    arrays = np.zeros(rows * n), rng.uniform(0.1, 1, rows * n), rng.uniform(-1, 1, n)
    kernel = compiled({**SPREAD, **STAYING}[name])
    report = kg.check_gradient(kernel, "y, x, g", BLOCKS, BLOCK, (*arrays, rows, n))
    assert report.ok, str(report)


@pytest.mark.parametrize("name", STAYING)
def test_staying(name: str, grids: list[Any]) -> None:
    kernel = compiled(STAYING[name])
    try:
        gradient = kg.gradient(kernel, "y, x, g")
        launched(gradient, 7, 70)
    finally:
        assert not grids


@pytest.mark.parametrize("name", SPREAD)
def test_no_races(name: str) -> None:
    gradient = kg.gradient(compiled(SPREAD[name]), "y, x, g", primal=False)
    rows, n = 7, 70
    arrays = [np.ones(rows * n), np.ones(rows * n), np.ones(n)]
    adjoints = [np.ones_like(a) for a in arrays]
    report = gradient.check(BLOCKS, BLOCK, *arrays, rows, n, *adjoints)
    assert report.ok, str(report)


LOOPS = """__global__ void k(double *y, const double *x, int rows, int n) {
    __shared__ double s[2048];
    int t = threadIdx.x;
    for (int r = blockIdx.x; r < rows; r += gridDim.x) {
        for (int c = t; c < n; c += blockDim.x) s[c] = x[r * n + c];
        __syncthreads();
        double a = 0;
        for (int i = 0; i < n; ++i) for (int j = 0; j < n; ++j) a += s[j] * s[i];
        if (t < n) y[r * n + t] = a * x[r * n + t];
        __syncthreads();
    }
}"""


def test_long_loops_are_not_played_to_their_end(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = 0
    iterations = Threads.iterations

    def counted(self: Threads, *args: Any) -> Any:
        nonlocal turns
        for turn in iterations(self, *args):
            turns += 1
            yield turn

    monkeypatch.setattr(Threads, "iterations", counted)
    n, rows = 2000, 6
    gradient: Any = kg.gradient(kg.compile(LOOPS)["k"], "y, x", primal=False)
    gradient.planned(make_launch(2, 256), (np.ones(rows * n), np.ones(rows * n), rows, n), {}, on_gpu=True)
    assert turns < 1 << 17
