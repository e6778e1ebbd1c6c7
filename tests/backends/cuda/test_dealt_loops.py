"""Loops of different ranges, dealt out over the lanes of a warp: when they are, and what comes out.

The text runs under the emulation, where the lanes of a warp meet as on a GPU; the CPU, which deals out nothing, and
forward mode say what is right.
"""

from __future__ import annotations

import re
import shutil
from typing import Any

import numpy as np
import pytest
from run_text import run_emitted

import kernelgrad as kg
from derived import gradient_of, kernel_of

EMULATED = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
THREADS, CELLS = 100, 900

# Each with `y` of 100 doubles, `v` and `x` of 900, `start` of 101 ints from 0 to 900 that rise, `at` of 900 ints below
# 900. Whether lanes share the loop of the reverse.
HEAD = "int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= 100) return; double s = 0;"
ROW = "int k = start[i]; k < start[i + 1]; ++k"
KERNELS = {
    "sparse_rows": (True, f"for ({ROW}) s += v[k] * x[at[k]]; y[i] = s;"),
    "segments": (True, f"for ({ROW}) s += x[k] * x[k]; y[i] = s * s;"),
    "downwards": (True, "for (int k = start[i + 1] - 1; k >= start[i]; --k) s += v[k] * x[at[k]]; y[i] = s;"),
    "from_zero": (True, "int n = start[i + 1] - start[i]; for (int k = 0; k < n; ++k) s += v[start[i] + k]; y[i] = s;"),
    "pointers": (
        True,
        "const double *p = v + start[i]; int n = start[i + 1] - start[i];"
        " for (int k = 0; k < n; ++k) s += p[k] * p[k]; y[i] = s;",
    ),
    "long_counter": (True, "for (long long k = start[i]; k < start[i + 1]; ++k) s += v[k] * x[at[k]]; y[i] = s;"),
    "unsigned_counter": (True, "for (unsigned k = start[i]; k < start[i + 1]; ++k) s += v[k] * x[at[k]]; y[i] = s;"),
    "branches": (True, f"for ({ROW}) if (at[k] % 3) s += v[k] * x[at[k]]; else s += v[k]; y[i] = s;"),
    "own_values": (
        True,
        f"double f = at[i] * 0.5; bool odd = at[i] % 2; for ({ROW}) s += odd ? f * v[k] : v[k]; y[i] = s;",
    ),
    "loops_inside": (True, f"for ({ROW}) for (int c = 0; c < at[k] % 4; ++c) s += v[k] * x[at[k] + c]; y[i] = s;"),
    "outer_loop": (
        True,
        f"for (int r = 0; r < 3; ++r) for ({ROW}) s += v[k] * x[at[k]] * (r + 1); y[i] = s;",
    ),
    "early_exit_of_some": (True, f"if (at[i] % 7 == 0) return; for ({ROW}) s += v[k] * x[at[k]]; y[i] = s;"),
    "a_sum_of_the_row": (False, f"double f = x[i]; for ({ROW}) s += f * v[k]; y[i] = s;"),
    # What an iteration takes from the one before stays with its lane, as does a loop that reads what is written.
    "carried": (False, f"for ({ROW}) s = 0.5 * s + v[k]; y[i] = s;"),
    "steps_of_two": (False, "for (int k = start[i]; k < start[i + 1]; k += 2) s += v[k] * x[at[k]]; y[i] = s;"),
    "same_range": (False, "for (int k = start[3]; k < start[40]; ++k) s += v[k] * x[at[k]]; y[i] = s;"),
    "not_along_memory": (False, f"for ({ROW}) s += x[at[k * k % 900]]; y[i] = s * s;"),
}
OVERLAPPING = {
    "triangle": "for (int k = 0; k <= i; ++k) s += v[7 * i + k] * x[k]; y[i] = s;",
    "backwards": "for (int k = start[99 - i]; k < start[100 - i]; ++k) s += v[k] * x[at[k]]; y[i] = s;",
}
SIGNATURE = "__global__ void k(double *y, const double *v, const double *x, const int *start, const int *at)"


def arguments(rng: np.random.Generator) -> list[Any]:
    start = np.sort(rng.integers(0, CELLS, THREADS + 1)).astype("i4")
    start[[0, 10, 11, 12, -1]] = 0, start[10], start[10], start[10], CELLS  # rows of none, and everything is in some
    start.sort()
    at = rng.integers(0, CELLS - 4, CELLS).astype("i4")
    return [np.zeros(THREADS), rng.standard_normal(CELLS), rng.standard_normal(CELLS), start, at]


def gradients(body: str) -> tuple[Any, str]:
    gradient = gradient_of(kernel_of(f"{SIGNATURE} {{ {HEAD} {body} }}"), "y, v, x", primal=False, keep="y")
    return gradient, gradient.source


@EMULATED
@pytest.mark.parametrize("block", [32, 50])
@pytest.mark.parametrize("name", [*KERNELS, *OVERLAPPING])
def test_values(name: str, block: int) -> None:
    """Of whole warps and of parts of them. Zeros of the seed stay out, whatever they meet."""
    is_dealt, body = KERNELS.get(name, (True, OVERLAPPING.get(name, "")))
    gradient, text = gradients(body)
    assert (re.search(r"for \(unsigned int base", text) is not None) == is_dealt, text
    rng = np.random.default_rng(3)
    given, grid = arguments(rng), -(-THREADS // block)
    seed = rng.standard_normal(THREADS) * (np.arange(THREADS) % 5 != 0)
    right = [np.ones(CELLS), np.ones(CELLS)]
    gradient[grid, block](*given, seed.copy(), *right)
    got = [np.ones(CELLS), np.ones(CELLS)]
    source = gradient.source_for(grid, block, *given, on_gpu=True)
    params = [p.name for p in gradient.variant().reverse.function.params]
    assert len(params) == len(given) + 3
    run_emitted(text, "k_grad", grid, block, [*given, seed.copy(), *got])
    assert "unsigned int base" in source or not is_dealt
    for ours, expected in zip(got, right, strict=True):
        np.testing.assert_allclose(ours, expected, rtol=1e-12, atol=1e-12)


def test_infinities_of_rows_without_adjoints() -> None:
    _, text = gradients(KERNELS["sparse_rows"][1])
    rng = np.random.default_rng(4)
    given = arguments(rng)
    seed = np.ones(THREADS)
    row = int(np.argmax(np.diff(given[3])))
    seed[row] = 0
    given[1][given[3][row]] = np.inf
    got = [np.zeros(CELLS), np.zeros(CELLS)]
    run_emitted(text, "k_grad", 4, 32, [*given, seed, *got])
    assert np.isfinite(got[1]).all()


@EMULATED
@pytest.mark.parametrize("block", [32, 50])
def test_what_other_lanes_added_is_there(block: int) -> None:
    """A thread reads what was added to the adjoints of its own row: that the whole warp has come so far."""
    rows = f"for ({ROW}) v[k] = v[k] * 2; for ({ROW}) s += v[k] * x[at[k]]; y[i] = s * s;"
    kernel: Any = kg.compile(f"{SIGNATURE.replace('const double *v', 'double *v')} {{ {HEAD} {rows} }}")["k"]
    gradient = kg.gradient(kernel, "y, v")
    assert re.search(r"for \(unsigned int base", gradient.source)
    given, grid = arguments(np.random.default_rng(5)), -(-THREADS // block)
    want, got = [np.ones(THREADS), np.ones(CELLS)], [np.ones(THREADS), np.ones(CELLS)]
    gradient[grid, block](*(a.copy() for a in given), *want)
    run_emitted(gradient.source, "k_grad", grid, block, [*(a.copy() for a in given), *got])
    np.testing.assert_allclose(got[1], want[1], rtol=1e-12, atol=1e-12)


NOT_DEALT = {
    "reads that an empty row does not make": "int r = at[i], n = start[i + 1] - start[i];"
    " for (int k = 0; k < n; ++k) s += v[start[r] + k] * 3; y[i] = s;",
    "indices of a lane": f"for ({ROW}) if (at[k] % 2) s += v[k] * (threadIdx.y ? 2.0 : 3.0); atomicAdd(y + i, s);",
}


@pytest.mark.parametrize("name", NOT_DEALT)
def test_is_not_dealt(name: str) -> None:
    _, text = gradients(NOT_DEALT[name])
    assert "unsigned int base" not in text
