"""Half precision: adjoints in half or float, accumulated in float."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import kernelgrad as kg
from scrambling import scramble

SOURCE = """
#include <cuda_fp16.h>
#include <cuda_bf16.h>
struct Mixed { __half h; float f; int k; };
__global__ void shared_weight(__half *y, const __half *x, const __half *w, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * w[0];
}
__global__ void loop(__half *y, const __half *x, __half *tmp, int n) {
    int i = threadIdx.x;
    __half s = x[i];
    for (int j = 0; j < n; j++) { s = s * s + x[j]; tmp[i] = s; }
    y[i] = tmp[i] * s;
}
__global__ void pairs(__half2 *y, const __half2 *x) { int i = threadIdx.x; y[i] = __hmul2(x[i], x[0]); }
__global__ void mixed(Mixed *y, const Mixed *x) {
    int i = threadIdx.x;
    Mixed v = x[i];
    v.f *= __half2float(v.h) * v.k;
    y[i] = v;
}
__global__ void brain(__nv_bfloat16 *y, const __nv_bfloat16 *x) { int i = threadIdx.x; y[i] = x[i] * x[0]; }
__global__ void local(__half *y, const __half *x) {
    int i = threadIdx.x;
    __half a[3] = {x[i], x[0], x[1]};
    for (int j = 0; j < 3; j++) a[(i + j) % 3] = a[j] * a[(j + 1) % 3];
    y[i] = a[i % 3];
}
__device__ __half square(__half a) { return a * a; }
"""


@pytest.fixture(scope="module")
def module() -> kg.Module:
    return kg.compile(SOURCE)


def numbers(count: int, dtype: Any = "f2") -> Any:
    return np.linspace(0.3, 0.7, count).astype(dtype)


def test_signature_shows_float(module: kg.Module) -> None:
    assert repr(kg.gradient(module["loop"], "y, x")).endswith("float *d_y, float *d_x)>")


@pytest.mark.parametrize("dtype", ["f2", "f4"])
def test_many_small_contributions_are_not_lost(module: kg.Module, dtype: str) -> None:
    """In half, a sum of hundredths stops growing at 32."""
    n = 8192
    d_w, d_y = np.zeros(1, dtype), np.full(n, 0.01, dtype)
    gradient = kg.gradient(module["shared_weight"], "y, x, w")
    args = np.zeros(n, "f2"), np.ones(n, "f2"), np.full(1, 2, "f2"), n
    gradient[32, 256](*args, d_y, np.zeros(n, dtype), d_w)
    np.testing.assert_allclose(d_w, 81.92, rtol=2e-3)
    assert not d_y.any()


@pytest.mark.parametrize("name", ["loop", "pairs", "local"])
def test_against_double(module: kg.Module, name: str) -> None:
    extra = (numbers(8), 3) if name == "loop" else ()
    assert kg.check_gradient(module[name], "y, x", 1, 4, (numbers(8), numbers(8), *extra)).ok


@pytest.mark.parametrize("name", ["loop", "pairs", "local"])
def test_both_forms_agree(module: kg.Module, name: str) -> None:
    found = []
    for dtype in ("f2", "f4"):
        extra = (numbers(8), 3) if name == "loop" else ()
        d_x = np.zeros(8, dtype)
        kg.gradient(module[name], "y, x")[1, 4](numbers(8), numbers(8), *extra, np.ones(8, dtype), d_x)
        found.append(d_x)
    np.testing.assert_array_equal(found[0], found[1].astype("f2"))
    assert found[0].any()


def test_split(module: kg.Module) -> None:
    forward, reverse = kg.split(module["loop"], "y, x")
    args = (numbers(4), numbers(4), numbers(4), 3)
    tape = forward[1, 4](*args)
    scramble(args)
    d_x, want = np.zeros(4, "f2"), np.zeros(4, "f2")
    reverse[1, 4](tape, *args, np.ones(4, "f2"), d_x)
    kg.gradient(module["loop"], "y, x")[1, 4](numbers(4), numbers(4), numbers(4), 3, np.ones(4, "f2"), want)
    np.testing.assert_array_equal(d_x, want)


def test_records_take_floats(module: kg.Module) -> None:
    dtype = np.dtype([("h", "f2"), ("f", "f4"), ("k", "i4")], align=True)
    in_float = np.dtype([("h", "f4"), ("f", "f4"), ("k", "i4")], align=True)
    x = np.ones(2, dtype)
    x["h"], x["k"] = 3, 2
    d_y, d_x = np.zeros(2, in_float), np.zeros(2, in_float)
    d_y["f"] = 1
    kg.gradient(module["mixed"], "y, x")[1, 2](np.zeros(2, dtype), x, d_y, d_x)
    np.testing.assert_array_equal(d_x["h"], 2)
    np.testing.assert_array_equal(d_x["f"], 6)
    assert kg.check_gradient(module["mixed"], "y, x", 1, 2, (np.zeros(2, dtype), x)).ok


def test_bfloat16(module: kg.Module) -> None:
    x = np.full(4, 2, ml_dtypes.bfloat16)
    d_x = np.zeros(4, ml_dtypes.bfloat16)
    kg.gradient(module["brain"], "y, x")[1, 4](np.zeros_like(x), x, np.ones_like(x), d_x)
    np.testing.assert_array_equal(d_x.astype("f4"), [10, 2, 2, 2])


def test_function(module: kg.Module) -> None:
    for dtype in ("f2", "f4"):
        d_a = np.zeros(1, dtype)
        assert kg.gradient(module["square"], "a").execute(3.0, d_a) == 9
        assert d_a[0] == 6


def test_overlap_of_adjoints_in_half(module: kg.Module) -> None:
    both = np.ones(8, "f2")
    with pytest.raises(kg.ArgumentError, match="'d_y' and 'd_x' share memory"):
        kg.gradient(module["pairs"], "y, x")[1, 4](numbers(8), numbers(8), both, both)


def test_no_atomics_in_half(module: kg.Module) -> None:
    source = kg.gradient(module["shared_weight"], "y, x, w").source
    assert "float *__restrict__ _d_w" in source and "warp_add(_d_w" in source


def test_read_only_adjoints(module: kg.Module) -> None:
    """What is written must be writable, in half as in float; a kept adjoint is not written."""
    y, x, d_y, d_x = (numbers(4) for _ in range(4))
    d_y.flags.writeable = False
    before, w = d_y.copy(), numbers(1)
    with pytest.raises(kg.errors.ArgumentError, match="the adjoint of 'y' wants a writable array"):
        kg.gradient(module["shared_weight"], "y, x")[1, 4](y, x, w, 4, d_y, d_x)
    kg.gradient(module["shared_weight"], "y, x", keep="y", assign="x")[1, 4](y, x, w, 4, d_y, d_x)
    np.testing.assert_array_equal(d_y, before)
    np.testing.assert_allclose(d_x, before * w, rtol=1e-3)
    d_x.flags.writeable = False
    with pytest.raises(kg.errors.ArgumentError, match="the adjoint of 'x' wants a writable array"):
        kg.gradient(module["shared_weight"], "y, x", keep="y")[1, 4](y, x, w, 4, d_y, d_x)


def test_pointers_that_may_be_null() -> None:
    """Their adjoints are floats; null is null of these."""
    source = """#include <cuda_fp16.h>
    __global__ void k(float *y, const half *h, const int *c, int n) {
        int i = threadIdx.x;
        if (i >= n) return;
        const half *p = nullptr;
        if (c[i]) p = h + i;
        __syncthreads();
        for (int j = 0; j < 2; j++) { y[i] = p ? __half2float(*p) * 3 : 1; if (c[i] == 2) p = nullptr; }
    }"""
    h, c, d_h = np.full(8, 2, "f2"), np.array([0, 1, 2, 1, 0, 1, 2, 0], "i4"), np.zeros(8, "f2")
    kg.gradient(kg.compile(source)["k"], "y, h")[1, 8](np.zeros(8, "f4"), h, c, 7, np.ones(8, "f4"), d_h)
    np.testing.assert_array_equal(d_h, 3.0 * (c == 1))
