"""`deterministic=True` on a GPU: bitwise the same from run to run, and what the CPU gives to rounding."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from deterministic_cases import CASES, Case

cupy = pytest.importorskip("cupy")
_RUNS = 5


def on_device(values: Any) -> list[Any]:
    """Arrays of floats and integers; CuPy has none of records."""
    return [cupy.asarray(v) if isinstance(v, np.ndarray) and v.dtype.names is None and v.ndim else v for v in values]


def adjoints_after(case: Case, n: int, gradient: Any, gpu: bool) -> list[Any]:
    args = case.arguments(n)
    given = case.adjoints(args)
    if gpu:
        args, given = tuple(on_device(args)), on_device(given)
    gradient[case.grid(n), case.block](*args, *given)
    return [a.get() if gpu else a for a in given]


ARRAYS = [name for name in CASES if name != "struct_by_value"]


@pytest.mark.parametrize("n", [700, 100_000])
@pytest.mark.parametrize("name", ARRAYS)
def test_the_same_from_run_to_run(name: str, n: int) -> None:
    case = CASES[name]
    gradient = case.gradient(deterministic=True)
    first = adjoints_after(case, n, gradient, gpu=True)
    kept = []
    for _ in range(_RUNS - 1):
        kept.append(cupy.empty(1000))  # so that buffers lie elsewhere
        for a, b in zip(first, adjoints_after(case, n, gradient, gpu=True), strict=True):
            np.testing.assert_array_equal(a.view(np.uint8), b.view(np.uint8))


@pytest.mark.parametrize("name", ARRAYS)
def test_what_the_cpu_gives(name: str) -> None:
    case, n = CASES[name], 5000
    gradient = case.gradient(deterministic=True)
    want, got = (adjoints_after(case, n, gradient, gpu) for gpu in (False, True))
    for a, b in zip(want, got, strict=True):
        np.testing.assert_allclose(b, a, rtol=2e-4, atol=1e-5 * np.abs(a).max())


@pytest.mark.parametrize("name", ["gather", "rows_of_a_sparse_matrix", "tiled_product"])
def test_split(name: str) -> None:
    case, n = CASES[name], 5000
    want = adjoints_after(case, n, case.gradient(deterministic=True), gpu=True)
    forward, reverse = kg.split(case.compiled(), case.listed, deterministic=True)
    args = case.arguments(n)
    given = on_device(case.adjoints(args))
    device = on_device(args)
    tape = forward[case.grid(n), case.block](*device)
    reverse[case.grid(n), case.block](tape, *device, *given)
    for a, b in zip(want, given, strict=True):
        np.testing.assert_allclose(b.get(), a, rtol=1e-5, atol=1e-5 * np.abs(a).max())


def test_a_long_log_is_sorted() -> None:
    """More than one tile and more than one digit, with slots that stay empty."""
    kernel = kg.compile(
        """__global__ void k(float *y, const float *x, const int *at, int n) {
            int i = blockIdx.x * blockDim.x + threadIdx.x;
            if (i < n && at[i] % 3) y[i] = x[at[i]];
        }"""
    )["k"]
    n = 1_000_003
    at = np.random.default_rng(8).integers(0, 70_000, n).astype(np.int32)
    y, x, d_y, d_x = (cupy.zeros(n, "f4"), cupy.zeros(70_000, "f4"), cupy.ones(n, "f4"), cupy.zeros(70_000, "f4"))
    kg.gradient(kernel, "y, x", deterministic=True)[-(-n // 256), 256](y, x, cupy.asarray(at), n, d_y, d_x)
    want = np.bincount(at, minlength=70_000) * (np.arange(70_000) % 3 != 0)
    np.testing.assert_array_equal(d_x.get(), want)
