"""Launches of a gradient that come again: what is remembered of them, and what is not."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from kernelgrad.launches import plan, planning
from kernelgrad.runtime import scratch

SOURCE = """
__device__ double gain = 2.0;
__global__ void scale(double *y, const double *x, double a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i];
}
__global__ void powers(double *y, const double *x, int n, int m) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    double v = x[i];
    for (int k = 0; k < m; k++) v = v * v * 0.5 + x[i];
    y[i] = v;
}
__global__ void data_dependent(double *y, const double *x, const int *counts, int n) {
    int i = threadIdx.x;
    double v = x[i];
    for (int k = 0; k < counts[i]; k++) v = sin(v) * v;
    y[i] = v;
}
__global__ void strided(double *y, const double *x, int n, int stride) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i / stride];
}
__global__ void squared(double *y, const double *x, int n, int stride) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i * i % stride];
}
__global__ void dropped(double *y, const double *x, int n, unsigned seed) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = (i ^ seed) * 2654435761u >> 31 ? seed * x[i] * x[i] : 0.0;
}
__global__ void through(double *y, double *t, const double *x, int n) {
    int i = threadIdx.x;
    t[i] = x[i] * x[i];
    y[i] = t[i] * x[i];
}
__global__ void amplified(double *y, const double *x) { y[threadIdx.x] = gain * x[threadIdx.x] * x[threadIdx.x]; }
__global__ void maybe(double *y, const double *x, const double *bias) {
    int i = threadIdx.x;
    y[i] = x[i] * (bias ? bias[i] : 3.0);
}
"""


@pytest.fixture(scope="module")
def module() -> kg.Module:
    return kg.compile(SOURCE)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """The plans that are made."""
    found: list[Any] = []

    class Watched(plan.LaunchPlan):
        def __init__(self, *args: Any, **keywords: Any):
            super().__init__(*args, **keywords)
            found.append(self)

    monkeypatch.setattr(planning, "LaunchPlan", Watched)
    yield found


def ones(n: int) -> Any:
    return np.ones(n)


def test_one_plan_for_other_arrays_and_floats(module: kg.Module, made: list[Any]) -> None:
    g = kg.gradient(module["scale"], "y, x, a")
    for a in (1.0, 2.5, -3.0):
        x, d_x, d_a = np.arange(6.0), np.zeros(6), np.zeros(1)
        g[2, 4](np.zeros(6), x, a, 6, ones(6), d_x, d_a)
        assert (d_x == a).all() and d_a[0] == x.sum()
    assert len(made) == 1


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(lambda g, b: g[2, 4](*b(6, 6)), id="grid"),
        pytest.param(lambda g, b: g[1, 2](*b(6, 6)), id="block"),
        pytest.param(lambda g, b: g[1, 8, 64](*b(6, 6)), id="shared memory"),
        pytest.param(lambda g, b: g[1, 8](*b(6, 5)), id="an integer"),
        pytest.param(lambda g, b: g[1, 8](*b(7, 6)), id="sizes"),
        pytest.param(lambda g, b: g[1, 8](*b(6, 6)[:-1], None), id="a missing adjoint"),
        pytest.param(lambda g, b: g.check(1, 8, *b(6, 6)), id="the check mode"),
    ],
)
def test_another_plan(module: kg.Module, made: list[Any], other: Any) -> None:
    g = kg.gradient(module["scale"], "y, x, a")

    def arguments(size: int, n: int) -> list[Any]:
        return [np.zeros(size), ones(size), 2.0, n, ones(size), np.zeros(size), np.zeros(1)]

    g[1, 8](*arguments(6, 6))
    g[1, 8](*arguments(6, 6))
    assert len(made) == 1
    other(g, arguments)
    assert len(made) == 2


def test_integers_are_looked_at(module: kg.Module) -> None:
    """Plain updates where the stride keeps threads apart, atomic ones where not; the values say so."""
    g = kg.gradient(module["strided"], "y, x")
    for stride in (1, 2, 1, 3, 2):
        d_x = np.zeros(12)
        g[3, 4](np.zeros(12), ones(12), 12, stride, ones(12), d_x)
        assert (d_x[: 12 // stride] == stride).all() and not d_x[12 // stride :].any()


def test_integers_that_decide_nothing_share_a_plan(module: kg.Module, made: list[Any]) -> None:
    """Seeds of random numbers, counters of steps."""
    g = kg.gradient(module["dropped"], "y, x")
    for seed in range(1, 20):
        x, d_x = np.arange(1.0, 13.0), np.zeros(12)
        g[3, 4](np.zeros(12), x, 12, seed, ones(12), d_x)
        hashed = (np.arange(12, dtype=np.uint32) ^ np.uint32(seed)) * np.uint32(2654435761)
        np.testing.assert_allclose(d_x, np.where(hashed >> 31, 2 * seed * x, 0))
    assert len(made) == 1


def test_what_was_found_before_the_first_launch_is_as_good(module: kg.Module) -> None:
    """Asking about one launch does not hide from the next ones which integers decide."""
    g = kg.gradient(module["strided"], "y, x")
    g.explain(3, 4, np.zeros(12), ones(12), 12, 1)
    assert g.tape_bytes(3, 4, np.zeros(12), ones(12), 12, 1) == 0
    for stride in (1, 2, 4, 1):
        d_x = np.zeros(12)
        g[3, 4](np.zeros(12), ones(12), 12, stride, ones(12), d_x)
        assert (d_x[: 12 // stride] == stride).all()
        assert g.check(3, 4, np.zeros(12), ones(12), 12, stride, ones(12), np.zeros(12)).ok
    powers = kg.gradient(module["powers"], "y, x")
    assert [powers.tape_bytes(1, 4, ones(4), ones(4), 4, m) for m in (2, 7, 2)] == [8 * 4 * m for m in (2, 7, 2)]


def test_sizes_of_tapes_by_arithmetic_and_by_counting(module: kg.Module) -> None:
    by_arithmetic = kg.gradient(module["powers"], "y, x")
    for m in (1, 5, 2):
        y, x, d_x = np.zeros(4), np.full(4, 0.3), np.zeros(4)
        by_arithmetic[1, 4](y, x, 4, m, ones(4), d_x)
        v, slope = 0.3, 1.0
        for _ in range(m):
            v, slope = v * v * 0.5 + 0.3, v * slope + 1.0
        np.testing.assert_allclose(d_x, slope)
    counted = kg.gradient(module["data_dependent"], "y, x")
    for counts in ([1, 2, 0, 3], [9, 9, 9, 9], [0, 0, 0, 40]):
        y, x, d_x = np.zeros(4), np.array([0.3, 0.5, 0.7, 0.9]), np.zeros(4)
        counted[1, 4](y, x, np.array(counts, np.int32), 4, ones(4), d_x)
        for i, count in enumerate(counts):
            v, slope = x[i], 1.0
            for _ in range(count):
                v, slope = np.sin(v) * v, (np.cos(v) * v + np.sin(v)) * slope
            np.testing.assert_allclose((y[i], d_x[i]), (v, slope))


def test_a_pointer_that_is_missing_in_some_launches(module: kg.Module) -> None:
    g = kg.gradient(module["maybe"], "y, x")
    for bias, slope in ((None, 3.0), (np.full(4, 5.0), 5.0), (None, 3.0)):
        d_x = np.zeros(4)
        g[1, 4](np.zeros(4), ones(4), bias, ones(4), d_x)
        assert (d_x == slope).all()


def test_shadows_are_fresh_in_every_launch(module: kg.Module) -> None:
    g = kg.gradient(module["through"], "y, x")
    for _ in range(3):
        x, d_x = np.arange(1.0, 5.0), np.zeros(4)
        g[1, 4](np.zeros(4), np.zeros(4), x, 4, ones(4), d_x)
        np.testing.assert_allclose(d_x, 3 * x**2)


def test_module_variables_are_read_anew(module: kg.Module) -> None:
    g = kg.gradient(module["amplified"], "y, x")
    for gain in (2.0, 5.0):
        module.variable("gain")[...] = gain
        d_x = np.zeros(4)
        g[1, 4](np.zeros(4), ones(4), ones(4), d_x)
        assert (d_x == 2 * gain).all()


STENCIL = """__global__ void k(double *y, const double *x, const double *w, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = w[0] * x[i] + w[1] * x[i + 1] * x[i] + x[i + 2];
}"""


def test_adjoints_that_are_shorter_than_their_buffers() -> None:
    """They are long enough for what the kernel reads: nothing behind that is touched, whoever adds up."""
    n, gradient = 200, kg.gradient(kg.compile(STENCIL)["k"], "y, x, w", assign="x, w", shorter="x, w")
    rng = np.random.default_rng(1)
    x, w, d_y = rng.random(3 * n), rng.random(n), rng.random(n)
    found = []
    for length in (3 * n, n + 2, 3 * n):
        d_x, d_w = np.full(3 * n, 7.0), np.full(n, 7.0)
        gradient[4, 64](np.zeros(n), x, w, n, d_y.copy(), d_x[:length], d_w[: 2 if length < 3 * n else n])
        found.append((d_x, d_w))
    (whole_x, whole_w), (d_x, d_w), again = found
    np.testing.assert_allclose(d_x[: n + 2], whole_x[: n + 2])
    np.testing.assert_allclose(d_w[:2], whole_w[:2])
    assert (d_x[n + 2 :] == 7).all() and (d_w[2:] == 7).all()
    np.testing.assert_array_equal(again[0], whole_x)


def test_overlap_is_checked_in_every_launch(module: kg.Module) -> None:
    g = kg.gradient(module["scale"], "y, x, a")
    memory, d_x, d_a = np.zeros(12), np.zeros(6), np.zeros(1)
    g[1, 8](memory[:6], memory[6:], 1.0, 6, ones(6), d_x, d_a)
    for y, adjoint, names in ((memory[3:9], d_x, "'y' and 'x'"), (memory[:6], memory[6:], "'x' and 'd_x'")):
        with pytest.raises(kg.ArgumentError, match="share memory") as raised:
            g[1, 8](y, memory[6:], 1.0, 6, ones(6), adjoint, d_a)
        assert all(name in str(raised.value) for name in names.split(" and ")), raised.value
    g[1, 8](memory[:6], memory[6:], 1.0, 6, ones(6), d_x, d_a)


def test_read_only_adjoints_are_refused_in_every_launch(module: kg.Module) -> None:
    g = kg.gradient(module["scale"], "y, x, a")
    d_x, d_a = np.zeros(6), np.zeros(1)
    g[1, 8](np.zeros(6), ones(6), 1.0, 6, ones(6), d_x, d_a)
    d_x.flags.writeable = False
    with pytest.raises(kg.ArgumentError, match="read-only"):
        g[1, 8](np.zeros(6), ones(6), 1.0, 6, ones(6), d_x, d_a)


def test_few_are_remembered(module: kg.Module, made: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "_REMEMBERED", 3)
    g = kg.gradient(module["scale"], "y, x, a")
    for n in (1, 2, 3, 4, 4, 3, 1):
        d_x = np.zeros(6)
        g[1, 8](np.zeros(6), ones(6), 2.0, n, ones(6), d_x, np.zeros(1))
        assert (d_x[:n] == 2).all() and not d_x[n:].any()
        assert len(g._plans._found) <= 3
    assert len(made) == 5


def test_many_threads_at_once(module: kg.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of launches that share plans, and drop each other's."""
    monkeypatch.setattr(plan, "_REMEMBERED", 2)
    g = kg.gradient(module["powers"], "y, x")
    start = threading.Barrier(4)

    def work(number: int) -> None:
        start.wait()
        for k in range(40):
            m = (number + k) % 4
            y, d_x = np.zeros(4), np.zeros(4)
            g[1, 4](y, np.full(4, 0.3), 4, m, ones(4), d_x)
            v, slope = 0.3, 1.0
            for _ in range(m):
                v, slope = v * v * 0.5 + 0.3, v * slope + 1.0
            np.testing.assert_allclose((y, d_x), np.broadcast_to([[v], [slope]], (2, 4)))

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(work, number) for number in range(4)]:
            done.result()


@pytest.mark.usefixtures("no_garbage_collection")
def test_memory_of_a_launch_is_given_back_at_once(module: kg.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where steps after the launch use it, without waiting for the garbage collector."""
    left: list[Any] = []
    plain = scratch.Scratch.__init__

    def watched(self: Any, *args: Any) -> None:
        plain(self, *args)
        left.append(weakref.ref(self))

    monkeypatch.setattr(scratch.Scratch, "__init__", watched)
    g = kg.gradient(module["squared"], "y, x", deterministic=True)
    g[3, 4](np.zeros(12), ones(12), 12, 5, ones(12), np.zeros(12))
    assert left and not any(ref() is not None for ref in left)
