"""Additions whose place stays for some turns of a loop: which are added up first, and values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from derived import kernel_of
from every_plan import forced
from loop_cases import LOOP, SLOW
from loop_cases import SLOW_HEAD as HEAD

NOT = {
    "every turn": f"{LOOP} {{ int q = blockIdx.x * n + i; y[q] = x[q] * w[i / each + i]; }}",
    "remainders": f"{LOOP} {{ int q = blockIdx.x * n + i; y[q] = x[q] * w[i % c]; }}",
}
CASES = {**SLOW, **NOT}
BLOCKS = 3


def arguments(n: int, each: int, c: int) -> tuple[list[np.ndarray[Any, Any]], tuple[int, ...]]:
    rng = np.random.default_rng(1)
    return [rng.uniform(0.5, 1.5, size) for size in (BLOCKS * n, BLOCKS * n, 4 * n, 4 * n)], (n, each, c)


@pytest.mark.parametrize("name", CASES)
def test_which(name: str) -> None:
    arrays, numbers = arguments(4096, 512, 4)
    gradient = kg.gradient(kernel_of(f"{HEAD} {{ {CASES[name]} }}"), "y, x, w, v", primal=False, keep="y")
    text = gradient.source_for(BLOCKS, 64, *arrays, *numbers, on_gpu=True)
    assert ("place = " in text) == (name in SLOW)


@pytest.mark.parametrize("plan", ["as on a GPU", "in cells of blocks", "many blocks"])
@pytest.mark.parametrize(
    "numbers", [(96, 8, 4), (100, 7, 3), (65, 32, 5), (5, 2, 2), (0, 3, 2), (64, 1, 64), (64, 100, 2)]
)
@pytest.mark.parametrize("name", CASES)
def test_values(name: str, numbers: tuple[int, int, int], plan: str) -> None:
    kernel, rng = kernel_of(f"{HEAD} {{ {CASES[name]} }}"), np.random.default_rng(2)
    arrays, _ = arguments(*numbers)
    seeds, tangents = ([rng.uniform(-1, 1, a.size) for a in arrays] for _ in range(2))
    found, moved = ([v.copy() for v in values] for values in (seeds, tangents))
    with forced(plan):
        kg.gradient(kernel, "y, x, w, v", primal=False, keep="y")[BLOCKS, 32](*arrays, *numbers, *found)
    kg.jvp(kernel, "y, x, w, v")[BLOCKS, 32](*arrays, *numbers, *moved)
    added = sum((f - s) @ t for f, s, t in zip(found[1:], seeds[1:], tangents[1:], strict=True))
    np.testing.assert_allclose(added, seeds[0] @ moved[0], rtol=1e-11, atol=1e-12)
