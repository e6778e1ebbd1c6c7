"""Maxima and minima of equal numbers, by lanes and blocks that run side by side."""

from __future__ import annotations

import pytest

import tie_cases
from tie_cases import BLOCK_MAXIMA, MAXIMA, PAIRS, SORTS, N

cupy = pytest.importorskip("cupy")


@pytest.mark.parametrize("name", MAXIMA)
def test_softmax(name: str) -> None:
    for ties in ("all", "two"):
        tie_cases.check_softmax(tie_cases.softmax(MAXIMA[name]), 32, tie_cases.inputs(ties), cupy.array, cupy.asnumpy)


@pytest.mark.parametrize("name", BLOCK_MAXIMA)
def test_softmax_of_a_block(name: str) -> None:
    for ties in ("all", "two"):
        tie_cases.check_softmax(tie_cases.block_softmax(name), N, tie_cases.inputs(ties), cupy.array, cupy.asnumpy)


@pytest.mark.parametrize("name", PAIRS)
def test_online_softmax_of_lanes(name: str) -> None:
    for ties in ("all", "two"):
        kernel = tie_cases.online_softmax_of_pairs(PAIRS[name])
        tie_cases.check_softmax(kernel, N, tie_cases.inputs(ties), cupy.array, cupy.asnumpy)


@pytest.mark.parametrize("name", SORTS)
def test_sums_of_what_is_sorted(name: str) -> None:
    tie_cases.check_sort(tie_cases.sort(name), cupy.array, cupy.asnumpy)
