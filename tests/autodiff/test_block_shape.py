"""Gradients for one shape of block: trees over blockDim are unrolled and need no tape. And what they bring with them:
choices kept as bools, adjoints that are written where several loads read a whole buffer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from derived import kernel_of, tangent_of
from kernelgrad.runtime.config import make_launch
from some_cases import in_turn

T = "int t = threadIdx.x + blockDim.x * threadIdx.y, m = blockDim.x * blockDim.y, i = blockIdx.x * m + t;"
TREE = f"""
    __shared__ double s[128]; {T}
    s[t] = x[i] * x[i];
    __syncthreads();
    for (int d = (m + 1) / 2, w = m; w > 1; w = d, d = (d + 1) / 2) {{
        if (t + d < w) s[t] = OP;
        __syncthreads();
    }}
    y[i] = x[i] * s[0];"""
HALVES = f"""
    __shared__ double s[128]; {T}
    s[t] = x[i];
    __syncthreads();
    for (int d = m / 2; d > 0; d >>= 1) {{
        if (t < d) s[t] = fmax(s[t], s[t + d]);
        __syncthreads();
    }}
    y[i] = x[i] - s[0] * s[0];"""
SHAPED = {
    "halves": (HALVES, (64, 32, 2, (16, 4))),
    "maximum": (TREE.replace("OP", "fmax(s[t], s[t + d])"), (64, 96, 33, 1, (8, 6))),
    "product": (TREE.replace("OP", "s[t] * s[t + d]"), (8, 7)),
    "chosen": (TREE.replace("OP", "s[t] > s[t + d] ? s[t] : s[t + d]"), (64, 5)),
    "sum": (TREE.replace("OP", "s[t] + s[t + d]"), (64, 24)),
    "no barrier": (
        f"""{T} double v = x[i]; for (int d = m / 2; d > 0; d >>= 1) v = v * v + 0.1 * d; y[i] = v;""",
        (16, 8),
    ),
    "up": (
        f"""
    __shared__ double s[128]; {T}
    s[t] = x[i];
    for (int d = 1; d < m; d *= 2) {{
        __syncthreads();
        double v = t >= d ? s[t] * s[t - d] : s[t];
        __syncthreads();
        s[t] = v;
    }}
    y[i] = s[t];""",
        (16, 12),
    ),
}
N = 192


def compiled(body: str) -> Any:
    return kernel_of(f"__global__ void k(double *y, const double *x, int n) {{ {body} }}")


def variant_of(gradient: Any, kernel: Any, grid: Any, block: Any, *args: Any) -> Any:
    primal, _ = kernel.bind(args)
    return gradient.variant_for(gradient.settings.listed, make_launch(grid, block), primal)


@pytest.mark.parametrize(("name", "form"), in_turn(SHAPED, ("joint", "primal=False", "deterministic")))
def test_values(name: str, form: str) -> None:
    body, shapes = SHAPED[name]
    kernel = compiled(body)
    options = {"joint": {}, "primal=False": {"primal": False, "keep": "y"}, "deterministic": {"deterministic": True}}
    gradient = kg.gradient(kernel, **options[form])
    for block in shapes:
        grid = 2
        rng = np.random.default_rng(1)
        x, seed, v = rng.random(N) + 0.5, rng.standard_normal(N), rng.standard_normal(N)
        x[3] = x[5]  # a tie
        v[3] = v[5]
        y, d_y, d_x = np.zeros(N), seed.copy(), np.zeros(N)
        variant = variant_of(gradient, kernel, grid, block, y, x, N)
        assert variant.options.facts.block == make_launch(grid, block).block
        assert not variant.derivative.stacks
        assert "__launch_bounds__" in variant.source(0)
        gradient[grid, block](y, x, N, d_y, d_x)
        tangent = np.zeros(N)
        tangent_of(kernel)[grid, block](np.zeros(N), x, N, tangent, v)
        assert d_x @ v == pytest.approx(tangent @ seed, rel=1e-9)
        for order in (None, 1):
            report = gradient.check(grid, block, y.copy(), x, N, seed.copy(), np.zeros(N), seed=order)
            assert report.ok, str(report)


NOT_SHAPED = {
    "no loop": f"{T} y[i] = x[i] * x[i];",
    "a loop over the buffer": f"{T} double v = x[i]; for (int k = 0; k < n; k++) v = v * v; y[i] = v;",
    "as the thread says": f"{T} double v = x[i]; for (int k = t; k < m; k++) v = v * v * 0.5; y[i] = v;",
    "nothing to keep": f"{T} double v = 0; for (int d = m / 2; d > 0; d >>= 1) v += x[i] * d; y[i] = v;",
    "constant": f"{T} double v = x[i]; for (int d = 4; d > 0; d >>= 1) v = v * v; y[i] = v;",
    "too long": f"{T} double v = x[i]; for (int k = 0; k < m * 8; k++) v = v * v * 0.5; y[i] = v;",
}


@pytest.mark.parametrize("name", NOT_SHAPED)
def test_not_chosen(name: str) -> None:
    kernel = compiled(NOT_SHAPED[name])
    gradient = kg.gradient(kernel)
    variant = variant_of(gradient, kernel, 2, 32, np.zeros(64), np.zeros(64), 64)
    assert variant.options.facts.block is None
    assert "__launch_bounds__" not in variant.source(0)


def test_constant_halvings_need_no_tape() -> None:
    body = "double v = x[threadIdx.x]; for (int d = 16; d > 0; d /= 2) v = v * v * d; y[threadIdx.x] = v;"
    assert not kg.gradient(compiled(body)).variant().derivative.stacks


def test_the_text_for_export_is_for_any_block() -> None:
    source = kg.gradient(compiled(HALVES)).source
    assert "__launch_bounds__" not in source and "blockDim" in source


def test_explain_tells() -> None:
    assert "unrolled for each shape of block" in kg.gradient(compiled(HALVES)).explain()
    assert "unrolled for each shape of block" not in kg.gradient(compiled(NOT_SHAPED["constant"])).explain()


# ---- choices

LOOP = "int i = blockIdx.x * blockDim.x + threadIdx.x; double v = 0.1; for (int k = 0; k < n; k++) {{ {} }} y[i] = v;"
CHOICES = {
    "maximum": ("v = fmax(v, x[i + 2 * k]);", set()),  # the last one that was taken is enough
    "scaled maximum": ("v = 0.9 * fmax(v, x[i + 2 * k]);", {"u8"}),
    "minimum": ("v = 0.5 * fmin(v, x[i + 2 * k]) + 0.2;", {"u8"}),
    "branch": ("if (v > x[i + 2 * k]) v = 0.5 * v + x[i]; else v += x[i + k];", {"u8"}),
    "select": ("v = v > 0.3 ? 0.5 * v : v + x[i];", {"u8"}),
    "needed anyway": ("v = fmax(v, x[i + k]) * v;", {"f64"}),
    "had again": ("v += fmax(x[i + k], x[i]);", set()),
}


@pytest.mark.parametrize("name", CHOICES)
def test_choices_are_kept_as_bools(name: str) -> None:
    body, expected = CHOICES[name]
    kernel = compiled(LOOP.format(body))
    gradient = kg.gradient(kernel)
    assert {str(stack.type) for stack in gradient.variant().derivative.stacks} == expected
    rng = np.random.default_rng(2)
    x, seed, v = rng.random(N), rng.standard_normal(8), rng.standard_normal(N)
    d_x, tangent = np.zeros(N), np.zeros(8)
    gradient[2, 4](np.zeros(8), x, 7, seed.copy(), d_x)
    kg.jvp(kernel)[2, 4](np.zeros(8), x, 7, tangent, v)
    assert d_x @ v == pytest.approx(tangent @ seed, rel=1e-9)


def test_a_kept_maximum_of_nans() -> None:
    """The one that is not a number was not chosen."""
    kernel = compiled(LOOP.format("v = fmax(v, x[k]);"))
    x, d_x = np.array([0.5, np.nan, 0.2]), np.zeros(3)
    kg.gradient(kernel)[1, 1](np.zeros(1), x, 3, np.ones(1), d_x)
    np.testing.assert_array_equal(d_x, [1, 0, 0])


# ---- whole buffers

ROW = "int t = threadIdx.x, row = blockIdx.x * 32; double v = 0; {} y[blockIdx.x * 8 + t] = v;"
WHOLE = {
    "a loop": ("for (int k = 0; k < 4; k++) v += x[row + 8 * k + t] * x[row + 8 * k + t];", True),
    "several loads": ("v = x[row + t] * x[row + t + 8] * x[row + t + 16] * x[row + 24 + t];", True),
    "both": ("for (int k = 0; k < 2; k++) v += x[row + 16 * k + t] * x[row + 16 * k + t + 8];", True),
    "a gap": ("v = x[row + t] * x[row + t + 8] * x[row + 24 + t];", False),
    "not the last": ("for (int k = 0; k < 3; k++) v += x[row + 8 * k + t];", False),
    "twice": ("for (int j = 0; j < 2; j++) for (int k = 0; k < n / 64; k++) v += j * x[row + 8 * k + t];", False),
    "read before": ("for (int j = 0; j < 2; j++) for (int k = 0; k < 4; k++) v += j * x[row + 8 * k + t];", True),
    "never": ("for (int k = 0; k < n - 256; k++) v += x[row + 8 * k + t];", False),
    "behind a guard": ("for (int k = 0; k < 4; k++) if (t < 7) v += x[row + 8 * k + t];", False),
    "until": ("for (int k = 0; k < 4 && v < 1; k++) v += x[row + 8 * k + t];", False),
}


@pytest.mark.parametrize("name", WHOLE)
def test_whole_buffers_are_written(name: str) -> None:
    body, expected = WHOLE[name]
    kernel = compiled(ROW.format(body))
    gradient = kg.gradient(kernel, primal=False, keep="y", assign="x")
    rng = np.random.default_rng(3)
    x, seed, v = rng.random(256), rng.standard_normal(64), rng.standard_normal(256)
    variant = variant_of(gradient, kernel, 8, 8, np.zeros(64), x, 256)
    assert variant.options.facts.overwritten == ({"x"} if expected else set())
    d_x, tangent = np.full(256, 7.0), np.zeros(64)
    gradient[8, 8](np.zeros(64), x, 256, seed, d_x)
    kg.jvp(kernel)[8, 8](np.zeros(64), x, 256, tangent, v)
    assert d_x @ v == pytest.approx(tangent @ seed, rel=1e-9)
    report = gradient.check(8, 8, np.zeros(64), x, 256, seed, d_x)
    assert report.ok, str(report)
