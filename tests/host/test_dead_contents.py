"""Checkpoints keep what is read before it is overwritten, and nothing else: Note [Dead contents]."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg

SOURCE = r"""
#define I int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return
__global__ void all(double *v, const double *u, int n) { I; v[i] = 0.9 * u[i] + 0.1 * u[i] * u[(i + 1) % n]; }
__global__ void inside(double *v, const double *u, int n) {
    I; if (i > 0 && i < n - 1) v[i] = 0.9 * u[i] + 0.1 * u[i - 1] * u[i + 1]; }
__global__ void odd(double *v, const double *u, int n) { I; v[i | 1] = 0.9 * u[i | 1] + 0.1 * u[i | 1] * u[i & ~1]; }
__global__ void unless(double *v, const double *u, const double *w, int n) { I; if (u != w) v[i] = 0.9 * u[i] * u[i]; }
__global__ void aligned(double *v, const double *u, const double *w, int n) {
    I; if ((unsigned long long)w / 8 % 2) v[i] = 0.9 * u[i] * u[i]; }
__global__ void apart(double *v, const double *u, const double *w, int n) { I; if (u - w) v[i] = 0.9 * u[i] * u[i]; }
__global__ void use(double *u, const double *v, int n) { I; u[i] = sin(u[i]) + v[i] * v[i]; }
__global__ void scale(double *u, const double *v, const int *k, int n) { I; u[i] = v[i] + 0.1 * k[i] * v[i] * v[i]; }
__global__ void next(int *b, const int *a, int n) { I; b[i] = (5 * a[i] + 3) % 7; }
__global__ void looked_up(int *k, const int *const *table, int n) { I; k[i] = table[0][i]; }
__global__ void by_table(double *u, const int *const *table, int n) { I; u[i] = u[i] * u[i] * table[0][i]; }
__global__ void in_place(double *u, const int *where, int n) { I; if (where[i]) u[i] *= 1 - 0.1 * u[i]; }
"""
N, STEPS = 32, 40


@pytest.fixture(scope="module")
def k() -> Any:
    return kg.compile(SOURCE)


def program(k: Any, name: str, u: Any, v: Any) -> Any:
    """A loop over two buffers. `mixed`: kernels that store to other elements take turns."""
    where = np.arange(N, dtype=np.int32) % 3
    for step in range(STEPS):
        kernel = ("inside" if step % 4 < 2 else "odd") if name == "mixed" else name.partition(" ")[0]
        if name.endswith("in place"):
            k["in_place"][2, 16](u, where, N)
        k[kernel][2, 16](v, u, N)
        u, v = v, u
    return u


def adjoint(k: Any, name: str, budget: int | None) -> tuple[Any, Any]:
    u, v = np.linspace(0.2, 0.9, N), np.linspace(0.9, 0.1, N)
    with kg.record(tape_budget=budget) as tape:
        out = program(k, name, u, v)
    held = [u.copy(), v.copy()]
    tape.backward(out, np.linspace(1, 2, N))
    np.testing.assert_array_equal([u, v], held)
    return tape, np.stack([tape.grad(u), tape.grad(v)])


@pytest.mark.filterwarnings("ignore:grad")
@pytest.mark.parametrize("name", ["all", "inside", "odd", "mixed", "all in place", "inside in place"])
@pytest.mark.parametrize("states", [4, 5, 8])
def test_any_budget_gives_the_same(k: Any, name: str, states: int) -> None:
    tape, found = adjoint(k, name, states * 8 * N)
    assert tape.store.peak <= states * 8 * N
    np.testing.assert_allclose(found, adjoint(k, name, None)[1], rtol=1e-12, atol=1e-15)


@pytest.mark.filterwarnings("ignore:grad")
@pytest.mark.parametrize("name", ["all", "inside", "odd", "all in place"])
def test_one_of_two_buffers_is_kept(k: Any, name: str) -> None:
    """The other is overwritten: all of it, or always the same part."""
    adjoint(k, name, 3 * 8 * N)


@pytest.mark.parametrize("name", ["mixed", "inside in place"])
def test_both_are_kept_where_parts_may_be_left(k: Any, name: str) -> None:
    with pytest.raises(kg.TapeError, match="too few"):
        adjoint(k, name, 3 * 8 * N)


@pytest.mark.filterwarnings("ignore:grad")
@pytest.mark.parametrize("name", ["unless", "aligned", "apart"])
def test_addresses_that_decide(k: Any, name: str) -> None:
    """Other arrays of the same sizes may be stored to otherwise: `v` is left as it is in some launches."""

    def found(budget: int | None) -> Any:
        u, v, w = np.linspace(0.2, 0.4, N), np.linspace(0.4, 0.1, N), np.ones(N + 1)
        with kg.record(tape_budget=budget) as tape:
            for step in range(12):
                other = u if step % 3 == 1 and name != "aligned" else w[step % 3 == 1 :][:N]
                k[name][2, 16](v, u, other, N)
                k["use"][2, 16](u, v, N)
        tape.backward(u, np.ones(N))
        return np.stack([tape.grad(u), tape.grad(v)])

    for states in (5, 6, 8):
        np.testing.assert_allclose(found(states * 8 * N), found(None), rtol=1e-12)


def test_reads_through_pointers_in_memory_are_of_any_memory(k: Any) -> None:
    """The partner of a ping-pong is read before it is overwritten, and nobody passed it."""

    def found(budget: int | None) -> Any:
        u, v, ks = np.linspace(0.2, 0.4, N), np.zeros(N), np.zeros(N, np.int32)
        pair = [np.arange(N, dtype=np.int32), np.arange(N, dtype=np.int32) % 5]
        tables = [np.array([of.ctypes.data], np.uint64) for of in pair]
        with kg.record(tape_budget=budget) as tape:
            for step in range(12):
                k["looked_up"][2, 16](ks, tables[step % 2], N)
                k["next"][2, 16](pair[step % 2], pair[1 - step % 2], N)
                k["scale"][2, 16](v, u, ks, N)
                k["use"][2, 16](u, v, N)
        tape.backward(u, np.ones(N), keep=True)
        with pytest.raises(kg.TapeError, match="looked_up reads through a pointer"):
            tape.program(inputs=(u,), outputs=(u,))
        return tape.grad(u)

    for budget in (1792, 2200):
        np.testing.assert_allclose(found(budget), found(None), rtol=1e-12)


def test_a_reverse_that_reads_through_pointers_in_memory_is_refused(k: Any) -> None:
    u, counts = np.ones(N), np.ones(N, np.int32)
    with kg.record() as tape:
        k["by_table"][2, 16](u, np.array([counts.ctypes.data], np.uint64), N)
        k["next"][2, 16](counts, counts.copy(), N)
    with pytest.raises(kg.UnsupportedError, match="reads through a pointer that lies in memory"):
        tape.backward(u, np.ones(N))
