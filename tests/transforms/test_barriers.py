"""Barriers that part nothing are dropped; those that part something stay."""

from __future__ import annotations

import pytest

import kernelgrad as kg
from kernelgrad.ir.ops import Barrier
from kernelgrad.ir.traverse import walk
from kernelgrad.transforms import barriers

CASES = {
    "other arrays": ("s[t] = x[t]; __syncthreads(); r[t] = x[t + 1];", 0),
    "the same array": ("s[t] = x[t]; __syncthreads(); y[t] = s[t + 1];", 1),
    "read, then written": ("y[t] = s[t + 1]; __syncthreads(); s[t] = x[t];", 1),
    "only read, then written": ("float a = s[t + 1]; __syncthreads(); s[t] = x[t]; y[t] = a;", 1),
    "read twice": ("float a = s[t]; __syncthreads(); y[t] = a + s[t + 1];", 0),
    "of three": ("s[t] = x[t]; __syncthreads(); r[t] = x[t]; __syncthreads(); y[t] = s[t + 1] + r[t + 1];", 1),
    "two in a row": ("s[t] = x[t]; __syncthreads(); __syncthreads(); y[t] = s[t + 1];", 1),
    "global memory": ("y[t] = x[t]; __syncthreads(); y[t + 1] += 1;", 1),
    "pointers that may be the same": ("y[t] = 1; __syncthreads(); s[t] = x[t + 1];", 1),
    "in a branch": ("s[t] = 1; if (n > 3) { r[t] = 1; __syncthreads(); y[t] = x[t]; } y[t] += s[t + 1];", 1),
    "at the start of a branch": ("s[t] = x[t]; if (n > 3) { __syncthreads(); y[t] = s[t + 1]; }", 1),
    "at the end of a branch": ("if (n > 3) { s[t] = x[t]; __syncthreads(); } y[t] = s[t + 1];", 1),
    "a loop": ("for (int k = 0; k < n; k++) { s[t] += 1; __syncthreads(); y[t] += x[t]; }", 1),
    "at the end": ("s[t] = x[t]; __syncthreads();", 0),
    "dynamic memory of two names": ("extern __shared__ float d[]; d[t] = 1; __syncthreads(); y[t] = d[t + 1];", 1),
    "atomics": ("atomicAdd(&s[0], 1.0f); __syncthreads(); y[t] = s[0];", 1),
}


@pytest.mark.parametrize("name", CASES)
def test_barriers(name: str) -> None:
    body, expected = CASES[name]
    kernel = kg.compile(
        f"""__global__ void k(float *y, const float *x, int n) {{
            __shared__ float s[65], r[65]; int t = threadIdx.x; {body} }}"""
    )["k"]
    function = barriers.run(kernel.function, kernel.module)
    assert sum(isinstance(op, Barrier) for op in walk(function.body)) == expected
