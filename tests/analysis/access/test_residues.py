"""How integers differ between the lanes of a warp: against what the lanes compute, and in the gradients it is for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from derived import gradient_of, kernel_of
from kernelgrad.analysis.access.residues import Residue, Residues
from kernelgrad.analysis.machine import WARP
from kernelgrad.analysis.uniform import warp_uniform_values
from kernelgrad.ir.ops import Block, Store
from kernelgrad.ir.traverse import walk

THREADS, BLOCKS, TRIPS = 64, 3, 6

# What is computed in each trip of a loop, or before it; `r`: a random number of the thread, `u`: one of the block.
VALUES = {
    "thread": "v = t;",
    "strided": "v = t + trip * blockDim.x;",
    "strided from elsewhere": "v = t + (r + trip) * 64;",
    "backwards": "v = 5 - 3 * t - (r - trip) * (int)blockDim.x;",
    "shared offset": "v = u * 7 + t + (r << 8);",
    "lane": "v = t % 32 + r * 96;",
    "masked": "v = (t & 15) * 4 + r * 64;",
    "product": "v = u * 4 * (r * 8) + t;",
    "of the lane": "v = t * r;",
    "chosen": "v = r % 2 ? t + 32 : t + 96;",
    "clamped": "v = min(t, 20);",
    "steep": "v = t << 27;",
    "wide": "v = (int)((long long)t * 3 + (long long)r * 1024);",
    "warp": "v = t / 32 * 100 + t % 32;",
    "carried": "v = w; w += 32;",
    "carried by the lane": "v = w; w += t;",
    "carried by anything": "v = w; w += r;",
    "doubled": "v = w; w *= 2;",
}
SAME = {"masked", "of the lane", "clamped", "carried by the lane", "carried by anything", "doubled"}
HEAD = "int t = threadIdx.x, r = data[blockIdx.x * 64 + t], u = data[blockIdx.x], v = 0, w = t;"


def kernel(name: str) -> Any:
    body = f"{VALUES[name]} out[(blockIdx.x * {TRIPS} + trip) * 64 + t] = v;"
    loop = f"for (int trip = 0; trip < {TRIPS}; ++trip) {{ {body} }}"
    return kernel_of(f"__global__ void k(int *out, const int *data) {{ {HEAD} {loop} }}")


def residue(kernel: Any) -> Residue:
    function = kernel.function
    residues = Residues(function, warp_uniform_values(function, True), (THREADS, 1, 1))
    (stored,) = (op.value for op in walk(function.body) if isinstance(op, Store))
    return residues.of(stored)


@pytest.mark.parametrize("name", VALUES)
def test_what_lanes_compute(name: str) -> None:
    compiled = kernel(name)
    found = residue(compiled)
    out = np.zeros((BLOCKS, TRIPS, THREADS), np.int32)
    compiled[BLOCKS, THREADS](out, np.random.default_rng(3).integers(-9, 99, BLOCKS * 64).astype(np.int32))
    shared = (out.astype(np.int64) - found.slope * np.arange(THREADS)) % (1 << 32)
    lanes = shared.reshape(-1, THREADS // WARP, WARP)
    assert ((lanes - lanes[..., :1]) % found.other == 0).all()
    assert found.is_apart(WARP) == (name not in SAME)
    if name not in SAME:
        assert all(len(set(row)) == WARP for row in out.reshape(-1, WARP).tolist())


@pytest.mark.parametrize("loop", ["for (int c = t; c < n; c += 128)", "int c = t; for (; c < n; c += blockDim.x)"])
@pytest.mark.parametrize(("index", "apart"), [("c", True), ("c / 2", False), ("c % 64", True), ("(c & 7)", False)])
def test_lanes_that_are_apart_add_for_themselves(loop: str, index: str, apart: bool) -> None:
    """Rows of a table that blocks share."""
    body = f"int t = threadIdx.x; {loop} y[blockIdx.x * n + c] = table[token[blockIdx.x] * n + {index}];"
    params = "double *y, const double *table, const int *token, int n"
    made = kernel_of(f"__global__ void k({params}) {{ {body} }}")
    gradient, n, rng = gradient_of(made, "y, table", primal=False), 1000, np.random.default_rng(5)
    table, token, d_y = rng.random((7, n)), rng.integers(0, 7, 20).astype(np.int32), rng.random((20, n))
    text = gradient.source_for(20, 128, d_y, table, token, n, on_gpu=True)
    assert ("warp_add" not in text and "lane_sums" not in text) == apart
    d_table, want = np.zeros_like(table), np.zeros_like(table)
    c = np.arange(n)
    np.add.at(want, (token[:, None], eval(index.replace("/", "//"), {"c": c})[None]), d_y)
    gradient[20, 128](np.zeros_like(d_y), table, token, n, d_y.copy(), d_table)
    np.testing.assert_allclose(d_table, want, rtol=1e-12)


def test_loops_in_loops() -> None:
    """Each is followed a few times, whatever is around it."""
    carried = [f"int v{level}_{k} = 0;" for level in range(6) for k in range(8)]
    body = "s += x[(c5 + v5_0) & 127] * s;"
    for level in reversed(range(6)):
        shifted = "".join(f"v{level}_{k} = v{level}_{k + 1};" for k in range(7))
        step = f"{shifted} v{level}_7 += {2 << level}; c{level} += {8 << level};"
        body = f"int c{level} = threadIdx.x; while (c{level} < n) {{ {step} {body} }}"
    text = f"__global__ void k(float *y, const float *x, int n) {{ float s = 1; {''.join(carried)} {body} y[0] = s; }}"
    function = kernel_of(text).function
    followed = 0

    class Counting(Residues):
        def follow(self, block: Block) -> None:
            nonlocal followed
            followed += 1
            super().follow(block)

    Counting(function, set(), (THREADS, 1, 1))
    assert followed < 2000
