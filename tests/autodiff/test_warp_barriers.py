"""Barriers that become a warp's own: where that is enough, and nowhere else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from derived import gradient_of, kernel_of, split_of
from kernelgrad.ir.ops import Barrier
from kernelgrad.ir.traverse import walk
from kernelgrad.runtime.config import make_launch
from kernelgrad.schedule import warp_barriers

TREE = """__global__ void k(double *y, const double *x) {
    __shared__ double s[256];
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    s[t] = x[i] * x[i];
    __syncthreads();
    for (int d = blockDim.x / 2; d > 0; d >>= 1) {
        if (t < d) s[t] = BODY;
        __syncthreads();
    }
    y[i] = s[0] * x[i];
}"""
SOURCES = {
    "sum": TREE.replace("BODY", "s[t] + s[t + d]"),
    "maximum": TREE.replace("BODY", "fmax(s[t], s[t + d])"),
    "product": TREE.replace("BODY", "s[t] * s[t + d]"),
    "weighted": TREE.replace("BODY", "s[t] + 0.5 * s[t + d]"),
    # Every level is all warps': from the other end.
    "apart": TREE.replace("if (t < d) s[t] = BODY", "if (t % 2 == 0 && t < 2 * d) s[t / 2] = s[t / 2] + s[t / 2 + d]"),
    "turned": """__global__ void k(double *y, const double *x) {
        __shared__ double s[256];
        int t = threadIdx.x, n = blockDim.x, i = blockIdx.x * n + t;
        s[t] = x[i];
        __syncthreads();
        for (int d = n / 2; d > 0; d >>= 1) {
            double other = s[(t + d) % n];
            __syncthreads();
            s[t] = s[t] * other;
            __syncthreads();
        }
        y[i] = s[t];
    }""",
}


def _counts(gradient: Any, block: int, arguments: tuple[Any, ...]) -> tuple[int, int]:
    primal, _ = gradient.kernel.bind(arguments)
    variant = gradient.variant_for(gradient.settings.listed, make_launch(3, block), primal)
    scopes = [op.scope for k in variant.kernels for op in walk(k.function.body) if isinstance(op, Barrier)]
    return scopes.count("block"), scopes.count("warp")


@pytest.mark.parametrize("name, warps", [("weighted", True), ("product", True), ("turned", False)])
def test_the_last_levels_are_one_warps(name: str, warps: bool) -> None:
    gradient = kg.gradient(kg.compile(SOURCES[name])["k"], "y, x")
    _, of_warps = _counts(gradient, 256, (np.zeros(768), np.ones(768)))
    assert (of_warps > 4) == warps


def test_blocks_of_broken_warps_meet_as_a_whole() -> None:
    gradient = kg.gradient(kg.compile(SOURCES["product"])["k"], "y, x")
    assert _counts(gradient, 48, (np.zeros(144), np.ones(144)))[1] == 0


@pytest.mark.parametrize("block", [32, 64, 128, 256])
@pytest.mark.parametrize("name", SOURCES)
def test_values_and_races(name: str, block: int) -> None:
    """The check mode orders threads of different warps by the block's barriers alone."""
    kernel = kernel_of(SOURCES[name])
    rng = np.random.default_rng(2)
    x, seed = rng.uniform(0.9, 1.1, 3 * block), rng.standard_normal(3 * block)
    expected = np.zeros_like(x)
    forward, reverse = split_of(kernel)
    y = np.zeros_like(x)
    tape = forward[3, block](y, x)
    reverse[3, block](tape, y, x, seed.copy(), expected)
    gradient = gradient_of(kernel, "y, x")
    for order in (None, 1, 2):
        found = np.zeros_like(x)
        report = gradient.check(3, block, np.zeros_like(x), x, seed.copy(), found, seed=order)
        assert not report.findings, report
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
    kg.check_gradient(kernel, "y, x", 3, block, (np.zeros_like(x), x))


def test_what_nobody_reads_is_not_summed_again() -> None:
    """The adjoint of a sum needs none of what was summed: the tree does not run forward in a reverse alone."""
    source = """__global__ void k(double *y, const double *x) {
        __shared__ double s[64];
        int t = threadIdx.x;
        s[t] = x[blockIdx.x * 64 + t];
        __syncthreads();
        for (int d = 32; d > 0; d >>= 1) {
            if (t < d) s[t] += s[t + d];
            __syncthreads();
        }
        if (t == 0) y[blockIdx.x] = s[0];
    }"""
    gradient = kg.gradient(kg.compile(source)["k"], "y, x", primal=False, keep="y")
    assert " s[" not in gradient.source and "_d_s[" in gradient.source
    d_x = np.zeros(192)
    gradient[3, 64](np.zeros(3), np.ones(192), np.array([1.0, 2.0, 3.0]), d_x)
    np.testing.assert_array_equal(d_x, np.repeat([1.0, 2.0, 3.0], 64))


@pytest.mark.parametrize("first, scope", [(28, "warp"), (29, "block")])
def test_what_begins_within_a_cell(first: int, scope: str) -> None:
    """Eight bytes at an odd multiple of two end in a third cell, of the next warp."""
    kernel = kg.compile(f"""struct S {{ short a, b, c, d; }};
    __global__ void k(S *y) {{
        __shared__ short s[64];
        s[threadIdx.x] = threadIdx.x;
        __syncthreads();
        if (threadIdx.x == 27) y[0] = *(S *)&s[{first}];
    }}""")["k"]
    body = warp_barriers.run(kernel.function, (64, 1, 1)).body
    assert [op.scope for op in walk(body) if isinstance(op, Barrier)] == [scope]
