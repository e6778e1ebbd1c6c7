"""Launches that tell how often short loops run: what is constant for them, values, and launches with other numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from derived import kernel_of
from every_plan import forced
from kernelgrad.explain.counted import counts
from kernelgrad.runtime.config import make_launch
from loop_cases import SHORT as CASES
from loop_cases import SHORT_HEAD as HEAD


def arguments(n: int = 64) -> list[np.ndarray[Any, Any]]:
    rng = np.random.default_rng(1)
    return [np.zeros(n), rng.uniform(0.5, 1.5, 2048), rng.uniform(0.5, 1.5, 256)]


def planned(name: str, numbers: tuple[int, ...], gradient: Any = None) -> Any:
    gradient = gradient or kg.gradient(kernel_of(f"{HEAD} {{ {CASES[name]} }}"), "y, x, w", primal=False, keep="y")
    return gradient.planned(make_launch(2, 32), (*arguments(), 64, *numbers), {}, on_gpu=True)


@pytest.mark.parametrize(
    ("name", "numbers", "fixed"),
    [
        ("taps", (5, 0, 0), {"r": 5}),
        ("taps", (33, 0, 0), {}),
        ("taps", (0, 0, 0), {}),
        ("a radius", (3, 0, 0), {"r": 3}),
        ("state", (20, 0, 0), {"r": 20}),
    ],
)
def test_which_numbers(name: str, numbers: tuple[int, ...], fixed: dict[str, int]) -> None:
    plan = planned(name, numbers).plan
    assert plan.variant.kernel.fixed == fixed
    gradient = kg.gradient(kernel_of(f"{HEAD} {{ {CASES[name]} }}"), "y, x, w", primal=False, keep="y")
    text = gradient.source_for(2, 32, *arguments(), 64, *numbers, on_gpu=True)
    assert all(f"// For launches with {n} = {number}." in text for n, number in fixed.items())


def test_as_with_constants() -> None:
    """Strides, too."""
    plain, constant = f"{HEAD} {{ {CASES['a window']} }}", f"{HEAD} {{ r = 3; c = 3; s = 2; {CASES['a window']} }}"
    found = []
    for source in (plain, constant):
        gradient = kg.gradient(kg.compile(source)["k"], "y, x, w", primal=False, keep="y", assign="x, w")
        arrays = [np.zeros(1 << 20), np.zeros(1 << 23), np.zeros(9)]
        found.append(counts(gradient.planned(make_launch(4096, 256), (*arrays, 1 << 20, 3, 3, 2), {}, on_gpu=True)))
    assert found[0].atomics <= found[1].atomics and found[0].moved <= found[1].moved


@pytest.mark.parametrize("plan", ["as on a GPU", "gathered as on a GPU", "in cells of blocks"])
@pytest.mark.parametrize("name", CASES)
def test_values_of_many_launches(name: str, plan: str) -> None:
    """More numbers than there are kernels for."""
    kernel, rng = kernel_of(f"{HEAD} {{ {CASES[name]} }}"), np.random.default_rng(2)
    with forced(plan):
        gradient = kg.gradient(kernel, "y, x, w", primal=False, keep="y")
        for numbers in [(r, 3, s) for r in (3, 1, 0, 5, 2, 3, 7, 9, 11, 4, 6, 8, 3) for s in (1, 2)]:
            arrays = arguments()
            seeds, tangents = ([rng.uniform(-1, 1, a.size) for a in arrays] for _ in range(2))
            found, moved = ([v.copy() for v in values] for values in (seeds, tangents))
            gradient[2, 32](*arrays, 64, *numbers, *found)
            kg.jvp(kernel, "y, x, w")[2, 32](*arrays, 64, *numbers, *moved)
            added = sum((f - g) @ t for f, g, t in zip(found[1:], seeds[1:], tangents[1:], strict=True))
            np.testing.assert_allclose(added, seeds[0] @ moved[0], rtol=1e-10, atol=1e-11)


def test_few_kernels() -> None:
    gradient = kg.gradient(kernel_of(f"{HEAD} {{ {CASES['taps']} }}"), "y, x, w", primal=False, keep="y")
    fixed = [planned("taps", (r, 0, 0), gradient).plan.variant.kernel.fixed for r in range(1, 20)]
    assert 0 < sum(map(bool, fixed)) < 19
    assert planned("taps", (1, 0, 0), gradient).plan.variant.kernel.fixed == fixed[0]
