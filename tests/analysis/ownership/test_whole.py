"""Buffers that are read from their start, each byte once: what is proven, and adjoints that are written."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

import kernelgrad as kg
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
    "a loop that never runs": Case("double v = 0; for (int k = 0; k < n; k++) v += x[i + 24 * k]; y[i] = v;", None, 0),
    "a loop that overlaps": Case("double v = 0; for (int k = 0; k < 3; k++) v += x[i + k]; y[i] = v;", None),
    "a loop of one thread more": Case(
        "double v = 0; for (int k = 0; k < 1 + (i == 0); k++) v += x[i + 24 * k]; y[i] = v;", None
    ),
}


def made(name: str) -> Any:
    index = "int i = blockIdx.x * blockDim.x + threadIdx.x;"
    return kg.compile(f"__global__ void k(double *y, const double *x, int n) {{ {index} {CASES[name].body} }}")["k"]


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
    assert added.any() == (CASES[name].elements != 0 and (name != "a loop that never runs"))
