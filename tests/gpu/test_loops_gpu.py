"""Loops on a GPU: registers that hold copies, loads of several turns, places that stay, lengths that launches tell."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from derived import kernel_of
from every_plan import forced
from loop_cases import BATCHED, BATCHED_HEAD, SHORT, SHORT_HEAD, SLOW, SLOW_HEAD
from rolled_cases import CASES as ROLLED

cupy = pytest.importorskip("cupy")


def compare(kernel: Any, listed: str, launch: Any, host: list[Any], count: int, plan: str, **options: Any) -> None:
    """With the CPU as it launches. `count`: of the adjoints, which come last."""
    device = [cupy.asarray(a) if isinstance(a, np.ndarray) else a for a in host]
    kg.gradient(kernel, listed, **options)[launch](*host)
    with forced(plan):
        kg.gradient(kernel, listed, **options)[launch](*device)
    tolerance = 1e-10 if host[-1].dtype == np.float64 else 2e-5
    for want, got in zip(host[-count:], device[-count:], strict=True):
        np.testing.assert_allclose(got.get(), want, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", ROLLED)
def test_registers_that_hold_copies(name: str) -> None:
    case, rng = ROLLED[name], np.random.default_rng(4)
    given = case.arguments()
    host = [*given, *rng.uniform(-1, 1, (3, given[0].size))]
    try:
        compare(kernel_of(case.source), "y, x, z", case.launch, host, 3, "without copies", primal=False)
    except kg.UnsupportedError:
        assert name == "written"


@pytest.mark.parametrize("name", BATCHED)
def test_loads_of_several_turns(name: str) -> None:
    rng, n, c = np.random.default_rng(2), 1000, 64
    arrays = [rng.uniform(-1, 1, size).astype(np.float32) for size in (n, n, c)]
    adjoints = [rng.uniform(-1, 1, size).astype(np.float32) for size in (n, n, c)]
    host = [*arrays, rng.permutation(n).astype(np.int32), n, c, *adjoints]
    kernel = kernel_of(f"{BATCHED_HEAD} {{ {BATCHED[name]} }}")
    compare(kernel, "y, x, w", (2, 64), host, 3, "as launched", primal=False)


@pytest.mark.parametrize("numbers", [(96, 8, 4), (100, 7, 3), (65, 32, 5), (64, 100, 2)])
@pytest.mark.parametrize("name", SLOW)
def test_places_that_stay(name: str, numbers: tuple[int, int, int]) -> None:
    rng = np.random.default_rng(1)
    sizes = (3 * numbers[0], 3 * numbers[0], 4 * numbers[0], 4 * numbers[0])
    host = [*(rng.uniform(0.5, 1.5, s) for s in sizes), *numbers, *(rng.uniform(-1, 1, s) for s in sizes)]
    kernel = kernel_of(f"{SLOW_HEAD} {{ {SLOW[name]} }}")
    compare(kernel, "y, x, w, v", (3, 96), host, 4, "in cells of blocks", primal=False)


@pytest.mark.parametrize("name", SHORT)
def test_lengths_that_launches_tell(name: str) -> None:
    rng, sizes = np.random.default_rng(1), (64, 2048, 256)
    kernel = kernel_of(f"{SHORT_HEAD} {{ {SHORT[name]} }}")
    for numbers in ((3, 3, 1), (5, 2, 2), (0, 3, 1), (1, 1, 1), (9, 3, 2)):
        host = [*(rng.uniform(0.5, 1.5, s) for s in sizes), 64, *numbers, *(rng.uniform(-1, 1, s) for s in sizes)]
        compare(kernel, "y, x, w", (2, 32), host, 3, "as launched", primal=False)


@pytest.mark.parametrize("lanes", [18, 31, 33, 64])
def test_lanes_in_a_branch_that_share_an_address(lanes: int) -> None:
    kernel = kg.compile("""__global__ void k(float *y, const float *x, const float *w, int from, int n) {
        int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
        if (t >= from && t < n && t % 5 != 2) y[i] = x[i] * w[0];
    }""")["k"]
    rng = np.random.default_rng(1)
    for start in (0, 1, 7):
        host = [*(rng.uniform(-1, 1, s).astype(np.float32) for s in (192, 192, 1)), start, lanes]
        host += [rng.uniform(-1, 1, s).astype(np.float32) for s in (192, 192, 1)]
        compare(kernel, "y, x, w", (3, 64), host, 3, "as launched", primal=False)
