"""Vectors that a kernel reads: adjoints lie in them as what they belong to does."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from kernelgrad.runtime.config import make_launch

SOURCE = """
struct S { float *p; };
__device__ float4 load(const float *p) { return *reinterpret_cast<const float4 *>(p); }
__global__ void k(float *y, const float *x, S s, const char *raw, int n) {
    int i = threadIdx.x;
    if (4 * i >= n) return;
    float4 a = load(x + 4 * i);
    float2 b = reinterpret_cast<const float2 *>(s.p)[i];
    a.x *= a.y * b.x + reinterpret_cast<const int *>(raw)[i];
    reinterpret_cast<float4 *>(y)[i] = a;
}
__global__ void plain(float *y, const float *x, int n) { int i = threadIdx.x; if (i < n) y[i] = x[i] * x[i]; }
"""


def at(start: int, count: int = 32) -> Any:
    """An array that begins so many bytes behind a multiple of 16."""
    room = np.zeros(count + 16, np.float32)
    first = -room.ctypes.data % 16 // 4 + start // 4
    return room[first : first + count]


def test_what_parameters_are_cast_to() -> None:
    module = kg.compile(SOURCE)
    assert module["k"].cast_alignments == {"y": 16, "x": 16, "s.p": 8, "raw": 4}
    assert module["plain"].cast_alignments == {}


@pytest.mark.parametrize(("d_x", "is_right"), [(12, True), (8, False), (0, False)])
def test_adjoints_lie_alike(d_x: int, is_right: bool) -> None:
    g = kg.gradient(kg.compile(SOURCE)["k"], "y, x")
    x, given = at(12), [at(0), {"p": at(8)}, np.zeros(64, np.int8)]
    args = (given[0], x, *given[1:], 20)
    plan = g.bind_plan(make_launch(1, 32), args, {"d_y": at(0), "d_x": at(d_x)})
    check = lambda: g.check_alignment(plan.plan.variant, plan.bound)  # noqa: E731
    if is_right:
        return check()
    with pytest.raises(kg.ArgumentError, match=re.escape("the adjoint 'd_x' begins at address")):
        check()
