"""Gathers behind branches that a launch decides: a bias that may be null, an activation that a number asks for."""

from __future__ import annotations

import shutil
from typing import Any

import pytest

from every_plan import forced
from kernelgrad.autodiff.accumulate.gather import pattern
from transposed import PLANS, Case, assert_compiles, assert_same_as_text, assert_transposed, gathers

from ....emulation.run_text import run_packed

C, H, W = 3, 6, 8
HEAD = """int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= C * H * W) return;
    int c = i / (H * W), r = i / W % H, q = i % W;"""
TAPS = """for (int u = 0; u < K; u++) for (int v = 0; v < K; v++) {
        int yy = r + u - 1, xx = q + v - 1;
        if (yy >= 0 && yy < H && xx >= 0 && xx < W) s += x[(c * H + yy) * W + xx] * w[(c * K + u) * K + v];
    }"""
BODIES = {
    "after the sum": f"double s = 0; {TAPS} if (b) s += b[c]; if (relu) s = fmax(s, 2.); y[i] = s;",
    "as choices": f"double s = b ? b[c] : 0.; {TAPS} y[i] = relu ? max(s, 2.) : s;",
    "one of several": f"double s = 0; if (b != nullptr) s = b[c]; {TAPS}"
    " if (relu == 1) { if (s < 2) s = 2; } else if (relu == 2) s = tanh(s); y[i] = s;",
    "stores in both": f"double s = 0; {TAPS} if (!(b == nullptr)) s += b[c];"
    " if (relu > 0) y[i] = s > 2 ? s : .1 * s; else y[i] = s;",
}


def case(name: str, relu: int, bias: bool) -> Case:
    params = "double *y, const double *x, const double *w, const double *b, int C, int H, int W, int K, int relu"
    source = f"__global__ void k({params}) {{ {HEAD} {BODIES[name]} }}"
    sizes = {"y": C * H * W, "x": C * H * W, "w": C * 9, "b": C}
    nulls = frozenset[str]() if bias else frozenset("b")
    return Case(source, -(-C * H * W // 32), 32, sizes, (C, H, W, 3, relu), frozenset("xwb") - nulls, nulls=nulls)


@pytest.fixture
def _sums_of_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a GPU has them for large launches."""
    found = pattern.Finder.__init__

    def as_on_a_gpu(self: Any, function: Any, sums: Any, *_: Any, **parts: Any) -> None:
        found(self, function, sums, True)

    monkeypatch.setattr(pattern.Finder, "__init__", as_on_a_gpu)
    monkeypatch.setattr(pattern, "_FEWEST_TILES", 1)
    monkeypatch.setattr(pattern, "_LONG_TILE", 8)


@pytest.mark.parametrize("plan", PLANS[::2])
@pytest.mark.parametrize(("relu", "bias"), [(0, True), (1, True), (1, False), (2, True)])
@pytest.mark.parametrize("name", BODIES)
def test_values(name: str, relu: int, bias: bool, plan: str) -> None:
    assert_transposed(case(name, relu, bias), plan, assigned=relu == 1)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("relu", [0, 1, 2])
@pytest.mark.parametrize("name", BODIES)
def test_sums_of_blocks(name: str, relu: int, bias: bool, _sums_of_blocks: None) -> None:
    one = case(name, relu, bias)
    with forced("gathered and staged"):
        assert gathers(one) == one.gathered
    for assigned in (False, True):
        assert_transposed(one, "gathered and staged", assigned)


@pytest.mark.parametrize("name", BODIES)
def test_as_text(name: str, _sums_of_blocks: None) -> None:
    if shutil.which("g++") is None:
        pytest.skip("g++ is not installed")
    with forced("gathered and staged"):
        assert_same_as_text(case(name, 1, True), run_packed)


@pytest.mark.parametrize("name", BODIES)
def test_compiles(name: str, _sums_of_blocks: None) -> None:
    pytest.importorskip("cuda.core")
    with forced("gathered and staged"):
        text = assert_compiles(case(name, 1, True))
    assert "k_grad_gather_b" in text and "atomicAdd" not in text
