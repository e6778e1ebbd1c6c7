"""Gradients that are the same from run to run, as files: what threads log is added up in the order that launches from
Python have."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from host_calls import call_gradient

import kernelgrad as kg
from find_nvcc import build, nvcc
from kernelgrad.transpile.derivative_file import derivative_file

RANDOM = np.random.default_rng(5)


class Case(NamedTuple):
    text: str
    listed: str
    grid: int
    block: int
    args: tuple[Any, ...]


def floats(count: int, dtype: Any = np.float32) -> Any:
    return RANDOM.uniform(0.5, 1.5, count).astype(dtype)


AT = RANDOM.integers(0, 5, 300).astype(np.int32)
CASES = {
    "gathered": Case(
        "__global__ void k(float *y, const float *x, const int *at, int n) { int i = blockIdx.x * blockDim.x +"
        " threadIdx.x; if (i < n) y[i] = x[at[i]] * x[0]; }",
        "y, x", 5, 64, (np.zeros(300, np.float32), floats(5), AT, 300),
    ),
    "numbers": Case(
        "__global__ void k(double *y, const double *x, double a, const int *at) { int i = blockIdx.x * blockDim.x +"
        " threadIdx.x; y[i] = a * x[at[i]]; }",
        "y, x, a", 4, 32, (np.zeros(128), floats(5, np.float64), 1.5, AT),
    ),
    "counted": Case(
        "__global__ void k(float *y, const float *x, const int *at, const int *n) { int i = threadIdx.x; float v = 1;"
        " for (int k = 0; k < n[i]; k++) v = v * x[at[i + k]] + sinf(v); y[i] = v; }",
        "y, x", 1, 40, (np.zeros(40, np.float32), floats(5), AT, (AT[:40] * 3).astype(np.int32)),
    ),
    "shared": Case(
        "__global__ void k(float *y, const float *x, const int *at) { __shared__ float s[8]; int i = threadIdx.x;"
        " if (i < 5) s[i] = x[i] * x[i]; __syncthreads(); y[i] = s[at[i]] * s[at[i + 1]] * x[at[i + 2]]; }",
        "y, x", 1, 64, (np.zeros(64, np.float32), floats(5), AT),
    ),
}  # fmt: skip


def gradient_of(case: Case) -> kg.Gradient:
    return kg.gradient(kg.compile(case.text)["k"], case.listed, deterministic=True)


@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
@pytest.mark.parametrize("name", CASES)
def test_the_same_as_from_python(name: str) -> None:
    case, found = CASES[name], []
    assert "kg::add_logged" in derivative_file(gradient_of(case))
    seed = floats(case.args[0].size, case.args[0].dtype)
    for on_host in (True, False):
        args = [a.copy() if isinstance(a, np.ndarray) else a for a in case.args]
        adjoints = [seed.copy(), np.ones_like(case.args[1])]
        adjoints += [np.zeros(1)] if case.listed.endswith("a") else []
        if on_host:
            assert call_gradient(gradient_of(case), case.grid, case.block, args, adjoints) == 0
        else:
            gradient_of(case)[case.grid, case.block](*args, *adjoints)
        found.append((args[0], *adjoints))
    for ours, wanted in zip(*found, strict=True):
        np.testing.assert_allclose(ours, wanted, rtol=1e-6)
    assert np.abs(found[0][2]).max() > 2


@pytest.mark.slow
@pytest.mark.skipif(nvcc() is None, reason="nvcc is not installed")
@pytest.mark.parametrize("name", ["counted", "shared"])
def test_nvcc_builds_it(name: str, tmp_path: Path) -> None:
    text = derivative_file(gradient_of(CASES[name])) + "int main() {}\n"
    assert build(text, tmp_path / name, "-arch=sm_90", "-Werror=all-warnings").exists()
