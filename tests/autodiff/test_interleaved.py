"""Adjoints that are added to side by side: which, their values, and where they are not."""

from __future__ import annotations

import shutil
from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from interleaved_cases import APART, CASES, NAMES, compiled, numbers
from kernelgrad.derivatives.gradient import Gradient
from kernelgrad.launches import interleaving, vector_width
from kernelgrad.launches.choice import cell_widths
from kernelgrad.runtime.config import make_launch
from kernelgrad.runtime.integers import Ways

from ..emulation.run_text import run_emitted

WANTED = f"y, {', '.join(NAMES)}"
REVERSE: dict[str, Any] = {"primal": False, "keep": "y"}
OPTIONS: dict[str, dict[str, Any]] = {"J": {}, "R": REVERSE, "assigned": {**REVERSE, "assign": "a, b, c"}}


@pytest.fixture(autouse=True)
def as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Gradient, "ways", staticmethod(lambda *_: Ways(on_gpu=True)))
    monkeypatch.setattr(interleaving, "_FEWEST", 1)
    monkeypatch.setattr(cell_widths, "wide_memory", lambda *_, **__: frozenset())  # small arrays have sums in double


def groups_of(gradient: Any, n: int, values: tuple[Any, ...]) -> tuple[str, ...]:
    plan = gradient.planned(make_launch(-(-n // 64), 64), values, {}, on_gpu=True).plan
    return tuple("".join(name[-1] for name in group) for group in plan.variant.options.facts.interleaved)


def plainly(kernel: Any, options: dict[str, Any], n: int, values: tuple[Any, ...]) -> list[Any]:
    """Without it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(interleaving, "_FEWEST", 1 << 60)
        copies = [v.copy() if isinstance(v, np.ndarray) else v for v in values]
        kg.gradient(kernel, WANTED, **options)[-(-n // 64), 64](*copies)
        return copies


@pytest.mark.parametrize("how", OPTIONS)
@pytest.mark.parametrize("name", [*CASES, *APART])
def test_values_of_several_elements_a_thread(name: str, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As large launches have it."""
    case = (CASES | APART)[name]
    kernel = compiled(case)
    for n in (256, 200):
        values = numbers(case, n)
        want = plainly(kernel, OPTIONS[how], n, values)
        with monkeypatch.context() as large:
            large.setattr(vector_width, "_ENOUGH", 1)
            kg.gradient(kernel, WANTED, **OPTIONS[how])[-(-n // 64), 64](*values)
        for got, wanted in zip(values, want, strict=True):
            np.testing.assert_allclose(got, wanted, rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("how", OPTIONS)
@pytest.mark.parametrize("name", [*CASES, *APART])
def test_values(name: str, how: str) -> None:
    case = (CASES | APART)[name]
    kernel, n = compiled(case), 200
    values = numbers(case, n)
    gradient = kg.gradient(kernel, WANTED, **OPTIONS[how])
    assert groups_of(gradient, n, values) == case.groups
    want = plainly(kernel, OPTIONS[how], n, values)
    gradient[-(-n // 64), 64](*values)
    for got, wanted in zip(values, want, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=2e-4, atol=2e-4)


def test_against_forward_mode() -> None:
    case, n = CASES["guard in a loop"], 200
    values, kernel = numbers(case, n), compiled(case)
    primal, (d_y, *adjoints) = values[:8], values[8:]
    rng = np.random.default_rng(2)
    tangents = [rng.uniform(-1, 1, a.size).astype(np.float32) for a in adjoints]
    t_y = np.zeros(n, np.float32)
    kg.jvp(kernel, WANTED)[-(-n // 64), 64](
        *(np.copy(v) if isinstance(v, np.ndarray) else v for v in primal), t_y, *tangents
    )
    before = sum(float(a.astype("f8") @ t) for a, t in zip(adjoints, tangents, strict=True))
    want = float(t_y.astype("f8") @ d_y)
    kg.gradient(kernel, WANTED, **REVERSE)[-(-n // 64), 64](*values)
    after = sum(float(a.astype("f8") @ t) for a, t in zip(adjoints, tangents, strict=True))
    np.testing.assert_allclose(after - before, want, rtol=1e-3)


@pytest.mark.parametrize("options", [{"may_alias": True}, {"deterministic": True}, {"primal": False, "n": 90}], ids=str)
def test_not(options: dict[str, Any]) -> None:
    """By request, or for launches in which few threads add."""
    case, n = CASES["three"], options.pop("n", 200)
    values = numbers(case, n)
    assert groups_of(kg.gradient(compiled(case), WANTED, **options), n, values) == ()


def test_not_in_much_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    case, n = CASES["three"], 200
    gradient, values = kg.gradient(compiled(case), WANTED, **REVERSE), numbers(case, n)
    monkeypatch.setattr(interleaving, "_MOST_BYTES", 16 * 41 - 1)
    assert groups_of(gradient, n, values) == ()


def test_parts_of_arrays() -> None:
    """A kernel may reach what lies before or behind those."""
    case, n = CASES["two"], 200
    values, kernel = list(numbers(case, n)), compiled(case)
    gradient = kg.gradient(kernel, WANTED, **REVERSE)
    whole = np.zeros(2 * values[1].size, np.float32)
    values[9] = whole[values[1].size :]
    assert groups_of(gradient, n, tuple(values)) == ()


def test_doubles() -> None:
    """They are added one at a time."""
    case, n = CASES["three"], 200
    values = numbers(case, n, np.float64)
    assert groups_of(kg.gradient(compiled(case, "double"), WANTED, **REVERSE), n, values) == ()


@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("name", ["two", "three", "neighbours"])
def test_as_text(name: str, ordered: bool) -> None:
    """`ordered`: lanes next to each other are at one place, and add up first."""
    case, n = CASES[name], 200
    values, kernel = numbers(case, n), compiled(case)
    if ordered:
        values[6].sort()
    gradient = kg.gradient(kernel, WANTED, **REVERSE)
    text = gradient.source_for(-(-n // 64), 64, *values, on_gpu=True)
    (group,), width = case.groups, 2 if len(case.groups[0]) == 2 else 4
    assert f"warp_add_{4 if name == 'neighbours' else width}" in text and "_together_0: " in text
    want, own = plainly(kernel, REVERSE, n, values), np.zeros(width * max(case.lengths), np.float32)
    run_emitted(text, "k_grad", -(-n // 64), 64, (*(np.int32(v) if isinstance(v, int) else v for v in values), own))
    for k, letter in enumerate(group):
        got = values[9 + NAMES.index(letter)] + own.reshape(-1, width)[:, k]
        np.testing.assert_allclose(got, want[9 + NAMES.index(letter)], rtol=2e-4, atol=2e-4)
