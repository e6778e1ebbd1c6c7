"""Tiles of structs in dynamic shared memory, and guards that all threads of a launch pass: plans and values."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from derived import gradient_of, kernel_of
from kernelgrad.runtime.config import make_launch

BODY = """
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    GUARD
    double2 own = x[i];
    double sum = 0;
    for (int tile = 0; tile < tiles; ++tile) {
        s[threadIdx.x] = x[tile * blockDim.x + threadIdx.x];
        __syncthreads();
        for (unsigned k = 0; k < blockDim.x; ++k) {
            double d = s[k].x - own.x;
            sum += s[k].y * d * d / (1 + own.y * own.y);
        }
        __syncthreads();
    }
    y[i] = sum;
"""
SHARED = {"dynamic": "extern __shared__ double2 s[];", "static": "__shared__ double2 s[64];"}
GUARDS = {"none": "", "signed": "if (i >= n) return;", "unsigned": "if (i >= (unsigned)n) return;"}
BLOCK = 64
GUARDED = re.compile(r"[<>]=? (\(unsigned int\))?n\b")


def compiled(shared: str, guard: str) -> Any:
    params = "double *y, const double2 *x, int n, int tiles"
    body = SHARED[shared] + BODY.replace("GUARD", GUARDS[guard])
    return kernel_of(f"__global__ void k({params}) {{ {body} }}")


def text_of(shared: str, guard: str, blocks: int, n: int) -> str:
    gradient = gradient_of(compiled(shared, guard), "y, x", primal=False, keep="y")
    launch = make_launch(blocks, BLOCK, 1024 if shared == "dynamic" else 0)
    values = np.zeros(blocks * BLOCK), np.zeros(2 * blocks * BLOCK), n, blocks
    text: str = gradient.planned(launch, values, {}, on_gpu=True).plan.variant.source(0)
    return text


@pytest.mark.parametrize("guard", GUARDS)
def test_plans_of_dynamic_memory_are_those_of_static(guard: str) -> None:
    dynamic, static = (text_of(shared, guard, 256, 256 * BLOCK) for shared in SHARED)
    assert dynamic.count("__shfl_xor_sync(") == static.count("__shfl_xor_sync(") > 0  # sums that go round the lanes
    assert not GUARDED.search(static) and not GUARDED.search(dynamic)
    assert bool(GUARDED.search(text_of("static", guard, 256, 256 * BLOCK - 5))) == (guard != "none")


@pytest.mark.parametrize("options", [{}, {"primal": False, "keep": "y"}], ids=str)
@pytest.mark.parametrize("guard", GUARDS)
@pytest.mark.parametrize("shared", SHARED)
def test_values(shared: str, guard: str, options: dict[str, Any]) -> None:
    kernel, blocks, rng = compiled(shared, guard), 3, np.random.default_rng(7)
    gradient, forward = kg.gradient(kernel, "y, x", **options), kg.jvp(kernel, "y, x")
    size = blocks * BLOCK
    for n in (size, size - BLOCK, size):
        launch = (blocks, BLOCK, 1024) if shared == "dynamic" else (blocks, BLOCK)
        x, t_x, d_x = (rng.uniform(-1, 1, 2 * size) for _ in range(3))
        y, d_y, t_y = rng.uniform(-1, 1, size), rng.uniform(-1, 1, size), np.zeros(size)
        if guard != "none":
            d_y[n:] = 0
        before, seed = d_x.copy(), d_y.copy()
        gradient[launch](y, x, n, blocks, d_y, d_x)
        forward[launch](y, x, n, blocks, t_y, t_x)
        np.testing.assert_allclose((d_x - before) @ t_x, seed @ t_y, rtol=1e-11)
