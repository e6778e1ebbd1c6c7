"""What a tape means: whose adjoint is had, what is saved, what is refused."""

from __future__ import annotations

import threading
import warnings
from typing import Any

import numpy as np
import pytest

import kernelgrad as kg

SOURCE = r"""
#define I int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return
struct Scale { double a; double b; };
struct Part { double gain; double *x; int k; };
__device__ double state[4] = {1, 2, 3, 4};
__constant__ double weights[3] = {1.0, 0.5, 0.25};
__global__ void square(double *y, const double *x, int n) { I; y[i] = x[i] * x[i]; }
__global__ void scale(double *y, const double *x, double a, int n) { I; y[i] = a * x[i]; }
__global__ void affine(double *y, const double *x, double a, double b, int n) { I; y[i] = a * x[i] + b; }
__global__ void linear(double *y, const double *x, int n) { I; y[i] = 0.5 * x[i] + 0.25 * x[(i + 1) % n]; }
__global__ void sine(double *x, int n) { I; x[i] = sin(x[i]); }
__global__ void add_to(double *y, const double *x, int n) { I; y[i] += x[i]; }
__global__ void total(double *s, const double *x, int n) { I; atomicAdd(s, x[i] * x[i]); }
__global__ void floor_of(int *k, const double *x, int n) { I; k[i] = (int)x[i]; }
__global__ void count(int *k, int n) { I; k[i] += 1; }
__global__ void copy_bits(int *y, const int *x, int n) { I; y[i] = x[i]; }
__global__ void hidden(void *y, const void *x, int n) { I; ((double *)y)[i] = 3 * ((const double *)x)[i]; }
__global__ void rows(double **y, int n) { I; y[0][i] = 1; }
__global__ void slots(double *y, const double *x, int *used, int n) { I; y[atomicAdd(used, 1)] = x[i] * x[i]; }
__global__ void loud(double *y, const double *x, int n) { I; y[i] = x[i] * x[i]; if (i == 0) printf("heard\n"); }
__global__ void ticking(double *y, const double *x, int n) { I; y[i] = clock64() >= 0 ? x[i] * x[i] : 0; }
__global__ void twice(double *u, double *y, int n) { I; u[i] = sin(u[i]); y[i] = u[i] * u[i]; u[i] = u[i] * y[i]; }
__global__ void in_struct(double *y, Scale s, Part p, int n) { I; y[i] = s.a * p.gain * p.x[i] + s.b; }
__global__ void remember(const double *x, int n) { I; if (i < 4) state[i] = x[i] * state[i]; }
__global__ void recall(double *y, int n) { I; y[i] = state[i % 4] * weights[i % 3]; }
__global__ void failing(double *x, int n) { I; assert(x[i] < 100.0); x[i] = 2 * x[i]; }
__global__ void singles(float *y, const float *x, float a, int n) { I; y[i] = a * x[i] * x[i]; }
__global__ void as_float(float *y, int n) { I; y[i] = 2 * y[i]; }
namespace other { template <typename T, int K> __global__ void power(T *y, T a, int n) { I; y[i] = y[i] * a * K; } }
"""
N = 8


@pytest.fixture(scope="module")
def k() -> Any:
    module = kg.compile(SOURCE)

    class Launches:
        module_ = module

        def __getattr__(self, name: str) -> Any:
            return module[name][2, 4]

    return Launches()


def x0() -> Any:
    return np.linspace(0.2, 1.6, N)


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
    with pytest.raises(kg.ArgumentError, match="ambiguous"):
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


# ---- kernels that are not run again


@pytest.mark.parametrize("name", ["slots", "loud", "ticking"])
@pytest.mark.parametrize("budget", [None, 40 * 8 * N])
def test_what_varies_keeps_a_tape_of_its_own(k: Any, capfd: Any, name: str, budget: Any) -> None:
    x, y, used = x0(), np.zeros(N), np.zeros(1, np.int32)
    with kg.record(tape_budget=budget) as tape:
        if name == "slots":
            k.slots(y, x, used, N)
        else:
            getattr(k, name)(y, x, N)
        for _ in range(40):
            k.sine(y, N)
            k.scale(x, y, 0.5, N)
    assert "keeps what its reverse needs on a tape of its own" in tape.explain()
    for _ in range(2):
        tape.backward(y, np.ones(N), keep=True)
        expected, at = np.ones(N), x0() ** 2
        for _ in range(40):
            expected, at = expected * np.cos(at), np.sin(at)
        np.testing.assert_allclose(tape.grad(x), 2 * x0() * expected)
    assert capfd.readouterr().out.count("heard") == (name == "loud")


def test_what_was_made_on_the_way_is_made_again(k: Any) -> None:
    x, y = x0(), np.zeros(N)
    with kg.record() as tape:
        k.twice(x, y, N)
        k.twice(x, y, N)
    held = x.copy(), y.copy()
    assert "run again with its reverse" in tape.explain()
    tape.backward([(x, np.ones(N)), (y, np.ones(N))])
    s = np.sin(x0())
    t = np.sin(s**3)
    np.testing.assert_allclose(tape.grad(x), (3 * t**2 + 2 * t) * np.cos(s**3) * 3 * s**2 * np.cos(x0()))
    np.testing.assert_array_equal(x, held[0])
    np.testing.assert_array_equal(y, held[1])


# ---- what is refused


def test_integers_have_no_derivative(k: Any) -> None:
    x, y, whole = x0(), np.zeros(N), np.zeros(N, np.int32)
    with kg.record() as tape:
        k.floor_of(whole, x, N)
        k.count(whole, N)
        k.square(y, x, N)
    tape.backward(y, np.ones(N))
    np.testing.assert_allclose(tape.grad(x), 2 * x0())
    with pytest.raises(kg.ArgumentError, match="int32 has no adjoint"):
        tape.grad(whole)


def test_floats_copied_as_integers_are_refused(k: Any) -> None:
    x, y, z = x0(), np.zeros(N), np.zeros(N)
    with kg.record() as tape:
        k.module_["copy_bits"][2, 8](y.view(np.int32), x.view(np.int32), 2 * N)
        k.square(z, y, N)
    with pytest.raises(kg.TapeError, match="copy_bits: 'y' is no buffer of floating-point numbers"):
        tape.backward(z, np.ones(N))


def test_floats_behind_other_pointers_are_refused(k: Any) -> None:
    x, y = x0(), np.zeros(N)
    with kg.record() as tape:
        k.hidden(y, x, N)
    np.testing.assert_allclose(y, 3 * x0())
    with pytest.raises(kg.UnsupportedError, match="behind a pointer to something else"):
        tape.backward(y, np.ones(N))


def test_writes_through_pointers_in_memory_are_refused(k: Any) -> None:
    y = np.zeros(N)
    with kg.record(), pytest.raises(kg.UnsupportedError, match="through a pointer that lies in memory"):
        k.rows(np.array([y.ctypes.data], np.uint64), N)


def test_memory_of_two_kinds(k: Any) -> None:
    """An adjoint of doubles is none of floats."""
    x, y = x0(), np.zeros(N)
    with kg.record() as tape:
        k.module_["as_float"][2, 8](y.view(np.float32), 2 * N)
        k.add_to(y, x, N)
    with pytest.raises(kg.TapeError, match="is used as float64 and as float32"):
        tape.backward(y, np.ones(N))
    with kg.record() as tape:
        k.module_["as_float"][2, 8](y.view(np.float32), 2 * N)
        k.square(y, x, N)
    tape.backward(y, np.ones(N))  # the doubles replace all of it
    np.testing.assert_allclose(tape.grad(x), 2 * x0())


def test_nesting_and_gradients_inside_are_errors(k: Any) -> None:
    x, y = x0(), np.zeros(N)
    g = kg.gradient(k.module_["square"], "y, x")
    with kg.record() as tape:
        with pytest.raises(kg.TapeError, match="inside"), kg.record():
            pass
        with pytest.raises(kg.TapeError, match="second order"):
            g[2, 4](y, x, N, np.ones(N), np.zeros(N))
        with pytest.raises(kg.TapeError, match="still going on"):
            tape.backward(y, np.ones(N))
        k.square(y, x, N)
    with pytest.raises(kg.TapeError, match="call tape.backward"):
        tape.grad(x)
    with pytest.raises(kg.TapeError, match="a tape records once"), tape:
        pass


# ---- edges


def test_an_exception_closes_the_tape(k: Any) -> None:
    x = x0()
    with pytest.raises(ZeroDivisionError), kg.record() as tape:
        k.sine(x, N)
        raise ZeroDivisionError
    assert tape.nbytes == 0
    with pytest.raises(kg.TapeError, match="ended with ZeroDivisionError"):
        tape.backward(x, np.ones(N))
    with kg.record():
        k.sine(x, N)  # and the next one works


def test_a_launch_that_fails_closes_the_tape(k: Any) -> None:
    x = np.full(N, 200.0)
    with kg.record() as tape:
        with pytest.raises(kg.ArgumentError):
            k.sine(x)  # nothing was launched
        k.sine(np.ones(N), N)
        with pytest.raises(kg.KernelError):
            k.failing(x, N)
        with pytest.raises(kg.TapeError, match="failing failed"):
            k.sine(x, N)
    with pytest.raises(kg.TapeError, match="failing failed"):
        tape.backward(x, np.ones(N))


def test_buffers_are_as_they_were_when_the_reverse_fails(k: Any) -> None:
    x, y, z = x0(), np.zeros(N), np.zeros(N)
    with kg.record() as tape:
        k.hidden(y, x, N)
        k.square(z, y, N)
        k.sine(y, N)
        k.add_to(z, y, N)
    held = x.copy(), y.copy(), z.copy()
    with pytest.raises(kg.UnsupportedError):
        tape.backward(z, np.ones(N))
    for array, before in zip((x, y, z), held, strict=True):
        np.testing.assert_array_equal(array, before)


def test_other_threads_are_not_recorded(k: Any) -> None:
    x, other = x0(), x0()
    started, finished = threading.Event(), threading.Event()

    def launch() -> None:
        started.set()
        for _ in range(20):
            k.sine(other, N)
        finished.set()

    thread = threading.Thread(target=launch)
    with kg.record() as tape:
        thread.start()
        started.wait()
        for _ in range(20):
            k.sine(x, N)
        finished.wait()
    thread.join()
    assert len(tape.steps) == 20
    tape.backward(x, np.ones(N))
    expected, at = np.ones(N), x0()
    for _ in range(20):
        expected, at = expected * np.cos(at), np.sin(at)
    np.testing.assert_allclose(tape.grad(x), expected)
    np.testing.assert_allclose(other, at)


def test_unseen_writes_are_found(k: Any) -> None:
    x, y = x0(), np.zeros(N)
    with kg.record() as tape:
        k.linear(y, x, N)
        y *= 2
        with pytest.raises(kg.TapeError, match="linear: the memory of 'x' was changed since the last recorded step"):
            k.linear(x, y, N)
    with kg.record() as tape:
        k.square(y, x, N)
    x += 1
    with pytest.raises(kg.TapeError, match="square: the memory of 'x' was changed after the recorded launch"):
        tape.backward(y, np.ones(N))
    with kg.record(check=False):
        k.square(y, x, N)
        y += 1
        k.square(x, y, N)


def test_a_variable_that_was_assigned_to(k: Any) -> None:
    y, weights = np.zeros(N), k.module_.constant("weights")
    with kg.record() as tape:
        k.recall(y, N)
    weights[...] = [1.0, 0.5, 0.25]
    with pytest.raises(kg.TapeError, match="variable 'weights' was assigned to"):
        tape.backward(y, np.ones(N))


def test_owners_are_kept_alive(k: Any) -> None:
    x = x0()
    with kg.record() as tape:
        u = x
        for _ in range(20):
            v = np.zeros(N)
            k.square(v, u, N)
            k.sine(v, N)
            u = v
            del v
    tape.backward(u, np.ones(N))
    assert np.isfinite(tape.grad(x)).all() and tape.grad(x).shape == (N,)


def test_empty_arrays(k: Any) -> None:
    x, y, nothing = x0(), np.zeros(N), np.zeros(0)
    with kg.record() as tape:
        k.square(nothing, nothing, 0)
        kg.copy(nothing, np.zeros(0))
        kg.fill(nothing, 1.0)
        k.square(y, x, N)
    tape.backward(y, np.ones(N))
    np.testing.assert_allclose(tape.grad(x), 2 * x0())
    assert tape.grad(nothing).shape == (0,)


def test_a_seed_may_be_the_output(k: Any) -> None:
    x = x0()
    with kg.record() as tape:
        k.sine(x, N)
    tape.backward(x, x)
    np.testing.assert_allclose(tape.grad(x), np.sin(x0()) * np.cos(x0()))


def test_structured_arrays() -> None:
    source = """struct Body { float x, y; int kind; };
    __global__ void move(Body *b, float dt, int n) {
        int i = threadIdx.x;
        if (i < n && b[i].kind == 1) b[i].x += dt * b[i].y * b[i].x;
    }
    __global__ void spin(float4 *q, int n) { int i = threadIdx.x; if (i < n) q[i].w = q[i].x * q[i].w; }"""
    module = kg.compile(source)
    bodies = np.zeros(4, [("x", "f4"), ("y", "f4"), ("kind", "i4")])
    bodies["x"], bodies["y"], bodies["kind"] = 2.0, 3.0, [1, 0, 1, 1]
    quads, seed = np.full((4, 4), 2.0, np.float32), np.zeros_like(bodies)
    seed["x"] = 1
    with kg.record() as tape:
        for _ in range(2):
            module["move"][1, 4](bodies, 0.5, 4)
            module["spin"][1, 4](quads, 4)
    tape.backward([(bodies, seed), (quads, np.ones((4, 4), np.float32))])
    moved = bodies["kind"] == 1
    np.testing.assert_allclose(tape.grad(bodies)["x"], np.where(moved, 2.5**2, 1))
    np.testing.assert_allclose(tape.grad(bodies)["y"], np.where(moved, 2 * 0.5 * 2.0 * 2.5, 0))
    np.testing.assert_allclose(tape.grad(quads), [[1 + 2 * 2 * 2.0, 1, 1, 4]] * 4)


def test_arrays_of_pointers() -> None:
    source = """struct Rows { double *row[2]; double gain; };
    __global__ void sum(double *y, Rows r, int n) {
        int i = threadIdx.x;
        if (i < n) y[i] = r.gain * r.row[0][i] * r.row[1][i];
    }"""
    a, b, y = x0(), x0() + 1, np.zeros(N)
    with kg.record() as tape:
        kg.compile(source)["sum"][1, 8](y, {"row": [a, b], "gain": 2.0}, N)
    tape.backward(y, np.ones(N))
    np.testing.assert_allclose(tape.grad(a), 2 * (x0() + 1))
    np.testing.assert_allclose(tape.grad(b), 2 * x0())
    assert tape.grad("sum.r.gain") == pytest.approx((x0() * (x0() + 1)).sum())


def test_derivatives_in_the_source_are_refused() -> None:
    source = """__device__ double f(double x) { return x * x; }
    namespace clad { namespace custom_derivatives {
    __device__ void f_pullback(double x, double d, double *dx) { *dx += 10 * d; }
    } }
    __global__ void apply(double *y, const double *x) { y[0] = f(x[0]); }"""
    x, y = np.full(1, 3.0), np.zeros(1)
    with kg.record() as tape:
        kg.compile(source)["apply"][1, 1](y, x)
    assert y[0] == 9
    with pytest.raises(kg.UnsupportedError, match="a derivative of its own"):
        tape.backward(y)


def test_budgets(k: Any) -> None:
    with pytest.raises(kg.ArgumentError, match="tape_budget"):
        kg.record(tape_budget="much")
    x = x0()
    with pytest.raises(kg.TapeError, match="too few"), kg.record(tape_budget=8 * N):
        k.sine(x, N)
    with kg.record(tape_budget="1.5 MiB") as tape:
        k.sine(x, N)
    assert tape.store.budget == 3 << 19


def test_single_precision_sums_numbers_in_double(k: Any) -> None:
    x, y = np.ones(N, np.float32), np.zeros(N, np.float32)
    with kg.record() as tape:
        for _ in range(2000):
            k.singles(y, x, 1.0, N)
            k.singles(x, y, 1.0, N)
    tape.backward(x, np.full(N, 0.0, np.float32), keep=True)
    assert tape.grad("singles.a") == 0


def test_tensors(k: Any) -> None:
    torch = pytest.importorskip("torch")
    x, y = torch.linspace(0.2, 1.6, N, dtype=torch.float64), torch.zeros(N, dtype=torch.float64)
    start = x.clone()
    with kg.record() as tape:
        k.square(y, x, N)
        k.sine(y, N)
        kg.copy(x, y)
    version = x._version
    tape.backward(x, torch.ones(N, dtype=torch.float64))
    assert isinstance(tape.grad(x), torch.Tensor) and x._version == version
    torch.testing.assert_close(tape.grad(x), torch.cos(start**2) * 2 * start)


def test_half_precision() -> None:
    torch = pytest.importorskip("torch")
    for name, type, dtype in (("__nv_bfloat16", "bf16", torch.bfloat16), ("__half", "fp16", torch.float16)):
        text = f"#include <cuda_{type}.h>\n__global__ void square({name} *y, const {name} *x, int n)"
        square = kg.compile(text + " { int i = threadIdx.x; if (i < n) y[i] = x[i] * x[i]; }")["square"][1, 8]
        x, y = torch.full((N,), 1.5, dtype=dtype), torch.zeros(N, dtype=dtype)
        with kg.record() as tape:
            square(y, x, N)
            square(x, y, N)
        tape.backward([(x, torch.ones_like(x)), (x, torch.ones_like(x))])
        assert (tape.grad(x) == 2 * 4 * 1.5**3).all()


def test_unseen_writes_to_large_tensors(k: Any) -> None:
    torch = pytest.importorskip("torch")
    n = 1 << 18
    x, y = torch.ones(n, dtype=torch.float64), torch.zeros(n, dtype=torch.float64)
    launch = k.module_["square"][n // 256, 256]
    with kg.record():
        launch(y, x, n)
        y.mul_(2)
        with pytest.raises(kg.TapeError, match="was changed"):
            launch(x, y, n)


def test_no_warning_of_ours_in_a_plain_program(k: Any) -> None:
    x = x0()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with kg.record() as tape:
            k.sine(x, N)
        tape.backward(x, np.ones(N))
        tape.grad(x)
