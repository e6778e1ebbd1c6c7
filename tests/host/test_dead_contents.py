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
