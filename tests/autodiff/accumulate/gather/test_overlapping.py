"""Blocks that overlap, and unsigned indices that come round behind a guard: who reads an element is one of few."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

import kernelgrad as kg
from derived import kernel_of
from every_plan import forced
from kernelgrad.analysis.access.affine import Shape, Sums
from kernelgrad.analysis.access.executions import executions
from kernelgrad.analysis.ownership.private import places_of
from kernelgrad.analysis.ownership.single_stores import is_stored_once
from kernelgrad.analysis.roots import analyse as roots_of
from kernelgrad.analysis.structure import analyse
from kernelgrad.derivatives.gradient import Gradient
from kernelgrad.runtime.integers import Ways
from transposed import PLANS, Case, assert_compiles, assert_same_as_text, assert_transposed, gathers

from ....emulation.run_text import run_packed

N, T = 150, 32
TILE = f"__shared__ double s[{T}];"


def case(body: str, type: str = "unsigned", n: int = N, grid: int = N // (T - 2) + 2, size: int = N) -> Case:
    source = f"__global__ void k(double *y, const double *x, {type} n) {{ {body} }}"
    return Case(source, grid, T, {"y": size, "x": size}, (n,), frozenset("x"))


SUM = "s[t - 1] * s[t] + 2 * s[t] + s[t + 1]"
OVERLAPPING = {
    "unsigned": case(
        f"{TILE} unsigned t = threadIdx.x, i = blockIdx.x * (blockDim.x - 2) + t - 1; s[t] = i < n ? x[i] : 0;"
        f"__syncthreads(); if (t > 0 && t < {T - 1} && i < n) y[i] = {SUM};"
    ),
    "signed": case(
        f"{TILE} int t = threadIdx.x, i = (int)(blockIdx.x * {T - 2}) + t - 1; s[t] = 0;"
        "if (i >= 0 && i < n) s[t] = x[i];"
        f"__syncthreads(); if (t >= 1 && t <= {T - 2} && i < n) y[i] = {SUM};",
        "int",
    ),
    "ends by equality": case(
        f"{TILE} const unsigned t = threadIdx.x; const int i = blockIdx.x * {T - 2} + t - 1;"
        f"s[t] = (i < 0 || i >= n) ? 0 : x[i]; __syncthreads();"
        f"if (t == 0 || t == {T - 1} || i >= n) return; y[i] = {SUM};",
        "int",
    ),
    "an early return": case(
        f"{TILE} int t = threadIdx.x; unsigned i = blockIdx.x * {T - 2} + t - 1u; s[t] = x[i < n ? i : 0] * (i < n);"
        f"__syncthreads(); if (t - 1u >= {T - 2}u) return; if (i < n) y[i] = {SUM};"
    ),
    "without a tile": case(
        f"unsigned t = threadIdx.x, i = blockIdx.x * {T - 2} + t - 1; if (t < 1 || t > {T - 2} || i >= n) return;"
        "double a = i - 1 < n ? x[i - 1] : 0, b = i + 1 < n ? x[i + 1] : 0; y[i] = a * x[i] + b;"
    ),
    "taps in a loop": case(
        f"{TILE} int t = threadIdx.x, i = (int)(blockIdx.x * {T - 2}) + t - 1; s[t] = i >= 0 && i < n ? x[i] : 0;"
        f"__syncthreads(); if (t >= 1 && t <= {T - 2} && i < n) {{ double a = 0;"
        " for (int j = -1; j <= 1; ++j) a += s[t + j] * (j + 2); y[i] = a; }",
        "int",
    ),
    "some elements alone": case(
        f"{TILE} unsigned t = threadIdx.x, i = blockIdx.x * (blockDim.x - 2) + t - 1; s[t] = i < n ? x[i] : 0;"
        f"__syncthreads(); if (t > 0 && t < {T - 1} && i < n) y[i] = {SUM};",
        n=N - 37,
    ),
}
AT = "unsigned i = blockIdx.x * blockDim.x + threadIdx.x;"
SIDE = 13
PADDED = """unsigned j = blockIdx.x * 8 + threadIdx.x, i = blockIdx.y * 4 + threadIdx.y;
    if (i >= n || j >= n) return; double sum = 0;
    for (unsigned u = 0; u < 3; ++u) for (unsigned v = 0; v < 3; ++v) {
        unsigned a = i + u - 1, b = j + v - 1; if (a < n && b < n) sum += x[a * n + b] * (1 + u * x[i * n + j]);
    } y[i * n + j] = sum;"""
GUARDED = {
    "padding": case(f"{AT} if (i < n) {{ double s = x[i]; if (i - 1 < n) s *= x[i - 1]; y[i] = s; }}"),
    "padding in a loop": case(
        f"{AT} if (i >= n) return; double s = 0; for (unsigned u = 0; u < 3; ++u)"
        "if (i + u - 1 < n) s += x[i + u - 1] * (u + 1); y[i] = s;"
    ),
    "padding in two dimensions": Case(
        f"__global__ void k(double *y, const double *x, unsigned n) {{ {PADDED} }}",
        (3, 4),
        (8, 4),
        {"y": SIDE**2, "x": SIDE**2},
        (SIDE,),
        frozenset("x"),
    ),
}
# Where what comes round is told apart from nothing: the guard holds for it, it does not wrap once, or it is wider.
OTHERS = {
    "products that come round": case(f"{AT} unsigned j = i * 0x40000000u; if (i < n) y[i] = j < n ? x[j] : x[1];"),
    "more than half": case(f"{AT} unsigned j = i - 0x80000001u; if (i < n) y[i] = j < n ? x[j] : 2 * x[i];"),
    "the guard is of the next": case(f"{AT} unsigned j = i - 1; if (j + 1 < n) y[i] = x[j + 1] * x[i / 2];"),
    "wider": case(f"{AT} long long j = i - 1u; if (i < n) y[i] = j < n ? x[j] : 3 * x[i];"),
    "negated": case(f"{AT} if (i < n) {{ double s = x[i]; if (!(i - 1 < n)) s *= x[n - 1]; y[i] = s; }}"),
    "compared with a negative number": case(
        f"{AT} int j = (int)i - 1; unsigned m = n - {N + 1}, k = j;"
        f"if (i < m + {N + 1}) y[i] = k < m ? x[i] : 2 * x[i];",
        "int",
    ),
}
ALL = {**OVERLAPPING, **GUARDED, **OTHERS}


@pytest.mark.parametrize("plan", [*PLANS, "without copies"])
@pytest.mark.parametrize("name", ALL)
def test_values(name: str, plan: str) -> None:
    for assigned in (False, True):
        assert_transposed(ALL[name], plan, assigned)


@pytest.mark.parametrize("name", GUARDED)
def test_guards_that_come_round(name: str) -> None:
    assert gathers(GUARDED[name]) == {"x"}


@pytest.mark.parametrize("name", OVERLAPPING)
def test_blocks_that_overlap(name: str) -> None:
    pytest.importorskip("cuda.core")
    with forced("without copies"):
        assert gathers(OVERLAPPING[name], primal=False, keep="y") == {"x"}
        text = assert_compiles(OVERLAPPING[name])
    assert "atomicAdd" not in text
    assert f"+= {T - 2}" not in text  # of the threads that conditions leave, one read the element


@pytest.mark.parametrize("name", ["unsigned", "signed", "padding in two dimensions"])
def test_as_text(name: str) -> None:
    if shutil.which("g++") is None:
        pytest.skip("g++ is not installed")
    with forced("without copies" if name in OVERLAPPING else "gathered"):
        assert_same_as_text(ALL[name], run_packed)


INSIDE = f"threadIdx.x > 0 && threadIdx.x < {T - 1}"


@pytest.mark.parametrize(
    ("guard", "is_once"),
    [
        (INSIDE, True),
        (f"threadIdx.x >= 1 && !(threadIdx.x >= {T - 1})", True),
        (f"threadIdx.x != 0 && threadIdx.x != {T - 1}", True),
        (f"threadIdx.x - 1 < {T - 2}", True),
        ("threadIdx.x > 1", True),
        ("threadIdx.x > 0", False),
        (f"threadIdx.x < {T - 1}", False),
        (f"threadIdx.x - 1 < {T - 1}", False),
        (f"threadIdx.x != 0 && threadIdx.x != {T - 2}", False),
        (f"threadIdx.x > 0 || threadIdx.x < {T - 1}", False),
        (f"!({INSIDE})", False),
        ("(int)threadIdx.x > -1", False),
    ],
)
def test_stored_once(guard: str, is_once: bool) -> None:
    """By lower bounds, too."""
    at = f"blockIdx.x * {T - 2} + threadIdx.x"
    kernel = case(f"unsigned i = {at}; if ({guard}) y[i] = x[i];", grid=3).kernel
    function = kernel.function
    structure, memory = analyse(function, apart=False), roots_of(function)
    sums = executions(Sums(structure, Shape((3, 1, 1), (T, 1, 1)), lambda _: None))
    root = next(p.value for p in function.params if p.name == "y")
    assert is_stored_once(root, memory, places_of(structure), sums) == is_once


@pytest.mark.parametrize("plan", PLANS)
def test_equal_values_by_two_threads(plan: str) -> None:
    """Blocks that overlap store the same twice: one of them takes the adjoint."""
    at = f"unsigned i = blockIdx.x * {T - 2} + threadIdx.x;"
    for guard in ("i < n", "i < n && threadIdx.x > 0", f"i < n && threadIdx.x < {T - 1}"):
        twice = case(f"{at} if ({guard}) y[i] = x[i] * x[i];", size=N + T, n=N)
        assert_transposed(twice, plan, keep=())


def test_threads_that_add_up_together_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of blocks in two layers, which read half of their elements twice: all layers are gone through."""
    kernel = kernel_of(
        """__global__ void k(double *y, const double *x, int n) {
        int t = threadIdx.x, i = blockIdx.x * 2 + t + blockIdx.z, row = blockIdx.y * blockDim.y + threadIdx.y;
        if (row >= n) return;
        y[((row * 2 + blockIdx.z) * 256 + blockIdx.x) * 3 + t] = x[i] * x[i];
    }""",
        "k",
    )
    rows, blocks, found = 900, 256, []
    x = np.random.default_rng(1).uniform(0.5, 1.5, 2 * blocks + 8)
    for ways in (Ways(), Ways(on_gpu=True)):
        monkeypatch.setattr(Gradient, "ways", staticmethod(lambda *_, ways=ways: ways))
        y, d_y, d_x = np.zeros(rows * blocks * 6), np.ones(rows * blocks * 6), np.zeros_like(x)
        gradient = kg.gradient(kernel, "y, x", primal=False, keep="y", deterministic=True)
        gradient[(blocks, -(-rows // 64), 2), (3, 64)](y, x, rows, d_y, d_x)
        found.append(d_x)
    np.testing.assert_allclose(*found, rtol=1e-12)
