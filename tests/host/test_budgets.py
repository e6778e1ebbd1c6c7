"""What a recording and its reverse save never exceeds the budget."""

from __future__ import annotations

import sys
import weakref
from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from kernelgrad.runtime import scratch

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


SAVING = [f"kernelgrad.host.{name}" for name in ("versions", "backward", "beginnings", "coverage")]


class Held:
    """The bytes of memory that the recordings of this thread really have, but for shadows and what launches borrow."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.now = self.peak = 0
        made = scratch.Scratch.__init__

        def make(memory: Any, nbytes: int, *args: Any) -> None:
            saves = sys._getframe(1).f_globals["__name__"] in SAVING or scratch._ASKED.get() is not None
            made(memory, nbytes, *args)
            if saves:
                self._add(nbytes)
                weakref.finalize(memory, self._add, -nbytes)

        monkeypatch.setattr(scratch.Scratch, "__init__", make)

    def _add(self, nbytes: int) -> None:
        self.now += nbytes
        self.peak = max(self.peak, self.now)


POSITIVE = kg.compile("""
__global__ void positive(double *y, const double *x, int n) {
    int i = threadIdx.x;
    if (i < n && x[i] > 0.5) y[i] = x[i] * x[i];
}
""")["positive"]


def test_budgets_hold_for_memory_and_not_for_sums_of_it_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces that were freed are at hand for the next ones: no tape, and no copy for programs, is made beside them.
    What a launch logs is freed with the tape."""
    n, x, turns = 24, np.linspace(0.2, 0.8, 24), np.arange(24, dtype=np.int32) % 7

    def recorded(size: int | None) -> tuple[Any, Any]:
        total, taken = np.zeros(1), np.zeros(1, np.int32)
        y, z, part = np.full(n, 0.5), np.zeros(n), np.zeros(n)
        with kg.record(tape_budget=size) as tape:
            for k in range(4):
                for _ in range(6):
                    SQUARE[1, 32](z, y, n - k)
                    SQUARE[1, 32](y, z, n)
                POSITIVE[1, 32](part, x, n)
                SLOTS[1, 32](total, taken, x, turns, n)
        return tape, total

    with pytest.raises(kg.TapeError) as short:
        recorded(100)
    least = int(str(short.value).partition("it takes ")[2].partition(", twice")[0].replace(",", ""))
    for size in (*range(least, least + 2000, 100), None):
        held = Held(monkeypatch)
        tape, total = recorded(size)
        assert tape.nbytes <= held.now <= tape.nbytes + tape.store._unused_bytes
        tape.backward(total, np.ones(1))
        assert held.now == tape.nbytes
        assert size is None or held.peak <= size
        monkeypatch.undo()


def test_what_failing_launches_kept_is_freed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the budget turns out to be too small, the recording goes on to find what is enough, without memory."""
    n, x, turns = 24, np.linspace(0.2, 0.8, 24), np.arange(24, dtype=np.int32) % 7
    total, taken, held = np.zeros(1), np.zeros(1, np.int32), Held(monkeypatch)
    before = None
    with pytest.raises(kg.TapeError, match="too few"), kg.record(tape_budget=3000) as tape:
        for _ in range(20):
            SLOTS[1, 32](total, taken, x, turns, n)
            before = held.now if tape.store.is_short else None
    assert before == 0 and held.now == 0


@kg.custom_gradient(writes="v")
def cube(v: Any, u: Any) -> None:
    v[:] = u * u * u


@cube.reverse
def _(v: Any, u: Any, d_v: Any, d_u: Any) -> None:
    d_u += 3 * u * u * d_v
    if np.isnan(d_v).any():
        raise RuntimeError("not a number")


def test_reverses_that_fail_give_back_what_they_saved() -> None:
    """They are in the middle of steps that run again from checkpoints of their own: the next one has as much room."""
    n, steps = 32, 200
    x, y, w = np.linspace(0.2, 0.8, n), np.zeros(n), np.ones(n)
    with kg.record(tape_budget=30 * x.nbytes) as tape:
        for k in range(steps):
            SQUARE[1, n](y, x, n)
            SQUARE[1, n](x, y, n)
            if k == 3:
                cube(y, x)
                SQUARE[1, n](x, y, n)
    saved, left = tape.nbytes, x.copy()
    tape.backward(x, w, keep=True)
    expected = tape.grad(x)
    for _ in range(3):
        with pytest.raises(RuntimeError, match="not a number"):
            tape.backward(x, w * np.nan, keep=True)
        assert tape.nbytes == saved
        np.testing.assert_array_equal(x, left)
    tape.backward(x, w, keep=True)
    np.testing.assert_array_equal(tape.grad(x), expected)
    assert tape.store.peak <= 30 * x.nbytes
