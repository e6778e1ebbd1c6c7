"""What a recording and its reverse save never exceeds the budget."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg

SQUARE = kg.compile("""
__global__ void square(double *y, const double *x, int n) {
    int i = threadIdx.x;
    if (i < n) y[i] = 0.9 * x[i] + 0.1 * x[i] * x[i];
}
""")["square"]
BUDGETS = {
    "the least": 1,
    "a byte more": 1,
    "one and a half": 1.5,
    "just below twice": 2,
    "thrice": 3,
    "eight times": 8,
}


@pytest.mark.parametrize("buffers", [1, 2, 3])
@pytest.mark.parametrize("budget", BUDGETS)
def test_reverses_stay_within_the_budget(budget: str, buffers: int) -> None:
    """All that is copied counts: checkpoints, what steps that run again overwrite, what memory held in the end. Of
    several buffers, one is read before it is overwritten: the least is one more than all of them."""
    n, steps = 32, 60
    x0, w = np.linspace(0.2, 0.8, n), np.linspace(1, 2, n)

    def recorded(size: int | None) -> tuple[Any, Any, Any]:
        x = [x0.copy(), *(np.zeros(n) for _ in range(buffers - 1))]
        with kg.record(tape_budget=size) as tape:
            for k in range(steps):
                SQUARE[1, n](x[(k + 1) % buffers], x[k % buffers], n)
        return tape, x[0], x[steps % buffers]

    least = (buffers + 1) * x0.nbytes
    with pytest.raises(kg.TapeError, match="too few"):
        recorded(least - 1)
    size = int(least * BUDGETS[budget]) + {"a byte more": 1, "just below twice": -1}.get(budget, 0)
    tape, first, last = recorded(size)
    for keep in (True, False):
        tape.backward(last, w, keep=keep)
        assert tape.store.peak <= size
        x, expected = x0, np.ones(n)
        for _ in range(steps):
            x, expected = 0.9 * x + 0.1 * x * x, expected * (0.9 + 0.2 * x)
        np.testing.assert_allclose(tape.grad(first), expected * w, rtol=1e-12)
        np.testing.assert_allclose(last, x, rtol=1e-12)


SLOTS = kg.compile("""
__global__ void slots(double *sum, int *taken, const double *x, const int *turns, int n) {
    int i = threadIdx.x;
    if (i >= n) return;
    double v = x[atomicAdd(taken, 1) % n];
    for (int k = 0; k < turns[i]; k++) v = sin(v) + 0.1 * v;
    atomicAdd(sum, v);
}
""")["slots"]


def test_room_is_made_before_a_launch_makes_its_tape() -> None:
    """Its tape is larger than all memory that is written: there is no room for it beside what else is saved."""
    n, x, turns = 24, np.linspace(0.2, 0.8, 24), np.arange(24, dtype=np.int32) % 7

    def recorded(size: int | None) -> tuple[Any, Any]:
        total, taken, y, z = np.zeros(1), np.zeros(1, np.int32), np.full(3, 0.5), np.zeros(3)
        with kg.record(tape_budget=size) as tape:
            for _ in range(4):
                for _ in range(6):
                    SQUARE[1, 3](z, y, 3)
                    SQUARE[1, 3](y, z, 3)
                SLOTS[1, 32](total, taken, x, turns, n)
        tape.backward(total, np.ones(1))
        return tape, tape.grad(x)

    with pytest.raises(kg.TapeError) as short:
        recorded(100)
    least = int(str(short.value).partition("it takes ")[2].partition(", twice")[0].replace(",", ""))
    _, expected = recorded(None)
    for size in range(least, least + 800, 100):
        tape, found = recorded(size)
        assert tape.store.peak <= size
        np.testing.assert_allclose(found, expected, rtol=1e-12)
