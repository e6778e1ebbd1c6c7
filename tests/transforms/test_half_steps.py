"""Steps through half-precision numbers lead to their adjoints, which are floats, or are refused."""

from __future__ import annotations

import numpy as np
import pytest

import kernelgrad as kg

THREADS = 8
_V = "float v = __half2float(h[0]) * __half2float(h[2]); y[i] = v * v;"
_PACK = f"const __half *h = (const __half *)&u; {_V}"

# x: four halves a thread, of which the first and the third are multiplied.
STEPS = {
    "record with a gap": (
        "const Gap *p = (const Gap *)(x + 4 * i); float v = __half2float(p->a) * __half2float(p->c); y[i] = v * v;"
    ),
    "record with a gap, as a whole": (
        "Gap p = ((const Gap *)x)[i]; float v = __half2float(p.a) * __half2float(p.c); y[i] = v * v;"
    ),
    "padded record": (
        "const Padded *p = (const Padded *)x; float v = __half2float(p[i].a) * __half2float(p[i].c); y[i] = v * v;"
    ),
    "null": f"const uint2 *p = n ? (const uint2 *)x : nullptr; if (p) {{ uint2 u = p[i]; {_PACK} }}",
    "null before a loop": (
        f"const uint2 *p = nullptr; for (int j = 0; j < n; ++j) p = j == 1 ? (const uint2 *)x + i : p;"
        f" uint2 u = *p; {_PACK}"
    ),
    "bytes of a thread": (
        "char bytes[8]; __half *h = (__half *)bytes; for (int j = 0; j < n; ++j) h[j] = x[4 * i + j];"
        " for (int j = 3; j < n; ++j) h[0] = h[0] * h[2]; float v = __half2float(h[0]); y[i] = v * v;"
    ),
}
_RECORDS = """#include <cuda_fp16.h>
struct Gap { __half a; __align__(4) __half c; };
struct __align__(8) Padded { __half a, b, c; };
struct Mixed { __half a, b; float f; };
struct Buffers { float *y; const __half *x; };
"""


@pytest.mark.parametrize("primal", [True, False])
@pytest.mark.parametrize("name", STEPS)
def test_adjoints_are_found(name: str, primal: bool) -> None:
    source = f"__global__ void k(float *y, const __half *x, int n) {{ int i = threadIdx.x; {STEPS[name]} }}"
    kernel = kg.compile(_RECORDS + source)["k"]
    x = np.random.default_rng(1).uniform(0.5, 1.5, (THREADS, 4)).astype("e")
    y, d_x = np.zeros(THREADS, "f"), np.zeros_like(x)
    kg.gradient(kernel, "y, x", primal=primal)[1, THREADS](y, x, 4, np.ones(THREADS, "f"), d_x)
    a, c = x[:, 0].astype("f"), x[:, 2].astype("f")
    exact = np.stack([2 * a * c * c, 0 * a, 2 * a * a * c, 0 * a], 1)
    np.testing.assert_allclose(d_x, exact, rtol=4e-3)
    if name != "padded record":  # as doubles they need no padding
        kg.check_gradient(kernel, "y, x", 1, THREADS, (y, x, 4))


_ONE = "float v = __half2float(*h); y[i] = v * v;"
REFUSED = {
    "halves of a record with others": ("const Mixed *x", f"const __half *h = (const __half *)x + 4 * i; {_ONE}"),
    "pairs of a record with others": ("const Mixed *x", f"const __half *h = &((const __half2 *)x)[2 * i].x; {_ONE}"),
    "floats of a record with others": ("const Mixed *x", "float v = ((const float *)x)[2 * i + 1]; y[i] = v * v;"),
    "halves of a record with a gap": ("const Gap *x", f"const __half *h = (const __half *)x + 4 * i; {_ONE}"),
    "a part of shared records": (
        "const __half *x",
        "__shared__ Mixed s[8]; s[i].a = x[i]; s[i].b = x[i]; s[i].f = 1; __syncthreads();"
        f"const __half *h = (const __half *)s + 4 * i; {_ONE}",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_steps_that_lead_elsewhere(name: str) -> None:
    param, body = REFUSED[name]
    source = f"__global__ void k(float *y, {param}) {{ int i = threadIdx.x; {body} }}"
    with pytest.raises(kg.UnsupportedError, match="steps through the half-precision numbers"):
        kg.gradient(kg.compile(_RECORDS + source)["k"], "y, x")


@pytest.mark.parametrize("step", ["(const char *)b.x + 8 * i", "(const float2 *)b.x + i"])
def test_buffers_of_a_record(step: str) -> None:
    source = f"__global__ void k(Buffers b) {{ int i = threadIdx.x; float *y = b.y; auto p = {step}; const __half *h ="
    with pytest.raises(kg.UnsupportedError, match="steps through the half-precision numbers"):
        kg.gradient(kg.compile(f"{_RECORDS}{source} (const __half *)p; {_V} }}")["k"], "b")


def test_halves_in_shared_bytes() -> None:
    source = """__global__ void k(float *y, const __half *x) {
        __shared__ __align__(16) char bytes[16];
        __half *h = (__half *)bytes;
        h[threadIdx.x] = x[threadIdx.x];
        __syncthreads();
        y[threadIdx.x] = __half2float(h[7 - threadIdx.x]);
    }"""
    with pytest.raises(kg.UnsupportedError, match="half-precision numbers in 'bytes', which is declared otherwise"):
        kg.gradient(kg.compile(_RECORDS + source)["k"], "y, x")


def test_loop_as_long_as_bits_say() -> None:
    """Integers that steer a loop are no numbers that are moved."""
    source = """__global__ void k(float *y, const float *x) {
        int n = ((const int *)x)[4];
        float s = 0;
        for (int j = 0; j < n; ++j) s += x[j] * x[j];
        *y = s;
    }"""
    x = np.array([1, 2, 3, 4, np.array(3, "i").view("f")], "f")
    d_x = np.zeros_like(x)
    kg.gradient(kg.compile(source)["k"], "y, x")[1, 1](np.zeros(1, "f"), x, np.ones(1, "f"), d_x)
    np.testing.assert_array_equal(d_x, [2, 4, 6, 0, 0])


def test_bits_that_are_no_number() -> None:
    """Which NaN it is would be lost."""
    source = """__global__ void k(float *y, const float *x) {
        float4 v = *(const float4 *)x;
        int4 w = *(int4 *)&v;
        w.x = -1;
        *(int4 *)y = w;
    }"""
    with pytest.raises(kg.UnsupportedError, match="the bits of an active value"):
        kg.gradient(kg.compile(source)["k"], "y, x")


def test_gaps_are_not_checked_in_double() -> None:
    """The numbers of such a record would be others among doubles."""
    source = """struct Gap { float a; __align__(8) float c; };
        __global__ void k(float *y, const float *x) {
          const Gap *p = (const Gap *)x + threadIdx.x;
          y[threadIdx.x] = p->a * p->c;
        }"""
    kernel = kg.compile(source)["k"]
    x, y, d_x = np.arange(16, dtype="f"), np.zeros(4, "f"), np.zeros(16, "f")
    with pytest.raises(kg.UnsupportedError, match="cannot be widened"):
        kg.check_gradient(kernel, "y, x", 1, 4, (y, x))
    kg.gradient(kernel, "y, x")[1, 4](y, x, np.ones(4, "f"), d_x)
    np.testing.assert_array_equal(d_x.reshape(4, 4), np.stack([x[2::4], 0 * y, x[::4], 0 * y], 1))
