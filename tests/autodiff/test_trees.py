"""Trees over shared memory in reverse: where one number is all that they pass on, and where it is not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from kernelgrad.ir.ops import Atomic, Barrier, BarrierReduce, GlobalRef, Op
from kernelgrad.ir.traverse import walk
from kernelgrad.runtime.config import make_launch

HEAD = "__global__ void k(double *y, const double *x, int n) { int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;"
FILL = "__shared__ double s[256]; s[t] = i < n ? x[i] * x[i] : 0.0; __syncthreads();"
TREE = "for (int d = blockDim.x / 2; d > 0; d >>= 1) { if (t < d) s[t] += s[t + d]; __syncthreads(); }"
UPWARDS = "for (int d = 1; d < blockDim.x; d *= 2) { if (t % (2 * d) == 0) s[t] += s[t + d]; __syncthreads(); }"

# Nothing of the shadow is left: every thread loads or sums up what it would be told.
PASSED_ON = {
    "one thread stores": f"{HEAD} {FILL} {TREE} if (t == 0) y[blockIdx.x] = s[0]; }}",
    "from neighbours up": f"{HEAD} {FILL} {UPWARDS} if (t == 0) y[blockIdx.x] = s[0]; }}",
    "all threads read": f"{HEAD} {FILL} {TREE} double total = s[0]; if (i < n) y[i] = x[i] * total; }}",
    "read twice": f"""{HEAD} {FILL} {TREE} double total = s[0]; __syncthreads();
        if (i < n) y[i] = x[i] * total + s[0]; }}""",
    "another thread stores": f"{HEAD} {FILL} {TREE} if (t == 7) y[blockIdx.x] = 3.0 * s[0]; }}",
    "two trees": f"""{HEAD} {FILL} {TREE} double total = s[0]; __syncthreads();
        s[t] = i < n ? x[i] * total : 0.0; __syncthreads(); {TREE}
        if (i < n) y[i] = x[i] * total + s[0]; }}""",
}
# Something of it stays: cells differ, or somebody looks at them in between.
KEPT = {
    "other cells": f"{HEAD} {FILL} {TREE} if (t < 2) y[blockIdx.x * 2 + t] = s[t]; }}",
    "a product": f"{HEAD} {FILL} {TREE.replace('+=', '*=')} if (i < n) y[i] = s[0]; }}",
    "in between": f"""{HEAD} {FILL} double seen = 0.0;
        for (int d = blockDim.x / 2; d > 0; d >>= 1) {{
            if (t < d) s[t] += s[t + d];
            __syncthreads();
            if (d == 4) seen = s[2];
            __syncthreads();
        }}
        if (i < n) y[i] = seen * s[0]; }}""",
    "half of a block": f"{HEAD} {FILL} {TREE.replace('/ 2', '/ 4')} if (t == 0) y[blockIdx.x] = s[0]; }}",
    "from the tenth": f"""{HEAD} {FILL}
        for (int d = 8; d > 0; d >>= 1) {{ if (t < d) s[10 + t] += s[10 + t + d]; __syncthreads(); }}
        if (i < n) y[i] = s[10] * s[t]; }}""",
    "somewhere": f"{HEAD} {FILL} {TREE} if (i < n) y[i] = s[n % 3] * x[i]; }}",
    "scan": f"""{HEAD} {FILL}
        for (int d = 1; d < blockDim.x; d *= 2) {{
            double v = t >= d ? s[t - d] : 0.0;
            __syncthreads();
            s[t] += v;
            __syncthreads();
        }}
        if (i < n) y[i] = s[t]; }}""",
}
SOURCES = PASSED_ON | KEPT


def _operations(gradient: Any, grid: int, block: int, *arguments: Any) -> list[Op]:
    primal, _ = gradient.kernel.bind(arguments)
    variant = gradient.variant_for(gradient.settings.listed, make_launch(grid, block), primal)
    return [op for k in variant.kernels for op in walk(k.function.body)]


def _shadows(ops: list[Op]) -> set[str]:
    return {op.name for op in ops if isinstance(op, GlobalRef) and op.name.startswith("_d_")}


def _arguments(block: int) -> tuple[Any, Any, int]:
    x = np.random.default_rng(3).uniform(0.5, 1.5, 3 * block)
    return np.zeros(3 * block), x, 3 * block - 5


@pytest.mark.parametrize("form", [{}, {"primal": False, "keep": "y"}], ids=["joint", "reverse"])
@pytest.mark.parametrize("name", PASSED_ON)
def test_a_tree_that_passes_on_one_number_is_not_walked(name: str, form: dict[str, Any]) -> None:
    gradient = kg.gradient(kg.compile(SOURCES[name])["k"], "y, x", **form)
    ops = _operations(gradient, 3, 64, *_arguments(64))
    assert not _shadows(ops)
    assert not any(isinstance(op, Atomic) for op in ops)
    sums = [op for op in ops if isinstance(op, BarrierReduce)]
    assert len(sums) == {"one thread stores": 0, "from neighbours up": 0, "another thread stores": 0, "two trees": 2}.get(
        name, 1
    ), name


def test_a_reverse_alone_needs_no_barrier() -> None:
    gradient = kg.gradient(kg.compile(SOURCES["one thread stores"])["k"], "y, x", primal=False, keep="y")
    assert not any(isinstance(op, Barrier) for op in _operations(gradient, 3, 64, *_arguments(64)))


@pytest.mark.parametrize("name", KEPT)
def test_cells_that_differ_stay(name: str) -> None:
    gradient = kg.gradient(kg.compile(SOURCES[name])["k"], "y, x", primal=False, keep="y")
    assert _shadows(_operations(gradient, 3, 64, *_arguments(64)))


@pytest.mark.parametrize("block", [64, 48])
@pytest.mark.parametrize("name", SOURCES)
def test_values_and_races(name: str, block: int) -> None:
    """In blocks of 48, trees leave some of the cells out."""
    if (name, block) == ("from neighbours up", 48):
        pytest.skip("reads what nobody has written")
    kernel = kg.compile(SOURCES[name])["k"]
    y, x, n = _arguments(block)
    seed = np.random.default_rng(4).standard_normal(len(y))
    v = np.random.default_rng(5).standard_normal(len(y))
    tangent = np.zeros_like(y)
    kg.jvp(kernel, "y, x")[3, block](y.copy(), x, n, tangent, v)
    for form in ({}, {"primal": False, "keep": "y"}):
        gradient = kg.gradient(kernel, "y, x", **form)
        for order in (None, 1):
            d_x = np.zeros_like(x)
            report = gradient.check(3, block, y.copy(), x, n, seed.copy(), d_x, seed=order)
            assert not report.findings, str(report)
            assert d_x @ v == pytest.approx(tangent @ seed, rel=1e-9)
        d_x = np.zeros_like(x)
        gradient[3, block](y.copy(), x, n, seed.copy(), d_x)
        assert d_x @ v == pytest.approx(tangent @ seed, rel=1e-9)
