"""Tiles of a large grid: when a warp does several blocks and warps at once, and what comes out."""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from run_text import EmulationError, run_emitted

import kernelgrad as kg
from contraction import CONTRACTION
from derived import kernel_of
from kernelgrad.analysis.tuning import tuning_for
from kernelgrad.explain.report import _explained
from kernelgrad.schedule.coarsen import block_tiles, unroll_and_jam

EMULATED = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
BY_PAIRS = "for (unsigned int pair ="  # the way through a tile that a warp could not do at once


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Grids of 16 blocks count as large."""
    monkeypatch.setattr(block_tiles, "FILLING_BLOCKS", 16)
    monkeypatch.setattr(unroll_and_jam, "FILLING_BLOCKS", 16)


def source(text: str, block: int = 64, **options: Any) -> str:
    """As a launch with such blocks gets it."""
    settings = {"primal": False, "keep": "c", **options}
    gradient = kg.gradient(kernel_of(text), "c, a, b", **settings)
    return gradient.variant(facts=replace(gradient.usual, tuning=tuning_for((block, 1, 1)))).source(0)


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
}


@EMULATED
@pytest.mark.parametrize("name", SHAPES)
def test_values(name: str) -> None:
    shape, at_once = SHAPES[name]
    text = source(CONTRACTION, shape[-1])
    assert text.count(BY_PAIRS) == 1
    run(text, *shape)
    trapped = text.replace(BY_PAIRS, f"__trap(); {BY_PAIRS}")
    if at_once:
        run(trapped, *shape)
    else:
        with pytest.raises(EmulationError):
            run(trapped, *shape)


# Other loops, for 16 rows of 64 columns and blocks of a row.
LOOPS = {
    "a_row_is_a_block": CONTRACTION.replace("a[row * inner", "a[blockIdx.x * inner"),
    "steps": CONTRACTION.replace("++m", "m += 3"),
    "downwards": CONTRACTION.replace("int m = 0; m < inner; ++m", "int m = (int)inner - 1; m >= 0; --m"),
    "long_counter": CONTRACTION.replace("int m = 0", "unsigned long long m = 0"),
    "branch": CONTRACTION.replace("sum += a", "if (b[m * columns + column] > 0.5) sum += a"),
    "more_sums": CONTRACTION.replace(
        "+ column];", "+ column] + a[row * inner + (inner - 1 - m)] * b[(inner - 1 - m) * columns + column];"
    ),
    "not_linear": CONTRACTION.replace("sum += a", "sum += sin(a[row * inner + m]) * a"),
    "floats": CONTRACTION.replace("double", "float"),
}


@EMULATED
@pytest.mark.parametrize("name", LOOPS)
def test_other_loops(name: str) -> None:
    kernel = kernel_of(LOOPS[name])
    text = source(LOOPS[name])
    assert BY_PAIRS in text
    rows, inner, columns, real = 16, 10, 64, np.float32 if name == "floats" else np.float64
    rng = np.random.default_rng(3)
    a, b, seed = (rng.random(shape).astype(real) for shape in ((rows, inner), (inner, columns), (rows, columns)))
    c, sizes = np.zeros_like(seed), np.array([rows, inner, columns], "u8")
    found, expected = ([np.ones_like(a), np.ones_like(b)] for _ in range(2))
    kg.gradient(kernel, "c, a, b", primal=False, keep="c")[rows, columns](c, a, b, sizes, seed, *expected)
    trapped = text.replace(BY_PAIRS, f"__trap(); {BY_PAIRS}")
    run_emitted(trapped, "k_grad", rows, columns, [c, a, b, sizes, seed, *found])
    for got, right in zip(found, expected, strict=True):
        np.testing.assert_allclose(got, right, rtol=1e-5 if name == "floats" else 1e-12)


# Each with something that stands in the way.
OTHERS = {
    "a column for each lane": CONTRACTION.replace("row * inner + m", "at * inner + m"),
    "an address for all": CONTRACTION.replace("+ column]", "]"),
    "carried": CONTRACTION.replace("sum += a", "sum = 0.5 * sum + a"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_not_chosen(name: str) -> None:
    assert BY_PAIRS not in source(OTHERS[name])


@pytest.mark.parametrize("block", [32, 48, 96, 1024])
def test_other_blocks(block: int) -> None:
    """Of an odd number of warps, or so large that there are not enough registers: which the compiler is told."""
    text = source(CONTRACTION, block)
    assert BY_PAIRS in source(CONTRACTION) and BY_PAIRS not in text
    assert ("__launch_bounds__(1024)" in text) == (block == 1024)
    assert "__launch_bounds__(1024, 1)" in source(CONTRACTION.replace("double", "float"), 1024)


def test_copies_of_small_adjoints() -> None:
    """The blocks of a tile have the same copy."""
    gradient = kg.gradient(kernel_of(CONTRACTION), "c, a, b", primal=False, keep="c")
    facts = replace(gradient.usual, copied=frozenset("b"), tuning=tuning_for((64, 1, 1)))
    text = gradient.variant(facts=facts).source(0)
    assert "_copies_d_b" in text and BY_PAIRS in text


def test_explained() -> None:
    gradient = kg.gradient(kernel_of(CONTRACTION), "c, a, b", primal=False, keep="c")
    shaped = gradient.variant(facts=replace(gradient.usual, tuning=tuning_for((64, 1, 1))))
    assert "two warps in eight neighbouring blocks" in _explained(shaped)
    assert "two warps in eight neighbouring blocks" not in gradient.explain()


def test_compiles() -> None:
    pytest.importorskip("cuda.core")
    from kernelgrad.runtime.cuda import compile_only

    assert compile_only(source(CONTRACTION.replace("double", "float"), 256), "sm_90")
