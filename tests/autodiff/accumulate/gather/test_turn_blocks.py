"""Loops over a thread's own elements as blocks of a larger grid: which launches get it, values, what is said of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from derived import kernel_of
from every_plan import forced
from kernelgrad.runtime.config import make_launch
from turn_block_cases import SPREAD, STAYS, Case

CASES = {**SPREAD, **STAYS}
OPTIONS: dict[str, dict[str, Any]] = {
    "joint": {},
    "reverse": {"primal": False},
    "assigned": {"assign": "x"},
    "deterministic": {"deterministic": True},
    "may alias": {"may_alias": True},
}


def planned(case: Case, on_gpu: bool, **options: Any) -> Any:
    gradient = kg.gradient(kernel_of(case.source), "y, x, w", **options)
    return gradient.planned(make_launch(*case.launch), (*case.arrays(), *case.numbers), {}, on_gpu=on_gpu)


def launched(case: Case, **options: Any) -> list[np.ndarray[Any, Any]]:
    """The arrays, then their adjoints."""
    arrays, rng = case.arrays(), np.random.default_rng(6)
    adjoints = [rng.uniform(-1, 1, size) for size in case.sizes]
    if "x" in options.get("assign", ()):
        adjoints[1][:] = 0
    kg.gradient(kernel_of(case.source), "y, x, w", **options)[case.launch](*arrays, *case.numbers, *adjoints)
    return [*arrays, *adjoints]


@pytest.mark.parametrize("on_gpu", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_which_launches_are_larger(name: str, on_gpu: bool) -> None:
    case = CASES[name]
    plan = planned(case, on_gpu).plan
    assert plan.launch.grid == (case.grid or plan.given)
    gathered = {gather.name for gather in plan.variant.options.facts.gathered}
    assert ("x" in gathered) == (name in SPREAD)


@pytest.mark.parametrize("plan", ["as launched", "as on a GPU", "in two on a GPU", "in cells of blocks"])
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("name", CASES)
def test_values(name: str, options: str, plan: str) -> None:
    """Against forward mode, and the kernel itself."""
    case, asked = CASES[name], OPTIONS[options]
    try:
        with forced(plan):
            y, _, _, *adjoints = launched(case, **asked)
    except kg.UnsupportedError:
        assert name in ("read before", "read after it was stored")
        return
    kernel, rng = kernel_of(case.source), np.random.default_rng(6)
    given = [rng.uniform(-1, 1, size) for size in case.sizes]
    if options == "assigned":
        given[1][:] = 0
    if options != "reverse":
        expected = case.arrays()
        kernel[case.launch](*expected, *case.numbers)
        np.testing.assert_allclose(y, expected[0], rtol=1e-14)
    tangent = kg.jvp(kernel, "y, x, w")
    for _ in range(2):
        tangents = [rng.uniform(-1, 1, size) for size in case.sizes]
        moved = [t.copy() for t in tangents]
        tangent[case.launch](*case.arrays(), *case.numbers, *moved)
        found = [adjoints[0], *(adjoint - before for adjoint, before in zip(adjoints[1:], given[1:], strict=True))]
        np.testing.assert_allclose(sum(map(np.dot, found, tangents)), given[0] @ moved[0], rtol=1e-10, atol=1e-10)


def test_numbers_decide() -> None:
    """A plan is for the numbers by which it was found: shorter loops have fewer turns."""
    case = SPREAD["strides of the grid"]
    gradient = kg.gradient(kernel_of(case.source), "y, x, w")
    for n in (300, 100, 299, 50):
        arrays, rng = case.arrays(), np.random.default_rng(6)
        adjoints = [rng.uniform(-1, 1, 300) for _ in range(3)]
        d_y, d_x = adjoints[0].copy(), adjoints[1].copy()
        gradient[case.launch](*arrays, n, *adjoints)
        _, x, w = case.arrays()
        inside = slice(1, n - 1)
        d_x[inside] += d_y[inside] * x[: n - 2]
        d_x[: n - 2] += d_y[inside] * x[inside]
        d_x[2:n] += d_y[inside] * w[inside]
        np.testing.assert_allclose(adjoints[1], d_x, rtol=1e-12)


def test_explained() -> None:
    case = SPREAD["a block a row"]
    gradient = kg.gradient(kernel_of(case.source), "y, x, w")
    arguments = (*case.arrays(), *case.numbers)
    said = gradient.explain(*case.launch, *arguments)
    assert "in a larger grid" in str(said)
    text = gradient.source_for(*case.launch, *arguments)
    assert "<<<dim3(3, 7, 1), dim3(32, 1, 1)>>>" in text
    assert "for a launch of the kernel with dim3(7, 1, 1), dim3(32, 1, 1)." in text
