"""Atomic additions that a loop over threads makes once (Note [Totals]): where, and that nothing is lost."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

import kernelgrad as kg
from kernelgrad.backends.cpu import totals
from kernelgrad.ir.ops import Barrier, Function
from kernelgrad.ir.traverse import walk


class Case(NamedTuple):
    body: str
    totals: int  # the additions that are one for a loop over threads


HEAD = """
__global__ void k(float *{restrict} out, const float *__restrict__ x, float *__restrict__ y, int n, int m) {{
    __shared__ float s[64];
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t, j = blockIdx.y;
    {body}
}}
"""
CASES = {
    "all threads": Case("if (i < n) atomicAdd(out, x[i]);", 1),
    "by an argument": Case("if (i < n) atomicAdd(out + m, x[i]);", 1),
    "a row of its own": Case("if (i < n) atomicAdd(out + j, x[i]);", 1),
    "some threads": Case("if (i < n && x[i] > 0.5f) atomicAdd(out, x[i]);", 1),
    "a short loop": Case("if (i < n) for (int k = 0; k < 7; ++k) atomicAdd(out + k, x[i] * k);", 7),
    "two loops": Case(
        "for (int k = 0; k < 3; ++k) for (int l = 0; l < 2; ++l) if (i < n) atomicAdd(out + 2 * k + l, x[i] + l);", 6
    ),
    "a loop that does not pick": Case("if (i < n) for (int k = 0; k < m; ++k) atomicAdd(out, x[i] * k);", 1),
    "after a barrier": Case("s[t] = i < n ? x[i] : 0.0f; __syncthreads(); atomicAdd(out + blockIdx.x, s[63 - t]);", 1),
    "a short loop with barriers before": Case(
        "s[t] = i < n ? x[i] : 0.0f; __syncthreads(); for (int k = 0; k < 4; ++k) atomicAdd(out + k, s[t] * k);", 4
    ),
    "one of a row's blocks": Case("if (i < n) atomicAdd(out + blockIdx.x, x[i]);", 0),
    "each its own": Case("if (i < n) atomicAdd(out + i % 8, x[i]);", 0),
    "one thread": Case("if (t == 0) atomicAdd(out, x[i % n]);", 0),
    "a long loop": Case("if (i < n) for (int k = 0; k < m; ++k) atomicAdd(out + k, x[i]);", 0),
    "the old value is used": Case("if (i < n) y[i] = atomicAdd(out, 1.0f) >= 0.0f;", 0),
    "read too": Case("if (i < n) { atomicAdd(out, x[i]); y[i] = out[7]; }", 0),
    "stored too": Case("if (i < n) { if (i == 0) out[7] = 1.0f; atomicAdd(out, x[i]); }", 0),
    "a fence": Case("if (i < n) { atomicAdd(out, x[i]); __threadfence(); y[i] = 1.0f; }", 0),
    "another pointer into it": Case("float *p = m > 1 ? out : y; if (i < n) { atomicAdd(out, x[i]); p[7] = 0.0f; }", 0),
}
LAUNCH = (5, 2), 64
N, M = 300, 2


def compiled(case: Case, restrict: str = "__restrict__") -> Any:
    return kg.compile(HEAD.format(restrict=restrict, body=case.body))["k"]


def found(function: Function) -> int:
    expanded = totals.expanded(function)
    meets = any(isinstance(op, Barrier) for op in walk(expanded.body))
    return len(totals.find(expanded, by_row=not meets))


@pytest.mark.parametrize("name", CASES)
def test_is_chosen_where_it_is_right(name: str) -> None:
    case = CASES[name]
    assert found(compiled(case).function) == case.totals


def test_pointers_that_may_overlap() -> None:
    assert found(compiled(CASES["all threads"], restrict="").function) == 0


@pytest.mark.parametrize("name", CASES)
def test_values(name: str) -> None:
    """Against check mode, where every addition is made by itself."""
    kernel, random = compiled(CASES[name]), np.random.default_rng(1)
    x, start = random.random(N, np.float32), random.random(8, np.float32)
    outs = []
    for run in (lambda *a: kernel[LAUNCH](*a), lambda *a: kernel.check(*LAUNCH, *a)):
        out, y = start.copy(), np.zeros(320, np.float32)
        run(out, x, y, N, M)
        outs.append((out, y))
    for one, other in zip(*outs, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-5)
    assert (outs[0][0] != start).any()


def test_infinite_and_undefined_sums_arrive() -> None:
    kernel = compiled(CASES["all threads"])
    for value in (np.inf, np.nan):
        x, out = np.ones(N, np.float32), np.zeros(8, np.float32)
        x[17] = value
        kernel[LAUNCH](out, x, np.zeros(320, np.float32), N, M)
        np.testing.assert_array_equal(out, [value] + [0.0] * 7)
