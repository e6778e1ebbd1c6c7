"""Inputs that are read far apart by neighbouring threads, each element once: gathered instead of stored."""

from __future__ import annotations

import numpy as np
import pytest

import kernelgrad as kg
from kernelgrad.launches.choice import choose
from kernelgrad.runtime.config import make_launch
from permuted_cases import BODIES, STORED, launch, source

EXTENTS = [(3, 16, 20), (1, 33, 9), (5, 8, 8), (2, 1, 40)]
OPTIONS = [{}, {"primal": False, "keep": "y", "assign": "x"}, {"deterministic": True}]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("name", BODIES)
def test_gradients(name: str, options: dict, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = kg.compile(source(name, "double"))["k"]
    for extents in EXTENTS:
        n = extents[0] * extents[1] * extents[2]
        x, d_y = (np.random.default_rng(seed).random(n) for seed in range(2))
        found = []
        for rather in (False, True):
            monkeypatch.setattr(choose, "_loads_rather", lambda launch, rather=rather: rather)
            d_x = np.full(n, 7.0) if "assign" in options else np.arange(1.0 * n)
            given = np.zeros(n), x, *extents, d_y.copy(), d_x
            kg.gradient(kernel, "y, x", **options)[launch(name, extents)](*given)
            found.append(d_x)
        np.testing.assert_allclose(found[1], found[0], rtol=1e-13, err_msg=str(extents))


@pytest.mark.parametrize("name", BODIES)
def test_who_is_gathered(name: str) -> None:
    extents, n = (64, 32, 64), 64 * 32 * 64
    gradient = kg.gradient(kg.compile(source(name))["k"], "y, x", primal=False, keep="y", assign="x")
    x, y = np.zeros(n, "f"), np.zeros(n, "f")
    plan = gradient.planned(make_launch(*launch(name, extents)), (y, x, *extents), {}, on_gpu=True).plan
    assert bool(plan.gathers) == (name not in STORED)
