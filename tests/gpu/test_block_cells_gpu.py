"""Adjoints of small inputs that blocks add up in shared memory, on the GPU: odd launches against the CPU in double
precision, and how much of long sums is kept."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from cell_cases import BODIES, LAUNCHES, arguments, chosen, elements, run, source, viewed
from every_plan import forced

cp = pytest.importorskip("cupy")

CELLS = "in cells of blocks"


@pytest.mark.parametrize("launch", LAUNCHES, ids=str)
@pytest.mark.parametrize("name", BODIES)
def test_odd_launches(name: str, launch: Any) -> None:
    options = {"primal": name == "again"}
    for n in (elements(name, launch), 0):
        expected = run(name, launch, n, np.float64, **options)
        for real, tolerance in ((np.float64, 1e-10), (np.float32, 2e-4)):
            with forced(CELLS):
                got = run(name, launch, n, real, cp, **options)
            assert n == 0 or chosen(got[2]) == {"w"}
            for one, other in zip(got[:2], expected[:2], strict=True):
                scale = max(1.0, float(np.abs(other).max()))
                np.testing.assert_allclose(one.get(), other, rtol=tolerance, atol=tolerance * scale)


@pytest.mark.parametrize("name", ["lookup", "tile", "columns", "outside"])
def test_halves(name: str) -> None:
    launch = (9, 96)
    n = elements(name, launch)
    given = [cp.asarray(a) if isinstance(a, np.ndarray) else a for a in arguments(n, np.float32)]
    given[2] = given[2].astype(np.float16)
    text = source(name, "double")
    expected = arguments(n, np.float64)
    expected[2] = given[2].get().astype(np.float64)
    kg.gradient(kg.compile(text)["k"], "y, x, w")[launch](*viewed(expected))
    with forced(CELLS):
        gradient: Any = kg.gradient(kg.compile(source(name, "float", "__half"))["k"], "y, x, w")
        gradient[launch](*viewed(given))
    assert chosen(gradient) == {"w"}
    for one, other in zip(given[6:], expected[6:], strict=True):
        np.testing.assert_allclose(one.get(), other, rtol=1e-3, atol=1e-3 * float(np.abs(other).max()))


@pytest.mark.parametrize("skew", ["even", "one", "sorted"])
@pytest.mark.parametrize(("cells", "n"), [(3, 1 << 22), (1000, 1 << 24), (1024, 1 << 26)])
def test_long_sums(cells: int, n: int, skew: str) -> None:
    """Of equal floats at addresses that memory holds: in turn, all at one, and each many times in a row."""
    text = """__global__ void k(float *y, const float *w, const int *idx) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        y[i] = w[idx[i]] * 1.1f;
    }"""
    i = cp.arange(n, dtype=cp.int64)
    idx = {"even": i % cells, "one": 0 * i + 2, "sorted": i * cells // n}[skew].astype("i4")
    gradient: Any = kg.gradient(kg.compile(text)["k"], "y, w", primal=False)
    d_w = cp.zeros(cells, "f4")
    gradient[n // 256, 256](cp.zeros(n, "f4"), cp.ones(cells, "f4"), idx, cp.ones(n, "f4"), d_w)
    assert chosen(gradient) == {"w"}
    expected = cp.bincount(idx, minlength=cells).get() * float(np.float32(1.1))
    np.testing.assert_allclose(d_w.get(), expected, rtol=1e-5)


@pytest.mark.parametrize("trips", [4, 248, 1000])
def test_long_sums_of_columns(trips: int) -> None:
    text = """__global__ void k(float *y, const float *w, int n, int c) {
        for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) y[i] = w[i % c] * 1.1f;
    }"""
    for c in (256, 300):
        n = 1056 * 256 * trips
        gradient: Any = kg.gradient(kg.compile(text)["k"], "y, w", primal=False)
        d_w = cp.zeros(c, "f4")
        gradient[1056, 256](cp.zeros(n, "f4"), cp.ones(c, "f4"), n, c, cp.ones(n, "f4"), d_w)
        expected = np.bincount(np.arange(c), minlength=c) * float(np.float32(1.1))
        expected *= n // c + (np.arange(c) < n % c)
        np.testing.assert_allclose(d_w.get(), expected, rtol=1e-5)
