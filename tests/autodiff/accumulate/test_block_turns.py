"""Blocks that do the work of many, where what they add to is the same: which launches get it, values, what is said."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from block_turn_cases import INDEX, SMALLER, STAYS, Case
from derived import kernel_of
from every_plan import forced
from kernelgrad.runtime.config import make_launch

CASES = {**SMALLER, **STAYS}
PLANS = ("blocks in turns", "blocks in turns, with cells")
OPTIONS: dict[str, dict[str, Any]] = {
    "added": {},
    "kept": {"keep": "y"},
    "assigned": {"assign": "x, w"},
}


def made(case: Case, **options: Any) -> Any:
    return kg.gradient(kernel_of(case.source), "y, x, w", primal=False, **options)


def planned(case: Case, **options: Any) -> Any:
    with forced(PLANS[0]):
        return made(case, **options).planned(
            make_launch(*case.launch), (*case.arrays(), *case.numbers), {}, on_gpu=True
        )


@pytest.mark.parametrize("name", CASES)
def test_which_launches_are_smaller(name: str) -> None:
    case = CASES[name]
    plan = planned(case).plan
    assert plan.launch.grid == (case.started or plan.given)


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("name", CASES)
def test_values(name: str, options: str, plan: str) -> None:
    """Against forward mode."""
    case, rng = CASES[name], np.random.default_rng(6)
    if options == "kept" and name == "read and stored":
        return  # it is no pure output
    given = [rng.uniform(-1, 1, size) for size in case.sizes]
    adjoints = [g.copy() for g in given]
    with forced(plan):
        made(case, **OPTIONS[options])[case.launch](*case.arrays(), *case.numbers, *adjoints)
    starts = [np.zeros_like(g) if options == "assigned" else g for g in given[1:]]
    kept = [given[0]] if options == "kept" else [adjoints[0]]
    if options == "kept":
        np.testing.assert_array_equal(adjoints[0], given[0])
    tangent = kg.jvp(kernel_of(case.source), "y, x, w")
    for _ in range(2):
        tangents = [rng.uniform(-1, 1, size) for size in case.sizes]
        if options == "kept":
            tangents[0][:] = 0  # of what y was before, nothing is said
        moved = [t.copy() for t in tangents]
        tangent[case.launch](*case.arrays(), *case.numbers, *moved)
        found = [*kept, *(now - before for now, before in zip(adjoints[1:], starts, strict=True))]
        np.testing.assert_allclose(sum(map(np.dot, found, tangents)), given[0] @ moved[0], rtol=1e-10, atol=1e-10)


def test_grids_decide() -> None:
    """One gradient, launches of several sizes."""
    case = SMALLER["columns"]
    with forced(PLANS[0]):
        gradient = made(case)
        for grid, n, c in ((20, 300, 12), (40, 640, 12), (20, 300, 10), (6, 96, 12), (20, 320, 8), (40, 600, 12)):
            rng = np.random.default_rng(n)
            y, x, w = (rng.uniform(-1, 1, size) for size in (n, n, c))
            d_y, d_x, d_w = rng.uniform(-1, 1, n), np.zeros(n), np.zeros(c)
            given = d_y.copy()
            gradient[grid, 16](y, x, w, n, c, d_y, d_x, d_w)
            column = np.arange(n) % c
            np.testing.assert_allclose(d_x, given * w[column], rtol=1e-12)
            np.testing.assert_allclose(d_w, np.bincount(column, given * x, c), rtol=1e-10)


def test_explained() -> None:
    case = SMALLER["channels"]
    found = planned(case)
    assert found.plan.launch.blocks == 40
    with forced(PLANS[0]):
        gradient, arguments = made(case), (*case.arrays(), *case.numbers)
        text = gradient.source_for(*case.launch, *arguments, on_gpu=True)
        said = gradient.explain(*case.launch, *arguments)
    assert "<<<dim3(6, 1, 1), dim3(16, 1, 1)>>>" in text and "for a launch of the kernel with dim3(40, 1, 1)" in text
    assert "_blocks: 40" in text
    assert "in a smaller grid" in str(said)


IN_PLACE = {
    "strides": "for (int e = i; e < n; e += gridDim.x * blockDim.x) y[e] *= x[e] * w[i % c];",
    "rows": "for (int k = 0; k < 4; ++k) { int e = i + k * (n / 4); if (i < n / 4) y[e] *= x[e] * w[i % c]; }",
    "through an index": "if (i < n) y[p[i]] *= x[p[i]] * w[i % c];",
}


@pytest.mark.parametrize("name", IN_PLACE)
def test_what_turns_would_overwrite(name: str) -> None:
    """Where blocks that do the work of many have no reverse alone, the launch is as large as asked."""
    params = "double *y, const double *x, const double *w, const int *p, int n, int c"
    kernel = kernel_of(f"__global__ void k({params}) {{ {INDEX} {IN_PLACE[name]} }}")
    rng, indices = np.random.default_rng(3), np.arange(1920, dtype=np.int32)[::-1].copy()
    y, x, w, seed = (rng.uniform(0.5, 1.5, n) for n in (1920, 1920, 16, 1920))
    numbers, found = (indices, 1920, 16), [seed.copy(), np.zeros(1920), np.zeros(16)]
    expected = [seed.copy(), np.zeros(1920), np.zeros(16)]
    promised = kg.assume(unique="p")
    grid = {"strides": 40, "rows": 30}.get(name, 120)
    kg.gradient(kernel, "y, x, w", assume=promised)[grid, 16](y.copy(), x, w, *numbers, *expected)
    with forced(PLANS[0]):
        alone = kg.gradient(kernel, "y, x, w", primal=False, assume=promised)
        alone[grid, 16](y.copy(), x, w, *numbers, *found)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)


@pytest.mark.parametrize("variable", ["__constant__ double _blocks = 3;", "__device__ int _blocks = 3;"])
def test_a_variable_of_that_name(variable: str) -> None:
    case = SMALLER["columns"]._replace(body=f"{INDEX} if (i < n) y[i] = x[i] * w[i % c] * _blocks;", head=variable)
    d_x, d_w = np.zeros(300), np.zeros(12)
    with forced(PLANS[0]):
        made(case)[case.launch](np.ones(300), np.ones(300), np.ones(12), *case.numbers, np.ones(300), d_x, d_w)
    assert (d_x == 3).all() and (d_w == 75).all()


def test_a_name_that_is_taken() -> None:
    """A kernel's own variable may have the name of what a smaller launch is told."""
    case = SMALLER["columns"]
    taken = case._replace(params="int n, int c, int _blocks", numbers=(*case.numbers, 3))
    assert planned(taken).plan.launch.grid == (20, 1, 1)
