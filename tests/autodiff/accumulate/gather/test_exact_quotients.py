"""Reads at quotients that leave nothing, as of transposed convolutions: `if (a % S == 0) ... x[a / S]`."""

from __future__ import annotations

import shutil
from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from every_plan import forced
from transposed import PLANS, Case, assert_compiles, assert_same_as_text, assert_transposed, gathers

from ....emulation.run_text import run_packed

SHAPES = {"usual": (2, 3, 5, 4, 2, 1, 4), "by three": (2, 2, 3, 4, 3, 2, 5), "no stride": (1, 2, 4, 5, 1, 1, 3)}
FLAT = """int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= K * OH * OW) return;
    int q = i % OW, r = i / OW % OH, k = i / (OW * OH);"""
PLANE = """int q = blockIdx.x * blockDim.x + threadIdx.x, r = blockIdx.y * blockDim.y + threadIdx.y, k = blockIdx.z;
    if (q >= OW || r >= OH) return; int i = (k * OH + r) * OW + q;"""
LOOPS = "for (int c = 0; c < C; c++) for (int u = 0; u < F; u++)"
ADD = "s += x[(c * H + a) * W + b] * w[((c * K + k) * F + u) * F + v];"
BOTH = "for (int v = 0; v < F; v++) { int a = r + P - u, b = q + P - v;"
BODIES = {
    "flat": FLAT
    + f"""double s = 0; {LOOPS} {{
        int a = r + P - u; if (a % S) continue; a /= S; if (a < 0 || a >= H) continue;
        for (int v = 0; v < F; v++) {{
            int b = q + P - v; if (b % S != 0) continue; b /= S; if (b < 0 || b >= W) continue; {ADD}
        }} }} y[i] = s;""",
    "a plane of threads": PLANE
    + f"""double s = 0; {LOOPS} {BOTH}
        if (a % S == 0 && b % S == 0 && a >= 0 && b >= 0) {{ a = a / S; b = b / S; if (a < H && b < W) {ADD} }}
        }} y[i] = s;""",
    "by multiplication": PLANE
    + f"""double s = 0; {LOOPS} for (int v = 0; v < F; v++) {{ int a = (r + P - u) / S, b = (q + P - v) / S;
        if (a * S != r + P - u || S * b != q + P - v || a < 0 || b < 0 || a >= H || b >= W) continue; {ADD}
        }} y[i] = s;""",
    "beyond the sum": FLAT
    + f"""double s = 0; {LOOPS} {BOTH} if (a % S || b % S) continue; a /= S; b /= S;
        if (a >= 0 && a < H && b >= 0 && b < W) {ADD} }} y[i] = s * s;""",
    "by a constant": PLANE
    + f"""double s = 0; {LOOPS} {BOTH} if (a & 1 || b & 1) continue; a >>= 1; b >>= 1;
        if (a >= 0 && a < H && b >= 0 && b < W) {ADD} }} y[i] = s;""",
}
PARAMETERS = (
    "double *y, const double *x, const double *w, int C, int K, int H, int W, int S, int P, int OH, int OW, int F"
)


def case(name: str, shape: str, more: tuple[int, int] = (0, 0)) -> Case:
    """`more`: rows and columns of the output than there are."""
    C, K, H, W, S, P, F = SHAPES[shape]
    OH, OW = (H - 1) * S - 2 * P + F + more[0], (W - 1) * S - 2 * P + F + more[1]
    source = f"__global__ void k({PARAMETERS}) {{ {BODIES[name]} }}"
    launch: Any = (-(-K * OH * OW // 32), 32) if FLAT in source else ((-(-OW // 8), -(-OH // 4), K), (8, 4))
    sizes = {"y": K * OH * OW, "x": C * H * W, "w": C * K * F * F}
    return Case(source, *launch, sizes, (C, K, H, W, S, P, OH, OW, F), frozenset("xw"))


# In one dimension: where remainders of what is negative, of something else, or of other divisors tell nothing.
LINE = "int i = blockIdx.x * blockDim.x + threadIdx.x;"
OTHERS = {
    "not tested": f"{LINE} if (i < n) y[i] = x[abs((i - 5) / S)];",
    "the other side": f"{LINE} int a = i - 5; if (i < n && a % S != 0) y[i] = x[abs(a / S)];",
    "of something else": f"{LINE} int a = i - 5; if (i < n && (a + 1) % S == 0) y[i] = x[abs(a / S)] * x[i];",
    "by something else": f"{LINE} int a = i - 5; if (i < n && a % (S + 1) == 0) y[i] = x[abs(a / S)];",
    "a multiple": f"{LINE} int a = i - 5; if (i < n && a % (2 * S) == 0 && a >= 0) y[i] = x[a / S];",
    "one of two": f"{LINE} int a = i - 5; if (i < n && (a % S == 0 || i > 9)) y[i] = x[abs(a / S)];",
    "remainders of one": f"{LINE} int a = i - 5; if (i < n && a % S == 1) y[i] = x[a / S];",
    "unsigned": f"{LINE} unsigned a = i - 5; if (i < n && a % S == 0 && a / S < n) y[i] = x[a / S];",
    "negative places": f"{LINE} int a = i - 5; if (i < n && a % S == 0) y[i] = x[a / S + 7];",
    "backwards": f"{LINE} int a = 40 - i; if (i < n && a % S == 0) y[i] = x[a / S + 20];",
    "twice": f"{LINE} int a = i - 5; if (i < n && a % S == 0 && a / S % 2 == 0)"
    " y[i] = x[a / S / 2 + 9] * x[a / S + 7];",
    "and the index": f"{LINE} int a = i - 5; if (i < n && a % S == 0) y[i] = x[a / S + 7 + i];",
    "no turns": f"{LINE} for (int u = 0; u < S - 3; u++) if (i < n && (i - u) % S == 0) y[i] = x[(i - u) / S + 1];",
    "a digit and a digit": f"{LINE} int a = i % 8 - i / 8; if (i < n && a % S == 0) y[i] = x[a / S + 9];",
    "divided by a quotient": f"{LINE} int a = i / 2 - 3; if (i < n && a % S == 0) y[i] = x[a / S + 4] * x[i];",
    "a negative divisor": f"{LINE} int a = i - 5; if (i < n && a % -S == 0) y[i] = x[a / -S + 20];",
}


def line(name: str) -> Case:
    source = f"__global__ void k(double *y, const double *x, int n, int S) {{ {OTHERS[name]} }}"
    return Case(source, 3, 20, {"y": 50, "x": 99}, (50, 3))


@pytest.mark.parametrize("plan", PLANS[:4])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", BODIES)
def test_values(name: str, shape: str, plan: str) -> None:
    if name == "by a constant" and SHAPES[shape][4] != 2:
        pytest.skip("is for a stride of two")
    assert_transposed(case(name, shape), plan, assigned=True)
    for more in ((-2, -1), (3, 5)):
        assert_transposed(case(name, shape, more), plan)


@pytest.mark.parametrize("name", BODIES)
def test_is_gathered(name: str) -> None:
    with forced("gathered and staged"):
        assert "x" in gathers(case(name, "usual"))


@pytest.mark.parametrize("plan", PLANS[:4])
@pytest.mark.parametrize("name", OTHERS)
def test_others(name: str, plan: str) -> None:
    assert_transposed(line(name), plan)
    assert_transposed(line(name), plan, assigned=True)


@pytest.mark.parametrize("name", ["flat", "a plane of threads"])
def test_as_text(name: str) -> None:
    if shutil.which("g++") is None:
        pytest.skip("g++ is not installed")
    with forced("gathered"):
        assert_same_as_text(case(name, "usual"), run_packed)


@pytest.mark.parametrize("name", BODIES)
def test_compiles(name: str) -> None:
    pytest.importorskip("cuda.core")
    with forced("gathered as on a GPU"):
        assert_compiles(case(name, "usual"))


# Conditions and places: of what is a multiple nowhere, everywhere, or where another coordinate says so.
ELSEWHERE = {
    "nowhere": ("(3 * q + 1) % 3 == 0 && q % 2 == 0", "(3 * q + 1) / 3 * 8 + q / 2"),
    "everywhere": ("3 * r % 3 == 0 && (q + 1) % 2 == 0", "3 * r / 3 * 9 + (q + 1) / 2"),
    "nowhere, of the other": ("(2 * r + 1) % 4 == 0 && q % 2 == 0", "r * 8 + q / 2"),
    "in the condition alone": ("r % 3 == 0 && q % 2 == 0", "q / 2"),
    "of a sum, in the condition alone": ("(r + q) % 3 == 0 && q % 2 == 0", "r * 8 + q / 2"),
    "of a sum": ("(r + q) % 3 == 0 && q % 2 == 0", "(r + q) / 3 * 8 + q / 2"),
    "of both": ("(r + 2) % 3 == 0 && q % 2 == 0", "(r + 2) / 3 * 8 + q / 2"),
    "or": ("(6 * r + 3) % 6 == 0 || q % 2 == 0", "r * 8 + q / 2"),
}


@pytest.mark.parametrize("plan", ["as launched", "gathered", "gathered as on a GPU"])
@pytest.mark.parametrize("name", ELSEWHERE)
def test_multiples_that_say_nothing_of_a_thread(name: str, plan: str) -> None:
    condition, place = ELSEWHERE[name]
    kernel = kg.compile(f"""__global__ void k(double *y, const double *x) {{
        int q = blockIdx.x * blockDim.x + threadIdx.x, r = blockIdx.y * blockDim.y + threadIdx.y;
        double s = 0;
        if ({condition}) s = x[{place}];
        y[r * 16 + q] = s * (r + 2 * q);
    }}""")["k"]
    rng = np.random.default_rng(1)
    x, tangent, seed, moved, d_x = *rng.uniform(-1, 1, (2, 400)), rng.uniform(-1, 1, 256), np.zeros(256), np.zeros(400)
    with forced(plan):
        kg.gradient(kernel, "y, x", primal=False, keep="y")[(2, 4), (8, 4)](np.zeros(256), x, seed, d_x)
    kg.jvp(kernel, "y, x")[(2, 4), (8, 4)](np.zeros(256), x, moved, tangent)
    np.testing.assert_allclose(d_x @ tangent, seed @ moved, rtol=1e-12, atol=1e-12)


# Quotients that are digits of the thread's index, too.
DIGITS = {
    "every other row": "int r = i / 4; if (i < n && r % 2 == 0) y[i] = x[r / 2 * 4 + i % 4];",
    "by a product": "int h = i / 4 / 2; if (i < n && h * 2 == i / 4) y[i] = x[h * 4 + i % 4];",
    "every other block": "if (i < n && blockIdx.x % 2 == 0) y[i] = x[blockIdx.x / 2 * blockDim.x + threadIdx.x];",
    "by an argument": "int a = i / 6; if (i < n && a % s == 0) y[i] = x[i % 6 + a / s * 6];",
    "with a neighbour": "int r = i / 4, q = r / 2 * 4 + i % 4; if (i < n && r % 2 == 0) y[i] = x[q] * x[q + 1];",
    "twice": "int r = i / 4; if (i < n && r % 4 == 0) y[i] = x[r / 4 * 4 + i % 4] + x[r / 2 * 4 + i % 4];",
}


@pytest.mark.parametrize("launch", [(3, 6), (4, 10), (2, 20), (1, 24), (3, 8), (8, 33), (2, 32)])
@pytest.mark.parametrize("plan", ["as launched", "gathered", "gathered as on a GPU", "gathered and staged"])
@pytest.mark.parametrize("name", DIGITS)
def test_digits_of_a_thread(name: str, plan: str, launch: tuple[int, int]) -> None:
    kernel = kg.compile(f"""__global__ void k(double *y, const double *x, int n, int s) {{
        int i = blockIdx.x * blockDim.x + threadIdx.x; {DIGITS[name]} }}""")["k"]
    size = launch[0] * launch[1]
    rng = np.random.default_rng(1)
    x, tangent, seed, moved = *rng.uniform(-1, 1, (2, size + 8)), rng.uniform(-1, 1, size), np.zeros(size)
    d_x = np.zeros(size + 8)
    with forced(plan):
        kg.gradient(kernel, "y, x", primal=False, keep="y")[launch](np.zeros(size), x, size, 3, seed, d_x)
    kg.jvp(kernel, "y, x")[launch](np.zeros(size), x, size, 3, moved, tangent)
    np.testing.assert_allclose(d_x @ tangent, seed @ moved, rtol=1e-12, atol=1e-12)
