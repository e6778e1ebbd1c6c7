"""Decisions are the kernel's own wherever they are computed again (rule 27)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from decision_cases import (
    BLOCK,
    BODIES,
    GRID,
    LISTED,
    N,
    adjoints,
    assert_same,
    data,
    expected,
    kernel,
    recorded,
)
from kernelgrad.autodiff.accumulate.choice import USUAL
from kernelgrad.autodiff.costs.work import Work
from kernelgrad.ir.ops import Apply
from kernelgrad.ir.traverse import walk
from kernelgrad.launches.choice import split_launch
from kernelgrad.runtime.config import make_launch
from kernelgrad.transforms import unfused

WAYS: dict[str, dict[str, Any]] = {
    "joint": {},
    "reverse": {"primal": False},
    "deterministic": {"deterministic": True},
    "checkpoints": {"tape_budget": 12000},
}
CASES = [*((name, "float") for name in BODIES), ("lookups in a loop", "double"), ("while", "double")]


@pytest.mark.parametrize(("name", "type"), CASES)
def test_decisions_of_the_kernel(name: str, type: str) -> None:
    given = recorded(name, type)
    wanted = expected(name, type, given)
    compiled = kernel(name, type, "PLAIN")
    for way, settings in WAYS.items():
        if (way, name) != ("reverse", "in place"):
            assert_same(adjoints(kg.gradient(compiled, LISTED, **settings), given), wanted, type)
    assert_same(adjoints(kg.split(compiled, LISTED), given), wanted, type)


@pytest.mark.parametrize("name", ["lookups in a loop", "while", "march", "tiles"])
def test_decisions_of_large_launches(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    given = recorded(name, "float")
    wanted = expected(name, "float", given)
    compiled = kernel(name, "float", "PLAIN")
    gradient = kg.gradient(compiled, LISTED)
    variant = gradient.variant(tuple(LISTED.split(", ")), replace(USUAL, strips=True))
    with monkeypatch.context() as patch:
        patch.setattr(gradient.forms, "for_launch", lambda *_: variant)
        assert_same(adjoints(gradient, given), wanted, "float")
    monkeypatch.setattr(split_launch, "ENOUGH", Work(0, 0))
    monkeypatch.setattr(split_launch, "DENSE", 0)
    assert_same(adjoints(kg.gradient(compiled, LISTED), given), wanted, "float")


@pytest.mark.parametrize("name", ["lookup", "lookups in a loop", "while", "argmax"])
def test_the_gradient_decides_as_the_kernel(name: str) -> None:
    """What is told by a gradient that runs the kernel, by forward mode, and by the kernel while it is checked."""
    given = recorded(name, "float")
    compiled = kernel(name, "float", "RECORD")
    args = given.copies()
    kg.gradient(compiled, LISTED)[GRID, BLOCK](*args, given.seed.copy(), *map(np.zeros_like, args[1:3]))
    np.testing.assert_array_equal(args[4], given.args[4])
    args = given.copies()
    kg.jvp(compiled, LISTED)[GRID, BLOCK](*args, *map(np.zeros_like, args[:3]))
    np.testing.assert_array_equal(args[4], given.args[4])
    args = given.copies()
    assert compiled.check(GRID, BLOCK, *args).findings == ()
    np.testing.assert_array_equal(args[4], given.args[4])


def test_a_guard_of_what_is_gathered() -> None:
    given = recorded("gathered", "float")
    gradient = kg.gradient(kernel("gathered", "float", "PLAIN"), LISTED)
    primal, _ = gradient.kernel.bind(given.args)
    facts = gradient.variant_for(gradient.settings.listed, make_launch(GRID, BLOCK), primal).options.facts
    assert "x" in {gather.name for gather in facts.gathered}
    assert_same(adjoints(gradient, given), expected("gathered", "float", given), "float")


@pytest.mark.parametrize("options", [{}, {"primal": False}])
@pytest.mark.parametrize("loop", [False, True])
def test_nothing_is_written_that_is_not_read(loop: bool, options: dict[str, Any]) -> None:
    """At the nodes of a table the kernel reads nothing below its first element, and each node takes its own adjoint."""
    step = np.float32(0.01)
    nodes = np.arange(700, dtype=np.float32) * step
    inv = np.float32(1) / step
    cells = np.floor(nodes * inv).astype(int)
    head = "for (int k = 0; k < 1 + n % 2; k++)" if loop else ""
    source = f"""__global__ void k(float *y, const float *t, const float *table, float inv, float off, int n) {{
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) {head} {{ float s = t[i] * inv; y[i] = table[(int)floorf(s - off)] + 0.5f * s; }}
    }}"""
    gradient = kg.gradient(kg.compile(source)["k"], "y, table", **options)
    d_table = np.zeros(701, np.float32)
    args = (np.zeros(700, np.float32), nodes, np.ones(700, np.float32), inv, np.float32(0), 700)
    gradient[7, 100](*args, np.ones(700, np.float32), d_table[1:])
    np.testing.assert_array_equal(d_table, np.bincount(cells + 1, minlength=701))


def test_atomic_maximum() -> None:
    """All values are 1 where products are rounded: the lowest thread's is the one that is in the cell."""
    source = """__global__ void k(float *y, float *out, const float *x, const float *whole, float a) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        float s = x[i] * a;
        out[i] = s;
        atomicMax((int *)&y[i % 4], __float_as_int(s - (whole[i] - 1)));
    }"""
    given = data("float")
    x, whole, a = given.args[1][:N], given.args[3][:N], given.args[5]
    y, out, d_x = np.zeros(4, np.float32), np.zeros(N, np.float32), np.zeros(N, np.float32)
    seed = np.arange(1, 5, dtype=np.float32)
    kg.gradient(kg.compile(source)["k"], "y, x")[GRID, BLOCK](y, out, x, whole, a, seed.copy(), d_x)
    np.testing.assert_array_equal(y, 1)
    np.testing.assert_array_equal(d_x, np.concatenate([seed * a, np.zeros(N - 4)]))


# ---- marks ----------------------------------------------------------------------------------------------------------

HEAD = "__global__ void k(float *y, const float *x, const float *w, float a, int n) { int i = threadIdx.x; "
MARKS = {
    "y[i] = a * x[i] + w[i];": "",
    "if (i < n) y[i] = a * x[i] + w[i];": "",
    "float s = 0; for (int k = 0; k < n; k++) s += x[k] * w[k]; y[i] = s;": "",
    "if (x[i] > a) y[i] = a * x[i] + w[i];": "",
    "if (a * x[i] > 1) y[i] = a * x[i] + w[i];": "",
    "if (a * x[i] + w[i] > 1) y[i] = w[i] * w[i] + x[i];": "mul_rn",
    "y[i] = w[(int)(a * x[i] - 1)];": "mul_rn",
    "y[i] = fmaxf(a * x[i] - w[i] * x[i], 0) * x[i] + 1;": "mul_rn mul_rn",
    "if (1 + expf(x[i]) > a) y[i] = 1 + expf(x[i]);": "add_rn",
    "if (1 / (x[i] * x[i]) > a) y[i] = 1;": "",
    "if (log1pf(x[i] * a) > a) y[i] = 1;": "mul_rn",
    "float s = 0; for (int k = 0; k < n; k++) s += x[k] * w[k]; y[i] = fmaxf(s, 0);": "fma",
    "float s = 0; for (int k = 0; k < n; k++) s += x[k]; y[i] = fmaxf(s, 0);": "add_rn",
    "float s[4]; for (int k = 0; k < n; k++) s[k % 3] += x[k] * w[k]; y[i] = fmaxf(s[i % 3], 0);": "fma",
    "__shared__ float s[32]; s[i] = x[i] * a - 1; __syncthreads(); if (s[i ^ 1] > 0) y[i] = 1;": "mul_rn",
    "__shared__ float s[32]; if (s[i] > 0) y[i] = 1; s[i] = x[i] * a - 1; __syncthreads(); y[i] += s[i ^ 1];": "",
    "extern __shared__ float s[]; extern __shared__ int q[]; s[i] = x[i] * a - 1; if (q[i] > 0) y[i] = 1;": "mul_rn",
    "struct P { float v; int c; }; __shared__ P p[32]; p[i].v = x[i] * a - 1; if (p[i ^ 1].c > 0) y[i] = p[i].v;": "",
    "struct P { float v, c; }; __shared__ P p[32]; p[i].v = x[i] * a - 1; if (p[i ^ 1].v > 0) y[i] = p[i].c;": "mul_rn",
    "float2 p = make_float2(x[i] * a - 1, w[i] * a - 1); if (p.x > 0) y[i] = p.y;": "mul_rn",
    "float s = x[i]; do { s = s * a - 1; } while (s > 0); y[i] = s;": "mul_rn",
    "float s = x[i]; do { s = s * a + 1; } while (s > 0); y[i] = s;": "fma",
    "double s = x[i] * a; if (s - w[i] > 0) y[i] = 1;": "mul_rn",
    "if (__float_as_int(x[i] * a - 1) & 1) y[i] = 1;": "mul_rn",
    "if (__shfl_xor_sync(~0u, x[i] * a - 1, 1) > 0) y[i] = 1;": "mul_rn",
    "float v = x[i] * a; if (i > 3) v = -v; if (v + 1 > 0) y[i] = 1;": "mul_rn",
    "atomicAdd(&y[i], x[i] * a - 1);": "",
    "if (roundf(x[i] * a) > 0) y[i] = 1;": "mul_rn",
    "if (floorf(x[i] * a) > 0) y[i] = 1;": "",
    "if (__fadd_rn(x[i] * a, 1) > 0) y[i] = __fmul_rn(x[i], a) + 1;": "add_rn mul_rn",
    "if (fmaf(x[i], a, 1) > 0) y[i] = x[i] * a + 1;": "fma",
}


@pytest.mark.parametrize("body", MARKS)
def test_only_what_decides_is_marked(body: str) -> None:
    function = kg.compile(HEAD + body + "}")["k"].function
    found = [op.fn for op in walk(function.body) if isinstance(op, Apply) and (op.fn.endswith("_rn") or op.fn == "fma")]
    assert " ".join(sorted(found)) == MARKS[body]


def test_marked_twice_is_marked_once() -> None:
    for name in BODIES:
        compiled = kernel(name, "float", "PLAIN")
        again = unfused.run(compiled.function, compiled.module)
        fns = [[op.fn for op in walk(f.body) if isinstance(op, Apply)] for f in (compiled.function, again)]
        assert fns[0] == fns[1], name


def test_text() -> None:
    """Both sweeps have the same text for what decides, and sums that do not are left to the compiler."""
    text = kg.gradient(kernel("lookups in a loop", "float", "PLAIN"), LISTED).source
    assert text.count("__fmul_rn(x[") == 2
    assert text.count("_rn(") == 2


def test_halves() -> None:
    source = """#include <cuda_fp16.h>
    __global__ void k(__half *y, const __half *x, const __half *w, __half a) {
        int i = threadIdx.x;
        __half s = x[i] * a;
        y[i] = w[(int)__half2float(s - a)] * x[i] + s;
    }"""
    gradient = kg.gradient(kg.compile(source)["k"], "y, x, w")
    assert "__hmul_rn(x_value, a)" in gradient.source
    x, w, d_x, d_w = (np.full(8, v, np.float16) for v in (1.5, 0.5, 0, 0))
    gradient[1, 8](np.zeros(8, np.float16), x, w, np.float16(2), np.ones(8, np.float16), d_x, d_w)
    np.testing.assert_array_equal(d_x, 2.5)
    np.testing.assert_array_equal(d_w, [0, 12, 0, 0, 0, 0, 0, 0])
