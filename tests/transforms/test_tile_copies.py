"""Tiles that are copies are found, and gradients of kernels that read memory itself are those of the kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from every_plan import forced
from halo_kernels import Halo, halo
from kernelgrad.explain.counted import counts
from kernelgrad.runtime.config import make_launch
from kernelgrad.transforms import tile_copies
from plan_halos import SIDE, Tile, planes
from plan_tiles import PRODUCTS
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
    for found, wanted in zip(launched(case, "without copies", True), launched(case, "one kernel", True), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=case.tolerance, atol=case.tolerance)


@pytest.mark.parametrize("name", COPIES)
def test_values_of_the_reverse_alone(name: str) -> None:
    case = COPIES[name]
    (found,), (wanted,) = launched(case, "without copies", False), launched(case, "one kernel", True)[-1:]
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


@pytest.mark.parametrize("seed", [pytest.param(s, marks=() if s < 12 else pytest.mark.slow) for s in range(240)])
def test_random_halos(seed: int) -> None:
    made = halo(seed)
    tolerance = 1e-5 if made.value == "float" else 1e-11
    for primal in (True, False):
        found = halo_gradient(made, True, "without copies", primal)
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
    for plan in ("without copies", "one kernel"):
        with forced(plan):
            gradient = kg.gradient(kg.compile(source)["k"], primal=False)
            found = [_of_length(gradient, n) for n in (96, 70, 33, 95)]
        if plan == "without copies":
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
    with forced("without copies"):
        gradient = kg.gradient(kg.compile(case.source)["k"], may_alias=True)
        random = np.random.default_rng(5)
        y, z, x, d_y, d_z, d_x = (random.standard_normal(SIZE) for _ in range(6))
        gradient[BLOCKS, 32](y, z, x, np.zeros(SIZE, np.int32), N, d_y, d_z, d_x)
    wanted = launched(case, "one kernel", True)
    np.testing.assert_allclose(d_x, wanted[-1], rtol=1e-11)


# ---- which plan a launch gets


def planned(tile: Any, primal: bool) -> Any:
    kernel: Any = kg.compile(tile.text)["k"]
    names = [p.name for p in kernel.function.params]
    inputs = names[1 : len(tile.sizes)]
    options = {} if primal else {"primal": False, "keep": names[0]}
    gradient = kg.gradient(kernel, [names[0], *inputs], assign=inputs, **options)
    args = (*(np.empty(size, np.float32) for size in tile.sizes), *tile.numbers)
    return gradient.planned(make_launch(tile.grid, tile.block, tile.shared), args, {}, on_gpu=True)


def test_the_kernel_keeps_its_tile() -> None:
    """Value and gradient: the gather goes first, then the kernel as it is, which zeroes the adjoint of its output."""
    tile = planes("plain", weights=False)["strided loops"]
    side = 4096
    large = tile._replace(grid=(side // 32, side // 16), sizes=(side * side,) * 2, numbers=(side,))
    plan = planned(large, primal=True).plan
    gathering, forward = plan.steps
    assert (gathering.role, forward.role) == ("gather", "forward")
    assert "__shared__" in forward.kernel.source and "__shared__" not in gathering.kernel.source
    assert "__syncthreads" not in gathering.kernel.source and "atomicAdd" not in gathering.kernel.source


def test_small_launches_do_both_at_once() -> None:
    tile = planes("plain", weights=False)["strided loops"]
    assert len(planned(tile, primal=True).plan.steps) == 1


def test_what_is_not_gathered_keeps_its_tile() -> None:
    """Without a gather, every read would be an atomic addition to memory, where a block adds up in its tile first."""
    text = """
    __global__ void k(float *y, const float *x, const float *w, int n) {
        __shared__ float s[16][16];
        int tx = threadIdx.x, ty = threadIdx.y, gx = (int)blockIdx.x * 12 + tx - 2, gy = (int)blockIdx.y * 12 + ty - 2;
        s[ty][tx] = gx >= 0 && gx < n && gy >= 0 && gy < n ? x[gy * n + gx] : 0.0f;
        __syncthreads();
        if (tx < 2 || tx >= 14 || ty < 2 || ty >= 14 || gx >= n || gy >= n) return;
        float a = 0;
        for (int p = 0; p < 5; ++p)
            for (int q = 0; q < 5; ++q) a += w[p * 5 + q] * s[ty + p - 2][tx + q - 2];
        y[gy * n + gx] = a;
    }"""
    tile = Tile(text, (22, 22), (16, 16), (SIDE * SIDE, SIDE * SIDE, 25), (SIDE,))
    assert is_copy(kg.compile(text)["k"], (16, 16))
    plan = planned(tile, primal=False).plan
    assert "__shared__" in plan.steps[-1].kernel.source
    assert counts(planned(tile, primal=False)).atomics < 5 * SIDE * SIDE


@pytest.mark.parametrize(
    "place", [("threadIdx.x", "threadIdx.y", (32, 8)), ("threadIdx.x % 32", "threadIdx.x / 32", (256,))]
)
def test_what_is_transposed_keeps_its_tile(place: tuple[str, str, Any]) -> None:
    """Without it, neighbouring threads would read what lies far apart."""
    text = f"""
    __global__ void k(float *y, const float *x, int n) {{
        __shared__ float s[8][33];
        int tx = {place[0]}, ty = {place[1]};
        s[ty][tx] = x[(blockIdx.y * 8 + ty) * n + blockIdx.x * 32 + tx];
        __syncthreads();
        int across = threadIdx.x % 8, along = (threadIdx.x + threadIdx.y * 32) / 8 % 32;
        y[(blockIdx.x * 32 + along) * n + blockIdx.y * 8 + across] = s[across][along] + 0.5f * s[7 - across][along];
    }}"""
    tile = Tile(text, (SIDE // 32, SIDE // 8), place[2], (SIDE * SIDE,) * 2, (SIDE,))
    assert is_copy(kg.compile(text)["k"], place[2])
    plan = planned(tile, primal=False).plan
    assert "__shared__" in plan.steps[-1].kernel.source


@pytest.mark.parametrize("name", list(PRODUCTS))
def test_products_keep_their_tiles(name: str) -> None:
    made = PRODUCTS[name]
    assert not is_copy(kg.compile(made.text)["k"], made.block)


def test_explained() -> None:
    tile = planes("plain", weights=False)["strided loops"]
    kernel: Any = kg.compile(tile.text)["k"]
    y, x = (np.zeros(size, np.float32) for size in tile.sizes)
    line = "shared memory: 's' holds copies: the reverse reads what they are of"
    with forced("without copies"):
        gradient = kg.gradient(kernel, primal=False, keep="y")
        assert line in gradient.explain(tile.grid, tile.block, y, x, *tile.numbers).splitlines()
    assert line not in kg.gradient(kernel).explain(tile.grid, tile.block, y, x, *tile.numbers).splitlines()
