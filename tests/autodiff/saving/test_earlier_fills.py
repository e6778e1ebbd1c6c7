"""Tiles behind guards that are filled again by what earlier iterations left: which, and values against forward mode."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from derived import kernel_of, tangent_of
from earlier_fill_cases import AGAIN, END, NOT, STEPS, SYNC, Case
from every_plan import forced
from kernelgrad.runtime.config import make_launch

CASES = {**AGAIN, **NOT}
MODES: dict[str, dict[str, Any]] = {"joint": {}, "alone": {"primal": False}}
LISTED = "y, x, z"
USE_8 = "for (int q = 0; q < 4; ++q) { p = 0.5 * p + 0.3 * sin(s[q] * z[i]); a += s[q] * p; }"


def planned(case: Case, **options: Any) -> Any:
    gradient = kg.gradient(kernel_of(case.source), LISTED, **options)
    grid, block, shared = case.launch
    y, x, z = case.arrays()
    return gradient.planned(make_launch(grid, block, shared), (y, x, z, case.flags(), case.n), {}, on_gpu=True)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", CASES)
def test_which(name: str, mode: str) -> None:
    facts = planned(CASES[name], **MODES[mode]).plan.variant.options.facts
    assert facts.looks_back == CASES[name].again
    assert facts.refill or not CASES[name].again


def differences(case: Case, run: Any) -> None:
    """By products with random tangents."""
    rng, (y, x, z) = np.random.default_rng(8), case.arrays()
    grid, block, shared = case.launch
    seeds = rng.uniform(-1, 1, y.size)
    adjoints = [seeds.copy(), np.zeros(x.size), np.zeros(z.size)]
    run(y.copy(), x, z, case.flags(), case.n, *adjoints)
    for _ in range(2):
        tangents = [rng.uniform(-1, 1, v.size) for v in (y, x, z)]
        moved = [v.copy() for v in tangents]
        tangent = tangent_of(kernel_of(case.source), LISTED)
        tangent.launch(grid=grid, block=block, shared=shared, args=(y.copy(), x, z, case.flags(), case.n, *moved))
        found = sum(map(np.dot, adjoints, tangents))
        np.testing.assert_allclose(found, seeds @ moved[0], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("plan", ["as launched", "as on a GPU"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", CASES)
def test_values(name: str, mode: str, plan: str) -> None:
    case = CASES[name]
    grid, block, shared = case.launch

    def run(*args: Any) -> None:
        with forced(plan):
            made = kg.gradient(kernel_of(case.source), LISTED, **MODES[mode])
            made.launch(grid=grid, block=block, shared=shared, args=args)

    differences(case, run)


@pytest.mark.parametrize("name", AGAIN)
def test_nvrtc(name: str) -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    from kernelgrad.runtime.cuda import compile_only

    gradient, (grid, block, shared) = (
        kg.gradient(kernel_of(AGAIN[name].source), LISTED, primal=False),
        AGAIN[name].launch,
    )
    arguments = (*AGAIN[name].arrays(), AGAIN[name].flags(), AGAIN[name].n)
    assert compile_only(gradient.source_for(grid, block, *arguments, shared=shared, on_gpu=True), "sm_80")


def test_explained() -> None:
    case = AGAIN["data"]
    gradient = kg.gradient(kernel_of(case.source), LISTED)
    said = str(gradient.explain(3, 8, *case.arrays(), case.flags(), case.n))
    assert "'s' is filled again in the reverse: what its guards leave out, as earlier iterations left it" in said
    text = gradient.source_for(3, 8, *case.arrays(), case.flags(), case.n)
    assert "the last iteration in which the cell was filled" in text


def test_blocks_decide() -> None:
    """Two threads may store one cell in blocks of some sizes: what is read goes on the tape there."""
    body = f"{STEPS} {{ if (!j || f[j + t % 8]) s[t % 8] = x[j + t % 8]; {SYNC} {USE_8} {SYNC} }} {END}"
    case = Case(body, {"s"})
    gradient, arguments = kg.gradient(kernel_of(case.source), LISTED), (*case.arrays(), case.flags(), case.n)
    for block, again in ((8, {"s"}), (16, set[str]()), (4, {"s"})):
        found = gradient.planned(make_launch(3, block), arguments, {}, on_gpu=True).plan.variant.options.facts
        assert found.looks_back == again


@pytest.mark.parametrize("name", CASES)
def test_split(name: str) -> None:
    case = CASES[name]
    grid, block, shared = case.launch
    forward, reverse = kg.split(kernel_of(case.source), LISTED)

    def run(y: Any, x: Any, z: Any, f: Any, n: int, *adjoints: Any) -> None:
        tape = forward[grid, block, shared](y, x, z, f, n)
        reverse[grid, block, shared](tape, y, x, z, f, n, *adjoints)

    differences(case, run)
