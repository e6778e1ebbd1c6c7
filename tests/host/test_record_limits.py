"""What a tape refuses, and what it survives: what varies, exceptions, threads, odd arrays."""

from __future__ import annotations

import re
import sys
import threading
import warnings
from contextvars import copy_context
from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from recording_cases import Launches, N, x0


@pytest.fixture(scope="module")
def k() -> Any:
    return Launches()


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

    def total(at: Any) -> Any:
        for _ in range(2):
            made = np.sin(at)
            last = made * made[np.arange(N) ^ 1]
            at = made * last
        return at.sum() + last.sum()

    expected = [total(x0() + 1e-30j * row).imag / 1e-30 for row in np.eye(N)]
    np.testing.assert_allclose(tape.grad(x), expected)
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
    g = kg.gradient(k.module_["square"], "y, x", deterministic=True)
    with kg.record() as tape:
        with pytest.raises(kg.TapeError, match="inside"), kg.record():
            pass
        with pytest.raises(kg.UnsupportedError, match="square cannot be recorded, since it has no second order here"):
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


def test_threads_that_share_the_context_record_one_step_at_a_time(k: Any) -> None:
    arrays, interval = [x0() for _ in range(6)], sys.getswitchinterval()

    def work(x: Any) -> None:
        for _ in range(15):
            k.sine(x, N)

    sys.setswitchinterval(1e-6)
    try:
        with kg.record(tape_budget=1 << 14) as tape:
            threads = [threading.Thread(target=copy_context().run, args=(work, x)) for x in arrays]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert len(tape.steps) == 6 * 15
    tape.backward([(x, np.ones(N)) for x in arrays])
    expected, at = np.ones(N), x0()
    for _ in range(15):
        expected, at = expected * np.cos(at), np.sin(at)
    for x in arrays:
        np.testing.assert_allclose(tape.grad(x), expected)


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
    start = bodies.copy()
    start["x"] = 2.0
    p = tape.program((bodies, quads), (bodies,))
    assert (p(start, quads) == bodies).all()
    tape.backward([(bodies, seed), (quads, np.ones((4, 4), np.float32))])
    found, _ = kg.gradient(p)(start, quads, seed)
    assert (found == tape.grad(bodies)).all()
    moved = bodies["kind"] == 1
    np.testing.assert_allclose(tape.grad(bodies)["x"], np.where(moved, 2.5**2, 1))
    np.testing.assert_allclose(tape.grad(bodies)["y"], np.where(moved, 2 * 0.5 * 2.0 * 2.5, 0))
    np.testing.assert_allclose(tape.grad(quads), [[1 + 2 * 2 * 2.0, 1, 1, 4]] * 4)


def test_arrays_that_a_kernel_does_not_use(k: Any) -> None:
    """Their adjoints stay as they are, wherever they lie."""
    unused = kg.compile(
        "__global__ void f(double *y, const double *x, const double *z) { y[threadIdx.x] = 2 * x[threadIdx.x]; }"
    )["f"]
    arrays = [np.ones(N) for _ in range(8)]
    for z in arrays:
        x, y = x0(), np.zeros(N)
        with kg.record() as tape:
            unused[1, N](y, x, z)
        tape.backward([(y, np.ones(N)), (z, np.full(N, 3.0))])
        np.testing.assert_array_equal(tape.grad(x), 2)
        np.testing.assert_array_equal(tape.grad(z), 3)


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


def test_derivatives_in_the_source_that_are_refused() -> None:
    source = """__device__ double f(double x) { return x * x; }
    void *__enzyme_inactivefn[] = {(void *)f};
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


@pytest.mark.parametrize("name", ["plain", "slots"])
def test_the_budget_that_a_refusal_names_is_enough(k: Any, name: str) -> None:
    """It is known when the recording ends: later steps write more."""

    def program(x: Any, y: Any, used: Any) -> None:
        for _ in range(6):
            k.square(y, x, N)
            other = np.zeros(N)
            k.square(other, y, N)
            if name == "slots":
                k.slots(y, other, used, N)
                used[:] = 0
            k.scale(x, other, 0.3, N)

    def recorded(budget: Any) -> Any:
        x, y, used = x0(), np.zeros(N), np.zeros(1, np.int32)
        with kg.record(tape_budget=budget, check=False) as tape:
            program(x, y, used)
        tape.backward(x, np.ones(N))
        return tape.grad(x)

    with pytest.raises(kg.TapeError, match="16 bytes are too few for this program: it takes [0-9,]+") as error:
        recorded(16)
    enough = int(re.search("it takes ([0-9,]+)", str(error.value))[1].replace(",", ""))  # type: ignore[index]
    np.testing.assert_allclose(recorded(enough), recorded(None), rtol=1e-12)


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
