"""Rows that blocks take in turns, loops that may break off, and sums of one iteration, on a GPU against the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
import meeting_turn_cases as turns
import turn_bound_cases as bounds
from every_plan import forced
from packed_sum_cases import MANY, many

cupy = pytest.importorskip("cupy")


def compare(kernel: Any, listed: str, launch: Any, host: list[Any], plan: str, **options: Any) -> None:
    """All arrays, with the CPU as it launches."""
    device = [cupy.asarray(a) if isinstance(a, np.ndarray) else a for a in host]
    kg.gradient(kernel, listed, **options)[launch](*host)
    with forced(plan):
        kg.gradient(kernel, listed, **options)[launch](*device)
    tolerance = 2e-4 if any(isinstance(a, np.ndarray) and a.dtype == np.float32 for a in host) else 1e-9
    for want, got in zip(host, device, strict=True):
        if isinstance(want, np.ndarray):
            np.testing.assert_allclose(got.get(), want, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("options", [{}, {"primal": False, "keep": "y", "assign": "x, g"}], ids=["J", "R"])
@pytest.mark.parametrize("name", {**turns.SPREAD, **turns.STAYING})
def test_rows_in_turns(name: str, options: dict[str, Any]) -> None:
    kernel = turns.compiled({**turns.SPREAD, **turns.STAYING}[name])
    if "assign" in options and name in turns.STAYING:
        options = {"primal": False}
    for rows, n in turns.SHAPES:
        rng = np.random.default_rng(n)
        sizes = (rows * n, rows * n, n)
        y, x, g, d_y, d_x, d_g = (rng.uniform(-1, 1, size) for size in (*sizes, *sizes))
        try:
            compare(
                kernel,
                "y, x, g",
                (turns.BLOCKS, turns.BLOCK),
                [y, x, g, rows, n, d_y, d_x, d_g],
                "as launched",
                **options,
            )
        except kg.UnsupportedError:
            assert name in turns.STAYING and options


@pytest.mark.parametrize("plan", ["as launched", "a large tape"])
@pytest.mark.parametrize("name", {**bounds.SIMILAR, **bounds.BOUNDED, **bounds.COUNTED})
def test_room_on_the_tape(name: str, plan: str) -> None:
    kernel = bounds.compiled({**bounds.SIMILAR, **bounds.BOUNDED, **bounds.COUNTED}[name])
    threads, rng = bounds.GRID * bounds.BLOCK, np.random.default_rng(3)
    for n in (0, 1, 33, 97):
        x, d_y = rng.uniform(0.5, 1.5, 7), rng.uniform(-1, 1, threads)
        host = [np.zeros(threads), np.zeros(threads, np.int32), x, n, d_y, np.zeros(7)]
        compare(kernel, "y, x", (bounds.GRID, bounds.BLOCK), host, plan)


@pytest.mark.parametrize("launch", [(2, 32), (1, 40), (1, 64)], ids=str)
@pytest.mark.parametrize("element", ["float", "double"])
@pytest.mark.parametrize("name", MANY)
def test_sums_of_one_iteration(name: str, element: str, launch: tuple[int, int]) -> None:
    rng, type = np.random.default_rng(5), np.float32 if element == "float" else np.float64
    y, x, w, d_y, d_x, d_w = (rng.uniform(0.2, 1, 128).astype(type) for _ in range(6))
    host = [y, x, w, rng.integers(3, 20, 64).astype(np.int32), d_y, d_x, d_w]
    for plan in ("as launched", "in cells of blocks"):
        compare(many(name, element), "y, x, w", launch, [a.copy() for a in host], plan)
