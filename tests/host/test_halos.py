"""Launches that touch more of an array than the view they are given: a halo, or nobody knows what."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg

SOURCE = r"""
#include <cuda_fp16.h>
template <typename T, typename I = int> __global__ void spread(T *v, const T *u, int n) {
    I i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) v[i] = u[i] + T(0.1) * (u[i - 1] * u[i - 1] - T(2) * u[i] + u[i + 1]);
}
__global__ void left(double *u, int n) {
    int i = threadIdx.x;
    if (i < n) u[i] = u[-1] * u[i];
}
__global__ void shift(double *u, const double *x, int n) {
    int i = threadIdx.x;
    if (i < n) u[i + 1] = x[i] * x[i];
}
__global__ void pick(double *y, const double *x, const int *at, int n) {
    int i = threadIdx.x;
    if (i < n) y[at[i]] = x[-at[i]] * x[at[i]];
}
__global__ void slots(double *y, int *next, const double *x, int n) {
    int i = threadIdx.x;
    if (i < n) y[atomicAdd(next, 1)] = x[i - 1] * x[i + 1];
}
__global__ void half_sum(float *y, const __half *x, int n) {
    int i = threadIdx.x;
    if (i < n) y[i] = __half2float(x[i - 1]) * __half2float(x[i + 1]);
}
"""
N = 24


@pytest.fixture(scope="module")
def module() -> Any:
    return kg.compile(SOURCE)


def program(module: Any, u: Any, v: Any) -> Any:
    """Every step reads or writes outside of a view."""
    for index in ("int", "size_t", "long"):
        module[f"spread<double, {index}>"][1, 32](v[1:-1], u[1:-1], N - 2)
        kg.copy(v[:1], u[:1])
        kg.copy(v[-1:], u[-1:])
        module["left"][1, 32](v[2:], N - 2)
        module["shift"][1, 32](u[3:], v[:-4], N - 6)
        u, v = v, u
    return u


def differences(f: Any, x: Any) -> Any:
    return np.array([(f(x + e) - f(x - e)) / 2e-6 for e in 1e-6 * np.eye(len(x))])


@pytest.mark.parametrize("budget", [None, 12 * 8 * N])
@pytest.mark.parametrize("package", ["numpy", "torch", "one allocation"])
def test_halos(module: Any, budget: int | None, package: str) -> None:
    made: Any = pytest.importorskip("torch").from_numpy if package == "torch" else np.asarray
    x, w = np.linspace(0.5, 1, N), np.cos(np.arange(N))
    rows = np.zeros((2, N))
    u, v = (rows[0], rows[1]) if package == "one allocation" else (made(np.zeros(N)), made(np.zeros(N)))
    u[:] = made(x)
    with kg.record(tape_budget=budget) as tape:
        out = program(module, u, v)
    tape.backward(out, made(w))
    expected = differences(lambda x: w @ program(module, x.copy(), np.zeros(N)), x)
    np.testing.assert_allclose(np.asarray(tape.grad(u)), expected, rtol=1e-7, atol=1e-8)


def test_launches_that_keep_a_tape_of_their_own(module: Any) -> None:
    """What atomics hand out is kept, with copies of buffers: of more than the view."""
    x, y, w = np.linspace(0.5, 1, N), np.zeros(N), np.linspace(1, 2, N)
    with kg.record() as tape:
        module["slots"][1, 32](y, np.zeros(1, np.int32), x[1:-1], N - 2)
        kg.fill(x, 5.0)
    tape.backward(y, w)
    found = tape.grad(x)
    x = np.linspace(0.5, 1, N)
    expected = np.zeros(N)
    expected[:-2] += w[:-2] * x[2:]
    expected[2:] += w[:-2] * x[:-2]
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_adjoints_in_half_precision(module: Any) -> None:
    x, y = np.linspace(0.5, 1, N).astype(np.float16), np.zeros(N - 2, np.float32)
    with kg.record() as tape:
        module["half_sum"][1, 32](y, x[1:-1], N - 2)
    tape.backward(y, np.ones(N - 2, np.float32))
    expected = np.zeros(N)
    expected[:-2] += x[2:]
    expected[2:] += x[:-2]
    np.testing.assert_allclose(tape.grad(x), expected, rtol=2e-3)


def test_indices_that_nobody_knows_reach_the_whole_allocation(module: Any) -> None:
    """What is read and written there is saved and has its adjoint; what is outside of the view is named."""
    memory, at = np.linspace(0.5, 1, 3 * N), np.array([2, 5, 9, 14], np.int32)
    x, y = memory[N : 2 * N], np.zeros(N)

    def run(memory: Any, y: Any) -> None:
        x = memory[N : 2 * N]
        module["pick"][1, 4](y, x, at, 4)
        module["pick"][1, 4](x, x, at + np.int32(1), 4)
        module["pick"][1, 4](y, x, at + np.int32(2), 4)

    def value(first: Any) -> Any:
        memory, y = first.copy(), np.zeros(N)
        run(memory, y)
        return y.sum() + memory.sum()

    expected = differences(value, memory)
    with kg.record() as tape:
        run(memory, y)
    assert "reaches up to" in tape.explain() and tape.nbytes >= memory.nbytes
    tape.backward([(y, np.ones(N)), (memory, np.ones(3 * N))])
    np.testing.assert_allclose(tape.grad(memory), expected, rtol=1e-7, atol=1e-8)
    assert (tape.grad(x) == tape.grad(memory)[N : 2 * N]).all()


def test_views_that_are_not_left_cost_what_they_hold(module: Any) -> None:
    """A history of states in one allocation: each launch is about two rows of it."""
    rows = np.zeros((40, N))
    rows[0] = np.linspace(0.5, 1, N)
    with kg.record() as tape:
        for k in range(39):
            module["spread<double>"][1, 32](rows[k + 1, 1:-1], rows[k, 1:-1], N - 2)
    assert tape.nbytes == 0
    assert all(sum(s.nbytes for s in step.reads) == 8 * N for step in tape.steps)
    tape.backward(rows[-1, 1:-1], np.ones(N - 2))
    assert np.abs(tape.grad(rows[0])).min() > 0


def test_unseen_writes_to_a_halo_are_found(module: Any) -> None:
    u, v = np.ones(N), np.zeros(N)
    with kg.record():
        module["spread<double>"][1, 32](v[1:-1], u[1:-1], N - 2)
        u[0] = 3
        with pytest.raises(kg.TapeError, match="spread<double, int>: the memory of 'u' was changed since"):
            module["spread<double>"][1, 32](v[1:-1], u[1:-1], N - 2)


def test_memory_whose_end_nobody_knows(module: Any) -> None:
    """Refused where the kernel may leave the view, taken where it does not."""
    u, v = np.from_dlpack(np.ones(N))[1:-1], np.zeros(N)
    with kg.record() as tape, pytest.raises(kg.ArgumentError, match="'u' is a part of a larger array"):
        module["spread<double>"][1, 32](v[1:-1], u, N - 2)
    with kg.record() as tape:
        module["shift"][1, 32](v, u, N - 2)
    tape.backward(v, np.ones(N))
    assert (tape.grad(u) == 2).all()


@pytest.mark.parametrize("index", ["int", "size_t"])
def test_splits_keep_halos(module: Any, index: str) -> None:
    forward, reverse = kg.split(module[f"spread<double, {index}>"])
    u, v, d_u = np.linspace(1, 2, N), np.zeros(N), np.zeros(N)
    tape = forward[1, 32](v[1:-1], u[1:-1], N - 2)
    expected = np.zeros(N)
    expected[1:-1] += 0.8
    expected[:-2] += 0.2 * u[:-2]
    expected[2:] += 0.1
    u[:] = 7
    reverse[1, 32](tape, v[1:-1], u[1:-1], N - 2, np.ones(N)[1:-1], d_u[1:-1])
    np.testing.assert_allclose(d_u, expected, rtol=1e-12)
