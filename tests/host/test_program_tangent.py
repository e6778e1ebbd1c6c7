"""`kg.jvp` of a recorded program: tangents against differences and exact numbers, second derivatives, and refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from recorded_programs import check_tangent

SOURCE = r"""
#include <cuda_fp16.h>
struct Pair { float a, b; int k; };
struct View { const double *x; double scale; };
#define I int i = threadIdx.x
__global__ void scale(double *y, const double *x, double a) { I; y[i] = a * x[i] * x[i]; }
__global__ void scale_float(float *y, const float *x, float a) { I; y[i] = a * x[i] * x[i]; }
__global__ void blend(float *y, const float *x, Pair p) { I; y[i] = p.a * x[i] + p.b * x[i] * x[i] * p.k; }
__global__ void viewed(double *y, View v) { I; y[i] = v.scale * v.x[i] * v.x[i]; }
__global__ void slots(double *y, const double *x, int *next) { I; y[atomicAdd(next, 1)] = x[i] * x[i]; }
__global__ void halves(__half *y, const __half *x) { I; y[i] = __float2half(__half2float(x[i]) * 3.0f); }
__global__ void reversed_(double *y, const double *x, int n) {
    extern __shared__ double t[];
    t[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    y[threadIdx.x] = t[n - 1 - threadIdx.x] * x[threadIdx.x];
}
__global__ void bits(int *y, const int *x) { I; y[i] = x[i]; }
__device__ double factor = 3;
__global__ void by_variable(double *y, const double *x) { I; y[i] = factor * x[i] * x[i]; }
__global__ void best(double *m, const double *x) { atomicMax((long long *)m, (long long)x[threadIdx.x]); }
__global__ void count(int *c, const double *x) { if (x[threadIdx.x] > 0) atomicAdd(c, 1); }
"""
X, T = np.array([1.0, -2, 3, 0.5]), np.array([0.3, 1, -1, 2])


@pytest.fixture(scope="module")
def module() -> Any:
    return kg.compile(SOURCE)


@pytest.mark.parametrize("seed", range(10))
def test_random_programs(seed: int) -> None:
    check_tangent(seed, 4000 if seed == 3 else None)


def test_random_programs_on_tensors() -> None:
    check_tangent(12, None, pytest.importorskip("torch").from_numpy)


def test_numbers(module: Any) -> None:
    """0-d arrays, in another precision than the kernel's, in the middle of an input, written by a step, in structs."""
    x, y, z, numbers = X.copy(), np.zeros(4), np.zeros(4), np.array([2.0, 3.0, 5.0])
    with kg.record() as tape:
        module["scale"][1, 4](y, x, numbers[1:2].reshape(()))
        module["scale"][1, 1](numbers[:1], numbers[2:], 1.0)
        module["scale"][1, 4](z, y, numbers[:1].reshape(()))
    t = kg.jvp(tape.program((x, numbers), (z,)))
    given, along = np.array([0.5, 3.0, 5.0]), np.array([0.7, 0.1, 0.2])
    value, moved = t(X, given, T, along)
    inner, d_inner = 3 * X**2, 0.1 * X**2 + 6 * X * T
    np.testing.assert_allclose(value, 25 * inner**2)
    np.testing.assert_allclose(moved, 2 * 5 * 0.2 * inner**2 + 50 * inner * d_inner)
    assert (t(X, given, T * 0, None)[1] == 0).all()
    assert (t(X, given, None, along)[1] != 0).all()


def test_numbers_in_other_types(module: Any) -> None:
    x, y, z, a, b = X.astype("f4"), np.zeros(4, "f4"), np.zeros(4, "f4"), np.array(2.0), np.array(3.0, "f4")
    with kg.record() as tape:
        module["scale_float"][1, 4](y, x, a)
        module["blend"][1, 4](z, y, {"a": a, "b": b, "k": 2})
    p = tape.program((x, a, b), (z,))
    value, moved = kg.jvp(p)(x, a, b, T.astype("f4"), np.array(0.5), np.array(0.25, "f4"))
    inner, d_inner = 2 * X**2, 0.5 * X**2 + 4 * X * T
    np.testing.assert_allclose(value, 2 * inner + 6 * inner**2, rtol=1e-6)
    expected = 0.5 * inner + 2 * d_inner + 0.5 * inner**2 + 12 * inner * d_inner
    np.testing.assert_allclose(moved, expected, rtol=1e-5, atol=1e-5)
    by_tangents = kg.gradient(kg.jvp(p))(x, a, b, T.astype("f4"), a, b, np.zeros(4, "f4"), np.ones(4, "f4"))[3:]
    for found, want in zip(by_tangents, kg.gradient(p)(x, a, b, np.ones(4, "f4")), strict=True):
        np.testing.assert_allclose(found, want, rtol=1e-5)


def test_structs_with_pointers(module: Any) -> None:
    """A number in it has its tangent by value there: zero, or refused."""
    x, y, s = X.copy(), np.zeros(4), np.array(2.0)
    with kg.record() as tape:
        module["viewed"][1, 4](y, {"x": x, "scale": s})
    value, moved = kg.jvp(tape.program((x,), (y,)))(X, T)
    np.testing.assert_allclose(value, 2 * X**2)
    np.testing.assert_allclose(moved, 4 * X * T)
    with pytest.raises(kg.UnsupportedError, match="viewed: 'v.scale' has a tangent that may be another"):
        kg.jvp(tape.program((x, s), (y,)))


def test_launches_that_share_memory(module: Any) -> None:
    """In place, by the same array for two parameters: forward mode has that; second order tells that it has not."""
    x = X.copy()
    with kg.record() as tape:
        for _ in range(2):
            module["scale"][1, 4](x, x, 2.0)
    t = kg.jvp(tape.program((x,), (x,)))
    value, moved = t(X, T)
    np.testing.assert_allclose(value, 8 * X**4)
    np.testing.assert_allclose(moved, 32 * X**3 * T)
    with pytest.raises(kg.TapeError, match="jvp of scale cannot be recorded: .* shares memory"):
        kg.gradient(t)


def test_kernels_that_vary_and_shared_memory(module: Any) -> None:
    """Each launch runs once, so slots that atomics hand out are those of the tangents, too."""
    x, y, z, slot = X.copy(), np.zeros(4), np.zeros(4), np.zeros(1, np.int32)
    with kg.record() as tape:
        module["reversed_"][1, 4, 32](y, x, 4)
        module["slots"][1, 4](z, y, slot)
    found = kg.jvp(tape.program((x, slot), (z,)))(X, np.zeros(1, np.int32), T)
    inner, d_inner = X[::-1] * X, T[::-1] * X + X[::-1] * T
    pairs = sorted(zip(inner**2, 2 * inner * d_inner, strict=True))
    np.testing.assert_allclose(sorted(zip(*found, strict=True)), pairs)


def test_copies_fills_and_old_contents(module: Any) -> None:
    """Zeros replace tangents; what a step writes only a part of keeps those of the rest."""
    x, y, z = np.arange(8.0), np.zeros(8), np.zeros(8)
    with kg.record() as tape:
        kg.copy(y, x)
        kg.fill(y[:2], 4.0)
        module["scale"][1, 4](y[4:], x[:4], 1.0)
        kg.copy(z, y)
    p = tape.program((x,), (z,))
    value, moved = kg.jvp(p)(x, x + 1)
    np.testing.assert_allclose(value, [4, 4, 2, 3, 0, 1, 4, 9])
    np.testing.assert_allclose(moved, [0, 0, 3, 4, 0, 4, 12, 24])
    assert (p(x) == value).all()


def test_memory_that_holds_something_else_by_then(module: Any) -> None:
    """Doubles, then integers, then floats: what is overwritten whole has no tangent left."""
    x, y, z, u = X.copy(), np.zeros(4), np.zeros(4), np.ones(8, "f4")
    with kg.record() as tape:
        module["scale"][1, 4](y, x, 1.0)
        module["scale"][1, 4](z, y, 1.0)
        kg.fill(y.view("i4"), 3)
        kg.copy(y.view("f4"), u)
        module["scale_float"][1, 8](u, y.view("f4"), 2.0)
    value, ours, moved, of_u = kg.jvp(tape.program((x, u), (z, u)))(X, np.ones(8, "f4"), T, np.full(8, 3, "f4"))
    np.testing.assert_allclose(value, X**4)
    np.testing.assert_allclose(moved, 4 * X**3 * T)
    assert (ours == 2).all() and (of_u == 12).all()


def test_half_precision_and_variables(module: Any) -> None:
    x, y = X.astype("f2"), np.zeros(4, "f2")
    with kg.record() as tape:
        module["halves"][1, 4](y, x)
        module["halves"][1, 4](x, y)
    assert (kg.jvp(tape.program((x,), (x,)))(X.astype("f2"), X.astype("f2"))[1] == 9 * X).all()
    x, y = X.copy(), np.zeros(4)
    with kg.record() as tape:
        module["by_variable"][1, 4](y, x)
    np.testing.assert_allclose(kg.jvp(tape.program((x,), (y,)))(X, T)[1], 6 * X * T)


def test_integers_among_inputs_and_outputs(module: Any) -> None:
    x, c = X.copy(), np.zeros(1, np.int32)
    y = np.zeros(4)
    with kg.record() as tape:
        module["count"][1, 4](c, x)
        module["scale"][1, 4](y, x, 1.0)
    t = kg.jvp(tape.program((c, x), (c, y)))
    count, value, moved = t(c * 0, X, T)
    assert count == 3 and (value == X**2).all() and (moved == 2 * X * T).all()
    assert repr(t).startswith("<jvp of <program of 2 steps")
    with kg.record() as tape:
        module["count"][1, 4](c, x)
    with pytest.raises(kg.ArgumentError, match="jvp: none of the outputs holds floating-point numbers"):
        kg.jvp(tape.program((c, x), (c,)))


@pytest.mark.parametrize(
    "settings", [{}, {"keep": "y"}, {"assign": "x"}, {"primal": False, "keep": "y", "assign": "x, a"}]
)
def test_recorded_gradients(module: Any, settings: dict[str, Any]) -> None:
    """Adjoints that are added to, kept, assigned; numbers, adjoints of which the program goes on with."""
    inputs = {
        "y": np.zeros(4),
        "x": X.copy(),
        "a": np.array(1.5),
        "d_y": T.copy(),
        "d_x": np.ones(4),
        "d_a": np.ones(1),
    }
    y, x, a, d_y, d_x, d_a = inputs.values()
    with kg.record() as tape:
        kg.gradient(module["scale"], "y, x, a", **settings)[1, 4](y, x, a, d_y, d_x, d_a)
        module["scale"][1, 4](x, d_x, 1.0)
    p = tape.program(tuple(inputs.values()), (y, x, d_y, d_x, d_a))
    t = kg.jvp(p)
    rng = np.random.default_rng(1)
    at, along = ([rng.uniform(0.5, 1.5, v.shape).reshape(v.shape) for v in inputs.values()] for _ in range(2))
    for only in (None, 1, 3, 4):
        moved = [np.asarray(v) if only in (None, k) else None for k, v in enumerate(along)]
        h = 1e-6
        ends = [
            p(*[np.array(v if m is None else v + s * h * m) for v, m in zip(at, moved, strict=True)]) for s in (1, -1)
        ]
        found = t(*map(np.array, at), *moved)
        for value, tangent, up, down in zip(found[:5], found[5:], *ends, strict=True):
            np.testing.assert_allclose(value, (up + down) / 2, rtol=1e-8)
            np.testing.assert_allclose(tangent, (up - down) / (2 * h), rtol=1e-7, atol=1e-7)
    with pytest.raises(
        kg.UnsupportedError, match="jvp of the gradient of scale cannot be reversed: .* third derivative"
    ):
        kg.gradient(t)


def test_refusals(module: Any) -> None:
    x, y = X.copy(), np.zeros(4)
    with kg.record() as tape:
        module["bits"][1, 8](y.view(np.int32), x.view(np.int32))
    with pytest.raises(kg.TapeError, match="jvp: bits: 'x' is no buffer of floating-point numbers"):
        kg.jvp(tape.program((x,), (y,)))
    with kg.record() as tape:
        kg.jvp(module["scale"])[1, 4](y, x, 2.0, np.zeros(4), np.ones(4), np.ones(1))
    with pytest.raises(kg.UnsupportedError, match="'jvp of scale' of the program has no tangent"):
        kg.jvp(tape.program((x,), (y,)))
    with kg.record() as tape:
        module["scale"][1, 4](y, x, 2.0)
    p = tape.program((x,), (y,))
    t = kg.jvp(p)
    with pytest.raises(kg.ArgumentError, match="takes 1 inputs and 1 tangents, got 1"):
        t(x)
    with pytest.raises(kg.ArgumentError, match="tangent 0 is float32"):
        t(x, x.astype("f4"))
    with pytest.raises(kg.ArgumentError, match="forward mode over forward mode is not there"):
        kg.jvp(t)
    with pytest.raises(kg.ArgumentError, match="options are for kernels"):
        kg.jvp(p, "x")


@pytest.mark.slow
def test_ten_thousand_launches(module: Any) -> None:
    """One list, as the program is; the number's tangent is where the array's is."""
    x, y, a = np.full(4, 0.5), np.zeros(4), np.array(1.0)
    u, v = x, y
    with kg.record() as tape:
        for _ in range(10_000):
            module["scale"][1, 4](v, u, a)
            u, v = v, u
    p = tape.program((x, a), (u,))
    t = kg.jvp(p)
    value, moved = t(np.ones(4), np.array(1.0), np.zeros(4), np.array(1e-300))
    assert (value == 1).all() and np.isinf(moved).all()  # 2^10000 - 1 of that
    assert t.nbytes < 100_000
