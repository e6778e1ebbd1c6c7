"""`__restrict__` in the text: nowhere that threads pass values through (rule 21), everywhere else that is known."""

from __future__ import annotations

import re

import numpy as np
import pytest

import kernelgrad as kg
from derived import kernel_of
from kernelgrad.runtime.nvrtc import compile_only
from passing_cases import BLOCK, CASES, arguments, run, text
from read_only_path import wrongly_read_only

ALL = [(name, mode) for name, case in CASES.items() for mode in case.modes]


def restricted(source: str) -> dict[str, list[bool]]:
    """For each pointer parameter, whether it is printed `__restrict__` in the kernels that use it."""
    found: dict[str, list[bool]] = {}
    for kernel in source.split("__global__ void")[1:]:
        signature, _, body = kernel.partition("{")
        for qualifier, name in re.findall(r"\*(__restrict__ )?(\w+)[,)]", signature):
            if re.search(rf"\b{name}\b", body):
                found.setdefault(name, []).append(bool(qualifier))
    return found


@pytest.mark.parametrize(("name", "mode"), ALL)
def test_what_is_printed(name: str, mode: str) -> None:
    case, source = CASES[name], text(CASES[name], mode)
    found = restricted(source)
    assert found
    for parameter in case.passed:
        assert True not in found.get(parameter, []), parameter
    for parameter in case.kept:
        assert False not in found.get(parameter, []), parameter
    assert compile_only(source, "sm_90")


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if "f" in case.passed])
def test_what_changes_is_not_read_as_if_it_did_not(name: str) -> None:
    """Where compilers make one load of two, as they do with `__restrict__`, though not behind barriers."""
    source = text(CASES[name], "J")
    assert not wrongly_read_only(source)
    source, found = re.subn(r"const double \*f\b", "const double *__restrict__ f", source)
    assert found and (bool(wrongly_read_only(source)) or "__syncthreads" in source)


def test_copies() -> None:
    """They make compilers read through the read-only path what is not printed `__restrict__`, if their targets are."""
    source = """extern "C" __global__ void k(double *u, const double *f, double *__restrict__ y, int n) {
        int t = threadIdx.x; u[t] = t; __syncthreads(); double v = f[t]; if (n > 0) v = u[31 - t]; y[t] = v; }"""
    assert wrongly_read_only(source)
    assert not wrongly_read_only(kernel_of(source).source)


@pytest.mark.parametrize("name", CASES)
def test_gradients_are_right(name: str) -> None:
    case = CASES[name]
    (*own, n), _ = arguments(case)
    kg.check_gradient(kernel_of(case.source), case.listed, 1, BLOCK, (*own, n))
    first, *others = [run(case, mode) for mode in case.modes if mode != "R"]
    for other in others:
        for one, two in zip(first, other, strict=True):
            np.testing.assert_allclose(one, two, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("name", ["restrict by the user", "const cast away"])
def test_kernels_themselves(name: str) -> None:
    """They are launched as a part of gradients, too."""
    assert restricted(kernel_of(CASES[name].source).source)["u"] == [False]


def test_tangents() -> None:
    assert restricted(kg.jvp(kernel_of(CASES["restrict by the user"].source), "y, u, f").source)["u"] == [False]


BODIES = {
    "x[t] = x[t] * 2;": True,  # no thread meets another
    "x[t] = x[t ^ 1]; __syncthreads();": False,
    "y[t] = x[t]; __syncthreads(); y[t + 32] = x[t ^ 1];": True,
    "*(t > 3 ? x : y) = t; __syncthreads(); y[t + 32] = x[t ^ 1];": False,
    "for (int k = 0; k < 3; k++) { y[t] = *x; x += 2; } __syncthreads();": True,
    "float *p = x; for (int k = 0; k < 3; k++) { *p = y[t]; p += 2; } __syncthreads(); y[t] += x[t];": False,
    "atomicAdd(&x[t / 2], 1.0f); __syncthreads(); atomicAdd(&x[t / 3], 2.0f);": True,
    "x[t] = 0; __syncthreads(); atomicAdd(&x[t / 3], 2.0f);": False,
    "x[t] = 1; __syncthreads(); x[t ^ 1] = y[t];": False,
    "y[t] = atomicAdd(&x[t / 2], 1.0f);": False,
    "y[t] = ((volatile float *)x)[t]; x[t] = 1;": False,
    "y[t] = x[t]; x[t ^ 1] = __shfl_sync(0xffffffffu, y[t], 0);": False,
    "x[t] = 1; __threadfence(); y[t] = x[t ^ 1];": False,
    "*table[t] = 1; __syncthreads(); y[t] = x[t ^ 1];": False,
    "y[t] = *table[t]; __syncthreads(); y[t] += x[t ^ 1];": True,
    # Loads that compilers make one, of which another may be of what is written by another name.
    "y[t] = t > 3 ? x[t] : y[t + 1];": False,
    "y[t] = t > 3 ? x[t] : *table[t];": False,
    "float v = x[t]; if (t > 3) v = *table[t]; y[t] = v * v;": False,
    "y[t] = t > 3 ? x[t] : x[t + 1];": True,
    "float2 v = ((float2 *)x)[t]; if (t > 3) v = ((float2 *)y)[t]; y[t + 1] = v.x;": False,
    # Pointers that are chosen, and written through: compilers do not see that they lead into x.
    "float *p = t > 3 ? x : y; *p = 2; y[t] = x[t];": False,
    "const float *p = t > 3 ? x : y; x[t] = 2; y[t + 1] = p[t];": False,
    "__shared__ float s[32]; float *p = t > 3 ? x : s; p[t] = 2; y[t] = x[t] + s[t];": False,
    "float *p = t > 3 ? x : nullptr; if (p) p[t] = 2; y[t] = x[t];": False,
    "atomicAdd(t > 3 ? x : y, 2.0f); y[t] = x[t];": False,
    "float *p = t > 3 ? x : x + 8; *p = 2; y[t] = x[t];": True,
    # Copies, after which compilers think that nobody writes what was copied.
    "y[t] = 1; x[t] = *table[t];": False,
    "y[t] = 1; float v = y[t + 1]; if (t > 3) v = *table[t]; x[t] = v;": False,
    "y[t] = 1; x[t] = y[t + 1];": True,
    "y[t] = 1; x[t] = *table[t] + 1;": True,
    "x[t] = *table[t];": True,
}


@pytest.mark.parametrize("body", BODIES)
def test_by_what_is_done(body: str) -> None:
    """Of a parameter `x` that the user calls `__restrict__`."""
    source = f"__global__ void k(float *__restrict__ x, float *y, float **table) {{ int t = threadIdx.x; {body} }}"
    assert restricted(kernel_of(source).source)["x"] == [BODIES[body]]
