"""Gathers of kernels as people write them, on a GPU: as on the CPU, where each launch is one kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from derived import kernel_of
from every_plan import forced
from idiom_cases import IDIOMS, small

pytestmark = pytest.mark.gpu
PLANS = ("as launched", "gathered as on a GPU", "gathered and staged")


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("name", IDIOMS)
def test_as_on_the_cpu(name: str, plan: str) -> None:
    cupy = pytest.importorskip("cupy")
    idiom = IDIOMS[name]
    arrays, grid, block = small(idiom)
    out, *inputs = idiom.arrays.split()
    seed = np.random.default_rng(5).standard_normal(arrays[0].size)
    kernel = kernel_of(idiom.text("double"))
    options: dict[str, Any] = {"primal": False, "keep": [out], "assign": inputs}
    found = []
    for xp, wanted in ((np, "one kernel"), (cupy, plan)):
        adjoints = [xp.asarray(seed.copy()), *(xp.full(a.size, 7.0) for a in arrays[1:])]
        with forced(wanted):
            gradient = kg.gradient(kernel, [out, *inputs], **options)
            gradient[grid, block](*map(xp.asarray, arrays), *idiom.small, *adjoints)
        found.append([np.asarray(a if xp is np else a.get()) for a in adjoints])
    for got, expected in zip(*found, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-11, atol=1e-12)
