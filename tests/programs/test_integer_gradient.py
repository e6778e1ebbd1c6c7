"""Gradients by integers, asked for from Python: of kernels and functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from kernelgrad.errors import KernelGradError
from kernelgrad.programs.integer_gradient import IntegerGradient

I = np.int32  # noqa: E741
MODULE = kg.compile("""
__global__ void cubed(int *out, const int *in) { int i = threadIdx.x; out[i] = in[i] * in[i] * in[i]; }
__global__ void summed(int *out, int *in, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(out, in[i] * in[0]);
}
__global__ void far(long long *out, long long *in) { out[threadIdx.x] = in[threadIdx.x] - 9007199254740992ll; }
__global__ void halved(int *out, int *in) {
    out[0] = in[0] / 2; }
__global__ void through(int *out, int *in, int *tmp) { tmp[0] = in[0]; out[0] = tmp[0] * 2; }
__device__ int product(int *a, int b) { return a[0] * a[1] * b; }
int product_on_host(int *a, int b) { return a[0] * a[1] * b; }
""")


def test_a_kernel() -> None:
    gradient = kg.gradient(MODULE["cubed"], "out, in")
    assert isinstance(gradient, IntegerGradient) and "int *out" in repr(gradient)
    out, inn = np.zeros(4, I), np.arange(4, dtype=I)
    inn.flags.writeable = False  # it is only read
    d_out, d_in = np.ones(4, I), np.ones(4, I)
    gradient[1, 4](out, inn, d_out, d_in)
    assert out.tolist() == [0, 1, 8, 27] and d_out.tolist() == [0] * 4 and d_in.tolist() == [1, 4, 13, 28]
    d_in = np.zeros(4)
    gradient.execute_kernel(1, 4, out, inn, np.full(4, 0.5), d_in)
    assert d_in.tolist() == [0, 1.5, 6, 13.5]
    gradient.launch(grid=1, block=4, args=(out, inn), d_out=np.ones(4, I), d_in=d_in)
    assert d_in.tolist() == [0, 4.5, 18, 40.5]


def test_sums_of_many_threads() -> None:
    out, inn, d_out, d_in = np.zeros(1, I), np.arange(1, 6, dtype=I), np.ones(1, I), np.zeros(5, I)
    kg.gradient(MODULE["summed"], "out, in")[2, 4](out, inn, 5, d_out, d_in)
    assert out.tolist() == [15] and d_out.tolist() == [1] and d_in.tolist() == [16, 1, 1, 1, 1]


@pytest.mark.parametrize("name", ["product", "product_on_host"])
def test_a_function(name: str) -> None:
    gradient, d_a = kg.gradient(MODULE[name], "a"), np.zeros(2, I)
    assert gradient.execute(np.array([3, 4], I), 5, d_a, seed=2) == 60 and d_a.tolist() == [40, 30]


def call(name: str, *arrays: Any) -> Callable[[], Any]:
    return lambda: kg.gradient(MODULE[name], "out, in")[1, 1](*arrays)


L = np.int64
REFUSED = {
    "has grown past what int64 holds": call("far", *(np.array([v]) for v in (0, 2**53 + 1, 1, 0))),
    "has grown past what int32 holds": call("cubed", *(np.array([v], I) for v in (0, 2000, 1, 0))),
    "9:14: error: an integer that is differentiated by is more than": call("halved"),
    "differentiate by tmp, too": call("through"),
    "out.* holds no floating-point numbers and cannot be differentiated: use float": lambda: kg.jvp(
        MODULE["cubed"], "out, in"
    ),
    "n.* holds no floating-point numbers and cannot": lambda: kg.gradient(MODULE["summed"], "out, n"),
    "nothing to differentiate": lambda: kg.gradient(MODULE["cubed"]),
    "in: wants an array of int32, got float64": call("cubed", *(np.zeros(1, t) for t in (I, float, I, I))),
    "d_in: wants an array of int32 or float64, got float32": call(
        "cubed", *(np.zeros(1, t) for t in (I, I, I, np.float32))
    ),
    "takes 2 arguments and 2 adjoints": call("cubed", np.zeros(1, I)),
    "is a kernel": lambda: kg.gradient(MODULE["cubed"], "out, in").execute(),
    "is not a kernel": lambda: kg.gradient(MODULE["product"], "a")[1, 1],
}


@pytest.mark.parametrize("told", REFUSED)
def test_refused(told: str) -> None:
    with pytest.raises(KernelGradError, match=told):
        REFUSED[told]()


def test_integers_that_no_double_holds_stay_what_they_are() -> None:
    """Where nobody computes with them."""
    big = 2**60 + 1
    out, inn = np.array([7, big]), np.array([5, big])
    d_out, d_in = np.array([1, big]), np.array([2, big])
    kg.gradient(MODULE["far"], "out, in")[1, 1](out, inn, d_out, d_in)
    assert out.tolist() == [5 - 2**53, big] and inn.tolist() == [5, big]
    assert d_out.tolist() == [0, big] and d_in.tolist() == [3, big]


def test_not_in_recordings() -> None:
    gradient = kg.gradient(MODULE["cubed"], "out, in")
    with pytest.raises(KernelGradError, match="by integers"), kg.record():
        gradient[1, 1](*(np.zeros(1, I) for _ in range(4)))
