"""Loops whose decisions are bits, loops inside of loops, and updates in branches, on a GPU."""

from __future__ import annotations

import numpy as np
import pytest

import kernelgrad as kg
from bit_cases import BODIES, SPELLINGS, nested, sorting

cupy = pytest.importorskip("cupy")


@pytest.mark.parametrize(
    "options", [{}, {"primal": False, "keep": "y", "assign": "x"}, {"deterministic": True}], ids=str
)
@pytest.mark.parametrize("threads", [1, 16, 128, 1024])
@pytest.mark.parametrize("spelling", SPELLINGS, ids=lambda s: s[0])
def test_sorting_networks(spelling: tuple[str, str, str], threads: int, options: dict) -> None:
    x = np.random.default_rng(0).permutation(2.0 * np.arange(2 * threads))
    d_y = np.random.default_rng(1).random(2 * threads)
    expected = np.empty_like(d_y)
    expected[np.argsort(x)] = d_y
    d_x = cupy.full(2 * threads, 7.0) if "assign" in options else cupy.zeros(2 * threads)
    y = cupy.zeros(2 * threads)
    kg.gradient(sorting(threads, spelling), "y, x", **options)[1, threads](y, cupy.asarray(x), cupy.asarray(d_y), d_x)
    np.testing.assert_array_equal(d_x.get(), expected)


@pytest.mark.parametrize("options", [{}, {"primal": False}, {"tape_budget": 150_000}, {"deterministic": True}], ids=str)
@pytest.mark.parametrize("name", BODIES)
def test_loops_inside_of_loops(name: str, options: dict) -> None:
    kernel, threads, n = nested(name), 32, 11
    x, lengths = np.random.default_rng(0).random(threads), np.array([3, 0, 9], np.int32)
    expected, d_x = np.zeros(threads), cupy.zeros(threads)
    kg.gradient(kernel, "y, x")[1, threads](np.zeros(threads), x, lengths, n, np.ones(threads), expected)
    given = cupy.zeros(threads), cupy.asarray(x), cupy.asarray(lengths), n, cupy.ones(threads), d_x
    kg.gradient(kernel, "y, x", **options)[1, threads](*given)
    np.testing.assert_allclose(d_x.get(), expected, rtol=1e-9, atol=1e-12)
