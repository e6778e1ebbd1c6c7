"""Gathers of few elements with long sums, a block for each tile of them: right, and only where they can be."""

from __future__ import annotations

import re
import shutil
from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from derived import kernel_of
from kernelgrad.autodiff.accumulate.gather import pattern, plan
from kernelgrad.backends.cuda import kernel_name
from kernelgrad.ir.layout import param_layout
from kernelgrad.launches.choice import gathers
from kernelgrad.runtime.config import make_launch
from kernelgrad.runtime.launch import LaunchConfig
from some_cases import in_turn

from ....emulation.run_text import run_packed

CONVOLUTION = """__global__ void k(T *y, const T *x, const T *w, int C, int K, int H, int W) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, j = blockIdx.y * blockDim.y + threadIdx.y, o = blockIdx.z;
    GUARD
    T sum = 0;
    for (int c = 0; c < C; ++c)
        for (int r = 0; r < 3; ++r)
            for (int s = 0; s < 3; ++s) {
                int v = j + r - 1, u = i + s - 1;
                TAP
            }
    y[(o * H + j) * W + i] = sum;
}"""
PRODUCT = "x[(c * H + v) * W + u] * w[((o * C + c) * 3 + r) * 3 + s]"
FORMS = {
    "if": ("if (i >= W || j >= H) return;", f"if (v >= 0 && v < H && u >= 0 && u < W) sum += {PRODUCT};"),
    "continue": (
        "if (!(i < W && H > j)) return;",
        f"if (v < 0 || v >= H || u < 0 || u >= W) continue; sum += {PRODUCT};",
    ),
    "unsigned": (
        "if (i >= W) return; if (j >= H) return;",
        f"sum += (unsigned)v < (unsigned)H && (unsigned)u < (unsigned)W ? {PRODUCT} : T(0);",
    ),
}
SHAPES = {
    "usual": (2, 3, 10, 37, (16, 4)),
    "odd block": (3, 2, 7, 31, (33, 1)),
    "one channel": (1, 2, 25, 140, (8, 8, 1)),
}


@pytest.fixture(autouse=True)
def _for_small_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a GPU has them for large ones."""
    monkeypatch.setattr(
        gathers, "Finder", lambda function, sums, *_, **parts: pattern.Finder(function, sums, True, **parts)
    )
    monkeypatch.setattr(pattern, "_FEWEST_TILES", 1)
    monkeypatch.setattr(pattern, "_LONG_TILE", 8)


def _tiles(gradient: Any) -> dict[str, tuple[int, ...] | None]:
    return {gather.name: gather.tile for _, facts in gradient.forms.made for gather in facts.gathered}


def _parts(gradient: Any) -> dict[str, int]:
    return {gather.name: gather.parts for _, facts in gradient.forms.made for gather in facts.gathered}


def _rows(gradient: Any) -> dict[str, int]:
    return {gather.name: gather.sites[0].rows for _, facts in gradient.forms.made for gather in facts.gathered}


def _expected(x: Any, w: Any, g: Any) -> tuple[Any, Any]:
    (C, H, W), d_x, d_w = x.shape, np.zeros(x.shape), np.zeros(w.shape)
    padded, d_padded = np.pad(x, ((0, 0), (1, 1), (1, 1))), np.zeros((C, H + 2, W + 2))
    for r in range(3):
        for s in range(3):
            d_w[:, :, r, s] = np.einsum("khw,chw->kc", g, padded[:, r : r + H, s : s + W])
            d_padded[:, r : r + H, s : s + W] += np.einsum("khw,kc->chw", g, w[:, :, r, s])
    d_x[...] = d_padded[:, 1:-1, 1:-1]
    return d_x, d_w


def _share_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Among several blocks each."""
    monkeypatch.setattr(pattern, "_FEWEST_TILES", 7)
    monkeypatch.setattr(pattern, "_PARTS", 18)


SETTINGS: tuple[dict[str, Any], ...] = ({}, {"deterministic": True}, {"primal": False, "keep": "y", "assign": "x, w"})


@pytest.mark.parametrize(("shape", "settings"), in_turn(SHAPES, SETTINGS))
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("shared", [False, True])
def test_weights_of_convolutions(
    form: str, shape: str, settings: dict[str, Any], shared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if shared:
        _share_tiles(monkeypatch)
    C, K, H, W, block = SHAPES[shape]
    guard, tap = FORMS[form]
    text = CONVOLUTION.replace("GUARD", guard).replace("TAP", tap).replace("T(0)", "0.0").replace("T ", "double ")
    gradient = kg.gradient(kernel_of(text), "y, x, w", **settings)
    rng = np.random.default_rng(2)
    x, w, g = (rng.standard_normal(s) for s in ((C, H, W), (K, C, 3, 3), (K, H, W)))
    start = 9.0 if "assign" in settings else 0.0
    d_x, d_w = np.full(x.size, start), np.full(w.size, start)
    grid = (-(-W // block[0]), -(-H // block[1]), K)
    gradient[grid, block](np.zeros(g.size), x.ravel(), w.ravel(), C, K, H, W, g.ravel().copy(), d_x, d_w)
    tile = None if shared and "deterministic" in settings else (3, 3)
    assert shape == "odd block" or _tiles(gradient).get("w") == tile
    assert shape == "odd block" or tile is None or (_parts(gradient)["w"] > 1) == shared
    if shape != "odd block" and tile is not None:
        assert _rows(gradient)["w"] == (32 if shared else plan.ROWS)  # a launch as small as this fills no GPU
    for got, expected in zip((d_x, d_w), _expected(x, w, g), strict=True):
        np.testing.assert_allclose(got, expected.ravel(), rtol=1e-12, atol=1e-12)


def _small(form: str, real: str) -> tuple[Any, list[Any], list[Any]]:
    """The gradient for a launch of (3, 3, 3) blocks of (16, 4) threads, its arguments, and their adjoints."""
    guard, tap = FORMS[form]
    text = CONVOLUTION.replace("GUARD", guard).replace("TAP", tap).replace("T(0)", "0.0f").replace("T ", f"{real} ")
    gradient = kg.gradient(kg.compile(text)["k"], "y, x, w", primal=False, keep="y", assign="x, w")
    C, K, H, W = 2, 3, 10, 37
    rng, type = np.random.default_rng(2), {"float": "f4", "double": "f8"}[real]
    x, w, g = (rng.standard_normal(n).astype(type) for n in (C * H * W, K * C * 9, K * H * W))
    return gradient, [np.zeros_like(g), x, w, C, K, H, W], [g, np.zeros_like(x), np.zeros_like(w)]


@pytest.mark.parametrize("form", FORMS)
def test_no_test_stands_between_the_loads(form: str) -> None:
    """Of all nine, where all nine are there."""
    gradient, args, _ = _small(form, "float")
    text = gradient.source_for((3, 3, 3), (16, 4), *args, on_gpu=True)
    weights = text[text.index("k_grad_gather_w(") :]
    assert re.search(r"(\n +sum\w* \+= [^;]*\bx\[[^;]*;){9}", weights)


@pytest.mark.parametrize(("special", "shared"), [(None, False), (np.inf, False), (None, True)])
def test_as_text(special: float | None, shared: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The CUDA text of every launch, compiled by g++ against an emulation. What lies where an adjoint is zero is
    nobody's."""
    if shutil.which("g++") is None:
        pytest.skip("g++ is not installed")
    if shared:
        _share_tiles(monkeypatch)
    gradient, args, adjoints = _small("if", "double")
    if special is not None:
        args[1][37 * 5 + 7] = special
        adjoints[0].reshape(3, 10, 37)[:, 4:7, 6:9] = 0
    expected = [array.copy() for array in adjoints]
    gradient[(3, 3, 3), (16, 4)](*args, *expected)
    steps, _, own = gradient._prepare(make_launch((3, 3, 3), (16, 4)), (*args, *adjoints), {})
    for kernel, bound, launch, supplied in steps:
        module, config = kernel.cuda_module, LaunchConfig(launch.grid, launch.block)
        packed = kernel._with_variables(module, bound, config, None, supplied).packed
        offsets, _ = param_layout(module.functions[kernel.name])
        run_packed(kernel.source, kernel_name(kernel.name), launch.grid, launch.block, packed, offsets)
    own.finish()
    assert np.isfinite(adjoints[2]).all()
    for got, wanted in zip(adjoints, expected, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-12, atol=1e-12)


AT = "int i = blockIdx.x * blockDim.x + threadIdx.x, b = blockIdx.y;"
NOT_SUMMED = {
    "lanes far apart": "w[b] * x[i * 3 + b]",
    "two reads": "w[b] * x[i] + w[b + 1]",
    "what a thread looks up": "w[(int)x[i]] * x[i]",
}


@pytest.mark.parametrize("name", NOT_SUMMED)
def test_others_are_not(name: str) -> None:
    parameters = "double *y, const double *x, const double *w"
    kernel = kernel_of(f"__global__ void k({parameters}) {{ {AT} y[b * 64 + i] = {NOT_SUMMED[name]}; }}")
    gradient = kg.gradient(kernel, "y, x, w")
    x, w = np.random.default_rng(1).random(200), np.random.default_rng(4).random(5)
    arguments = [np.zeros(256), x, w]
    gradient[(2, 4), 32](*arguments, np.ones(256), np.zeros(200), np.zeros(5))
    assert _tiles(gradient).get("w") is None
    kg.check_gradient(kernel, "y, x, w", (2, 4), 32, arguments)


@pytest.mark.parametrize("block", [32, 33, 7])
def test_every_thread_of_a_short_row_is_in_the_sum(block: int) -> None:
    """One axis is summed over, and a loop of which no sum is written out."""
    text = f"""__global__ void k(double *y, const double *x, const double *w, int n, int m) {{ {AT}
        if (i >= n) return;
        double s = 0;
        for (int j = 0; j < m; ++j) s += x[j * n + i] * w[b * m + j];
        y[b * n + i] = s * s;
    }}"""
    kernel, n, m = kernel_of(text), 21, 3
    rng = np.random.default_rng(0)
    arguments = [np.zeros(2 * n), rng.standard_normal(m * n), rng.standard_normal(2 * m), n, m]
    kg.check_gradient(kernel, "y, x, w", (-(-n // block), 2), block, arguments)
    gradient = kg.gradient(kernel, "y, x, w")
    launch = make_launch((-(-n // block), 2), block)
    report = gradient.check(launch.grid, launch.block, *arguments, np.ones(2 * n), np.zeros(m * n), np.zeros(2 * m))
    assert not report.findings, report


def test_threads_that_all_have_a_part_in_every_element(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is asked of them: as many as there are, and no condition."""
    _share_tiles(monkeypatch)
    text = """__global__ void k(double *y, const double *w, int n) {
        double s = 0;
        for (int j = 0; j < n / 4; j++) for (int q = 0; q < 4; q++) s += w[q] * w[q] * j;
        y[threadIdx.x] = s;
    }"""
    n, w, d_w = 4096, np.random.default_rng(0).random(4), np.zeros(4)
    gradient = kg.gradient(kernel_of(text), "y, w")
    gradient[1, 32](np.zeros(32), w, n, np.ones(32), d_w)
    assert _tiles(gradient) == {"w": (4,)}
    np.testing.assert_allclose(d_w, 32 * 2 * w * np.arange(n // 4).sum(), rtol=1e-12)
