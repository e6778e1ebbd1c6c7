"""Host functions of gradients, built with g++ and run on the emulation: the same numbers as launches from Python, and
memory that is freed also where something fails."""

from __future__ import annotations

import copy
import shutil
from typing import Any

import numpy as np
import pytest
from host_calls import call_gradient

import kernelgrad as kg
from cooperation_cases import CASES, inputs
from gradient_cases import ALL, adjoints
from kernelgrad.transpile.derivative_file import derivative_file
from kernelgrad.transpile.host_function import Shape

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")

# A number's adjoint, a tape by arithmetic and one that is counted, copies for counting, an unlisted buffer's shadow,
# module variables, structs, two dimensions.
PLAIN = {
    "scalar_read_by_all", "carried_nonlinearly", "data_dependent_trip_count", "nested_data_dependent",
    "unlisted_scratch_in_a_loop", "constant_and_device_variables", "arrays_of_structs", "two_dimensions", "zero_trips",
}  # fmt: skip


@pytest.mark.parametrize("exact", [False, True], ids=["any launch", "this shape"])
@pytest.mark.parametrize("case", [case for case in ALL if case.name in PLAIN], ids=lambda case: case.name)
def test_same_as_python(case: Any, exact: bool) -> None:
    gradient = kg.gradient(case.compiled(), case.listed)
    args = case.arguments(float)
    wanted = copy.deepcopy((*args, *adjoints(case, args)))
    found = copy.deepcopy(wanted)
    gradient[case.grid, case.block](*wanted)
    assert call_gradient(gradient, case.grid, case.block, found[: len(args)], found[len(args) :], exact=exact) == 0
    for one, other in zip(wanted, found, strict=True):
        _assert_close(one, other)


def _assert_close(one: Any, other: Any) -> None:
    if isinstance(one, np.ndarray):
        for name in one.dtype.names or (...,):
            np.testing.assert_allclose(other[name], one[name], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ["dynamic_array_of_structs", "above_48_kb"])
def test_shared_memory(name: str) -> None:
    case = CASES[name]
    gradient = kg.gradient(case.compiled(), "y, x")
    y, x, d_y = inputs()
    wanted = [y, x, d_y, np.zeros_like(x)]
    found = copy.deepcopy(wanted)
    gradient[case.launch](wanted[0], wanted[1], case.n, *wanted[2:])
    assert call_gradient(gradient, case.grid, case.block, [*found[:2], case.n], found[2:], case.shared) == 0
    for one, other in zip(wanted, found, strict=True):
        _assert_close(one, other)


SETTLE = """
__global__ void settle(float *out, const float *in, float rate, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float v = in[i];
    while (v > 1) v = v * rate + 0.1f * sinf(v);
    out[i] = v;
}
"""


def test_every_allocation_may_fail() -> None:
    gradient = kg.gradient(kg.compile(SETTLE)["settle"])
    x = np.linspace(0.5, 9, 40).astype(np.float32)
    for number in range(3):  # counts, where blocks begin, the tape
        args, own = [np.zeros_like(x), x.copy(), 0.5, 40], [np.ones_like(x), np.zeros_like(x), np.zeros(1, np.float32)]
        assert call_gradient(gradient, 2, 32, args, own, fails_at=number) == 2
    assert call_gradient(gradient, 2, 32, args, own, fails_at=3) == 0


def test_many_blocks_leave_sums_that_are_added_up() -> None:
    gradient = kg.gradient(kg.compile("__global__ void k(double *y, const double *x, double a) {"
                                      " y[blockIdx.x] = a * a * x[blockIdx.x]; }")["k"])  # fmt: skip
    n = 2500
    x, d_a = np.linspace(0, 1, n), np.zeros(1)
    assert call_gradient(gradient, n, 1, [np.zeros(n), x, 3.0], [np.ones(n), np.zeros(n), d_a], exact=True) == 0
    np.testing.assert_allclose(d_a, 6 * x.sum())
    text = derivative_file(gradient, Shape((n, 1, 1), (1, 1, 1)))
    assert "kernelgrad_add_f64<<<1, 1024, 0, stream>>>" in text


def test_kept_and_assigned_adjoints() -> None:
    text = "__global__ void k(double *y, const double *x) { y[0] = x[threadIdx.x % 2] * 3; y[1] = y[0] * x[0]; }"
    kernel = kg.compile(text)["k"]
    gradient = kg.gradient(kernel, "y, x", assign="x")
    d_y, d_x = np.array([1.0, 2.0]), np.array([7.0, 7.0])
    wanted = [np.zeros(2), np.array([2.0, 3.0]), d_y.copy(), d_x.copy()]
    gradient[1, 1](*wanted)
    args = [np.zeros(2), np.array([2.0, 3.0])]
    assert call_gradient(gradient, 1, 1, args, [d_y, d_x]) == 0
    np.testing.assert_allclose(d_x, wanted[3])
