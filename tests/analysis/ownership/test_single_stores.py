"""Outputs that are stored more than once per element, and those that are not: under every plan, kept or consumed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from every_plan import forced, under_every_plan
from kernelgrad.analysis import roots, structure
from kernelgrad.analysis.access.affine import Shape, Sums
from kernelgrad.analysis.ownership.private import places_of
from kernelgrad.analysis.ownership.single_stores import is_stored_once
from kernelgrad.analysis.promises import Promised

GRID, BLOCK, N = 3, 8, 5
THREADS = GRID * BLOCK
SIZES = {"y": 10 * THREADS, "x": THREADS + 10}


@dataclass(frozen=True)
class Once:
    body: str
    once: bool  # whether each element is stored once, provably
    before: str = ""
    type: str = "double"

    @property
    def source(self) -> str:
        index = "int i = blockIdx.x * blockDim.x + threadIdx.x;"
        return f"{self.before}\n__global__ void k({self.type} *y, const double *x, int n) {{ {index}\n{self.body}\n}}"


_PAIR = "struct Pair { double a, b; };"
CASES = {
    "once": Once("y[i] = x[i] * x[i + 1];", True),
    "a loop": Once("for (int k = 0; k < 3; k++) y[i] = x[i + k] * x[i + k];", False),
    "a running sum": Once("double v = 0; for (int k = 0; k < n; k++) { v += x[i + k] * x[i]; y[i] = v; }", False),
    "an integrator": Once(
        "double v = x[i]; for (int k = 0; k < 40 * n; k++) { v += 0.01 * (x[i + 1] - v * v); y[i] = v; }", False
    ),
    "two counters": Once(
        "for (int a = 0; a < 3; a++) for (int b = 0; b < 3; b++) y[5 * i + a + b] = x[i + a] * x[i + b];", False
    ),
    "two digits": Once(
        "for (int a = 0; a < 3; a++) for (int b = 0; b < 3; b++) y[9 * i + 3 * a + b] = x[i + a] * x[i + b];", True
    ),
    "an outer loop": Once(
        "for (int a = 0; a < 2; a++) for (int b = 0; b < 3; b++) y[3 * i + b] = x[i + a] * x[i + b];", False
    ),
    "rows of blocks": Once(
        "int t = threadIdx.x, row = blockIdx.x * 32; for (int k = 0; k < 4; k++) y[row + k * 8 + t] = x[i + k] * x[i];",
        True,
    ),
    "rows with a gap": Once(
        "int t = threadIdx.x, row = blockIdx.x * 32;"
        " y[row + t] = x[i] * x[i]; y[row + 8 + t] = x[i + 1] * x[i]; y[row + 24 + t] = x[i + 2] * x[i];",
        True,
    ),
    "rows that overlap": Once(
        "int t = threadIdx.x, row = blockIdx.x * 32; y[row + t] = x[i] * x[i]; y[row + 8 + t] = x[i + 1] * x[i];"
        " __syncthreads(); y[row + 4 + t] = x[i + 2] * x[i];",
        False,
    ),
    "a loop of one": Once("for (int a = 0; a < n - 4; a++) y[i] = x[i + a] * x[i];", True),
    "a walking pointer": Once("double *p = y + 4 * i; for (int k = 0; k < 4; k++) *p++ = x[i + k] * x[i];", True),
    "backwards": Once("for (int k = 4; k > 0; k--) y[4 * i + k - 1] = x[i + k] * x[i];", True),
    "steps that cancel": Once("int j = 0; for (int k = 0; k < 4; k++) { y[i + k - j] = x[i + k] * x[i]; j++; }", False),
    "steps that add up": Once(
        "int j = 0; for (int k = 0; k < 4; k++) { y[8 * i + k + j] = x[i + k] * x[i]; j++; }", True
    ),
    "while": Once("int k = 0; while (k * k < n) { y[i] = x[i + k] * x[i + k]; k++; }", False),
    "while, one by one": Once("int k = i; while (k < n * 9) { y[k] = x[k % 25] * x[i]; k += 24; }", True),
    "do": Once("int k = 0; do { y[i] = x[i + k] * x[i]; k += 2; } while (k < n);", False),
    "a stride": Once("for (int k = i; k < 70; k += gridDim.x * blockDim.x) y[k] = x[k % 25] * x[i];", True),
    "one iteration": Once("for (int k = 0; k < 4; k++) if (k == 2) y[i] = x[i + k] * x[i];", True),
    "held at several iterations": Once(
        "for (int k = 0; k < 3; k++) { if (k == 0) y[3 * i + k + 1] = x[i] * x[i]; if (k == 1) y[3 * i + k] = x[i]; }",
        False,
    ),
    "held apart": Once(
        "for (int k = 0; k < n; k++) { if (k == 0) y[2 * i + k] = x[i] * x[i]; if (k == 1) y[2 * i + k] = x[i]; }", True
    ),
    "held in several threads": Once(
        """int t = threadIdx.x, b = 8 * blockIdx.x; if (t == 0) y[b + t + 1] = x[i] * x[i];
        __syncthreads(); if (t == 1) y[b + t] = x[i] * x[i + 1];""",
        False,
    ),
    "narrowed": Once(
        "int c = 0; for (long long q = 0; x[c] < 5 && c < n; q += 1ll << 32) { y[i + (int)q] = x[i + c] * x[i]; c++; }",
        False,
    ),
    "one of each block": Once("if (threadIdx.x == 3) y[blockIdx.x] = x[i] * x[i + 1];", True),
    "one of all": Once("if (threadIdx.x == 3) y[0] = x[5] * x[6];", False),
    "break": Once("for (int k = 0; k < 6; k++) { y[i] = x[i + k] * x[i]; if (x[i + k] > 0.7) break; }", False),
    "two stores": Once("y[i] = x[i]; if (x[i] > 0.5) y[i] = x[i] * x[i + 1];", False),
    "two sides": Once("if (x[i] > 0.5) y[i] = x[i]; else y[i] = x[i] * x[i + 1];", True),
    "two sides, one of them early": Once("if (x[i] > 0.5) { y[i] = 3; return; } y[i] = x[i] * x[i + 1];", True),
    "sides of sides": Once(
        """if (x[i] > 0.5) { if (x[i] > 0.8) y[i] = 2 * x[i]; else y[i] = 1; }
        else { y[i] = x[i] * x[i + 1]; }""",
        True,
    ),
    "two sides, and behind them": Once(
        "if (x[i] > 0.5) y[i] = x[i]; else y[i] = x[i] * x[i + 1]; if (x[i + 2] > 0.5) y[i] = x[i + 2];", False
    ),
    "two sides in a loop": Once(
        "for (int k = 0; k < 3; k++) if (x[i + k] > 0.5) y[i] = x[i]; else y[i] = x[i + k] * x[i];", False
    ),
    "two sides of each element": Once(
        "for (int k = 0; k < 3; k++) if (x[i + k] > 0.5) y[3 * i + k] = x[i]; else y[3 * i + k] = x[i + k] * x[i];",
        True,
    ),
    "two sides, of which one has a loop": Once(
        "if (x[i] > 0.5) y[i] = x[i]; else for (int k = 0; k < 2; k++) y[i] = x[i + k] * x[i];", False
    ),
    "two conditions": Once("if (x[i] > 0.5) y[i] = x[i] * x[i]; if (x[i + 1] > 0.5) y[i] = x[i] * x[i + 1];", False),
    "two elements": Once("y[2 * i] = x[i] * x[i]; y[2 * i + 1] = x[i + 1] * x[i];", True),
    "two rows of all threads": Once("y[i] = x[i] * x[i]; if (i + 1 < 24) y[i + 24] = x[i + 1] * x[i];", True),
    "two that overlap": Once(
        "y[i] = x[i] * x[i]; __syncthreads(); if (threadIdx.x < 7) y[i + 1] = x[i + 1] * x[i];", False
    ),
    "a helper": Once(
        "for (int k = 0; k < 3; k++) put(y, i, x[i + k] * x[i]);",
        False,
        "__device__ void put(double *p, int at, double v) { p[at] = v; }",
    ),
    "a helper's loop": Once(
        "put(y + 3 * i, x + i);",
        True,
        "__device__ void put(double *p, const double *q) { for (int k = 0; k < 3; k++) p[k] = q[k] * q[0]; }",
    ),
    "structs": Once(
        "Pair *p = (Pair *)y; for (int k = 0; k < 3; k++) { Pair v = {x[i + k], x[i] * x[i + k]}; p[i] = v; }",
        False,
        _PAIR,
    ),
    "members": Once("Pair *p = (Pair *)y; p[i].a = x[i] * x[i]; p[i].b = x[i + 1] * x[i];", True, _PAIR),
    "vectors": Once("for (int k = 0; k < 2; k++) ((double2 *)y)[i] = make_double2(x[i + k], x[i] * x[i + k]);", False),
    "vectors apart": Once(
        "for (int k = 0; k < 2; k++) ((double2 *)y)[2 * i + k] = make_double2(x[i + k], x[i] * x[i + k]);", True
    ),
    "overlapping vectors": Once(
        "for (int k = 0; k < 2; k++) *(Pair *)(y + 4 * i + k) = Pair{x[i + k], x[i] * x[i + k]};", False, _PAIR
    ),
    "several threads": Once("y[i / 2] = x[i / 2] * x[i / 2 + 1];", False),
    "a choice": Once("double *p = i % 2 ? y : y + 30; p[i] = x[i] * x[i];", False),
    "a barrier's loop": Once(
        """__shared__ double s[8]; for (int k = 0; k < 3; k++) { s[threadIdx.x] = x[i + k] * x[i]; __syncthreads();
        y[i] = s[7 - threadIdx.x] * x[i]; __syncthreads(); }""",
        False,
    ),
}
ADDED = {
    "sums": Once("for (int k = 0; k < 3; k++) atomicAdd(&y[i / 2], x[i + k] * x[i]);", False),
    "stored, then added to": Once("y[i] = x[i]; atomicAdd(&y[i], x[i] * x[i + 1]);", False),
}
CASES |= {
    "two sides, in different iterations": Once(
        """for (int k = 0; k < 6; k++)
            if (x[i + k] > 0.5) { if (k == 3) y[i] = x[i] * x[i]; } else { if (k == 5) y[i] = x[i] * x[i + 1]; }""",
        False,
    ),
    "two sides, in the same iteration": Once(
        """for (int k = 0; k < 6; k++)
            if (x[i + k] > 0.5) { if (k == 3) y[i] = x[i] * x[i]; } else { if (k == 3) y[i] = x[i] * x[i + 1]; }""",
        True,
    ),
}
FLOATS = {
    "an element twice": Once("y[i] = x[i]; if (x[i] > 0.5) y[i] = x[i] * x[i + 1];", False, type="float"),
    "the second of two": Once(
        "y[2 * i] = x[i]; y[2 * i + 1] = x[i + 1]; if (x[i] > 0.5) y[2 * i + 1] = x[i];", False, type="float"
    ),
    "two elements": Once("y[2 * i] = x[i] * x[i]; y[2 * i + 1] = x[i + 1] * x[i];", True, type="float"),
}
EVERY_PLAN = (
    "a loop",
    "an integrator",
    "two counters",
    "two digits",
    "while",
    "a barrier's loop",
    "structs",
    "break",
    "stored, then added to",
)
R_KEEP: dict[str, Any] = {"primal": False, "keep": "y", "assign": "x"}


def arrays() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """y, x, and y's adjoint."""
    random = np.random.default_rng(7)
    return random.random(SIZES["y"]), random.random(SIZES["x"]), random.standard_normal(SIZES["y"])


def by_tangents(kernel: Any) -> tuple[np.ndarray, np.ndarray]:
    """The adjoint of x by forward mode; and where y is overwritten, its adjoint is consumed: that of y."""
    tangent = kg.jvp(kernel, "y, x")
    found = {name: np.zeros(size) for name, size in SIZES.items()}
    for name, size in SIZES.items():
        for k in range(size):
            y, x, seed = arrays()
            t = {n: np.zeros(s) for n, s in SIZES.items()}
            t[name][k] = 1
            tangent[GRID, BLOCK](y, x, N, t["y"], t["x"])
            found[name][k] = seed @ t["y"]
    return found["y"], found["x"]


def launched(kernel: Any, options: dict[str, Any]) -> Callable[[], tuple[np.ndarray, np.ndarray]]:
    def run() -> tuple[np.ndarray, np.ndarray]:
        y, x, d_y = arrays()
        d_x = np.zeros(SIZES["x"])
        kg.gradient(kernel, "y, x", **options)[GRID, BLOCK](y, x, N, d_y, d_x)
        return d_y, d_x

    return run


def compare(kernel: Any, found: dict[str, tuple[np.ndarray, np.ndarray]], keeps: bool) -> None:
    consumed, expected = by_tangents(kernel)
    for plan, (d_y, d_x) in found.items():
        np.testing.assert_allclose(d_x, expected, rtol=1e-10, atol=1e-12, err_msg=plan)
        np.testing.assert_allclose(d_y, arrays()[2] if keeps else consumed, rtol=1e-10, atol=1e-12, err_msg=plan)


@pytest.mark.parametrize("options", [{}, R_KEEP], ids=["J", "R keep"])
@pytest.mark.parametrize("name", EVERY_PLAN)
def test_every_plan_gives_the_gradient(name: str, options: dict[str, Any]) -> None:
    kernel = kg.compile({**CASES, **ADDED}[name].source)["k"]
    compare(kernel, under_every_plan(launched(kernel, options)), "keep" in options)


@pytest.mark.parametrize("name", [*CASES, *ADDED])
def test_kept(name: str) -> None:
    kernel = kg.compile({**CASES, **ADDED}[name].source)["k"]
    compare(kernel, {"R": launched(kernel, R_KEEP)()}, True)


@pytest.mark.parametrize("options", [{"deterministic": True}, {"tape_budget": 1 << 14}, {}], ids=str)
@pytest.mark.parametrize("name", ["an integrator", "two counters", "while"])
def test_kept_with(name: str, options: dict[str, Any]) -> None:
    kernel = kg.compile(CASES[name].source)["k"]
    for plan in ("as launched", "in two"):
        with forced(plan):
            compare(kernel, {plan: launched(kernel, {"keep": "y", **options})()}, True)


@pytest.mark.parametrize("case", [*CASES.values(), *FLOATS.values()], ids=[*CASES, *(f"floats: {n}" for n in FLOATS)])
def test_what_is_proven(case: Once) -> None:
    kernel = kg.compile(case.source)["k"]
    memory, nested = roots.analyse(kernel.function), structure.analyse(kernel.function, apart=False)
    y, _, n = (p.value for p in kernel.function.params)
    sums = Sums(nested, Shape((GRID, 1, 1), (BLOCK, 1, 1)), {n: N}.get)
    assert is_stored_once(y, memory, places_of(nested), sums) == case.once


@pytest.mark.parametrize(("bound", "once"), [("t < 8", True), ("4 * t + i < 32", True), ("t + 9 * at[0] < 8", False)])
def test_bounds_of_more_than_what_is_divided(bound: str, once: bool) -> None:
    """What is added to it there may be negative, if it comes from memory."""
    body = f"int t = threadIdx.x, i = blockIdx.x * 32; if ({bound}) y[i + t / 4 + 2 * (t % 4)] = t;"
    kernel = kg.compile(f"__global__ void k(double *y, const int *at) {{ {body} }}")["k"]
    memory, nested = roots.analyse(kernel.function), structure.analyse(kernel.function, apart=False)
    y, at = (p.value for p in kernel.function.params)
    sums = Sums(nested, Shape((2, 1, 1), (32, 1, 1)), lambda _: None, Promised(unique=frozenset((at,))))
    assert is_stored_once(y, memory, places_of(nested), sums) == once


def test_text_of_what_cannot_be_kept_consumes() -> None:
    """As a kernel by itself it is right, on a copy."""
    gradient = kg.gradient(kg.compile(CASES["while"].source)["k"], "y, x", keep="y")
    assert "// _d_y is consumed: what is to be kept is given as a copy." in gradient.source
    assert "_d_y[i] = 0.0;" in gradient.source
    assert "is consumed" not in kg.gradient(kg.compile(CASES["two digits"].source)["k"], "y, x", keep="y").source


def test_kept_adjoints_may_be_read_only() -> None:
    y, x, d_y = arrays()
    d_y.setflags(write=False)
    kg.gradient(kg.compile(CASES["while"].source)["k"], "y, x", keep="y")[GRID, BLOCK](
        y, x, N, d_y, np.zeros(SIZES["x"])
    )


def test_what_is_read_and_overwritten_is_refused() -> None:
    for body in ("y[i] = x[i] * y[i];", "atomicAdd(&y[i], x[i] * y[i + 24]);", "double v = *(y + i) * x[i];"):
        kernel = kg.compile(Once(body, False).source)["k"]
        with pytest.raises(kg.ArgumentError, match="keep: 'y' is not a pure output"):
            kg.gradient(kernel, "y, x", keep="y")


@pytest.mark.parametrize("keep", [None, "y"])
def test_winners_take_adjoints_from_a_copy(keep: str | None) -> None:
    body = "atomicMax((int *)&y[threadIdx.x / 4], __float_as_int(x[threadIdx.x] * x[threadIdx.x]));"
    kernel = kg.compile(f"__global__ void k(float *y, const float *x) {{ {body} }}")["k"]
    x = np.random.default_rng(2).permutation(8).astype(np.float32) + 1
    y, d_y, d_x = np.zeros(2, np.float32), np.array([2, 3], np.float32), np.zeros(8, np.float32)
    kg.gradient(kernel, "y, x", keep=keep)[1, 8](y, x, d_y, d_x)
    won = x.reshape(2, 4) == x.reshape(2, 4).max(1, keepdims=True)
    np.testing.assert_array_equal(d_x.reshape(2, 4), won * 2 * x.reshape(2, 4) * [[2], [3]])
    assert d_y.tolist() == ([2, 3] if keep else [0, 0])


def test_outputs_in_structs() -> None:
    source = """struct Out { double *a; int n; double *b; };
    __global__ void k(Out out, const double *x) { int i = threadIdx.x;
        for (int k = 0; k < 3; k++) { out.a[i] = x[i + k] * x[i]; out.b[i / 2] = x[0] * x[1]; } }"""
    kernel = kg.compile(source)["k"]
    x, d_x = np.random.default_rng(1).random(8), {}
    for keep in (None, "out"):
        d_a, d_b, d_x[keep] = np.ones(4), np.arange(4.0), np.zeros(8)
        out = {"a": np.zeros(4), "n": 4, "b": np.zeros(4)}
        kg.gradient(kernel, "out, x", keep=keep)[1, 4](out, x, {"a": d_a, "n": 0, "b": d_b}, d_x[keep])
        assert (d_a.tolist(), d_b.tolist()) == (([1] * 4, [0, 1, 2, 3]) if keep else ([0] * 4, [0, 0, 2, 3]))
    expected = np.zeros(8)
    expected[:4] += x[2:6]
    expected[2:6] += x[:4]
    expected[:2] += x[1::-1]
    np.testing.assert_allclose(d_x[None], expected)
    np.testing.assert_allclose(d_x["out"], expected)


def test_keep_and_aliases_are_refused_together() -> None:
    kernel = kg.compile("__global__ void k(float *y, const float *x) { y[threadIdx.x] = x[threadIdx.x]; }")["k"]
    with pytest.raises(kg.ArgumentError, match="keep and may_alias=True do not go together"):
        kg.gradient(kernel, "y, x", keep="y", may_alias=True)
