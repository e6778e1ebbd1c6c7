"""Tiles of a large grid: when a warp does several blocks and warps at once, and what comes out."""

from __future__ import annotations

import shutil
from typing import Any

import numpy as np
import pytest
from run_text import EmulationError, run_emitted

import kernelgrad as kg
from kernelgrad.transforms import block_tiles, jam

EMULATED = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
BY_PAIRS = "for (unsigned int pair ="  # the way through a tile that a warp could not do at once

CONTRACTION = """__global__ void k(double *c, const double *a, const double *b, const unsigned long long *sizes) {
    unsigned long long at = blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x;
    unsigned long long inner = sizes[1], columns = sizes[2];
    if (at >= sizes[0] * columns) return;
    unsigned long long row = at / columns, column = at % columns;
    double sum = 0;
    for (int m = 0; m < inner; ++m) sum += a[row * inner + m] * b[m * columns + column];
    c[at] = sum;
}"""


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Grids of 16 blocks count as large."""
    monkeypatch.setattr(block_tiles, "_MANY", 16)
    monkeypatch.setattr(jam, "_MANY", 16)


def source(text: str, **options: Any) -> str:
    settings = {"primal": False, "keep": "c", **options}
    return kg.gradient(kg.compile(text)["k"], "c, a, b", **settings).source


def run(text: str, rows: int, inner: int, columns: int, block: int) -> None:
    rng = np.random.default_rng(1)
    a, b, seed = rng.random((rows, inner)), rng.random((inner, columns)), rng.standard_normal((rows, columns))
    d_a, d_b, sizes = np.ones((rows, inner)), np.ones((inner, columns)), np.array([rows, inner, columns], "u8")
    grid = -(-rows * columns // block)
    run_emitted(text, "k_grad", grid, block, [np.zeros_like(seed), a, b, sizes, seed, d_a, d_b])
    np.testing.assert_allclose(d_a, 1 + seed @ b.T, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(d_b, 1 + a.T @ seed, rtol=1e-12, atol=1e-12)


# rows, inner, columns, block; whether every warp does a tile
SHAPES = {
    "rows_are_blocks": ((16, 6, 64, 64), True),
    "more_warps": ((16, 5, 128, 128), True),
    "three_pairs_of_warps": ((16, 3, 192, 192), True),
    "two_rows_a_block": ((64, 2, 64, 128), True),
    "no_iterations": ((16, 0, 64, 64), False),
    "rows_are_single_warps": ((32, 4, 32, 64), False),
    "rows_are_half_warps": ((64, 8, 16, 64), False),
    "rows_go_across_blocks": ((8, 4, 128, 64), False),
    "blocks_left_over": ((17, 4, 64, 64), False),
    "few_blocks": ((8, 4, 64, 64), False),
    "guarded_off": ((31, 4, 32, 64), False),
    "odd_warps": ((16, 4, 96, 96), False),
    "warps_that_are_not_whole": ((16, 4, 48, 48), False),
}


@EMULATED
@pytest.mark.parametrize("name", SHAPES)
def test_values(name: str) -> None:
    shape, at_once = SHAPES[name]
    text = source(CONTRACTION)
    assert text.count(BY_PAIRS) == 1
    run(text, *shape)
    trapped = text.replace(BY_PAIRS, f"__trap(); {BY_PAIRS}")
    if at_once:
        run(trapped, *shape)
    else:
        with pytest.raises(EmulationError):
            run(trapped, *shape)


# Each with something that stands in the way.
OTHERS = {
    "a column for each lane": CONTRACTION.replace("row * inner + m", "at * inner + m"),
    "an address for all": CONTRACTION.replace("+ column]", "]"),
    "carried": CONTRACTION.replace("sum += a", "sum = 0.5 * sum + a"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_not_chosen(name: str) -> None:
    assert BY_PAIRS not in source(OTHERS[name])
