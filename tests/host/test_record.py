"""What a tape means: whose adjoint is had, what is saved, what seeds are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from recording_cases import SOURCE, Launches, N, x0


@pytest.fixture(scope="module")
def k() -> Any:
    return Launches()


# ---- what is saved


def test_nothing_for_linear_kernels_and_pure_outputs(k: Any) -> None:
    x, y, z = x0(), np.zeros(N), np.zeros(N)
    with kg.record() as tape:
        for _ in range(10):
            k.linear(y, x, N)
            k.linear(x, y, N)
            k.square(z, x, N)
    assert tape.nbytes == 9 * 8 * N  # x, which the square reads, before it is overwritten the next time
    with kg.record() as tape:
        for _ in range(10):
            k.linear(y, x, N)
            k.linear(x, y, N)
            k.add_to(z, x, N)
    assert tape.nbytes == 0 and "no buffer was overwritten" in tape.explain()
    tape.backward(z, np.ones(N))
    np.testing.assert_allclose(tape.grad(z), 1)
    np.testing.assert_allclose(tape.grad(x).sum(), sum(0.75 ** (2 * t) for t in range(1, 11)) * N)


def test_pure_outputs_cost_nothing(k: Any) -> None:
    x, y = x0(), np.zeros(N)
    with kg.record() as tape:
        for _ in range(512):
            k.square(y, x, N)
    assert tape.nbytes == 0
    tape.backward(y, np.ones(N))
    np.testing.assert_allclose(tape.grad(x), 2 * x0())


def test_explain_says_what_was_saved_and_why(k: Any) -> None:
    x = x0()
    with kg.record() as tape:
        for _ in range(5):
            k.sine(x, N)
    text = tape.explain()
    assert tape.nbytes == 5 * 8 * N
    assert f"'x' of sine, overwritten by sine: 5 x, {5 * 8 * N} bytes" in text and "5 steps" in text


def test_integers_are_saved_where_a_reverse_reads_them(k: Any) -> None:
    counts = np.zeros(N, np.int32)
    with kg.record() as tape:
        k.count(counts, N)
        k.count(counts, N)
    assert tape.nbytes == 0 and (counts == 2).all()


# ---- whose adjoint


def test_in_place_and_its_buffer_afterwards(k: Any) -> None:
    x = x0()
    with kg.record() as tape:
        for _ in range(3):
            k.sine(x, N)
    after, seed = x.copy(), np.ones(N)
    tape.backward(x, seed)
    a = x0()
    expected = np.cos(a) * np.cos(np.sin(a)) * np.cos(np.sin(np.sin(a)))
    np.testing.assert_allclose(tape.grad(x), expected)
    np.testing.assert_array_equal(x, after)
    np.testing.assert_array_equal(seed, 1)


def test_views_of_one_allocation(k: Any) -> None:
    memory = np.concatenate([x0(), np.zeros(2 * N)])
    a, b, c = memory[:N], memory[N : 2 * N], memory[2 * N :]
    with kg.record() as tape:
        k.square(b, a, N)
        k.square(c, b, N)
        k.square(memory[2:10], c, N)  # over the end of a and the beginning of b
    tape.backward(memory, np.ones(3 * N))
    d_c = 1 + 2 * x0() ** 4
    d_b = np.concatenate([[0, 0], np.ones(N - 2)]) + 2 * x0() ** 2 * d_c
    d_a = np.concatenate([np.ones(2), np.zeros(N - 2)]) + 2 * x0() * d_b
    np.testing.assert_allclose(tape.grad(a), d_a)
    np.testing.assert_allclose(tape.grad(memory[3:5]), d_a[3:5])


def test_the_same_array_twice(k: Any) -> None:
    x, y = x0(), np.zeros(N)
    with kg.record() as tape:
        k.square(x, x, N)
        k.add_to(x, x, N)
        k.square(y, x, N)
    tape.backward(y, np.ones(N))
    np.testing.assert_allclose(tape.grad(x), 16 * x0() ** 3)


def test_numbers_by_name(k: Any) -> None:
    x, y = x0(), np.zeros(N)
    with kg.record() as tape:
        for a in (2.0, 3.0):
            k.scale(y, x, a, N)
            k.scale(x, y, a, N)
    tape.backward(x, np.ones(N))
    assert tape.grad("scale.a") == pytest.approx(x0().sum() * (2 * 2 * 9 + 2 * 3 * 4))
    assert tape.grad("a") == tape.grad("scale.a")
    with pytest.raises(kg.ArgumentError, match=r"no recorded launch has a number 'scale.b'; there are 'scale.a'"):
        tape.grad("scale.b")


def test_a_template_s_name_stands_for_its_instance() -> None:
    module = kg.compile("""template <typename T> __global__ void grow(T *x, T a, int n) {
        int i = threadIdx.x;
        if (i < n) x[i] *= a;
    }""")
    x, y = np.ones(N), np.ones(N, np.float32)
    with kg.record() as tape:
        module["grow<double>"][1, N](x, 2.0, N)
    tape.backward(x, np.ones(N))
    assert tape.grad("grow.a") == tape.grad("grow<double>.a") == N
    with kg.record() as tape:
        module["grow<double>"][1, N](x, 2.0, N)
        module["grow<float>"][1, N](y, 2.0, N)
    tape.backward(y, np.ones(N, np.float32))
    assert tape.grad("grow<float>.a") == N
    with pytest.raises(kg.ArgumentError, match=r"'grow.a' is ambiguous: 'grow<double>.a', 'grow<float>.a'"):
        tape.grad("grow.a")


def test_ambiguous_names_are_errors(k: Any) -> None:
    x, y = np.ones(N, np.float32), np.zeros(N, np.float32)
    z = x0()
    with kg.record() as tape:
        k.singles(y, x, 2.0, N)
        k.scale(z, z, 2.0, N)
    tape.backward(y, np.ones(N, np.float32))
    with pytest.raises(kg.ArgumentError, match=r"'a' is ambiguous: 'scale.a', 'singles.a'"):
        tape.grad("a")
    assert tape.grad("singles.a") == pytest.approx(N) and tape.grad("scale.a") == 0
    other = kg.compile(SOURCE)["scale"]
    with kg.record() as tape:
        k.scale(z, z, 2.0, N)
        other[2, 4](z, z, 2.0, N)
    tape.backward(z, np.ones(N))
    with pytest.raises(kg.ArgumentError, match="several kernels have a number 'scale.a': pass a 0-d array"):
        tape.grad("scale.a")


def test_numbers_in_structs_and_templates(k: Any) -> None:
    x, y = x0(), np.zeros(N)
    with kg.record() as tape:
        k.in_struct(y, (2.0, 1.0), {"gain": 3.0, "x": x, "k": 1}, N)
        k.module_["other::power<double, 2>"][2, 4](y, 5.0, N)
    tape.backward(y, np.ones(N))
    np.testing.assert_allclose(tape.grad(x), 2 * 3 * 10)
    assert tape.grad("in_struct.s.a") == pytest.approx(10 * 3 * x0().sum())
    assert tape.grad("in_struct.s.b") == pytest.approx(10 * N)
    assert tape.grad("in_struct.p.gain") == pytest.approx(10 * 2 * x0().sum())
    assert tape.grad("other::power<double, 2>.a") == pytest.approx(2 * (6 * x0() + 1).sum())


def test_0d_arrays_for_numbers(k: Any) -> None:
    x, y, a = x0(), np.zeros(N), np.array(2.0)
    with kg.record() as tape:
        k.scale(y, x, a, N)
        k.scale(x, y, a, N)
    tape.backward(x, np.ones(N))
    assert tape.grad(a) == pytest.approx(4 * x0().sum()) and tape.grad(a).shape == ()


def test_0d_arrays_in_structs(k: Any) -> None:
    x, y, a, gain = x0(), np.zeros(N), np.array(2.0), np.array(3.0)
    with kg.record() as tape:
        k.in_struct(y, {"a": a, "b": 1.0}, (gain, x, 1), N)
    tape.backward(y, np.ones(N))
    assert tape.grad(a) == pytest.approx(3 * x0().sum()) and tape.grad(gain) == pytest.approx(2 * x0().sum())


def test_numbers_of_many_launches(k: Any) -> None:
    """More than there is room for at a time, and several in each launch."""
    x, y = x0(), np.zeros(N)
    with kg.record() as tape:
        for _ in range(700):
            k.in_struct(y, (2.0, 1.0), {"gain": 3.0, "x": x, "k": 1}, N)
            k.affine(y, y, 1.0, 0.0, N)
            k.add_to(x, y, N)
            k.scale(x, x, 0.1, N)
    tape.backward(x, np.ones(N))
    total, at, adjoint = np.zeros(4), x0(), []
    for _ in range(700):
        adjoint.append(at)
        at = 0.1 * (at + 6 * at + 1)
    seed = np.ones(N)
    for at in reversed(adjoint):
        made, seed = 6 * at + 1, 0.1 * seed
        total += [(seed * made).sum(), seed.sum(), (seed * 3 * at).sum(), (seed * 2 * at).sum()]
        seed = 7 * seed
    names = ("affine.a", "affine.b", "in_struct.s.a", "in_struct.p.gain")
    np.testing.assert_allclose([tape.grad(name) for name in names], total, rtol=1e-10)


def test_a_number_that_a_kernel_wrote(k: Any) -> None:
    x, y, s = x0(), np.zeros(N), np.array(0.0)
    with kg.record() as tape:
        k.total(s, x, N)
        k.scale(y, x, s, N)
    tape.backward(y, np.ones(N))
    np.testing.assert_allclose(tape.grad(x), (x0() ** 2).sum() + 2 * x0() * x0().sum())


def test_memory_the_tape_does_not_know(k: Any) -> None:
    x, y = x0(), np.zeros(N)
    with kg.record() as tape:
        k.square(y, x, N)
    with pytest.raises(kg.ArgumentError, match="no recorded step uses the memory"):
        tape.backward(np.zeros(N), np.ones(N))
    tape.backward(y, np.ones(N))
    with pytest.raises(kg.ArgumentError, match="no recorded step uses the memory"):
        tape.grad(np.zeros(N))


def test_memory_that_was_overwritten_first_warns(k: Any) -> None:
    x, y = x0(), np.zeros(N)
    with kg.record() as tape:
        k.square(y, x, N)
    tape.backward(y, np.ones(N))
    with pytest.warns(UserWarning, match="written before any recorded step read it"):
        assert not tape.grad(y).any()


def test_points_in_between(k: Any) -> None:
    x = x0()
    with kg.record() as tape:
        k.sine(x, N)
        point = tape.watch(x)
        k.sine(x, N)
    tape.backward(x, np.ones(N))
    np.testing.assert_allclose(tape.grad(point), np.cos(np.sin(x0())))
    np.testing.assert_allclose(tape.grad(x), np.cos(np.sin(x0())) * np.cos(x0()))


def test_module_variables_carry_adjoints(k: Any) -> None:
    x, y = x0(), np.zeros(N)
    variable, weights = k.module_.variable("state"), k.module_.constant("weights")
    variable[...] = [1, 2, 3, 4]
    with kg.record() as tape:
        k.remember(x, N)
        k.remember(x, N)
        k.recall(y, N)
    np.testing.assert_allclose(variable[...], [1, 2, 3, 4] * x0()[:4] ** 2)
    tape.backward(y, np.ones(N))
    w = np.array([1, 0.5, 0.25])[np.arange(N) % 3].reshape(2, 4).sum(0)
    np.testing.assert_allclose(tape.grad(x)[:4], 2 * x0()[:4] * [1, 2, 3, 4] * w)
    np.testing.assert_allclose(tape.grad(variable), x0()[:4] ** 2 * w)
    expected = [variable[...][np.arange(N) % 4][np.arange(N) % 3 == j].sum() for j in range(3)]
    np.testing.assert_allclose(tape.grad(weights), expected)


def test_copies_fills_and_zeros(k: Any) -> None:
    x = x0()
    with kg.record() as tape:
        y = kg.zeros(N, np.float64)
        k.add_to(y, x, N)
        z = kg.zeros(N, np.float64, like=x)
        kg.copy(z, y)
        k.sine(z, N)
        k.add_to(y, z, N)
        kg.fill(y[:2], 7.0)
    tape.backward(y, np.ones(N))
    inside = np.concatenate([[0, 0], np.ones(N - 2)])
    np.testing.assert_allclose(tape.grad(x), inside * (1 + np.cos(x0())))
    np.testing.assert_allclose(tape.grad(y), tape.grad(x))
    assert (y[:2] == 7).all() and not kg.zeros((2, 3), np.int32).any()


def test_copies_outside_a_recording() -> None:
    y = np.zeros(4)
    kg.copy(y, np.arange(4.0))
    kg.fill(y[:2], 5)
    np.testing.assert_array_equal(y, [5, 5, 2, 3])
    with pytest.raises(kg.ArgumentError, match="the target is float64 of shape"):
        kg.copy(y, np.zeros(3))
    with pytest.raises(kg.ArgumentError, match="share memory"):
        kg.copy(y[1:], y[:3])


# ---- seeds


def test_seeds(k: Any) -> None:
    x, y, s = x0(), np.zeros(N), np.zeros(1)
    with kg.record() as tape:
        k.square(y, x, N)
        k.total(s, x, N)
    tape.backward([(y, np.ones(N)), (s, np.full(1, 3.0))], keep=True)
    np.testing.assert_allclose(tape.grad(x), 8 * x0())
    tape.backward(s, keep=True)
    np.testing.assert_allclose(tape.grad(x), 2 * x0())
    with pytest.raises(kg.ArgumentError, match="needs a seed"):
        tape.backward(y)


@pytest.mark.parametrize("seed", [np.ones(N - 1), np.ones(N, np.float32), "no"], ids=str)
def test_wrong_seeds(k: Any, seed: Any) -> None:
    x, y = x0(), np.zeros(N)
    with kg.record() as tape:
        k.square(y, x, N)
    with pytest.raises(kg.ArgumentError, match="seed"):
        tape.backward(y, seed, keep=True)


def test_reversed_once_unless_kept(k: Any) -> None:
    x = x0()
    with kg.record() as tape:
        k.sine(x, N)
    tape.backward(x, np.ones(N), keep=True)
    first = tape.grad(x)
    tape.backward(x, np.ones(N))
    np.testing.assert_array_equal(tape.grad(x), first)
    assert tape.nbytes == 0
    with pytest.raises(kg.TapeError, match="reversed already"):
        tape.backward(x, np.ones(N))


@pytest.mark.parametrize("at", ["0-d", "view"])
def test_a_number_is_watched(at: str) -> None:
    """Its adjoint at a point is what the launches after it give."""
    wave = kg.compile("""__global__ void wave(double *y, const double *x, double a, int n) {
        int i = threadIdx.x;
        if (i < n) y[i] = sin(a * x[i]);
    }""")["wave"]
    x, y, z, numbers = np.linspace(0.1, 1, 6), np.zeros(6), np.zeros(6), np.array([0.3, 0.7])
    a = np.array(0.7) if at == "0-d" else numbers[1:].reshape(())
    with kg.record() as tape:
        first = tape.watch(a)
        wave[1, 8](y, x, a, 6)
        point = tape.watch(a if at == "0-d" else numbers)
        wave[1, 8](z, y, a, 6)
    for keep in (True, False):
        tape.backward(z, np.ones(6), keep=keep)
        np.testing.assert_allclose(np.atleast_1d(tape.grad(point))[-1], (np.cos(0.7 * y) * y).sum(), rtol=1e-12)
        np.testing.assert_allclose(tape.grad(first), tape.grad(a), rtol=1e-12)


# ---- variables whose memory is passed, too


def test_an_argument_in_the_memory_of_a_variable() -> None:
    module = kg.compile("""__device__ double held[6];
    __global__ void put(double *p, const double *x) { p[threadIdx.x] = x[threadIdx.x]; }
    __global__ void k(double *z, double *x) {
        int i = threadIdx.x; double t = x[i]; held[i] = t * t; z[i] = x[i] * x[i] * t; }
    void program(double *z, const double *x) {
        double *p; cudaGetSymbolAddress((void **)&p, held); put<<<1, 6>>>(p, x); k<<<1, 6>>>(z, p); }""")
    x, z, d_x = np.linspace(0.5, 1, 6), np.zeros(6), np.zeros(6)
    with kg.record() as tape:
        there = module.variable("held")[...]
        module["put"][1, 6](there, x)
        module["k"][1, 6](z, there)
    tape.backward(z, np.ones(6))
    np.testing.assert_allclose(tape.grad(x), 5 * x**4, rtol=1e-13)
    kg.gradient(module["program"], "z, x").execute(np.zeros(6), x, np.ones(6), d_x)
    np.testing.assert_allclose(d_x, 5 * x**4, rtol=1e-13)
