"""Elements that windows of threads read, as images that are made larger: `x[r / S * W + q / S]`."""

from __future__ import annotations

import shutil
from typing import Any

import pytest

from every_plan import forced
from transposed import PLANS, Case, assert_compiles, assert_same_as_text, assert_transposed, gathers

from ....emulation.run_text import run_packed

H, W, S, C = 5, 7, 3, 4
OH, OW = H * S, W * S
FLAT = "int i = blockIdx.x * blockDim.x + threadIdx.x;"
PLANE = "int q = blockIdx.x * blockDim.x + threadIdx.x, r = blockIdx.y * blockDim.y + threadIdx.y;"
SIZES = "int OW = W * S, OH = H * S;"


def case(
    body: str, grid: Any, block: Any, planes: int = 1, numbers: Any = (H, W, S), out: int = 0, size: int = 0
) -> Case:
    source = f"__global__ void k(double *y, const double *x, int H, int W, int S) {{ {body} }}"
    sizes = {"y": out or planes * OH * OW, "x": size or planes * H * W}
    return Case(source, grid, block, sizes, numbers, frozenset("x"))


def flat(body: str, planes: int = 1, **options: Any) -> Case:
    return case(
        f"{FLAT} {SIZES} if (i >= {planes} * OW * OH) return; {body}", planes * OH * OW // 64 + 2, 64, planes, **options
    )


def plane(body: str, planes: int = 1, **options: Any) -> Case:
    return case(f"{PLANE} {SIZES} if (q >= OW || r >= OH) return; {body}", (3, 4, planes), (8, 8), planes, **options)


WINDOWS = {
    "flat": flat("int q = i % OW, r = i / OW; y[i] = x[(r / S) * W + q / S];"),
    "squares": flat("int q = i % OW, r = i / OW; double v = x[r / S * W + q / S]; y[i] = v * v;"),
    "planes": flat("int q = i % OW, r = i / OW % OH, c = i / (OW * OH); y[i] = x[(c * H + r / S) * W + q / S];", C),
    "two dimensions": plane("int a = r / S, b = q / S; y[r * OW + q] = x[a * W + b];"),
    "a loop over planes": plane(
        f"for (int c = 0; c < {C}; c++) y[(c * OH + r) * OW + q] = x[(c * H + r / S) * W + q / S];",
        out=C * OH * OW,
        size=C * H * W,
    ),
    "blocks for planes": plane("int c = blockIdx.z; y[(c * OH + r) * OW + q] = x[(c * H + r / S) * W + q / S];", C),
    "clamped": plane("y[r * OW + q] = x[min(r / S, H - 1) * W + min(q / S, W - 1)];"),
    "by sizes": plane("y[r * OW + q] = x[(r * H / OH) * W + q * W / OW];"),
    "channels last": flat(
        f"int c = i % {C}, q = i / {C} % OW, r = i / {C} / OW; y[i] = x[((r / S) * W + q / S) * {C} + c];", C
    ),
}
# Some elements are read by fewer threads, or by none; a digit that is no part of the index; a stride that leaves some.
OTHERS = {
    "shifted": plane("if (q > 0) y[r * OW + q] = x[r / S * W + (q - 1) / S];"),
    "a part of it": flat("int q = i % OW, r = i / OW; if (q > 4 && r < 7) y[i] = x[(r / S) * W + q / S];"),
    "ragged": plane("if (q < OW - 1 && r < OH - 2) y[r * OW + q] = x[(r / S) * W + q / S];"),
    "too large a buffer": plane("y[r * OW + q] = x[(r / S) * W + q / S];", size=H * W + 19),
    "too small a grid": case(f"{PLANE} {SIZES} y[r * OW + q] = x[r / S * W + q / S];", (2, 1), (8, 8)),
    "rows that do not divide": flat(
        "int q = i % (OW - 1), r = i / (OW - 1); y[i] = x[r / S * W + q / S];", size=2 * H * W
    ),
    "another stride": flat("int q = i % OW, r = i / OW; y[i] = x[(r / 2) * W + q / 4];", size=3 * H * W),
    "negative remainders": plane("y[r * OW + q] = x[(r / S) * W + abs((q - 9) / S)];", size=2 * H * W),
    "no planes": plane("for (int c = 0; c < H - 5; c++) y[r * OW + q] = x[q / S + c];"),
}
ALL = {**WINDOWS, **OTHERS}


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("name", ALL)
def test_values(name: str, plan: str) -> None:
    for assigned in (False, True):
        assert_transposed(ALL[name], plan, assigned)


@pytest.mark.parametrize("name", WINDOWS)
def test_is_gathered(name: str) -> None:
    assert gathers(WINDOWS[name]) == {"x"}


@pytest.mark.parametrize("name", ["flat", "channels last", "ragged"])
def test_as_text(name: str) -> None:
    if shutil.which("g++") is None:
        pytest.skip("g++ is not installed")
    with forced("gathered"):
        assert_same_as_text(ALL[name], run_packed)


@pytest.mark.parametrize("name", WINDOWS)
def test_compiles(name: str) -> None:
    pytest.importorskip("cuda.core")
    with forced("gathered as on a GPU"):
        assert "atomicAdd" not in assert_compiles(WINDOWS[name])
