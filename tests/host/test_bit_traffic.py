"""Bits of floats that launches pass on in memory of integers: refused where a derivative would be lost."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from kernelgrad.host.kernel_facts import facts_of

SOURCE = r"""
#define I int i = threadIdx.x
__global__ void keep(int *k, const float *x) { I; k[i] = __float_as_int(x[i] * 2); }
__global__ void keep_shared(int *k, const float *x) {
    __shared__ int t[4];
    I; t[i] = __float_as_int(x[i]) ^ 1; __syncthreads(); k[i] = t[3 - i];
}
__global__ void move_on(int *to, const int *from) { I; to[i] = __shfl_sync(0xffffffff, from[i], 3 - i, 4) + 1; }
__global__ void make(float *y, const int *k) { I; y[i] = __int_as_float(k[i]); }
__global__ void random(float *y, const int *k, const float *x) {
    I; y[i] = x[i] * __int_as_float(1065353216 | (k[i] & 255)); }
__global__ void next(int *k) { I; k[i] = k[i] * 1664525 + 1013904223; }
__global__ void key(int *k, const float *x) { I; k[i] = __float_as_int(x[i]) > 7; }
__global__ void count(float *y, const float *x, const int *k) { I; y[i] = k[i] * x[i]; }
"""
ONES = np.ones(4, np.float32)


@pytest.fixture(scope="module")
def module() -> Any:
    return kg.compile(SOURCE)


def test_what_a_kernel_does(module: Any) -> None:
    found = {name: facts_of(module[name]).bits for name in ("keep", "keep_shared", "move_on", "make", "next", "key")}
    assert found["keep"].kept == found["keep_shared"].kept == {"k"} and found["make"].made == {"k"}
    assert found["move_on"].moved == {("from", "to")} and not found["move_on"].kept
    assert not found["next"].kept and not found["key"].kept and not found["key"].made


@pytest.mark.parametrize("way", ["keep", "keep_shared", "moved", "copied"])
def test_lost_derivatives_are_refused(module: Any, way: str) -> None:
    x, y, k, m = ONES.copy(), np.zeros(4, "f4"), np.zeros(4, "i4"), np.zeros(4, "i4")
    with kg.record() as tape:
        module["keep_shared" if way == "keep_shared" else "keep"][1, 4](k, x)
        if way == "moved":
            module["move_on"][1, 4](m, k)
        elif way == "copied":
            kg.copy(m, k)
        module["make"][1, 4](y, m if way in ("moved", "copied") else k)
    program = tape.program((x,), (y,))
    lost = "make makes floating-point numbers of 'k', where an earlier step kept the bits of such"
    for derivative in (lambda: tape.backward(y, ONES), lambda: kg.gradient(program), lambda: kg.jvp(program)):
        with pytest.raises(kg.TapeError, match=lost):
            derivative()


def test_what_loses_nothing(module: Any) -> None:
    """Random numbers of integers, keys of floats that are compared, and memory that holds something else since."""
    x, y, z, k, m = ONES.copy(), np.zeros(4, "f4"), np.zeros(4, "f4"), np.zeros(4, "i4"), np.zeros(4, "i4")
    with kg.record() as tape:
        module["next"][1, 4](k)
        module["key"][1, 4](m, x)
        module["count"][1, 4](z, x, m)
        module["keep"][1, 4](m, x)
        kg.fill(m, 0)
        module["random"][1, 4](y, m, z)
        module["random"][1, 4](z, k, y)
    program = tape.program((x, k), (z,))
    value = program(ONES, np.zeros(4, "i4"))
    np.testing.assert_allclose(kg.jvp(program)(ONES, np.zeros(4, "i4"), 2 * ONES)[1], 2 * value)
    np.testing.assert_allclose(kg.gradient(program)(ONES, np.zeros(4, "i4"), ONES)[0], value)
    tape.backward(z, ONES)
    np.testing.assert_allclose(tape.grad(x), z)
