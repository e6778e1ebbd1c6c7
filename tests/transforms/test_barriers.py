"""Barriers that part nothing are dropped; those that part something stay."""

from __future__ import annotations

import numpy as np
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


@pytest.mark.parametrize("function", ["__syncthreads_and", "__syncthreads_or", "__syncthreads_count"])
def test_a_result_that_nobody_wants(function: str) -> None:
    """NVRTC 13.0 miscompiles what comes after `__syncthreads_and` in a loop, if its result is not used."""
    kernel = kg.compile(
        f"""__global__ void k(double *y, const double *x, int n) {{
            __shared__ double s[8];
            for (int j = 0; j < n; ++j) {{
                s[threadIdx.x] = j * x[threadIdx.x];
                int unused = {function}(x[threadIdx.x] > j);
                y[threadIdx.x] += s[7 - threadIdx.x];
                __syncthreads();
            }}
        }}"""
    )["k"]
    for text in (kernel.source, kg.gradient(kernel, "y, x").source):
        assert function not in text and "__syncthreads();" in text
    y, x = np.zeros(8), np.arange(8.0)
    kernel[1, 8](y, x, 3)
    np.testing.assert_array_equal(y, 3 * x[::-1])
