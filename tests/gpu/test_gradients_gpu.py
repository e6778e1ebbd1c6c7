"""Gradients on a GPU against the CPU backend's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from gradient_cases import ALL, Case, adjoints

cupy = pytest.importorskip("cupy")

EVERY = pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in ALL if "gpu" not in case.skip])


def _to_device(value: Any) -> Any:
    return cupy.asarray(value) if isinstance(value, np.ndarray) else value


def _same(got: np.ndarray[Any, Any], want: np.ndarray[Any, Any], tolerance: float) -> None:
    for name in want.dtype.names or (None,):
        one, other = (got, want) if name is None else (got[name], want[name])
        scale = max(1.0, float(np.abs(other).max())) if other.size else 1.0
        np.testing.assert_allclose(one, other, rtol=0, atol=tolerance * scale)


@EVERY
@pytest.mark.parametrize(("real", "dtype"), [("double", "f8"), ("float", "f4")])
def test_gpu_gives_what_the_cpu_gives(case: Case, real: str, dtype: str) -> None:
    args = case.arguments(dtype)
    if any(isinstance(a, np.ndarray) and a.dtype.names for a in args):
        pytest.skip("CuPy has no arrays of structs")
    given = adjoints(case, args)
    on_gpu = [_to_device(a) for a in (*args, *given)]
    gradient = kg.gradient(case.compiled(real), case.listed)
    gradient[case.grid, case.block](*args, *given)
    gradient[case.grid, case.block](*on_gpu)
    for got, want in zip(on_gpu, (*args, *given), strict=True):
        if isinstance(want, np.ndarray):
            _same(cupy.asnumpy(got), want, 1e-11 if want.dtype == "f8" else max(case.tolerance, 1e-5))


def test_contention_gives_the_same_sum() -> None:
    """A million threads add to one number."""
    kernel = kg.compile(
        "__global__ void k(double *y, const double *x, double a, int n) {"
        " int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] = a * x[i] * x[i % 7]; }"
    )["k"]
    n = 1 << 20
    x = cupy.linspace(0, 1, n)
    d_x, d_a = cupy.zeros(n), cupy.zeros(1)
    kg.gradient(kernel, "y, x, a")[n // 256, 256](cupy.zeros(n), x, 2.0, n, cupy.ones(n), d_x, d_a)
    host = cupy.asnumpy(x)
    np.testing.assert_allclose(cupy.asnumpy(d_a), (host * host[np.arange(n) % 7]).sum(), rtol=1e-10)


def test_tape_on_the_stream_of_the_arrays() -> None:
    kernel = kg.compile("""__global__ void k(double *y, const double *x, int n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        double v = x[i];
        for (int j = 0; j < n; j++) v = sin(v) + 0.5 * x[i];
        y[i] = v;
    }""")["k"]
    gradient = kg.gradient(kernel, "y, x")
    x, want = np.linspace(0, 1, 1024), np.zeros(1024)
    gradient[4, 256](np.zeros(1024), x, 100, np.ones(1024), want)
    with cupy.cuda.Stream(non_blocking=True) as stream:
        d_x = cupy.zeros(1024)
        for _ in range(3):
            gradient[4, 256](cupy.zeros(1024), cupy.asarray(x), 100, cupy.ones(1024), d_x)
        stream.synchronize()
    np.testing.assert_allclose(cupy.asnumpy(d_x), 3 * want, rtol=1e-10)


def test_repeated_launches_on_changing_streams() -> None:
    """What is remembered of a launch is not its stream. With a finishing step, and memory of its own, on each."""
    kernel = kg.compile("""__global__ void k(double *y, const double *x, double a, int n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) y[i] = a * x[i];
    }""")["k"]
    n = 1 << 20
    gradient = kg.gradient(kernel, "y, a")
    x = cupy.arange(n, dtype=cupy.float64)
    cupy.cuda.Device().synchronize()
    sums = []
    for number in range(6):
        with cupy.cuda.Stream(non_blocking=True) as stream:
            seed, d_a = cupy.full(n, number, cupy.float64), cupy.zeros(1)
            named = (n // 256, 256, 0, stream) if number % 2 else (n // 256, 256)
            gradient[named](cupy.zeros(n), x, 2.0, n, seed, d_a)
            sums.append((stream, d_a))
    for number, (stream, d_a) in enumerate(sums):
        stream.synchronize()
        np.testing.assert_allclose(cupy.asnumpy(d_a), number * n * (n - 1) / 2, rtol=1e-12)


def test_jvp_and_second_order() -> None:
    kernel = kg.compile(
        "__global__ void k(double *y, const double *x) { int i = threadIdx.x; y[i] = x[i] * x[i] * x[0]; }"
    )["k"]
    second = kg.jvp(kg.gradient(kernel, "y, x"), "x, d_x")
    random = np.random.default_rng(0)
    vectors = [random.standard_normal(8) for _ in range(6)]
    host, device = [v.copy() for v in vectors], [cupy.asarray(v) for v in vectors]
    second[1, 8](*host)
    second[1, 8](*device)
    for got, want in zip(device, host, strict=True):
        np.testing.assert_allclose(cupy.asnumpy(got), want, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("dtype", ["f2", "f4"])
def test_half_precision(dtype: str) -> None:
    kernel = kg.compile("""#include <cuda_fp16.h>
    __global__ void k(__half *y, const __half *x, const __half *w, int n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) y[i] = x[i] * w[0];
    }""")["k"]
    n = 8192
    d_x, d_w = cupy.zeros(n, dtype), cupy.zeros(1, dtype)
    args = cupy.zeros(n, "f2"), cupy.ones(n, "f2"), cupy.full(1, 2, "f2"), n
    kg.gradient(kernel, "y, x, w")[32, 256](*args, cupy.full(n, 0.01, dtype), d_x, d_w)
    np.testing.assert_allclose(cupy.asnumpy(d_w), 81.92, rtol=2e-3)
    np.testing.assert_allclose(cupy.asnumpy(d_x), 0.02, rtol=1e-3)


def test_module_variables_and_structs() -> None:
    module = kg.compile("""__constant__ double weights[2] = {1.5, 2.5};
    __device__ double buffer[4];
    struct Views { double *y; const double *x; int n; };
    __global__ void listed(double *y, const double *x) {
        int i = threadIdx.x;
        y[i] = weights[i % 2] * x[i] * weights[0];
    }
    __global__ void through(double *y, const double *x, int n) {
        int i = threadIdx.x;
        for (int j = 0; j < n; j++) buffer[i] = buffer[i] * x[j] + x[i];
        y[i] = buffer[i] * buffer[i];
    }
    __global__ void views(Views v) { int i = threadIdx.x; if (i < v.n) v.y[i] = v.x[i] * v.x[0]; }""")
    x = np.array([0.5, 0.6, 0.7, 0.8])

    def run(xp: Any) -> list[Any]:
        d_x, d_w, through = xp.zeros(4), xp.zeros(2), xp.zeros(4)
        kg.gradient(module["listed"], "y, x, weights")[1, 4](xp.zeros(4), xp.asarray(x), xp.ones(4), d_x, d_w)
        module.variable("buffer")[...] = 0
        kg.gradient(module["through"], "y, x")[1, 4](xp.zeros(4), xp.asarray(x), 3, xp.ones(4), through)
        shadows = {"y": xp.ones(4), "x": xp.zeros(4), "n": 0}
        kg.gradient(module["views"], "v")[1, 4]({"y": xp.zeros(4), "x": xp.asarray(x), "n": 4}, shadows)
        return [d_x, d_w, through, shadows["x"]]

    for got, want in zip(run(cupy), run(np), strict=True):
        np.testing.assert_allclose(cupy.asnumpy(got), want, rtol=1e-12)
