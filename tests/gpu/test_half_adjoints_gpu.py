"""Adjoints of half precision that stay halves, on a GPU: as copies in float would be, rounded once."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from half_adjoint_cases import CASES, numbers, source

cupy = pytest.importorskip("cupy")

OPTIONS: dict[str, dict[str, Any]] = {"reverse": {"primal": False, "keep": "y", "assign": "x, w"}, "joint": {}}
FORMS = [(name, how) for name, case in CASES.items() for how in OPTIONS if how == "joint" or not case.in_place]


def gradient(name: str, how: str) -> Any:
    return kg.gradient(kg.compile(source(CASES[name], "__half"))["k"], "y, x, w", **OPTIONS[how])


def compare(g: Any, launch: Any, n: int, m: int, arrays: list[np.ndarray], taken: set[str]) -> None:
    y, x, w, *adjoints = map(cupy.asarray, arrays)
    in_float = [a.astype("f4") for a in adjoints]
    g[launch](y.copy(), x, w, n, m, *in_float)
    text = g.source_for(*launch, y, x, w, n, m, *adjoints)
    assert {p for p in "yxw" if re.search(rf"__half \*(__restrict__ )?_d_{p}\b", text)} >= taken
    for _ in range(3):  # the last from machine code
        own = [a.copy() for a in adjoints]
        g[launch](y.copy(), x, w, n, m, *own)
        for got, wanted in zip(own, in_float, strict=True):
            cupy.testing.assert_allclose(got.astype("f4"), wanted, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize(("name", "how"), FORMS)
def test_values(name: str, how: str) -> None:
    case = CASES[name]
    arrays = numbers(case, np.dtype("f2"))
    compare(gradient(name, how), (case.blocks, case.block), 1024, case.m, arrays, set(getattr(case, how).split()))


@pytest.mark.parametrize("how", OPTIONS)
@pytest.mark.parametrize("name", ["elements", "strides", "neighbours", "unread", "windows"])
def test_large_launches(name: str, how: str) -> None:
    """Several elements a thread, and gathers."""
    n = (1 << 20) + 5
    arrays = numbers(CASES[name]._replace(size=n), np.dtype("f2"))
    blocks = 1000 if name == "strides" else -(-n // 256)
    compare(gradient(name, how), (blocks, 256), n, 0, arrays, set(getattr(CASES[name], how).split()))


@pytest.mark.parametrize("start", [0, 1, 4, 8])
def test_parts(start: int) -> None:
    """Of a larger array, at any address: its neighbours stay what they are."""
    n = 1 << 20
    g, arrays = gradient("elements", "joint"), numbers(CASES["elements"]._replace(size=n + 16), np.dtype("f2"))
    whole = [cupy.asarray(a) for a in arrays]
    before = [a.copy() for a in whole]
    y, x, w, *adjoints = (a[start : start + n] for a in whole)
    in_float = [a.astype("f4") for a in adjoints]
    g[n // 256, 256](y.copy(), x.copy(), w.copy(), n, 0, *in_float)
    g[n // 256, 256](y, x, w, n, 0, *adjoints)
    for got, wanted, old in zip(whole[3:], in_float, before[3:], strict=True):
        cupy.testing.assert_allclose(got[start : start + n].astype("f4"), wanted, rtol=2e-3, atol=2e-3)
        assert (got[:start] == old[:start]).all() and (got[start + n :] == old[start + n :]).all()


@pytest.mark.parametrize("how", OPTIONS)
@pytest.mark.parametrize("name", ["norm with weights", "halo"])
def test_sums_over_many_blocks(name: str, how: str) -> None:
    """Replicas of the weights' adjoint, and additions that follow the launch, are floats."""
    blocks = 4096
    arrays = numbers(CASES[name]._replace(size=blocks * (128 if "norm" in name else 64)), np.dtype("f2"))
    g, (y, x, w, *adjoints) = gradient(name, how), map(cupy.asarray, arrays)
    w, n, m = w[:64].copy(), y.size, 64
    adjoints[2] = adjoints[2][:64].copy() * 0
    in_float = [a.astype("f4") for a in adjoints]
    in_float[1][...] = adjoints[1][...] = 0
    g[blocks, 64](y.copy(), x, w, n, m, *in_float)
    for _ in range(3):
        own = [a.copy() for a in adjoints]
        g[blocks, 64](y.copy(), x, w, n, m, *own)
        for got, wanted in zip(own, in_float, strict=True):
            scale = float(abs(wanted).max()) or 1.0
            cupy.testing.assert_allclose(got.astype("f4"), wanted, rtol=2e-3, atol=2e-3 * scale)
