"""Buffers that are read from their start, each byte once: what is proven, and adjoints that are written."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

import kernelgrad as kg
from derived import kernel_of
from kernelgrad.analysis import roots, structure
from kernelgrad.analysis.access.affine import Shape, Sums
from kernelgrad.analysis.ownership.private import places_of
from kernelgrad.analysis.ownership.whole import bytes_read_once

GRID, BLOCK = 3, 8


class Case(NamedTuple):
    body: str
    elements: int | None  # of x that are read, from the first on
    n: int = 2


CASES = {
    "all": Case("y[i] = 2 * x[i];", 24),
    "guarded": Case("if (i < n) y[i] = 2 * x[i];", 20, 20),
    "guarded against all": Case("if (i < n) y[i] = 2 * x[i];", 0, 0),
    "a loop": Case("double v = 0; for (int k = 0; k < n; k++) v += x[i + 24 * k]; y[i] = v;", 48),
    "rows": Case("double v = 0; for (int k = 0; k < 3; k++) v += x[3 * i + k]; y[i] = v;", 72),
    "a constant apart": Case("y[i] = x[i] * x[i + 24] * x[i + 48];", 72),
    "not from the start": Case("y[i] = 2 * x[i + 1];", None),
    "not from the start, guarded": Case("if (i + 1 < n) y[i] = 2 * x[i + 1];", None, 20),
    "a loop not from the start": Case("double v = 0; for (int k = 1; k < 3; k++) v += x[24 * k + i]; y[i] = v;", None),
    "every second": Case("y[i] = 2 * x[2 * i];", None),
    "neighbours": Case("y[i] = x[i] * x[i + 1];", None),
    "a gap": Case("y[i] = x[i] * x[i + 48];", None),
    "a loop that never runs": Case("double v = 0; for (int k = 0; k < n; k++) v += x[i + 24 * k]; y[i] = v;", 0, 0),
    "grid-stride": Case(
        "double v = 1; for (; i < n; i += gridDim.x * blockDim.x) v *= x[i]; y[blockIdx.x * 8 + threadIdx.x] = v;",
        61,
        61,
    ),
    "grid-stride, unsigned": Case(
        "double v = 1; for (size_t k = i; k < n; k += gridDim.x * blockDim.x) v *= x[k]; y[i] = v;", 61, 61
    ),
    "a stride too long": Case("double v = 1; for (int k = i; k < n; k += 32) v *= x[k]; y[i] = v;", None, 61),
    "strided rows": Case(
        "double v = 1; for (int c = threadIdx.x; c < n; c += blockDim.x) v *= x[blockIdx.x * n + c]; y[i] = v;", 60, 20
    ),
    "strided rows, their end left out": Case(
        "double v = 1; for (int c = threadIdx.x; c < n - 1; c += 8) v *= x[blockIdx.x * n + c]; y[i] = v;", None, 20
    ),
    "a loop that may stop": Case(
        "double v = 1; for (int k = 0; k < 3 && v < 2; k++) v += x[i + 24 * k]; y[i] = v;", None
    ),
    "transposed": Case("y[i] = 2 * x[i % 6 * 4 + i / 6];", 24),
    "transposed, guarded": Case("if (i < n) y[i] = 2 * x[i % 5 * 4 + i / 5];", 20, 20),
    "transposed, not all": Case("if (i < n) y[i] = 2 * x[i % 5 * 4 + i / 5];", None, 18),
    "three axes": Case("y[i] = 2 * x[i / 8 * 8 + i % 2 * 4 + i / 2 % 4];", 24),
    "by bits": Case("y[i] = 2 * x[(i & 3) * 6 + (i >> 2)];", 24),
    "windows": Case("int at = i / 4 * 16 + i % 4 * 2; y[i] = x[at] * x[at + 1] + x[at + 8] * x[at + 9];", 96),
    "windows in guards": Case(
        "if (i / 4 >= n || i % 4 >= n + 3) return;"
        "int at = i / 4 * 16 + i % 4 * 2; y[i] = x[at] * x[at + 1] + x[at + 8] * x[at + 9];",
        32,
    ),
    "windows cut by guards": Case(
        "if (i / 4 >= n || i % 4 >= n + 1) return;"
        "int at = i / 4 * 16 + i % 4 * 2; y[i] = x[at] * x[at + 1] + x[at + 8] * x[at + 9];",
        None,
    ),
    "unrolled by hand": Case(
        "int at = blockIdx.x * 16 + threadIdx.x; double v = 1;"
        "if (at < n) v *= x[at]; if (at + 8 < n) v *= x[at + 8]; y[i] = v;",
        43,
        43,
    ),
    "unrolled with another end": Case(
        "int at = blockIdx.x * 16 + threadIdx.x; double v = 1;"
        "if (at < n) v *= x[at]; if (at + 8 < n - 1) v *= x[at + 8]; y[i] = v;",
        None,
        43,
    ),
    "a loop that overlaps": Case("double v = 0; for (int k = 0; k < 3; k++) v += x[i + k]; y[i] = v;", None),
    "a loop of one thread more": Case(
        "double v = 0; for (int k = 0; k < 1 + (i == 0); k++) v += x[i + 24 * k]; y[i] = v;", None
    ),
}


def made(name: str) -> Any:
    index = "int i = blockIdx.x * blockDim.x + threadIdx.x;"
    return kernel_of(f"__global__ void k(double *y, const double *x, int n) {{ {index} {CASES[name].body} }}")


@pytest.mark.parametrize("name", CASES)
def test_what_is_proven(name: str) -> None:
    function = made(name).function
    memory, nested = roots.analyse(function), structure.analyse(function, apart=False)
    _, x, n = (p.value for p in function.params)
    sums = Sums(nested, Shape((GRID, 1, 1), (BLOCK, 1, 1)), {n: CASES[name].n}.get)
    elements = CASES[name].elements
    assert bytes_read_once(x, memory, places_of(nested), sums) == (None if elements is None else 8 * elements)


@pytest.mark.parametrize("name", CASES)
def test_assigned(name: str) -> None:
    """Whatever the adjoint held before."""
    kernel, n = made(name), CASES[name].n
    x, seed = np.random.default_rng(1).random((2, CASES[name].elements or 80))
    y, d_y = np.zeros(24), np.resize(seed, 24)
    added, assigned = np.zeros_like(x), np.full_like(x, np.nan)
    kg.gradient(kernel, "y, x", primal=False, keep="y")[GRID, BLOCK](y, x, n, d_y, added)
    kg.gradient(kernel, "y, x", primal=False, keep="y", assign="x")[GRID, BLOCK](y, x, n, d_y, assigned)
    np.testing.assert_array_equal(assigned, added)
    assert added.any() == (CASES[name].elements != 0)


# ---- the last reads

ROW = "int row = blockIdx.x, t = threadIdx.x;"
LOOP = "for (int c = t; c < n; c += blockDim.x)"
HELPER = "__device__ double at(const double *x, int i) { return x[i]; }"
LAST = {
    "rows twice": (f"double s = 0; {LOOP} s += x[row * n + c]; {LOOP} y[row * n + c] = x[row * n + c] * s;", True),
    "in a guard": (
        f"if (row < 3) {{ double s = 0; {LOOP} s += x[row * n + c]; {LOOP} y[row * n + c] = x[row * n + c] * s; }}",
        True,
    ),
    "the last not to the end": (
        f"double s = 0; {LOOP} s += x[row * n + c];"
        " for (int c = t; c < n - 1; c += 8) y[row * n + c] = x[row * n + c] * s;",
        False,
    ),
    "the last where it decides": (
        f"double s = 0; {LOOP} s += x[row * n + c]; {LOOP} if (s > 3) y[row * n + c] = x[row * n + c] * s;",
        False,
    ),
    "in turns": (
        f"for (int k = 0; k < 2; k++) {{ double s = 0; {LOOP} s += x[row * n + c];"
        f" {LOOP} y[(row * 2 + k) * n + c] = x[row * n + c] * s; }}",
        False,
    ),
    "both by one helper": (
        f"double s = 0; {LOOP} s += at(x, row * n + c); {LOOP} y[row * n + c] = at(x, row * n + c) * s;",
        False,
    ),
    "neighbours after": (
        f"double s = 0; {LOOP} s += x[row * n + c];"
        f" {LOOP} y[row * n + c] = s * (c + 1 < n ? x[row * n + c + 1] : x[row * n]);",
        False,
    ),
}


@pytest.mark.parametrize("options", [{}, {"deterministic": True}], ids=["", "deterministic"])
@pytest.mark.parametrize("name", LAST)
def test_the_last_reads_write(name: str, options: dict[str, Any]) -> None:
    body, is_proven = LAST[name]
    kernel = kernel_of(f"{HELPER}__global__ void k(double *y, const double *x, int n) {{ {ROW} {body} }}")
    n, random = 19, np.random.default_rng(3)
    y, x, d_y = np.zeros(6 * n), random.random(3 * n), random.random(6 * n)
    added, assigned = np.zeros_like(x), np.full_like(x, np.nan)
    kg.gradient(kernel, "y, x", primal=False, **options)[GRID, BLOCK](y, x, n, d_y.copy(), added)
    gradient = kg.gradient(kernel, "y, x", primal=False, assign="x", **options)
    gradient[GRID, BLOCK](y, x, n, d_y.copy(), assigned)
    np.testing.assert_array_equal(assigned, added)
    (plan,) = gradient._plans._found.values()
    assert bool(plan.variant.options.facts.read_last) == is_proven
    assert bool(plan.cleared) != is_proven
