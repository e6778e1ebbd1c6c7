"""Variables of the source: what gathers read of them, and their own adjoints."""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from every_plan import forced
from transposed import PLANS, Case, assert_compiles, assert_same_as_text, assert_transposed, gathers

from ....emulation.run_text import run_packed

H, W, K, C, B = 9, 21, 3, 2, 2
AT = "int j = blockIdx.x * blockDim.x + threadIdx.x, i = blockIdx.y * blockDim.y + threadIdx.y, k = blockIdx.z;"
GUARD = "if (i >= H - 2 || j >= W - 2) return;"
TAPS = "for (int u = 0; u < 3; u++) for (int v = 0; v < 3; v++)"
FLAT, NESTED = f"__constant__ double w[{K * C * 9}];", f"__constant__ double w[{K}][{C}][3][3];"
WEIGHTS = {
    "flat": (FLAT, "w[((k * C + c) * 3 + u) * 3 + v]"),
    "nested": (NESTED, "w[k][c][u][v]"),
    "in device memory": (NESTED.replace("__constant__", "__device__"), "w[k][c][u][v]"),
    "by a pointer": (FLAT, "p[u * 3 + v]"),
}


def convolution(weights: str, body: str = "") -> Case:
    """Each output channel is a layer of blocks."""
    declared, weight = WEIGHTS[weights]
    pointer = "const double *p = w + (k * C + c) * 9;" if "pointer" in weights else ""
    body = (
        body
        or f"""{AT} {GUARD} double s = 0;
        for (int c = 0; c < C; c++) {{ {pointer} {TAPS} s += x[(c * H + i + u) * W + j + v] * {weight}; }}
        y[(k * H + i) * W + j] = s;"""
    )
    source = f"{declared} __global__ void k(double *y, const double *x, int H, int W, int C) {{ {body} }}"
    sizes = {"y": K * H * W, "x": C * H * W}
    return Case(source, (2, 3, K), (16, 4), sizes, (H, W, C), frozenset("x"), constants=("w",))


IN_BATCHES = f"""int j = blockIdx.x * blockDim.x + threadIdx.x, i = blockIdx.y * blockDim.y + threadIdx.y;
    int b = blockIdx.z / {K}, k = blockIdx.z % {K};
    if (i < H - 2 && j < W - 2) {{
        double s = 0;
        for (int c = 0; c < C; c++) {TAPS} s += x[((b * C + c) * H + (i + u)) * W + (j + v)] * w[k][c][u][v];
        y[((b * {K} + k) * H + i) * W + j] = s;
    }}"""
CASES = {name: convolution(name) for name in WEIGHTS} | {
    "batches": replace(
        convolution("nested", IN_BATCHES), grid=(2, 3, K * B), sizes={"y": B * K * H * W, "x": B * C * H * W}
    ),
}
# What the kernel itself writes is not there when a gather reads it.
WRITTEN = """__device__ double w[64]; __global__ void k(double *y, const double *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    w[i] = 2 * i;
    if (i < n - 2) y[i] = w[i] * (x[i] + 3 * x[i + 2]);
    w[i] = 5;
}"""


@pytest.mark.parametrize("name", CASES)
def test_inputs_are_gathered(name: str) -> None:
    assert gathers(CASES[name]) == {"x"}


@pytest.mark.parametrize("listed", [False, True])
@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("name", CASES)
def test_values(name: str, plan: str, listed: bool) -> None:
    case = replace(CASES[name], variables=("w",)) if listed else CASES[name]
    for assigned in (False, True):
        assert_transposed(case, plan, assigned)


@pytest.mark.parametrize("name", CASES)
def test_weights_are_gathered(name: str) -> None:
    case = replace(CASES[name], variables=("w",))
    with forced("gathered as on a GPU"):
        assert gathers(case, primal=False, keep="y") == {"x", "w"}


@pytest.mark.parametrize("listed", [False, True])
@pytest.mark.parametrize("name", ["flat", "nested", "batches"])
def test_as_text(name: str, listed: bool) -> None:
    if shutil.which("g++") is None:
        pytest.skip("g++ is not installed")
    case = replace(CASES[name], variables=("w",)) if listed else CASES[name]
    for plan in ("gathered", "in cells of blocks", "many blocks"):
        with forced(plan):
            assert_same_as_text(replace(case, constants=() if listed else ("w",)), run_packed)


@pytest.mark.parametrize("plan", ["gathered as on a GPU", "in cells of blocks", "as on a GPU"])
@pytest.mark.parametrize("name", CASES)
def test_compiles(name: str, plan: str) -> None:
    pytest.importorskip("cuda.core")
    with forced(plan):
        assert_compiles(replace(CASES[name], variables=("w",)))


def test_cells_of_blocks() -> None:
    """A table that each thread looks something up in; the block adds up in shared memory."""
    source = """__device__ double w[5][3]; __global__ void k(double *y, const double *x, const int *at, int n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) y[i] = w[at[i]][i % 3] * x[i];
    }"""
    n = 4000
    kernel = kg.compile(source)["k"]
    rng = np.random.default_rng(1)
    kernel.variable("w")[...] = rng.uniform(1, 2, (5, 3))
    y, x, at = np.zeros(n), rng.uniform(1, 2, n), rng.integers(0, 5, n).astype(np.int32)
    expected = np.zeros((5, 3))
    seed = rng.uniform(-1, 1, n)
    np.add.at(expected, (at, np.arange(n) % 3), seed * x)
    for plan in ("in cells of blocks", "many blocks", "as on a GPU"):
        d_x, d_w = np.zeros(n), np.zeros((5, 3))
        with forced(plan):
            gradient: Any = kg.gradient(kernel, "y, x, w", primal=False, keep="y")
            gradient[-(-n // 64), 64](y, x, at, n, seed, d_x, d_w)
            facts = [facts for _, facts in gradient.forms.made]
        assert any(f.cells or f.copied for f in facts), plan
        np.testing.assert_allclose(d_w, expected, rtol=1e-12)


def test_what_the_kernel_writes() -> None:
    source = WRITTEN
    kernel = kg.compile(source)["k"]
    x, d_x = np.ones(62), np.zeros(62)
    with forced("gathered"):
        kg.gradient(kernel, "y, x")[2, 32](np.zeros(62), x, 62, np.ones(62), d_x)
    i = np.arange(60)
    expected = np.zeros(62)
    expected[:60] += 2 * i
    expected[2:] += 6 * i
    np.testing.assert_allclose(d_x, expected)
