"""Adjoints of half precision that stay halves, where each element is stored once: as the copies in float would be, to
the last bit."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import kernelgrad as kg
from half_adjoint_cases import CASES, numbers, source
from kernelgrad.runtime.config import make_launch

ELEMENTS = {"__half": np.dtype("f2"), "__nv_bfloat16": np.dtype(ml_dtypes.bfloat16)}
OPTIONS: dict[str, dict[str, Any]] = {"reverse": {"primal": False, "keep": "y", "assign": "x, w"}, "joint": {}}
FORMS = [(name, how) for name, case in CASES.items() for how in OPTIONS if how == "joint" or not case.in_place]


def gradient(name: str, element: str, how: str) -> Any:
    return kg.gradient(kg.compile(source(CASES[name], element))["k"], "y, x, w", **OPTIONS[how])


def halves(g: Any, launch: Any, args: list[Any]) -> set[str]:
    """The parameters whose adjoints a launch takes as they are."""
    return set(g.planned(make_launch(*launch), tuple(args), {}).plan.variant.options.facts.halves)


@pytest.mark.parametrize("element", ELEMENTS)
@pytest.mark.parametrize(("name", "how"), FORMS)
def test_as_copies_in_float(name: str, element: str, how: str) -> None:
    case, g = CASES[name], gradient(name, element, how)
    y, x, w, d_y, d_x, d_w = numbers(case, ELEMENTS[element])
    in_float = [a.astype("f4") for a in (d_y, d_x, d_w)]
    launch = case.blocks, case.block
    g[launch](y.copy(), x.copy(), w, 1024, case.m, *in_float)
    expected = [a.astype(y.dtype) for a in in_float]
    assert halves(g, launch, [y, x, w, 1024, case.m, d_y, d_x, d_w]) == set(getattr(case, how).split())
    for _ in range(3):  # the last from machine code
        own = [a.copy() for a in (d_y, d_x, d_w)]
        g[launch](y.copy(), x.copy(), w, 1024, case.m, *own)
        for got, wanted in zip(own, expected, strict=True):
            np.testing.assert_array_equal(got.astype("f4"), wanted.astype("f4"))


@pytest.mark.parametrize(("name", "how"), FORMS)
def test_as_on_a_gpu(name: str, how: str) -> None:
    case, g = CASES[name], gradient(name, "__half", how)
    y, x, w, d_y, d_x, d_w = numbers(case, np.dtype("f2"))
    text = g.source_for(case.blocks, case.block, y, x, w, 1024, case.m, d_y, d_x, d_w, on_gpu=True)
    assert {p for p in "xyw" if f"__half *__restrict__ _d_{p}" in text} >= set(getattr(case, how).split())


def test_rows_in_registers_are_stored_once() -> None:
    """What a row's loops add up in registers is one store, as on a GPU."""
    case, g = CASES["rows"], gradient("rows", "__half", "reverse")
    args = (*numbers(case, np.dtype("f2"))[:3], 1024, 64)
    text = g.source_for(case.blocks, case.block, *args, on_gpu=True)
    assert "__half *__restrict__ _d_x" in text


def test_vectors_of_halves() -> None:
    g = gradient("elements", "__half", "reverse")
    n = 1 << 20
    y, x, w, d_y, d_x, d_w = (np.zeros(n, "f2") for _ in range(6))
    text = g.source_for(n // 256, 256, y, x, w, n, 0, d_y, d_x, d_w, on_gpu=True)
    assert "f16x8 x_" in text and "(kg::f16x4 *)&_d_x[i]" in text


def test_parts_are_copied() -> None:
    """Of parts of larger arrays, a kernel may reach more."""
    case, g = CASES["elements"], gradient("elements", "__half", "reverse")
    y, x, w, d_y, d_x, d_w = numbers(case, np.dtype("f2"))
    whole = np.concatenate((d_x, d_x))
    part = whole[: d_x.size]
    assert halves(g, (16, 64), [y, x, w, 1024, 0, d_y, part, d_w]) == {"y", "w"}
    g[16, 64](y, x, w, 1024, 0, d_y, d_x, d_w)
    g[16, 64](y, x, w, 1024, 0, d_y, part, d_w)
    np.testing.assert_array_equal(part, d_x)


def test_gathers_store_halves() -> None:
    g, n = gradient("neighbours", "__half", "reverse"), 1 << 20
    y, x, w, d_y, d_x, d_w = (np.zeros(n, "f2") for _ in range(6))
    text = g.source_for(n // 256, 256, y, x, w, n, 0, d_y, d_x, d_w, on_gpu=True)
    assert "collects an adjoint" in text and "__half *__restrict__ _d_x" in text
