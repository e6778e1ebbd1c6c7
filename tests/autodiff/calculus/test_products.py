"""Powers that are written as products, and arguments away from where a partial derivative is infinite."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from kernelgrad.analysis.float_bounds import at_least
from kernelgrad.autodiff.calculus.products import power_of
from kernelgrad.ir.builder import Builder
from kernelgrad.ir.ops import Apply, Value
from kernelgrad.ir.types import F32


def kernel(expression: str, before: str = "") -> Any:
    body = f"int i = threadIdx.x; double v = x[i]; {before} y[i] = {expression};"
    return kg.compile(f"__global__ void k(double *y, const double *x) {{ {body} }}")["k"]


def gradient_at(expression: str, x: list[float], before: str = "", seed: float = 1.0) -> tuple[Any, str]:
    values, gradient = np.array(x), kg.gradient(kernel(expression, before))
    d_y, d_x = np.full(len(x), seed), np.zeros(len(x))
    gradient[1, len(x)](np.zeros(len(x)), values, d_y, d_x)
    return d_x, gradient.source


POINTS = [0.0, -0.0, 1.5, -2.0, 1e-3, 1e100, -1e-100]
POWERS = {
    "v * v": (2, 1),
    "v * v * v": (3, 2),
    "v * (v * v)": (3, 2),
    "v * v * v * v * v": (5, 4),
    "(v * v) * (v * v)": (4, 3),
    "v * v + v * v * v": (0, 0),
}


@pytest.mark.parametrize("expression", POWERS)
def test_powers(expression: str) -> None:
    times, exponent = POWERS[expression]
    x = np.array(POINTS)
    with np.errstate(over="ignore"):
        expected = times * x**exponent if times else 2 * x + 3 * x**2
    found, _ = gradient_at(expression, POINTS)
    np.testing.assert_allclose(found, expected, rtol=1e-14)


def test_a_power_needs_no_more_than_the_one_below() -> None:
    _, text = gradient_at("v * v * v", POINTS)
    assert "* 3.0 *" in text and text.count("+=") + text.count(" + ") == 1


@pytest.mark.parametrize("expression", ["v * w * v", "v * 2 * v", "(v + 1) * v * v", "v * v * w"])
def test_other_products(expression: str) -> None:
    before = "double w = sin(v);"
    report = kg.check_gradient(kernel(expression, before), ("y", "x"), 1, 3, (np.zeros(3), np.array([0.3, -1.2, 2.0])))
    assert report.ok, report


def test_infinite_and_undefined_arguments_stay() -> None:
    found, _ = gradient_at("v * v * v", [math.inf, -math.inf, math.nan])
    assert found[0] == math.inf and found[1] == math.inf and math.isnan(found[2])


def test_reciprocal_roots() -> None:
    x = [0.0, 1e-300, 4.0, 1e300, math.inf]
    found, text = gradient_at("rsqrt(v)", x)
    with np.errstate(divide="ignore", over="ignore"):
        expected = -0.5 * np.array(x) ** -1.5
    np.testing.assert_allclose(found, expected, rtol=1e-14)
    assert "/" not in text.split("{", 1)[1].replace("//", "")


@pytest.mark.parametrize(("expression", "guarded"), [
    ("rsqrt(v * v + 1e-3)", False),
    ("sqrt(v * v + 1e-3)", False),
    ("log(1 + v * v)", False),
    ("sqrt(fabs(v) + 2)", False),
    ("sqrt(fmax(v, 1e-3))", False),
    ("rsqrt(v * v)", True),
    ("rsqrt(v + 1)", True),
    ("sqrt(fmax(v, 0.0))", True),
    ("log(v * v + 1e-30)", True),
    ("rsqrt(v * v - 1e-3)", True),
])  # fmt: skip
def test_an_untaken_path_gives_zero(expression: str, guarded: bool) -> None:
    """Where the argument may be zero, an adjoint of zero must not meet an infinite partial."""
    found, _ = gradient_at("v > 10 ? q : 1", [0.0, -1.0, 0.5], f"double q = {expression};")
    assert (found == 0).all()
    plain = kg.gradient(kernel(expression)).source
    assert guarded or "&& " not in plain.splitlines()[-2], plain  # no test but that of the seed


def test_bounds() -> None:
    b, x = Builder(), Value(F32, "x")
    square, c = b.apply("mul", x, x), b.constant(2.0, F32)
    endless = b.constant(math.inf, F32)
    made = {
        x: -math.inf,
        square: 0.0,
        b.apply("add", square, c): 2.0,
        b.apply("mul", b.apply("abs", x), c): 0.0,
        b.apply("mul", c, c): 4.0,
        b.apply("add", x, c): -math.inf,
        b.apply("max", x, c): 2.0,
        b.apply("sub", square, c): -math.inf,
    }
    definition = {v: op for op in b.ops for v in op.results}
    assert {v: at_least(v, definition) for v in made} == made
    unknown = b.apply("add", endless, x)
    definition |= {v: op for op in b.ops for v in op.results}
    assert not at_least(unknown, definition) >= 0


def test_long_chains_are_not_looked_through() -> None:
    b, total = Builder(), Value(F32, "x")
    for _ in range(100):
        total = b.apply("add", total, total)
    assert at_least(total, {v: op for op in b.ops for v in op.results}) == -math.inf


def test_found() -> None:
    b, x = Builder(), Value(F32, "x")
    square = b.apply("mul", x, x)
    cube = b.apply("mul", x, square)
    fourth = b.apply("mul", square, square)
    definition = {v: op for op in b.ops for v in op.results}

    def found(value: Value) -> Any:
        op = definition[value]
        assert isinstance(op, Apply)
        return power_of(op, definition)

    assert found(square) == (x, 2, x) and found(cube) == (x, 3, square) and found(fourth) == (square, 2, square)


@pytest.mark.parametrize(("argument", "plain"), [("v * v + 1e-3f", False), ("v * v", True), ("v * v + 1e-40f", True)])
def test_roots_of_numbers_that_are_not_subnormal(argument: str, plain: bool) -> None:
    text = kg.compile(f"__global__ void k(float *y, float v) {{ *y = rsqrtf({argument}); }}")["k"].source
    assert ("= rsqrtf(" in text) == plain and ("= kg::rsqrt_normal(" in text) != plain
