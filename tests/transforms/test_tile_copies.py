"""Tiles that are copies are found, and gradients of kernels that read memory itself are those of the kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from every_plan import forced
from halo_kernels import Halo, halo
from kernelgrad.runtime.config import make_launch
from kernelgrad.transforms import tile_copies
from tile_copy_cases import CASES, COPIES, Case

SIZE, N, BLOCKS = 400, 70, 3


def is_copy(kernel: Any, block: Any) -> bool:
    return tile_copies.run(kernel.function, kernel.module, make_launch(1, block).block) is not None


@pytest.mark.parametrize("name", CASES)
def test_found(name: str) -> None:
    case = CASES[name]
    assert is_copy(kg.compile(case.source)["k"], case.block) == (name in COPIES)


def launched(case: Case, plan: str, primal: bool) -> list[Any]:
    random = np.random.default_rng(5)
    y, z, x, d_y, d_z, d_x = (random.standard_normal(SIZE) for _ in range(6))
    numbers = random.permutation(SIZE).astype(np.int32)
    launch = (BLOCKS, case.block, case.shared) if case.shared else (BLOCKS, case.block)
    with forced(plan):
        gradient = kg.gradient(kg.compile(case.source)["k"], primal=primal)
        gradient[launch](y, z, x, numbers, N, d_y, d_z, d_x)
    return [y, z, d_y, d_z, d_x] if primal else [d_x]


@pytest.mark.parametrize("name", CASES)
def test_values(name: str) -> None:
    case = CASES[name]
    for found, wanted in zip(launched(case, "without tiles", True), launched(case, "one kernel", True), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=case.tolerance, atol=case.tolerance)


@pytest.mark.parametrize("name", COPIES)
def test_values_of_the_reverse_alone(name: str) -> None:
    case = COPIES[name]
    (found,), (wanted,) = launched(case, "without tiles", False), launched(case, "one kernel", True)[-1:]
    np.testing.assert_allclose(found, wanted, rtol=case.tolerance, atol=case.tolerance)


# ---- random halos


def halo_gradient(made: Halo, tiled: bool, plan: str, primal: bool) -> list[Any]:
    random, size = np.random.default_rng(3), made.n**made.dims
    y, x, d_y, d_x = (random.standard_normal(size) for _ in range(4))
    shared = made.shared_bytes if tiled else 0
    with forced(plan):
        gradient = kg.gradient(kg.compile(made.kernel(tiled))["k"], primal=primal)
        gradient[(made.grid, made.block, shared) if shared else (made.grid, made.block)](y, x, made.n, d_y, d_x)
    return [y, d_y, d_x] if primal else [d_x]


@pytest.mark.parametrize("seed", [pytest.param(s, marks=() if s < 24 else pytest.mark.slow) for s in range(240)])
def test_random_halos(seed: int) -> None:
    made = halo(seed)
    tolerance = 1e-5 if made.value == "float" else 1e-11
    for primal in (True, False):
        found = halo_gradient(made, True, "without tiles", primal)
        wanted = halo_gradient(made, False, "as launched", primal)
        for one, other in zip(found, wanted, strict=True):
            np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)


def test_many_of_them_are_copies() -> None:
    made = [halo(seed) for seed in range(24)]
    found = [is_copy(kg.compile(one.kernel(True))["k"], one.block) for one in made]
    assert sum(found) >= 8 and not all(found)


# ---- launches


def test_launches_that_differ_in_a_number_alone() -> None:
    """What is found for one size of a problem does not serve another, of as many blocks."""
    source = COPIES["zero outside"].source
    for plan in ("without tiles", "one kernel"):
        with forced(plan):
            gradient = kg.gradient(kg.compile(source)["k"], primal=False)
            found = [_of_length(gradient, n) for n in (96, 70, 33, 95)]
        if plan == "without tiles":
            direct = found
    for one, other in zip(direct, found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-11, atol=1e-11)


def _of_length(gradient: Any, n: int) -> Any:
    random = np.random.default_rng(5)
    y, z, x, d_y, d_z = (random.standard_normal(SIZE) for _ in range(5))
    d_x = np.zeros(SIZE)
    gradient[BLOCKS, 32](y, z, x, np.zeros(SIZE, np.int32), n, d_y, d_z, d_x)
    return d_x


def test_memory_that_may_be_the_same() -> None:
    """A kernel in place, whose blocks write what others read: without tiles only if that is ruled out."""
    case = COPIES["a cell a thread"]
    with forced("without tiles"):
        gradient = kg.gradient(kg.compile(case.source)["k"], may_alias=True)
        random = np.random.default_rng(5)
        y, z, x, d_y, d_z, d_x = (random.standard_normal(SIZE) for _ in range(6))
        gradient[BLOCKS, 32](y, z, x, np.zeros(SIZE, np.int32), N, d_y, d_z, d_x)
    wanted = launched(case, "one kernel", True)
    np.testing.assert_allclose(d_x, wanted[-1], rtol=1e-11)
