"""Registers that loops carry along, which hold copies of memory: the reverse reads the memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from derived import kernel_of
from every_plan import forced
from kernelgrad.analysis import structure
from kernelgrad.analysis.access.affine import Shape
from kernelgrad.analysis.access.executions import Executions
from kernelgrad.explain.counted import counts
from kernelgrad.runtime.config import make_launch
from kernelgrad.transforms import local_arrays, rolled_loads
from rolled_cases import CASES, NOT, ROLLED, Case

LISTED = "y, x, z"


@pytest.mark.parametrize("name", CASES)
def test_which_are_copies(name: str) -> None:
    case, kernel = CASES[name], kernel_of(CASES[name].source)
    function = local_arrays.run(kernel.function, kernel.module)
    launch = make_launch(*case.launch)
    numbers = dict(zip("whn", case.arguments()[3:6], strict=True)) | {"first": case.first}
    values = {p.value: numbers.get(p.name) for p in function.params}
    sums = Executions(structure.analyse(function, apart=False), Shape(launch.grid, launch.block), values.get)
    assert sorted(found.before for found in rolled_loads.found(function, sums)) == list(case.before)


def derivatives(case: Case, **options: Any) -> list[np.ndarray[Any, Any]]:
    """The arrays, then their adjoints."""
    y, x, z, *numbers = case.arguments()
    rng = np.random.default_rng(4)
    adjoints = list(rng.uniform(-1, 1, (3, y.size)))
    kg.gradient(kernel_of(case.source), LISTED, **options)[case.launch](y, x, z, *numbers, *adjoints)
    return [y, x, z, *adjoints]


@pytest.mark.parametrize("plan", ["as launched", "as on a GPU", "without copies"])
@pytest.mark.parametrize("mode", ["joint", "reverse"])
@pytest.mark.parametrize("name", CASES)
def test_values(name: str, mode: str, plan: str) -> None:
    """Against forward mode."""
    case = CASES[name]
    with forced(plan):
        try:
            *_, d_y, d_x, d_z = derivatives(case, primal=mode == "joint")
        except kg.UnsupportedError:
            assert name == "written"
            return
    rng = np.random.default_rng(4)
    seeds = rng.uniform(-1, 1, (3, d_y.size))
    y, x, z, *numbers = case.arguments()
    moved = rng.uniform(-1, 1, (3, d_y.size))
    tangents = moved.copy()
    kg.jvp(kernel_of(case.source), LISTED)[case.launch](y, x, z, *numbers, *tangents)
    # What the kernel writes consumes its adjoint: of x, if it does so.
    ends = [seeds[0], seeds[1], seeds[2]]
    before = sum(adjoint @ tangent for adjoint, tangent in zip((d_y, d_x, d_z), moved, strict=True))
    after = sum(adjoint @ tangent for adjoint, tangent in zip(ends, tangents, strict=True))
    np.testing.assert_allclose(before, after, rtol=1e-11)


NO_GATHER = ("each thread from elsewhere", "neighbours along a row", "no iteration", "one alone is no copy")


@pytest.mark.parametrize("name", [name for name in ROLLED if name not in NO_GATHER])
def test_elements_collect_their_adjoints(name: str) -> None:
    case = CASES[name]
    gradient = kg.gradient(kernel_of(case.source), LISTED, primal=False, keep="y", assign="x, z")
    with forced("without copies"):
        plan = gradient.planned(make_launch(*case.launch), tuple(case.arguments()), {}, on_gpu=True)
    assert "x" in {gather.name for gather in plan.plan.variant.options.facts.gathered}
    assert counts(plan).atomics == 0


@pytest.mark.parametrize("name", [name for name in NOT if name not in ("written", "beside a stencil")])
def test_others_stay(name: str) -> None:
    case = CASES[name]
    gradient = kg.gradient(kernel_of(case.source), LISTED, primal=False, keep="y", assign="x, z")
    text = gradient.source_for(*case.launch, *case.arguments(), on_gpu=True)
    assert "atomic" in text
