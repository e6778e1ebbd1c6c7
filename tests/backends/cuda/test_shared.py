"""Shared arrays that exceed what CUDA allows in arrays of a fixed size lie in dynamic shared memory."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

import kernelgrad as kg
from kernelgrad.backends.cuda import kernel_name
from kernelgrad.backends.cuda.shared import shared_layout
from kernelgrad.ir.layout import param_layout
from kernelgrad.runtime.config import make_launch
from kernelgrad.runtime.launch import LaunchConfig
from kernelgrad.runtime.nvrtc import compile_only
from large_shared import BLOCK, CASES, GRID, SIZE

from ...emulation.run_text import run_packed


@pytest.mark.parametrize("name", CASES)
def test_gradient(name: str) -> None:
    case = CASES[name]
    kernel = kg.compile(case.source)["k"]
    x = np.random.default_rng(0).random(SIZE)
    report = kg.check_gradient(kernel, "y, x", GRID, BLOCK, (np.zeros(SIZE), x), shared=case.shared)
    assert report.ok, report


@pytest.mark.parametrize("name", CASES)
def test_compiles(name: str) -> None:
    kernel = kg.compile(CASES[name].source)["k"]
    assert compile_only(kernel.source, "sm_90")
    assert compile_only(kg.gradient(kernel).source, "sm_90")
    assert compile_only(kg.jvp(kernel).source, "sm_90")


@pytest.mark.parametrize("name", CASES)
def test_runs_as_text(name: str) -> None:
    if shutil.which("g++") is None:
        pytest.skip("g++ is not installed")
    case = CASES[name]
    gradient = kg.gradient(kg.compile(case.source)["k"])
    random = np.random.default_rng(1)
    native = [np.zeros(SIZE), random.random(SIZE), random.random(SIZE), np.zeros(SIZE)]
    emulated = [a.copy() for a in native]
    gradient[case.launch](*native)
    ((kernel, bound, *_),), _, own = gradient._prepare(make_launch(*case.launch), tuple(emulated), {}, single=True)
    module, config = kernel.cuda_module, LaunchConfig((GRID, 1, 1), (BLOCK, 1, 1))
    packed = kernel._with_variables(module, bound, config, None, own.supplied).packed
    offsets, _ = param_layout(module.functions[kernel.name])
    run_packed(kernel.source, kernel_name(kernel.name), (GRID, 1, 1), (BLOCK, 1, 1), packed, offsets)
    for want, got in zip(native, emulated, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-12)


def test_text() -> None:
    text = kg.gradient(kg.compile(CASES["arrays_and_dynamic"].source)["k"]).source
    expected = """
    // 57344 bytes in arrays, 49152 are allowed: they lie in dynamic shared memory.
    // Every launch asks for so many more: what the kernel uses itself lies behind them.
    extern __shared__ __align__(16) unsigned char dynamic_shared[];
    double (&s)[26][128] = *(double (*)[26][128])dynamic_shared;
    kg::Pair (&p)[128] = *(kg::Pair (*)[128])(dynamic_shared + 26624);
    double (&_d_s)[26][128] = *(double (*)[26][128])(dynamic_shared + 28672);
    kg::Pair (&_d_p)[128] = *(kg::Pair (*)[128])(dynamic_shared + 55296);
    double *d = (double *)(dynamic_shared + 57344);
"""
    assert expected in text


@pytest.mark.parametrize(("rows", "moved"), [(24, False), (25, True)])
def test_the_limit(rows: int, moved: bool) -> None:
    """24 rows and their shadow are 48 KB."""
    source = f"""
        __global__ void k(double *y, const double *x) {{
          __shared__ double s[{rows}][128];
          for (int r = 0; r < {rows}; r++) s[r][threadIdx.x] = x[threadIdx.x] * r;
          __syncthreads();
          y[threadIdx.x] = s[threadIdx.x % {rows}][127 - threadIdx.x];
        }}"""
    gradient = kg.gradient(kg.compile(source)["k"])
    kernel = gradient.variant().reverse
    assert compile_only(gradient.source, "sm_90")
    assert bool(shared_layout(kernel.cuda_module, kernel.name).moved) == moved


def test_sums_over_the_block_count() -> None:
    """The helper that sums a number's adjoint has an array of its own."""
    source = """
        __global__ void k(double *y, const double *x, double a) {
          __shared__ double s[24][128];
          for (int r = 0; r < 24; r++) s[r][threadIdx.x] = a * x[threadIdx.x] * r;
          __syncthreads();
          y[threadIdx.x] = s[threadIdx.x % 24][127 - threadIdx.x];
        }"""
    gradient = kg.gradient(kg.compile(source)["k"])
    assert "dynamic_shared" in gradient.source
    assert compile_only(gradient.source, "sm_90")


def test_volatile_views() -> None:
    source = """
        __global__ void k(float *y) {
          __shared__ volatile float s[20000];
          extern __shared__ volatile float d[];
          s[threadIdx.x] = y[threadIdx.x];
          d[threadIdx.x] = s[31 - threadIdx.x];
          y[threadIdx.x] = d[threadIdx.x ^ 1];
        }"""
    text = kg.compile(source)["k"].source
    assert compile_only(text, "sm_90")
    assert "volatile float (&s)[20000] = *(volatile float (*)[20000])dynamic_shared;" in text
    assert "volatile float *d = (volatile float *)(dynamic_shared + 80000);" in text


def test_a_shadow_that_does_not_fit() -> None:
    source = """
        __global__ void k(double *y, const double *x) {
          extern __shared__ double s[];
          s[threadIdx.x] = x[threadIdx.x];
          __syncthreads();
          y[threadIdx.x] = s[31 - threadIdx.x];
        }"""
    gradient = kg.gradient(kg.compile(source)["k"])
    arrays = [np.zeros(32) for _ in range(4)]
    with pytest.raises(kg.LaunchError, match="a derivative needs 240000 here, 120000 of them for the shadow"):
        gradient[1, 32, 120_000, None](*arrays)


def test_arrays_that_are_seen_as_vectors() -> None:
    """The vectors' loads need their alignment, whatever else lies in shared memory."""
    text = """__global__ void k(float *y, const float *x) {
        __shared__ float one[33], row[1024], plain[32];
        int t = threadIdx.x;
        one[t % 33] = t; plain[t % 32] = t; row[t] = x[t];
        __syncthreads();
        float *p = t % 2 ? row : one;
        float4 v = reinterpret_cast<const float4 *>(row)[t / 4];
        y[t] = v.x * v.y + one[t % 33] + plain[t % 32] + *p;
    }"""
    emitted = kg.compile(text)["k"].source
    assert "__align__(16) __shared__ float row[1024];" in emitted
    assert "__shared__ float one[33];" in emitted and "__shared__ float plain[32];" in emitted
    assert "__align__(16) __shared__ float _d_row[1024];" in kg.gradient(kg.compile(text)["k"]).source
