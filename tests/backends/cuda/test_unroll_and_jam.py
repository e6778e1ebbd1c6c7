"""Eight neighbouring blocks of a large grid in one: when, and what comes out (Note [Jam])."""

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
from kernelgrad.schedule.coarsen import unroll_and_jam

EMULATED = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
ONE_BY_ONE = "for (unsigned int block ="  # the loop over blocks that a thread could not do at once


def source(text: str, **options: Any) -> str:
    settings = {"primal": False, "keep": "c", **options}
    return kg.gradient(kernel_of(text), "c, a, b", **settings).source


def run(text: str, rows: int, inner: int, columns: int, block: int) -> None:
    rng = np.random.default_rng(1)
    a, b, seed = rng.random((rows, inner)), rng.random((inner, columns)), rng.standard_normal((rows, columns))
    d_a, d_b, sizes = np.ones((rows, inner)), np.ones((inner, columns)), np.array([rows, inner, columns], "u8")
    grid = -(-rows * columns // block)
    run_emitted(text, "k_grad", grid, block, [np.zeros_like(seed), a, b, sizes, seed, d_a, d_b])
    np.testing.assert_allclose(d_a, 1 + seed @ b.T, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(d_b, 1 + a.T @ seed, rtol=1e-12, atol=1e-12)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Grids of 16 blocks count as large."""
    monkeypatch.setattr(unroll_and_jam, "FILLING_BLOCKS", 16)


# rows, inner, columns, block; whether every thread can do its eight blocks at once
SHAPES = {
    "rows_are_blocks": ((16, 16, 64, 64), True),
    "rows_are_half_warps": ((64, 8, 16, 32), True),
    "rows_are_eight_lanes": ((128, 8, 8, 64), True),
    "iterations_left_over": ((16, 13, 32, 32), False),
    "blocks_left_over": ((19, 8, 32, 32), False),
    "few_blocks": ((8, 8, 32, 32), False),
    "guarded_off": ((33, 8, 16, 32), False),
    "other_columns_per_block": ((20, 16, 40, 32), False),
    "warps_that_are_not_whole": ((16, 8, 48, 48), False),
    "more_rows_than_lanes_share": ((64, 8, 8, 36), False),
}


@EMULATED
@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("name", SHAPES)
def test_values(name: str) -> None:
    shape, at_once = SHAPES[name]
    text = source(CONTRACTION)
    assert text.count(ONE_BY_ONE) == 1
    run(text, *shape)
    if at_once:
        run(text.replace(ONE_BY_ONE, f"__trap(); {ONE_BY_ONE}"), *shape)
    else:
        with pytest.raises(EmulationError):
            run(text.replace(ONE_BY_ONE, f"__trap(); {ONE_BY_ONE}"), *shape)


ROWS = """__global__ void k(double *c, const double *a, const double *b, const int *idx, int inner, int columns) {
    int column = idx[threadIdx.x];
    double sum = 0;
    for (int m = 0; m < inner; ++m)
        if (b[m * columns + column] > 0.5) sum += a[blockIdx.x * inner + m] * b[m * columns + column];
    atomicAdd(&c[threadIdx.x], sum);
}"""


@EMULATED
@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("rows", [16, 17])
def test_the_block_is_asked_for_in_the_loop(rows: int) -> None:
    text, (inner, columns) = source(ROWS, keep=()), (16, 64)
    assert ONE_BY_ONE in text
    rng = np.random.default_rng(2)
    a, b, seed = rng.random((rows, inner)), rng.random((inner, columns)), rng.standard_normal(columns)
    d_a, d_b, idx = np.zeros_like(a), np.zeros_like(b), np.arange(columns, dtype=np.int32)
    arguments = [np.zeros(columns), a, b, idx, np.int32(inner), np.int32(columns), seed, d_a, d_b]
    run_emitted(text, "k_grad", rows, columns, arguments)
    taken, seeds = b > 0.5, np.broadcast_to(seed, (rows, columns))
    np.testing.assert_allclose(d_a, seeds @ (b * taken).T, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(d_b, a.T @ seeds * taken, rtol=1e-12, atol=1e-12)


@EMULATED
@pytest.mark.usefixtures("small")
def test_loops_without_iterations_read_nothing() -> None:
    """The address that the lanes would compare is loaded in the loop."""
    text = source(ROWS.replace("int column = idx[threadIdx.x];", "").replace("column]", "idx[threadIdx.x]]"), keep=())
    assert ONE_BY_ONE in text
    nothing, seed = np.uint64(0), np.ones(64)
    arguments = [np.zeros(64), nothing, nothing, nothing, np.int32(0), np.int32(64), seed, nothing, nothing]
    run_emitted(text, "k_grad", 16, 64, arguments)


def test_copies_of_small_adjoints() -> None:
    """Neighbouring blocks have the same copy."""
    gradient = kg.gradient(kernel_of(CONTRACTION), "c, a, b", primal=False, keep="c")
    variant = gradient.variant(facts=replace(gradient.usual, copied=frozenset("b")))
    assert "_copies_d_b" in variant.source(0) and ONE_BY_ONE in variant.source(0)


# Shaped like the first, but each with something that stands in the way.
OTHERS = {
    "carried": CONTRACTION.replace("sum += a", "sum = 0.5 * sum + a"),
    "all_addresses_move": CONTRACTION.replace("at % columns", "(at - row * columns)"),
    "shared_memory": CONTRACTION.replace(
        "double sum = 0;", "__shared__ double s[64]; s[threadIdx.x] = 1; double sum = s[threadIdx.x] * b[column];"
    ),
    "two_loops": CONTRACTION.replace("c[at] =", "for (int m = 0; m < inner; ++m) sum += b[m]; c[at] ="),
}


@pytest.mark.parametrize("name", OTHERS)
def test_not_chosen(name: str) -> None:
    assert ONE_BY_ONE not in source(OTHERS[name])


def test_not_where_the_kernel_runs_too() -> None:
    assert ONE_BY_ONE not in source(CONTRACTION, primal=True, keep=())


def test_not_where_the_order_is_fixed() -> None:
    assert ONE_BY_ONE not in source(CONTRACTION, deterministic=True)


def test_explained() -> None:
    kernel = kernel_of(CONTRACTION)
    assert "two neighbouring blocks" in kg.gradient(kernel, "c, a, b", primal=False, keep="c").explain()
    assert "two neighbouring blocks" not in kg.gradient(kernel, "c, a, b").explain()


def test_compiles() -> None:
    pytest.importorskip("cuda.core")
    from kernelgrad.runtime.cuda import compile_only

    assert compile_only(source(CONTRACTION), "sm_90")
