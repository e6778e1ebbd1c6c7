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
from some_cases import in_turn

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
    monkeypatch.setattr(
        gathers, "Finder", lambda function, sums, *_, **parts: pattern.Finder(function, sums, True, **parts)
    )
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


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("spelling", "form"), in_turn(SPELLINGS, tuple(FORMS)))
def test_convolutions(spelling: str, form: str, shape: str, _blocks_sum: None) -> None:
    found = _check(spelling, *SHAPES[shape], FORMS[form])
    if shape == "usual":
        tiles = {name: gather.tile for name, gather in found.items()}
        assert tiles == {"x": None, "w": (3, 3)}


AT = "int i = blockIdx.x * blockDim.x + threadIdx.x;"
# Each reads neighbours of x, and has 24 columns; `gathered` where the proof holds.
NEIGHBOURS: dict[str, tuple[str, bool]] = {
    "column and row": ("int c = i % 24, r = i / 24; if (r < 9) y[i] = x[r * 25 + c] * x[r * 25 + c + 1];", True),
    "only some columns": (
        "int c = i % 24, r = i / 24; if (r < 9 && c > 2 && c < 20) y[i] = x[r * 25 + c] * x[r * 25 + c + 1];",
        True,
    ),
    "an end within a row": ("int c = i % 24, r = i / 24; if (i < 200) y[i] = x[r * 25 + c] * x[r * 25 + c + 1];", True),
    "a beginning within a row": (
        "int c = i % 24, r = i / 24; if (i >= 30) y[i] = x[r * 25 + c] * x[24 + r * 25 + c];",
        True,
    ),
    "a grid that ends within a row": ("int c = i % 24, r = i / 24; y[i] = x[r * 25 + c] * x[r * 25 + c + 1];", True),
    "rows upside down": ("int c = i % 24, r = 9 - i / 24; y[i] = x[r * 25 + c] * x[r * 25 + c + 1];", True),
    "bits": ("int c = i & 7, r = i >> 3; y[i] = x[r * 9 + c] * x[r * 9 + c + 1];", True),
    "lane and warp": ("int c = threadIdx.x % 8, r = i / 8; y[i] = x[r * 9 + c] * x[r * 9 + c + 1];", True),
    "warps of a block": (
        "int c = threadIdx.x % 8, r = threadIdx.x / 8; y[i] = x[blockIdx.x * 54 + r * 9 + c] * x[r * 9 + c + 1];",
        True,
    ),
    # Nothing says here where a digit begins.
    "divisors that do not divide each other": (
        "int c = i % 24, r = i / 36; y[i] = x[r * 25 + c] * x[r * 25 + c + 1];",
        False,
    ),
    "of a sum": ("int c = (i + 5) % 24, r = (i + 5) / 24; y[i] = x[r * 25 + c] * x[r * 25 + c + 1];", False),
    "of what may be negative": ("int c = (i - 5) % 24 + 24; y[i] = x[c] * x[c + i + 1];", False),
    "of twice the index": ("int c = 2 * i % 24, r = 2 * i / 24; y[i] = x[r * 25 + c] * x[r * 25 + c + 1];", False),
    "of a thread's number in a block of another size": (
        "int c = threadIdx.x % 12, r = i / 12; y[i] = x[r * 13 + c] * x[r * 13 + c + 1];",
        False,
    ),
    "a product of digits": ("int c = i % 24, r = i / 24; y[i] = x[r * c] * x[r * c + 1];", False),
    "a byte that wraps": ("int c = (unsigned char)(3 * i) % 24; y[i] = x[c] * x[c + i];", False),
}


@pytest.mark.parametrize("name", NEIGHBOURS)
def test_neighbours(name: str) -> None:
    body, is_gathered = NEIGHBOURS[name]
    kernel = kernel_of(f"__global__ void k(double *y, const double *x) {{ {AT} {body} }}")
    arguments = [np.zeros(224), np.random.default_rng(1).standard_normal(600)]
    gradient = gradient_of(kernel, "y, x")
    assert (set(_found(gradient, 7, 32, arguments)) == {"x"}) is is_gathered
    kg.check_gradient(kernel, "y, x", 7, 32, arguments)
    report = gradient.check(7, 32, *arguments, np.ones(224), np.zeros(600))
    assert not report.findings, report


def test_one_kernel_serves_all_sizes() -> None:
    gradient = kg.gradient(kernel_of(text_of("from above")), "y, x, w")
    for shape in ((2, 1, 2, 7, 6), (2, 1, 2, 6, 9)):
        rng = np.random.default_rng(3)
        g, x, w = (rng.standard_normal(size) for size in sizes_of(shape))
        d_x, d_w = np.zeros(x.size), np.zeros(w.size)
        gradient[launch_of("from above", shape, 32)](np.zeros(g.size), x, w, *shape, g.copy(), d_x, d_w)
        np.testing.assert_allclose(d_x, expected(x, w, g, shape)[0], rtol=1e-12, atol=1e-12)
    assert len({gather for _, facts in gradient.forms.made for gather in facts.gathered if gather.name == "x"}) == 1
