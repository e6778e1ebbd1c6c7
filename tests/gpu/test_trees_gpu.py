"""Trees in reverse on a GPU: reductions over blocks, winners of maxima, lanes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from tree_cases import LANES, MAXIMA, SOURCES, arguments

cupy = pytest.importorskip("cupy")

CASES = SOURCES | MAXIMA | LANES


def run(module: Any, form: dict[str, Any], name: str, block: int) -> tuple[Any, Any]:
    y, x, n = arguments(block)
    x[[3, 5, 6, 40]] = 1.75  # ties
    seed = np.random.default_rng(4).standard_normal(len(x))
    y, x, seed, d_x = (module.asarray(a) for a in (y, x, seed, np.zeros(len(x))))
    kg.gradient(kg.compile(CASES[name])["k"], "y, x", **form)[3, block](y, x, n, seed, d_x)
    return (cupy.asnumpy(y), cupy.asnumpy(d_x)) if module is cupy else (y, d_x)


@pytest.mark.parametrize("block", [64, 256])
@pytest.mark.parametrize("name", CASES)
def test_gpu_gives_what_the_cpu_gives(name: str, block: int) -> None:
    for form in ({}, {"primal": False}):
        found, expected = run(cupy, form, name, block), run(np, form, name, block)
        for got, want in zip(found, expected, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-12)
