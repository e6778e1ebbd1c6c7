"""Numbers that are moved as the bits of others keep their derivatives; what is computed with bits has none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from derived import kernel_of
from packed_cases import CASES, THREADS, inputs

FORMS: dict[str, dict[str, Any]] = {"J": {}, "R": {"primal": False}, "deterministic": {"deterministic": True}}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", CASES)
def test_squares(name: str, form: str) -> None:
    case = CASES[name]
    x = inputs(case)
    y, d_x = np.zeros_like(x), np.zeros_like(x)
    seed = np.linspace(-1, 1, x.size).astype(x.dtype)
    kg.gradient(case.kernel(), "y, x", **FORMS[form])[1, THREADS](y, x, THREADS, seed.copy(), d_x)
    exact = x.astype("d")
    eps = 4 * np.finfo(x.dtype).eps
    if name != "chosen":
        np.testing.assert_allclose(d_x, 2 * exact * seed.astype("d"), rtol=eps, atol=eps)
    if form != "R" and name != "chosen":
        np.testing.assert_allclose(y, exact * exact, rtol=eps)


@pytest.mark.parametrize("name", CASES)
def test_in_double_precision(name: str) -> None:
    case = CASES[name]
    x = inputs(case)
    report = kg.check_gradient(case.kernel(), "y, x", 1, THREADS, (np.zeros_like(x), x, THREADS))
    assert not report.notes


REFUSED = {
    "memory of f16 is accessed as f32": (
        "__shared__ float4 s[32]; s[i] = ((const float4 *)x)[i]; __syncthreads(); ((float4 *)y)[i] = s[31 - i];"
    ),
    "the bits of an active value": "uint4 v = ((const uint4 *)x)[i]; v.x ^= 1; ((uint4 *)y)[i] = v;",
    "steps through the half-precision numbers": (
        "const char *p = (const char *)x + 8 * i; y[i] = *(const __half *)p * *(const __half *)(p + 4);"
    ),
}


CONVERTED = {
    "widened": "((unsigned long long *)y)[i] = ((const unsigned *)x)[i];",
    "narrowed": "((unsigned *)y)[i] = (unsigned)((const unsigned long long *)x)[i];",
    "as a number": "((float *)y)[i] = (float)((const int *)x)[i];",
    "as a mask": "unsigned m = ((const unsigned *)x)[i]; ((unsigned *)y)[i] = __shfl_sync(m, m, 0);",
}


@pytest.mark.parametrize("derive", [kg.gradient, kg.jvp])
@pytest.mark.parametrize("name", CONVERTED)
def test_bits_that_are_converted_are_computed_with(name: str, derive: Any) -> None:
    source = f"__global__ void k(__half *y, const __half *x) {{ int i = threadIdx.x; {CONVERTED[name]} }}"
    kernel = kernel_of("#include <cuda_fp16.h>\n" + source)
    x = np.zeros(128, "e")
    with pytest.raises(kg.UnsupportedError):
        derive(kernel, "y, x")[1, 32](x, x.copy(), x.copy(), x.copy())


@pytest.mark.parametrize("reason", REFUSED)
def test_refused(reason: str) -> None:
    source = f"__global__ void k(__half *y, const __half *x) {{ int i = threadIdx.x; {REFUSED[reason]} }}"
    with pytest.raises(kg.UnsupportedError, match=reason):
        kg.gradient(kernel_of("#include <cuda_fp16.h>\n" + source), "y, x")


def test_integers_stay_integers() -> None:
    """Of a record with numbers of both kinds, copied as a whole."""
    source = """struct Particle { float mass; int id; };
        __global__ void k(float *y, const Particle *p, const float *x) {
          int i = threadIdx.x;
          Particle q = p[i];
          y[i] = q.mass * x[q.id];
        }"""
    particles = np.array([(2, 3), (3, 0), (4, 1), (5, 2)], [("mass", "f4"), ("id", "i4")])
    x, y, d_x = np.arange(4, dtype="f"), np.zeros(4, "f"), np.zeros(4, "f")
    kg.gradient(kernel_of(source), "y, x")[1, 4](y, particles, x, np.ones(4, "f"), d_x)
    np.testing.assert_array_equal(d_x, [3, 4, 5, 2])
