"""Derivatives that the source gives for Clad or Enzyme are refused where their function is reached, and only there."""

from __future__ import annotations

import numpy as np
import pytest

import kernelgrad as kg

_CLAD = """
__device__ float f(float x) { return x * x; }
namespace clad { namespace custom_derivatives {
__device__ void f_pullback(float x, float d, float *dx) { *dx += 10 * d; }
} }
"""
_CLAD_OF_INTRINSIC = """
namespace clad::custom_derivatives { __device__ void sinf_pullback(float x, float d, float *dx) { *dx += d; } }
__device__ float f(float x) { return sinf(x); }
"""
_ENZYME = """
__device__ float f(float x) { return x * x; }
__device__ float augmented(float x, float *) { return x * x; }
__device__ void reverse(float x, float *dx) { *dx += 10; }
void *__enzyme_register_gradient_f[] = {(void *)f, (void *)augmented, (void *)reverse};
"""
_INACTIVE = "__device__ float f(float x) { return x * x; }\nvoid *__enzyme_inactivefn[] = {(void *)f};"
_KERNELS = """
__device__ float g(float x) { return f(x) + 1; }
__global__ void k(float *y, const float *x) { y[0] = g(x[0]); }
__global__ void other(float *y, const float *x) { y[0] = 3 * x[0]; }
"""


@pytest.mark.parametrize("source", [_CLAD, _CLAD_OF_INTRINSIC, _ENZYME, _INACTIVE])
def test_refused_where_reached(source: str) -> None:
    module = kg.compile(source + _KERNELS)
    for derivative in (kg.gradient, kg.jvp, kg.split):
        with pytest.raises(kg.UnsupportedError, match=r"a derivative of its own: not supported"):
            derivative(module["k"])
    y = np.zeros(1, np.float32)
    module["other"][1, 1](y, np.array([2.0], np.float32))
    assert y[0] == 6


@pytest.mark.parametrize("source", [_CLAD, _CLAD_OF_INTRINSIC, _ENZYME, _INACTIVE])
def test_plain_launches_work(source: str) -> None:
    module = kg.compile(source + _KERNELS)
    y = np.zeros(1, np.float32)
    module["k"][1, 1](y, np.array([2.0], np.float32))
    value = np.sin(2) if source == _CLAD_OF_INTRINSIC else 4
    assert np.isclose(y[0], value + 1) and np.isclose(module["g"].execute(2.0), value + 1)
    with pytest.raises(kg.UnsupportedError, match="a derivative of its own"):
        kg.check_gradient(module["g"], args=(2.0,))


@pytest.mark.parametrize(
    "given",
    [
        "namespace clad { namespace custom_derivatives { void f_pullback(float x, clad::array_ref<float> d) {} } }",
        "namespace clad { namespace custom_derivatives { ValueAndPushforward<float> f_pushforward(float x); } }",
        "Missing df(float x);\nvoid *__enzyme_register_gradient_f[] = {(void *)f, (void *)df};",
    ],
)
def test_those_that_do_not_parse_are_refused_too(given: str) -> None:
    module = kg.compile(
        f"__device__ float f(float x) {{ return x * x; }}\n{given}\n"
        "__global__ void k(float *y, const float *x) { y[0] = f(x[0]); }\n"
        "__global__ void j(float *y, const float *x) { y[0] = x[0]; }\n"
    )
    with pytest.raises(kg.UnsupportedError, match="'f' has a derivative of its own here, which does not parse"):
        kg.gradient(module["k"])
    assert repr(module["j"])
