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


SEEN = {
    "behind a barrier": "__shared__ double s[32]; for (int j = 0; j < n; ++j) { s[t] = w[t] * x[j * 32 + t];"
    " __syncthreads(); y[j * 32 + t] = x[t] * s[j / each]; __syncthreads(); }",
    "of a warp": "__shared__ double s[32]; for (int j = 0; j < n; ++j) { s[t] = w[t] * x[j * 32 + t];"
    " __syncwarp(); y[j * 32 + t] = x[t] * s[j / each % 32]; __syncwarp(); }",
    "by its own thread": "int q = (int)v[t] * n; y[q] = x[t]; for (int i = 1; i < n; ++i)"
    " y[q + i] = x[i * 32 + t] * y[q + i / each];",
    "a sum": "int q = (int)v[t] * n; y[q] = x[t]; for (int i = 1; i < n; ++i)"
    " y[q + i] = x[i * 32 + t] + 0.5 * y[q + i / each];",
    "in place": "int q = (int)v[t] * n; for (int i = 0; i < n; ++i) { double a = y[q + i / each];"
    " y[q + i] = a * x[i * 32 + t] + sin(a); }",
}


@pytest.mark.parametrize("plan", ["as launched", "as on a GPU", "in cells of blocks", "without copies"])
@pytest.mark.parametrize("each", [2, 3, 7])
@pytest.mark.parametrize("name", SEEN)
def test_what_is_looked_at_before_the_place_changes(name: str, each: int, plan: str) -> None:
    kernel, n = kernel_of(f"{HEAD} {{ int t = threadIdx.x; {SEEN[name]} }}"), 21
    rng = np.random.default_rng(3)
    arrays = [rng.uniform(0.5, 1.5, 32 * n) for _ in range(4)]
    arrays[3][:32] = rng.permutation(32)
    seeds, tangents = ([rng.uniform(-1, 1, 32 * n) for _ in arrays] for _ in range(2))
    found, moved = ([v.copy() for v in values] for values in (seeds, tangents))
    copies = [[a.copy() for a in arrays] for _ in range(2)]
    with forced(plan):
        kg.gradient(kernel, "y, x, w")[1, 32](*copies[0], n, each, 1, *found[:3])
    kg.jvp(kernel, "y, x, w")[1, 32](*copies[1], n, each, 1, *moved[:3])
    before = sum(f @ t for f, t in zip(found[:3], tangents[:3], strict=True))
    after = sum(s @ m for s, m in zip(seeds[:3], moved[:3], strict=True))
    np.testing.assert_allclose(before, after, rtol=1e-10)
