"""`tape.program`: recorded launches as a function that runs them again from one list, and its gradient."""

from __future__ import annotations

import gc
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from kernelgrad.host import transfers
from kernelgrad.host.shadow_memory import Region
from kernelgrad.host.transfers import host_array
from kernelgrad.runtime.scratch import Scratch
from kernelgrad.runtime.tracing import Trace
from recorded_programs import N, check_program

SOURCE = r"""
__global__ void heat(double *v, const double *u, const double *kappa, int n, float dt) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i > 0 && i < n - 1) v[i] = u[i] + dt * kappa[i] * u[i] * (u[i - 1] - 2 * u[i] + u[i + 1]);
}
__global__ void square_sum(double *s, const double *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(s, x[i] * x[i]);
}
__global__ void slots(double *y, const double *x, int *next) {
    double s = x[threadIdx.x];
    while (s > 1) s = s * s * 0.3;
    y[atomicAdd(next, 1)] = s;
}
__global__ void guarded(double *y, const double *x, int n) {
    int i = threadIdx.x;
    assert(x[i] >= 0);
    y[i] = sqrt(x[i]);
}
__device__ double total;
__global__ void keep(const double *x) { total += x[threadIdx.x]; }
__global__ void reversed_(double *y, const double *x, int n) {
    extern __shared__ double t[];
    t[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    y[threadIdx.x] = t[n - 1 - threadIdx.x] * x[threadIdx.x];
}
"""
M = 40


@pytest.fixture(scope="module")
def module() -> Any:
    return kg.compile(SOURCE)


def loop(module: Any, u: Any, v: Any, kappa: Any, dt: Any, steps: int) -> Any:
    for _ in range(steps):
        module["heat"][(len(u) + 63) // 64, 64](v, u, kappa, len(u), dt)
        u, v = v, u
    return u


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("budget", [None, 60 * 8 * N])
def test_random_programs(seed: int, budget: int | None) -> None:
    check_program(seed, budget)


@pytest.mark.parametrize("seed", range(20, 23))
def test_random_programs_on_tensors(seed: int) -> None:
    check_program(seed, None, pytest.importorskip("torch").from_numpy)


@pytest.mark.parametrize("n", [M, 20_000])
def test_a_loop_with_other_contents(module: Any, n: int) -> None:
    """Two buffers in turn; the number is an input, too, in another precision than the kernel's; large launches are
    shared among the cores."""
    rng = np.random.default_rng(0)
    u0, kappa, dt = rng.random(n), rng.random(n), np.array(0.1)
    with kg.record(tape_budget=64 * 8 * n) as tape:
        u = loop(module, u0, np.zeros(n), kappa, dt, 50)
    before = u.copy()
    p = tape.program(inputs=(u0, kappa, dt), outputs=(u,))
    g = kg.gradient(p)
    a, k, d, w = rng.random(n), rng.random(n), np.array(0.05), rng.normal(size=n)
    x = a.copy()
    with kg.record() as other:
        out = loop(module, x, np.zeros(n), k, d, 50)
    assert (p(a, k, d) == out).all() and (u == before).all()
    other.backward(out, w)
    found = g(a, k, d, w)
    for one, array in zip(found[:2], (x, k), strict=True):
        np.testing.assert_allclose(one, other.grad(array), rtol=1e-12)
    np.testing.assert_allclose(found[2], other.grad(d), rtol=1e-6)  # floats, added up in the order that threads end
    tape.backward(u, w)  # the tape is as it was
    assert np.isfinite(tape.grad(kappa)).all()


def test_a_launch_takes_less_than_three_microseconds(module: Any) -> None:
    u0, kappa = np.random.default_rng(0).random(M), np.ones(M)
    with kg.record() as tape:
        u = loop(module, u0, np.zeros(M), kappa, 0.1, 2000)
    p = tape.program((u0,), (u,))
    p(u0)
    assert any(_seconds(p, u0) / 2000 < 3e-6 for _ in range(200))  # once undisturbed, on a busy machine


def _seconds(p: Any, *args: Any) -> float:
    start = time.perf_counter()
    p(*args)
    return time.perf_counter() - start


def test_what_memory_begins_with(module: Any) -> None:
    """Sums that the program reads and overwrites: given, or made inside."""
    x, s = np.arange(4.0), np.zeros(1)
    with kg.record() as tape:
        module["square_sum"][1, 4](s, x, 4)
    with pytest.raises(kg.TapeError, match="square_sum may read 's' before any step has written it"):
        tape.program((x,), (s,))
    p = tape.program((x, s), (s,))
    assert p(x, np.array([5.0])) == 19 and p(2 * x, np.zeros(1)) == 56
    with kg.record() as tape:
        t = kg.zeros(1, np.float64)
        module["square_sum"][1, 4](t, x, 4)
    p = tape.program((x,), (t,))
    assert p(x) == 14 and p(x) == 14
    assert (kg.gradient(p)(x, np.ones(1)) == 2 * x).all()


def test_memory_that_nobody_writes_is_read_where_it_is(module: Any) -> None:
    u0, kappa = np.random.default_rng(0).random(M), np.ones(M)
    with kg.record() as tape:
        u = loop(module, u0, np.zeros(M), kappa, 0.1, 4)
    p, start = tape.program((u0,), (u,)), np.random.default_rng(1).random(M)
    kappa[:] = 0.3
    assert (p(start) == loop(module, start.copy(), np.zeros(M), kappa, 0.1, 4)).all()


def test_fills_copies_and_dynamic_shared_memory(module: Any) -> None:
    x, y, z = np.linspace(1, 2, 8), np.zeros(8), np.zeros(8, np.complex128)
    with kg.record() as tape:
        kg.fill(z, 1 + 2j)
        kg.copy(y, x)
        module["reversed_"][1, 8, 64](y[:8], x, 8)
    p = tape.program((x,), (y, z))
    first, second = p(2 * x)
    assert (first == 4 * x * x[::-1]).all() and (second == 1 + 2j).all()
    p = tape.program((x,), (y,))
    np.testing.assert_allclose(kg.gradient(p)(x, np.ones(8)), 2 * x[::-1])


def test_failures_in_kernels_are_told(module: Any) -> None:
    x, y = np.ones(4), np.zeros(4)
    with kg.record() as tape:
        module["guarded"][1, 4](y, x, 4)
        module["guarded"][1, 4](x, y, 4)
    p = tape.program((x,), (x,))
    assert (p(np.full(4, 16.0)) == 2).all()
    with pytest.raises(kg.KernelError, match="assertion failed.*thread \\(2, 0, 0\\)"):
        p(np.array([1.0, 1, -1, 1]))


def test_wrong_arguments(module: Any) -> None:
    x, y = np.ones(M), np.zeros(M)
    with kg.record() as tape:
        loop(module, x, y, np.ones(M), 0.1, 1)
        with pytest.raises(kg.TapeError, match="the recording is still going on"):
            tape.program((x,), (y,))
    p = tape.program((x,), (y,))
    for given, problem in (
        ((), "takes 1 inputs, got 0"),
        ((np.ones(M, np.float32),), "input 0 is float32"),
        ((np.ones((2, M // 2)),), "input 0 is float64 of shape"),
        ((3.0,), "wants an array"),
    ):
        with pytest.raises(kg.ArgumentError, match=problem):
            p(*given)
    with pytest.raises(kg.ArgumentError, match="no recorded step uses the memory"):
        tape.program((x,), (np.zeros(M),))
    with pytest.raises(kg.ArgumentError, match="two of the inputs share memory"):
        tape.program((x, x[:3]), (y,))
    with pytest.raises(kg.ArgumentError, match="outputs are arrays in a tuple"):
        tape.program((x,), ())
    with pytest.raises(kg.ArgumentError, match="takes 1 inputs and 1 seeds"):
        kg.gradient(p)(x)
    with kg.record(), pytest.raises(kg.TapeError, match="cannot be recorded"):
        p(x)


def test_numbers_in_the_middle_of_an_input() -> None:
    """Their adjoints are added where they lie."""
    scale = kg.compile(
        "__global__ void k(double *y, const double *x, double a) { y[threadIdx.x] = a * x[threadIdx.x]; }"
    )["k"]
    x, y, numbers = np.arange(1.0, 5.0), np.zeros(4), np.array([2.0, 3.0, 5.0])
    with kg.record() as tape:
        scale[1, 4](y, x, numbers[1:2].reshape(()))
        scale[1, 4](x, y, numbers[2:].reshape(()))
    p = tape.program((x, numbers), (x,))
    given, other = np.ones(4), np.array([7.0, 11.0, 13.0])
    np.testing.assert_allclose(p(given, other), 143.0)
    d_x, d_numbers = kg.gradient(p)(given, other, np.ones(4))
    np.testing.assert_allclose(d_x, 143.0)
    np.testing.assert_allclose(d_numbers, [0, 4 * 13, 4 * 11])


def test_the_memory_of_the_cpu_is_no_part_of_a_gpus_trace() -> None:
    """The adjoint of a number that was passed as a 0-d array lies in the CPU's memory: made and cleared at once."""
    held, trace = np.ones(1), Trace(0)
    with trace.open():
        region = Region(held.ctypes.data, held.ctypes.data + 8, None)
        region.allocate(None)
        assert not host_array(region.address, 8).any() and not trace.operations
        for do in (
            lambda: transfers.zero(held.ctypes.data, 8, None, None),
            lambda: transfers.fill(held.ctypes.data, 8, b"\1", None, None),
            lambda: transfers.move(held.ctypes.data, region.address, 8, None, None),
            lambda: transfers.add(held.ctypes.data, region.address, 8, held.dtype, None, None),
        ):
            with pytest.raises(kg.TapeError, match="a program runs on one device"):
                do()
    assert held == 1 and not trace.operations


def test_what_cannot_be_fixed_is_refused(module: Any) -> None:
    x, y, zero = np.full(4, 2.0), np.zeros(4), np.zeros(1, np.int32)
    with kg.record() as tape:
        module["slots"][1, 4](y, x, zero)
    p = tape.program((x, zero), (y,))
    first = np.zeros(1, np.int32)
    assert (p(np.full(4, 3.0), first) != p(np.full(4, 2.0), first)).all()
    assert (kg.gradient(p)(np.full(4, 3.0), first, np.ones(4))[0] > 3.29).all()
    with Trace(None).open(), pytest.raises(kg.TapeError, match="depends on what memory holds"):
        Scratch(8, None, None).zero().read()
    with kg.record() as tape:
        module["keep"][1, 4](x)
        kg.copy(y, x)
    with pytest.raises(kg.TapeError, match="keep writes the module variable 'total'"):
        tape.program((x,), (y,))


def test_memory_that_calls_read_where_it_is_has_an_owner(module: Any) -> None:
    """A part of an allocation is written: the program has a copy of it all, the rest of which is brought to date."""
    whole, x, kappa = np.ones(2 * M), np.linspace(0, 1, M), np.ones(M)
    with kg.record() as tape:
        s = kg.zeros(1, "f8")
        loop(module, x, whole[M:], kappa, 0.1, 1)
        module["square_sum"][2, 64](s, whole, 2 * M)
    p = tape.program((x,), (s,))
    held, there = weakref.ref(whole), whole[:M].copy()
    whole[:M] = 3.0
    before = p(x)
    assert before[0] == pytest.approx(s[0] + 8 * M)
    del whole, tape, s
    gc.collect()
    assert held() is not None and p(x) == before
    del p
    assert held() is None and there.all()


def test_outputs_that_were_changed_unseen(module: Any) -> None:
    """What they held when the recording ended, no recorded step has made."""
    x, v, kappa = np.linspace(0, 1, M), np.zeros(M), np.ones(M)
    with kg.record() as tape:
        loop(module, x, v, kappa, 0.1, 1)
        v += 1
    with pytest.raises(kg.TapeError, match="program: the memory of 'output' was changed"):
        tape.program((x,), (v,))
    with kg.record() as tape:
        loop(module, x, v, kappa, 0.1, 1)
    v += 1  # after it: that is no part of the program
    assert tape.program((x,), (v,))(x)[1] == pytest.approx(v[1] - 1)


def test_threads_take_turns(module: Any) -> None:
    """A program has one memory, its gradient too."""
    n = 2000
    u, v, kappa = np.zeros(n), np.zeros(n), np.ones(n)
    with kg.record() as tape:
        for _ in range(10):
            module["heat"][(n + 255) // 256, 256](v, u, kappa, n, 0.1)
            u, v = v, u
    program = tape.program((u, kappa), (u,))
    gradient, seed = kg.gradient(program), np.ones(n)
    inputs = [np.random.default_rng(k).uniform(0, 1, n) for k in range(4)]
    alone = [(program(x, kappa), *gradient(x, kappa, seed)) for x in inputs]

    def wrong(k: int) -> int:
        found = [(program(inputs[k], kappa), *gradient(inputs[k], kappa, seed)) for _ in range(15)]
        return sum(not np.array_equal(a, b) for each in found for a, b in zip(each, alone[k], strict=True))

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(wrong, range(4))) == [0] * 4


@pytest.mark.parametrize("options", [{"parameters": "u"}, {"primal": False}, {"tape_budget": 1000}])
def test_a_programs_gradient_has_no_options(module: Any, options: dict[str, Any]) -> None:
    u, v = np.zeros(8), np.zeros(8)
    with kg.record() as tape:
        module["heat"][1, 8](v, u, np.ones(8), 8, 0.1)
    with pytest.raises(kg.ArgumentError, match="options are for kernels and functions"):
        kg.gradient(tape.program((u, v), (v,)), **options)
