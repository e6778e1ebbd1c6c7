"""Zeros that wait for what they replace."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from kernelgrad.ir.ops import If, Store
from kernelgrad.ir.traverse import walk
from kernelgrad.kernel import Kernel
from kernelgrad.schedule.order import late_zeros

HEAD = "__global__ void k(double *_d_y, double *z, const double *x, int n)"
I = "int i = blockIdx.x * blockDim.x + threadIdx.x;"  # noqa: E741
# What a kernel does, and how many of its zeros wait.
CASES = {
    "taken": (f"{I} z[i] = x[i]; double d = y[i]; y[i] = 0; atomicAdd(&z[0], d);", 1),
    "behind a guard": (f"{I} if (i < n) {{ double d = y[i]; y[i] = 0; atomicAdd(&z[0], d); }}", 1),
    "in a loop": (f"{I} for (int k = 0; k < 3; k++) {{ double d = y[i]; y[i] = 0; atomicAdd(&z[k], d); }}", 1),
    "another place": (f"{I} double d = y[i]; y[(i + 1) % 16 + 16] = 0; atomicAdd(&z[0], d);", 0),
    "nothing is taken": ("y[threadIdx.x] = 0;", 0),
    "one instead": (f"{I} double d = y[i]; y[i] = 1; atomicAdd(&z[0], d);", 0),
    "a store needs it before": (f"{I} double d = y[i]; z[i] = d + 1; y[i] = 0;", 0),
    "written in between": (f"{I} double d = y[i]; y[i] = d + 1; if (n) y[i] = x[i]; y[i] = 0;", 0),
    "added to in between": (f"{I} double d = y[i]; atomicAdd(&y[i], 2.0); y[i] = 0; atomicAdd(&z[0], d);", 0),
    "perhaps written in between": (f"{I} double d = y[i]; z[i] = x[i]; y[i] = 0; atomicAdd(&z[0], d);", 0),
    "others may write": (f"{I} double d = y[i]; __syncthreads(); y[i] = 0; atomicAdd(&z[0], d);", 0),
    "volatile": (f"{I} volatile double *v = y; double d = v[i]; v[i] = 0; atomicAdd(&z[0], d);", 0),
}
N = 16


def compiled(body: str) -> tuple[Any, Any]:
    """The kernel, and with zeros that wait."""
    kernel = kg.compile(f"{HEAD} {{ double *y = _d_y; {body} }}")["k"]
    changed = late_zeros.run(kernel.function, kernel.module)
    return kernel, Kernel("k", replace(kernel.module, functions={"k": changed}), kernel.variable)


@pytest.mark.parametrize("name", CASES)
def test_which(name: str) -> None:
    body, expected = CASES[name]
    _, changed = compiled(body)
    ifs = [op for op in walk(changed.function.body) if isinstance(op, If)]
    assert sum([isinstance(o, Store) for o in op.then.ops] == [True] for op in ifs if not op.orelse.ops) == expected


@pytest.mark.parametrize("name", [name for name in CASES if name != "volatile"])
def test_values(name: str) -> None:
    found = []
    for kernel in compiled(CASES[name][0]):
        rng = np.random.default_rng(1)
        y, z, x = rng.random(2 * N), rng.random(2 * N), rng.random(N)
        y[::3] = 0.0
        y[5] = np.nan
        kernel[2, N // 2](y, z, x, 3)
        found.append((y, z))
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-14)


def test_adjoints_that_are_consumed_wait_and_kept_ones_are_not_written() -> None:
    kernel = kg.compile("__global__ void k(float *y, const float *x) { y[threadIdx.x] = x[0] * x[threadIdx.x]; }")["k"]
    assert "if (_d_y_value != 0.0f) _d_y[threadIdx.x] = 0.0f;" in kg.gradient(kernel).source
    assert "_d_y[threadIdx.x] = " not in kg.gradient(kernel, primal=False, keep="y").source.replace("*", "")


def test_what_the_kernel_stores_is_left_alone() -> None:
    """Where -0.0 was, 0.0 must be."""
    source = "__global__ void k(float *y, float *x) { int i = threadIdx.x; float v = x[i]; x[i] = 0.0f; y[i] = v * v; }"
    kernel = kg.compile(source)["k"]
    for text in (kernel.source, kg.gradient(kernel).source):
        assert "    x[i] = 0.0f;" in text and "if (v != 0.0f)" not in text
