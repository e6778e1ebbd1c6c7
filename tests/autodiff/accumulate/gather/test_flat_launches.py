"""Gathers of kernels whose threads find row, column and channel by division: right, and those of the plain form."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from derived import gradient_of, kernel_of
from flat_convolutions import SPELLINGS, expected, launch_of, sizes_of, text_of
from kernelgrad.autodiff.accumulate.gather import pattern
from kernelgrad.launches.choice import gathers
from kernelgrad.runtime.config import make_launch

SHAPES = {
    "usual": ((2, 2, 3, 6, 7), 32),
    "rows that divide a block": ((1, 2, 2, 5, 10), 32),  # `i % 8` is that of the thread's index in its block
    "a block that is a plane": ((2, 1, 2, 6, 10), 32),
    "one of each": ((1, 1, 1, 5, 5), 7),
}
FORMS: dict[str, dict[str, Any]] = {
    "joint": {},
    "reverse": {"primal": False, "keep": "y", "assign": "x, w"},
    "deterministic": {"deterministic": True},
}


def _found(gradient: Any, grid: Any, block: Any, arguments: list[Any]) -> dict[str, Any]:
    primal, _ = gradient.kernel.bind(arguments)
    facts = gradient.variant_for(gradient.settings.listed, make_launch(grid, block), primal).options.facts
    return {gather.name: gather for gather in facts.gathered}


@pytest.fixture
def _blocks_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a GPU has them for large launches."""
    monkeypatch.setattr(gathers, "Finder", lambda function, sums, _: pattern.Finder(function, sums, True))
    monkeypatch.setattr(pattern, "_FEWEST_TILES", 1)
    monkeypatch.setattr(pattern, "_LONG_TILE", 8)


def _check(spelling: str, shape: tuple[int, ...], block: int, settings: dict[str, Any]) -> Any:
    gradient = kg.gradient(kernel_of(text_of(spelling)), "y, x, w", **settings)
    rng = np.random.default_rng(2)
    g, x, w = (rng.standard_normal(size) for size in sizes_of(shape))
    d_x, d_w = (np.full(a.size, 9.0 if "assign" in settings else 0.0) for a in (x, w))
    grid, block = launch_of(spelling, shape, block)
    arguments = [np.zeros(g.size), x, w, *shape]
    gradient[grid, block](*arguments, g.copy(), d_x, d_w)
    for got, wanted in zip((d_x, d_w), expected(x, w, g, shape), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-12, atol=1e-12)
    return _found(gradient, grid, block, arguments)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_convolutions(spelling: str, shape: str, form: str, _blocks_sum: None) -> None:
    found = _check(spelling, *SHAPES[shape], FORMS[form])
    if shape == "usual":
        tiles = {name: gather.tile for name, gather in found.items()}
        # Of four digits, batch and channel are two, more than a grid has axes.
        assert tiles == {"w": (3, 3)}
