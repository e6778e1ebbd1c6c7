"""Atomics in gradients: sums in every form, loops around atomicCAS, integers that give indices and decide."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from derived import kernel_of

# ---- loops around atomicCAS that add --------------------------------------------------------------------------------

_ULL = "unsigned long long* p = (unsigned long long*)a;"
SUMS = {
    "the programming guide's": _ULL
    + """unsigned long long old = *p, assumed;
      do { assumed = old; old = atomicCAS(p, assumed, __double_as_longlong(v + __longlong_as_double(assumed))); }
      while (assumed != old);""",
    "endless, with a break": _ULL
    + """unsigned long long old = *p;
      for (;;) {
        unsigned long long was = atomicCAS(p, old, __double_as_longlong(__longlong_as_double(old) + v));
        if (was == old) break;
        old = was;
      }""",
    "with a flag": _ULL
    + """bool done = false;
      while (!done) {
        unsigned long long old = *p;
        done = atomicCAS(p, old, (unsigned long long)__double_as_longlong(__longlong_as_double(old) + v)) == old;
      }""",
    "reloading": _ULL
    + """unsigned long long old;
      do { old = *p; } while (atomicCAS(p, old, __double_as_longlong(v + __longlong_as_double(old))) != old);""",
    "comparing numbers": _ULL
    + """double old = *a, was;
      do { was = old; old = __longlong_as_double(atomicCAS(p, __double_as_longlong(was),
                                                        __double_as_longlong(was + v))); }
      while (was != old);""",
    "computing inside": _ULL
    + """unsigned long long old = *p, assumed;
      do { assumed = old;
           old = atomicCAS(p, assumed, __double_as_longlong(__longlong_as_double(assumed) + (3 * v - v * 2))); }
      while (assumed != old);""",
    "subtracting the negative": _ULL
    + """unsigned long long old = *p, assumed;
      do { assumed = old; old = atomicCAS(p, assumed, __double_as_longlong(__longlong_as_double(assumed) - (-v))); }
      while (assumed != old);""",
}


def adding(form: str) -> str:
    return f"""
    __device__ void add(double* a, double v) {{ {SUMS[form]} }}
    __global__ void k(double* y, const double* x) {{
      int i = blockIdx.x * blockDim.x + threadIdx.x; add(&y[i % 5], x[i] * x[i]);
    }}"""


@pytest.mark.parametrize("form", SUMS)
def test_loops_that_add(form: str) -> None:
    kernel = kernel_of(adding(form))
    rng = np.random.default_rng(1)
    y, x, seed = rng.random(5), rng.random(64), rng.standard_normal(5)
    assert kg.check_gradient(kernel, None, 2, 32, [y, x]).ok
    after, d_y, d_x = y.copy(), seed.copy(), np.zeros(64)
    kg.gradient(kernel)[2, 32](after, x, d_y, d_x)
    np.testing.assert_allclose(after, y + np.bincount(np.arange(64) % 5, x * x), rtol=1e-14)
    np.testing.assert_array_equal(d_y, seed)
    np.testing.assert_allclose(d_x, 2 * x * seed[np.arange(64) % 5], rtol=1e-14)


@pytest.mark.parametrize("form", SUMS)
def test_loops_stay_as_written(form: str) -> None:
    """The forward sweep runs the source's loop, the reverse only reads the shadow."""
    source = kg.gradient(kernel_of(adding(form))).source
    assert source.count("atomicCAS") == 1
    assert "atomicAdd" not in source


def test_float_loop() -> None:
    source = """
    __device__ float add(float* a, float v) {
      int* p = (int*)a;
      int old = *p, assumed;
      do { assumed = old; old = atomicCAS(p, assumed, __float_as_int(v + __int_as_float(assumed))); }
      while (assumed != old);
      return __int_as_float(old);
    }
    __global__ void k(float* y, const float* x) { add(y, x[threadIdx.x]); }"""
    y, x = np.zeros(1, np.float32), np.arange(8, dtype=np.float32)
    d_y, d_x = np.array([3], np.float32), np.zeros(8, np.float32)
    kg.gradient(kernel_of(source))[1, 8](y, x, d_y, d_x)
    assert y[0] == 28 and list(d_x) == [3] * 8
    used = source.replace("{ add(y, x[threadIdx.x]); }", "{ y[threadIdx.x + 1] = add(y, x[threadIdx.x]); }")
    with pytest.raises(kg.UnsupportedError, match="an atomic operation on floats returned is used"):
        kg.gradient(kernel_of(used))


# Each is one change away from a sum.
NOT_SUMS = {
    "a product": "v * __longlong_as_double(assumed)",
    "a difference from the value": "v - __longlong_as_double(assumed)",
    "twice the contents": "v + 2 * __longlong_as_double(assumed)",
    "the contents of another round": "v + __longlong_as_double(first)",
    "a clamped sum": "fmin(1.0, v + __longlong_as_double(assumed))",
    "a sum of squares": "v + __longlong_as_double(assumed) * __longlong_as_double(assumed)",
    "a sum that depends": "__longlong_as_double(assumed) > 1 ? v : v + __longlong_as_double(assumed)",
}


@pytest.mark.parametrize("name", NOT_SUMS)
def test_other_loops_are_refused(name: str) -> None:
    source = f"""__global__ void k(double* y, const double* x) {{
      double v = x[threadIdx.x]; unsigned long long* p = (unsigned long long*)y;
      unsigned long long old = *p, first = old, assumed;
      do {{ assumed = old; old = atomicCAS(p, assumed, __double_as_longlong({NOT_SUMS[name]})); }}
      while (assumed != old);
    }}"""
    for derive in (kg.gradient, kg.jvp, kg.split):
        with pytest.raises(
            kg.UnsupportedError,
            match="a loop around atomicCAS|the bits of an active value|an atomic maximum, minimum or exchange",
        ):
            derive(kernel_of(source))


@pytest.mark.parametrize("condition", ["assumed == old", "old != first", "--tries > 0 && assumed != old"])
def test_loops_that_end_otherwise_are_refused(condition: str) -> None:
    source = f"""__global__ void k(double* y, const double* x) {{
      double v = x[threadIdx.x]; unsigned long long* p = (unsigned long long*)y;
      unsigned long long old = *p, first = old, assumed; int tries = 9;
      do {{ assumed = old; old = atomicCAS(p, assumed, __double_as_longlong(v + __longlong_as_double(assumed))); }}
      while ({condition});
    }}"""
    with pytest.raises(kg.UnsupportedError, match="a loop around atomicCAS"):
        kg.gradient(kernel_of(source))


# ---- integers -------------------------------------------------------------------------------------------------------

# Where a thread writes depends on the order; what the sum of f(y) is, and so the gradient of x, does not.
INTEGERS = {
    "compaction": """
      int p = -1;
      if (x[i] > 0.5) { p = atomicAdd(&count[0], 1); y[p] = x[i] * x[i] * x[i]; }""",
    "compaction, then more work": """
      double v = x[i] * x[i];
      if (v > 0.2) { int p = atomicAdd(&count[0], 1); y[p] = v; v = v * x[i]; }
      atomicAdd(&y[95], v * v);""",
    "bin lists": """
      int bin = (int)(x[i] * 4), p = atomicAdd(&count[bin], 1);
      if (p < 20) y[bin * 20 + p] = sin(x[i]);""",
    "places from a loop": """
      for (int k = 0; k < 1 + i % 2; k++) { int p = atomicAdd(&count[0], 1); y[p] = x[i] * x[(i + k) % 64]; }""",
    "places from nested loops": """
      for (int k = 0; k < 1 + i % 2; k++) {
        double s = x[i];
        for (int j = 0; j < 1; j++) { s *= x[(i + j + k) % 64]; int p = atomicAdd(&count[0], 1); y[p] = s * s; }
      }""",
    "a queue of work": """
      int j;
      while ((j = atomicAdd(&count[0], 1)) < 64) y[j] = x[j] * x[j] * x[(j + 1) % 64];""",
    "a hash table": """
      int slot = (i * 7) % 96;
      while (atomicCAS(&count[slot], 0, i + 1) != 0) slot = (slot + 1) % 96;
      y[slot] = x[i] * x[i];""",
    "the first comers": """
      if (atomicAdd(&count[i % 8], 1) >= 0) y[i] = x[i] * x[i];
      if (atomicExch(&count[8 + i % 8], 1) == 0) y[64 + i % 8] = x[i % 8] * 3;""",
    "in shared memory": """
      __shared__ int taken; __shared__ double list[64];
      if (threadIdx.x == 0) taken = 0;
      list[threadIdx.x] = 0;
      __syncthreads();
      if (x[i] > 0.3) { int p = atomicAdd(&taken, 1); list[p] = x[i] * x[i]; }
      __syncthreads();
      y[i] = list[threadIdx.x] * list[threadIdx.x];""",
    "a place for the warp": """
      bool wanted = x[i] > 0.4; unsigned votes = __ballot_sync(0xffffffff, wanted);
      int lane = threadIdx.x % 32, base = 0;
      if (lane == 0) base = atomicAdd(&count[0], __popc(votes));
      base = __shfl_sync(0xffffffff, base, 0);
      if (wanted) y[base + __popc(votes & ((1u << lane) - 1))] = exp(x[i]);""",
}


def integers(name: str) -> Any:
    head = "__global__ void k(double* y, int* count, const double* x) { int i = blockIdx.x * blockDim.x + threadIdx.x;"
    return kernel_of(head + INTEGERS[name] + "}")


def expected(kernel: Any, x: Any) -> Any:
    """The gradient of sum(y * y) by finite differences: it does not depend on where things went."""

    def value(x: Any) -> float:
        y = np.zeros(96)
        kernel[2, 32](y, np.zeros(96, np.int32), x)
        return float(y @ y)

    step = 1e-6
    basis = np.eye(64)
    return np.array([(value(x + step * e) - value(x - step * e)) / (2 * step) for e in basis])


def spread() -> Any:
    """Not near the thresholds of the kernels."""
    return np.random.default_rng(8).permutation(np.linspace(0.01, 0.99, 64))


@pytest.mark.parametrize("name", INTEGERS)
def test_integers(name: str) -> None:
    kernel, x = integers(name), spread()
    want = expected(kernel, x)
    forward, reverse = kg.split(kernel)
    y, count, d_x = np.zeros(96), np.zeros(96, np.int32), np.zeros(64)
    tape = forward[2, 32](y, count, x)
    reverse[2, 32](tape, y, count, x, 2 * y, d_x)
    np.testing.assert_allclose(d_x, want, rtol=1e-5, atol=1e-7)
    for order in (None, 1, 2):
        # Which thread wrote where must be known before the adjoint of y can be given: run once to see.
        places = [np.zeros(96), np.zeros(96, np.int32)]
        gradient = kg.gradient(kernel)
        gradient.check(2, 32, *places, x, np.zeros(96), np.zeros(64), seed=order)
        d_x = np.zeros(64)
        report = gradient.check(2, 32, np.zeros(96), np.zeros(96, np.int32), x, 2 * places[0], d_x, seed=order)
        assert report.ok, str(report)
        np.testing.assert_allclose(d_x, want, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("name", INTEGERS)
def test_integers_are_counted_once(name: str) -> None:
    kernel, x = integers(name), spread()
    y, count, again = np.zeros(96), np.zeros(96, np.int32), np.zeros(96, np.int32)
    kernel[2, 32](y, count, x)
    kg.gradient(kernel)[2, 32](np.zeros(96), again, x, np.ones(96), np.zeros(64))
    assert sorted(count) == sorted(again) if "hash" in name else list(count) == list(again)


# ---- half precision and vectors -------------------------------------------------------------------------------------


def test_half() -> None:
    source = """#include <cuda_fp16.h>
    __global__ void k(__half* y, const __half* x) { int i = threadIdx.x; atomicAdd(&y[i % 2], x[i] * x[i]); }"""
    x = np.arange(8, dtype=np.float16) / 4
    y, d_y, d_x = np.zeros(2, np.float16), np.array([1, 2], np.float32), np.zeros(8, np.float32)
    kg.gradient(kernel_of(source))[1, 8](y, x, d_y, d_x)
    np.testing.assert_allclose(d_x, 2 * x * np.tile([1, 2], 4))
    np.testing.assert_allclose(y, [(x[0::2] ** 2).sum(), (x[1::2] ** 2).sum()], rtol=1e-3)


@pytest.mark.parametrize("two, one", [("__half2", "__half"), ("__nv_bfloat162", "__nv_bfloat16")])
def test_pairs(two: str, one: str) -> None:
    header = "cuda_fp16.h" if "half" in two else "cuda_bf16.h"
    source = f"""#include <{header}>
    __global__ void k({two}* y, const {two}* x) {{ int i = threadIdx.x; atomicAdd(&y[i % 2], __hmul2(x[i], x[i])); }}"""
    values = np.arange(16, dtype=np.float32) / 8
    y, x = halves(np.zeros(4, np.float32), one), halves(values, one)
    d_y, d_x = np.array([1, 2, 3, 4], np.float32), np.zeros(16, np.float32)
    kg.gradient(kernel_of(source))[1, 8](y, x, d_y, d_x)
    np.testing.assert_allclose(d_x, 2 * values * np.tile([1, 2, 3, 4], 4))


def halves(values: Any, name: str) -> Any:
    if name == "__half":
        return values.astype(np.float16)
    ml_dtypes = pytest.importorskip("ml_dtypes")
    return values.astype(ml_dtypes.bfloat16)


@pytest.mark.parametrize("size", [2, 4])
def test_vectors(size: int) -> None:
    source = f"""
    __global__ void k(float{size}* y, const float{size}* x, const float* w) {{
      int i = threadIdx.x; float{size} v = x[i]; v.x *= w[i]; v.y *= v.y; atomicAdd(&y[i % 2], v);
    }}"""
    rng = np.random.default_rng(2)
    x, w = rng.random((8, size)).astype(np.float32), rng.random(8).astype(np.float32)
    y, d_y = np.zeros((2, size), np.float32), rng.random((2, size)).astype(np.float32)
    d_x, d_w = np.zeros_like(x), np.zeros_like(w)
    kg.gradient(kernel_of(source))[1, 8](y, x, w, d_y, d_x, d_w)
    seeds = np.tile(d_y, (4, 1))
    want = seeds.copy()
    want[:, 0] *= w
    want[:, 1] *= 2 * x[:, 1]
    np.testing.assert_allclose(d_x, want, rtol=1e-6)
    np.testing.assert_allclose(d_w, seeds[:, 0] * x[:, 0], rtol=1e-6)


def test_half_loop_around_cas() -> None:
    source = """#include <cuda_fp16.h>
    __device__ void add(__half* a, __half v) {
      unsigned short* p = (unsigned short*)a;
      unsigned short old = *p, assumed;
      do { assumed = old; old = atomicCAS(p, assumed, __half_as_ushort(__hadd(v, __ushort_as_half(assumed)))); }
      while (assumed != old);
    }
    __global__ void k(__half* y, const __half* x) { add(&y[threadIdx.x % 2], x[threadIdx.x] * x[threadIdx.x]); }"""
    x = np.arange(8, dtype=np.float16) / 4
    y, d_y, d_x = np.zeros(2, np.float16), np.array([1, 2], np.float32), np.zeros(8, np.float32)
    kg.gradient(kernel_of(source))[1, 8](y, x, d_y, d_x)
    np.testing.assert_allclose(d_x, 2 * x * np.tile([1, 2], 4))
