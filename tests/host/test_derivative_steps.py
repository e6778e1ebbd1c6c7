"""Gradients and tangents that are launched inside a recording: reversed by their second derivatives, against finite
differences."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

import kernelgrad as kg

N, LAUNCH = 10, (2, 8)

SOURCE = r"""
#include <cuda_fp16.h>
#define I int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return
__global__ void f(double *y, const double *x, double a, int n) { I; y[i] = a * x[i] * x[i] * x[(i + 1) % n]; }
__global__ void in_place(double *y, double *x, int n) { I; x[i] = sin(x[i]) * x[i]; y[i] += x[i] * x[i]; }
__global__ void mul(double *y, const double *x, const double *z, int n) { I; y[i] = x[i] * z[i] * z[i]; }
__global__ void square(double *y, const double *x, int n) { I; y[i] = x[i] * x[i]; }
__global__ void update(double *x, const double *g, double rate, int n) { I; x[i] -= rate * g[i]; }
struct Pointers { double *y; const double *x; int n; };
__global__ void members(Pointers p) { int n = p.n; I; p.y[i] = p.x[i] * p.x[i] * p.x[i]; }
__global__ void largest(double *m, const double *x, int n) { I;
    atomicMax((unsigned long long *)m, (unsigned long long)__double_as_longlong(x[i])); }
__global__ void slots(double *y, const double *x, int *used, int n) { I; y[atomicAdd(used, 1)] = x[i] * x[i]; }
__device__ double factor;
__global__ void scaled(double *y, const double *x, int n) { I; y[i] = factor * x[i] * x[i]; }
__global__ void halves(__half *y, const __half *x, int n) { I; y[i] = x[i] * x[i]; }
__global__ void halo(double *y, const double *x, int n) { I; y[i] = x[i - 1] * x[i + 1]; }
"""


@pytest.fixture(autouse=True)
def quiet() -> Any:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "grad: this memory was written before")
        yield


@cache
def module() -> kg.Module:
    return kg.compile(SOURCE)


def arrays(count: int) -> list[Any]:
    rng = np.random.default_rng(count)
    return [rng.uniform(0.3, 1.0, N) for _ in range(count)]


def check(program: Callable[..., None], count: int, budget: int | None = None, size: int = N) -> kg.Tape:
    """Adjoints of all that goes in, from all that comes out, reversed twice; buffers are as they were."""
    rng, h = np.random.default_rng(7), 1e-6
    before = [rng.uniform(0.3, 1.0, size) for _ in range(count)]
    direction, weights = ([rng.uniform(-1, 1, size) for _ in range(count)] for _ in range(2))

    def at(step: float) -> float:
        given = [b + step * d for b, d in zip(before, direction, strict=True)]
        program(*given)
        return float(sum(w @ g for w, g in zip(weights, given, strict=True)))

    given = [b.copy() for b in before]
    with kg.record(tape_budget=budget) as tape:
        program(*given)
    after = [g.copy() for g in given]
    for keep in (True, False):
        tape.backward(list(zip(given, weights, strict=True)), keep=keep)
        found = sum(float(tape.grad(g) @ d) for g, d in zip(given, direction, strict=True))
        np.testing.assert_allclose(found, (at(h) - at(-h)) / (2 * h), rtol=1e-6, atol=1e-7)
        assert all((g == a).all() for g, a in zip(given, after, strict=True))
    return tape


@pytest.mark.parametrize("budget", [None, 8 * 8 * N])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"primal": False},
        {"keep": "y"},
        {"assign": "x"},
        {"primal": False, "keep": "y", "assign": "x"},
        {"tape_budget": 1 << 16},
        {"may_alias": True},
    ],
    ids=str,
)
def test_gradients_with_options(options: Any, budget: int | None) -> None:
    g = kg.gradient(module()["f"], "y, x", **options)

    def program(y: Any, x: Any, d_y: Any, d_x: Any) -> None:
        g[LAUNCH](y, x, 1.3, N, d_y, d_x)
        module()["square"][LAUNCH](d_y, d_x, N)
        g[LAUNCH](y, x, 0.7, N, d_y, d_x)

    check(program, 4, budget)


@pytest.mark.parametrize("budget", [None, 8 * 8 * N])
def test_steps_down_a_gradient(budget: int | None) -> None:
    """What meta-learning does: the derivative of a loop that follows a gradient."""
    g = kg.gradient(module()["f"], "y, x", primal=False, keep="y", assign="x")

    def program(x: Any, d_x: Any, d_y: Any, y: Any) -> None:
        for _ in range(4):
            g[LAUNCH](y, x, 0.9, N, d_y, d_x)
            module()["update"][LAUNCH](x, d_x, 0.05, N)

    tape = check(program, 4, budget)
    assert "gradient of f is reversed by its second derivative: 4 x" in tape.explain()


@pytest.mark.parametrize("budget", [None, 8 * 8 * N])
@pytest.mark.parametrize("derive", [kg.gradient, kg.jvp])
def test_in_place(derive: Any, budget: int | None) -> None:
    made = derive(module()["in_place"])

    def program(y: Any, x: Any, more_y: Any, more_x: Any) -> None:
        for _ in range(3):
            made[LAUNCH](y, x, N, more_y, more_x)
            module()["square"][LAUNCH](y, more_x, N)

    check(program, 4, budget)


@pytest.mark.parametrize("budget", [None, 8 * 8 * N])
def test_tangents_of_numbers_that_are_overwritten(budget: int | None) -> None:
    """The reverse of a jvp reads them: derivatives by x are products with them."""
    made = kg.jvp(module()["f"], "y, x, a")

    def program(y: Any, x: Any, t_y: Any, t_x: Any, t_a: Any) -> None:
        for k in range(3):
            made[LAUNCH](y, x, 0.9, N, t_y, t_x, t_a[k : k + 1])
            module()["square"][LAUNCH](t_a, y, N)

    check(program, 5, budget)


@pytest.mark.parametrize("derive", [kg.gradient, kg.jvp])
def test_one_array_twice_and_what_is_not_given(derive: Any) -> None:
    made, d = derive(module()["mul"]), "d" if derive is kg.gradient else "t"

    def program(y: Any, x: Any, more_y: Any, more_x: Any) -> None:
        made[LAUNCH](y, x, x, N, **{f"{d}_y": more_y, f"{d}_x": more_x})
        module()["square"][LAUNCH](x, more_y, N)
        made[LAUNCH](y, x, x, N, **{f"{d}_y": more_y, f"{d}_z": more_x})

    check(program, 4)


def test_parts_of_one_allocation() -> None:
    g = kg.gradient(module()["mul"])

    def program(b: Any) -> None:
        y, x, z, d_y, d_x, d_z = (b[k * N : (k + 1) * N] for k in range(6))
        g[LAUNCH](y, x, z, N, d_y, d_x, d_z)
        module()["square"][LAUNCH](y, d_z, N)

    check(program, 1, 20 * 8 * N, size=6 * N)


def test_structs_of_pointers() -> None:
    g = kg.gradient(module()["members"])

    def program(y: Any, x: Any, d_y: Any, d_x: Any) -> None:
        g[LAUNCH]({"y": y, "x": x, "n": N}, {"y": d_y, "x": d_x})
        module()["square"][LAUNCH](y, d_x, N)

    check(program, 4)


def test_numbers_and_programs() -> None:
    """A number's adjoint from a gradient's launch: by array, by name, and as an input of a program."""
    g, h = kg.gradient(module()["f"], "y, x, a"), 1e-6
    held, ones = arrays(4), np.ones(N)

    def value(a: float) -> float:
        y, x, d_y, d_x = (v.copy() for v in held)
        d_a = np.zeros(1)
        g[LAUNCH](y, x, a, N, d_y, d_x, d_a)
        return float(y.sum() + d_x.sum() + 3 * d_a[0])

    y, x, d_y, d_x = (v.copy() for v in held)
    a, d_a = np.array(0.8), np.zeros(1)
    with kg.record() as tape:
        g[LAUNCH](y, x, a, N, d_y, d_x, d_a)
    p = tape.program((y, x, a, d_y, d_x, d_a), (y, d_x, d_a))
    tape.backward([(y, ones), (d_x, ones), (d_a, np.full(1, 3.0))])
    expected = (value(0.8 + h) - value(0.8 - h)) / (2 * h)
    np.testing.assert_allclose([tape.grad(a), tape.grad("f.a")], expected, rtol=1e-6)
    given = [held[0], held[1], np.array(0.5), held[2], held[3], np.zeros(1)]
    out = p(*given)
    np.testing.assert_allclose(out[0].sum() + out[1].sum() + 3 * out[2][0], value(0.5))
    for _ in range(2):
        found = kg.gradient(p)(*given, ones, ones, np.full(1, 3.0))
        np.testing.assert_allclose(found[2], (value(0.5 + h) - value(0.5 - h)) / (2 * h), rtol=1e-6)


def test_what_cannot_be_recorded() -> None:
    y, x, d_y, d_x = arrays(4)
    m, used = module(), np.zeros(1, np.int32)
    wide = np.ones(N + 2)
    with kg.record() as tape:
        with pytest.raises(kg.UnsupportedError, match="gradient of largest cannot be recorded, since it has no second"):
            kg.gradient(m["largest"])[LAUNCH](y[:1], x, N, d_y[:1], d_x)
        with pytest.raises(kg.TapeError, match="when it runs again, it uses what an atomic returns"):
            kg.gradient(m["slots"])[LAUNCH](y, x, used, N, d_y, d_x)
        with pytest.raises(kg.TapeError, match="uses module variables"):
            kg.jvp(m["scaled"], "y, x")[LAUNCH](y, x, N, d_y, d_x)
        with pytest.raises(kg.TapeError, match="may touch more of an array than was passed"):
            kg.gradient(m["halo"])[LAUNCH](y, wide[1:-1], N, d_y, wide[1:-1].copy())
        with pytest.raises(kg.ArgumentError, match="'d_y' has 3 elements"):
            kg.gradient(m["f"], "y, x")[LAUNCH](y, x, 1.0, N, d_y[:3], d_x)
        with pytest.raises(kg.TapeError, match="a second derivative cannot be recorded"):
            kg.hvp(m["f"], "y, x")[LAUNCH](y, x, 1.0, N, d_y, d_x, x.copy())
        with pytest.raises(kg.TapeError, match="'.*' shares memory with another argument"):
            kg.gradient(m["mul"], may_alias=True)[LAUNCH](y, y, x, N, d_y, d_y, d_x)
        h, f = np.ones(N, np.float16), np.ones(N, np.float32)
        with pytest.raises(kg.TapeError, match="'d_y' is float32, 'y' float16: they must be alike"):
            kg.gradient(m["halves"])[LAUNCH](h, h.copy(), N, f, f.copy())
    assert not tape.steps


def test_half_precision() -> None:
    g = kg.gradient(module()["halves"])
    x, y, d_y, d_x = (np.full(N, v, np.float16) for v in (3, 0, 2, 0))
    with kg.record() as tape:
        g[LAUNCH](y, x, N, d_y, d_x)
    tape.backward([(y, np.ones_like(y)), (d_x, np.ones_like(y))])
    np.testing.assert_array_equal(tape.grad(x), 2 * 3 + 2 * 2)
    np.testing.assert_array_equal(tape.grad(d_y), 2 * 3)


def test_tensors_count_what_is_written() -> None:
    torch = pytest.importorskip("torch")
    g = kg.gradient(module()["f"], "y, x")
    y, x, d_y, d_x = map(torch.from_numpy, arrays(4))
    version, held, seed = d_x._version, x.clone(), d_y.clone()
    with kg.record() as tape:
        g[LAUNCH](y, x, 1.0, N, d_y, d_x)
    assert d_x._version > version
    tape.backward(d_x, torch.ones(N, dtype=torch.float64))
    after = held.roll(-1)
    expected = 2 * seed * (after + held) + (2 * held * seed).roll(1)
    np.testing.assert_allclose(tape.grad(d_y).numpy(), (2 * held * after + (held * held)).numpy())
    np.testing.assert_allclose(tape.grad(x).numpy(), expected.numpy())


@pytest.mark.parametrize("options", [{"keep": "y"}, {"keep": "y", "assign": "x"}, {}])
@pytest.mark.parametrize("budget", [None, 8 * 8 * N])
def test_outputs_that_a_reverse_does_without(options: dict[str, str], budget: int | None) -> None:
    """None for them, as in launches that nobody records; descent with steps that are reversed."""
    g = kg.gradient(module()["f"], "y, x", primal=False, **options)

    def program(x: Any, d_y: Any, d_x: Any) -> None:
        for _ in range(3):
            g[LAUNCH](None, x, 0.7, N, d_y, d_x)
            module()["update"][LAUNCH](x, d_x, 0.1, N)
            module()["square"][LAUNCH](d_y, x, N)

    tape = check(program, 3, budget)
    if budget is None:
        x, d_y, d_x = arrays(3)
        with kg.record() as tape:
            program(x, d_y, d_x)
        made = tape.program((x, d_y, d_x), (x,))
        np.testing.assert_array_equal(made(*arrays(3)), x)
