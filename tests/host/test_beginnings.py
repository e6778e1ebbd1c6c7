"""What memory held when a recording began, in programs: a launch may write a part of an array."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from kernelgrad.analysis.store_deciders import store_deciders
from kernelgrad.host.fingerprints import SMALL

SOURCE = r"""
__global__ void heat(double *v, const double *u, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i > 0 && i < n - 1) v[i] = 0.5 * u[i] + 0.2 * (u[i - 1] + u[i + 1]);
}
__global__ void ends(double *v, int n) { if (threadIdx.x == 0) { v[0] = 2 * v[1]; v[n - 1] = v[n - 2]; } }
__global__ void range(double *y, const double *x, int from, int to) {
    int i = from + blockIdx.x * blockDim.x + threadIdx.x;
    if (i < to) y[i] = 2 * x[i];
}
__global__ void positive(double *y, const double *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && x[i] > 0) y[i] = x[i];
}
__global__ void above(double *y, const double *x, double a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && i > a) y[i] = x[i];
}
__global__ void scatter(double *y, const double *x, const int *to) { y[to[threadIdx.x]] = x[threadIdx.x]; }
__global__ void until(double *y, const double *x, int n) {
    for (int i = threadIdx.x; i < n && x[i] > 0; i += blockDim.x) y[i] = x[i];
}
__global__ void maybe(double *y, const double *x, const double *m, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && (m == nullptr || i < 2)) y[i] = x[i];
}
__global__ void square(double *y, const double *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * x[i];
}
"""
N = 8
LARGE = SMALL // 8 + 500


@pytest.fixture(scope="module")
def m() -> Any:
    return kg.compile(SOURCE)


def over(kernel: Any, n: int) -> Any:
    return kernel[(n + 255) // 256, 256]


@pytest.mark.parametrize("n", [N, LARGE])
@pytest.mark.parametrize("second", ["launch", "fill", "copy"])
def test_what_is_read_between_two_writes_of_parts(m: Any, n: int, second: str) -> None:
    x, y, z = np.arange(1.0, n + 1), np.full(n, 5.0), np.zeros(n)
    with kg.record() as tape:
        over(m["range"], n)(y, x, 0, n // 2)
        over(m["square"], n)(z, y, n)  # the second half is as it was: 25
        if second == "launch":
            over(m["range"], n)(y, x, n // 2, n)
        elif second == "fill":
            kg.fill(y, 0.0)
        else:
            kg.copy(y, x)
    first = z.copy()
    assert (first[n // 2 :] == 25).all()
    y[:] = z[:] = -1.0
    p = tape.program((x,), (z,))
    assert (p(x) == first).all() and (p(x) == first).all()
    d_x = kg.gradient(p)(x, np.ones(n))
    np.testing.assert_allclose(d_x[: n // 2], 8 * x[: n // 2])
    assert not d_x[n // 2 :].any()


@pytest.mark.parametrize("n", [N, LARGE])
@pytest.mark.parametrize("name", ["positive", "until", "scatter", "above", "maybe"])
def test_what_contents_decide(m: Any, name: str, n: int) -> None:
    """Another call may leave what the recorded one wrote."""
    x, y, other = np.ones(n), np.full(n, 7.0), np.full(n, -1.0)
    other[0] = 3.0
    to, a, expected = np.arange(N, dtype=np.int32), np.array(-1.0), np.full(n, 7.0)
    if name == "scatter":
        with kg.record() as tape:
            m["scatter"][1, N](y, x, to)
        to[:] = 1
        expected[1] = 2.0
        found = tape.program((x,), (y,))(np.full(n, 2.0))
    elif name == "above":
        with kg.record() as tape:
            over(m["above"], n)(y, x, a, n)
        expected[-1] = 1.0
        found = tape.program((x, a), (y,))(x, np.array(n - 2.0))
    elif name == "maybe":
        z = np.zeros(n)
        with kg.record() as tape:
            over(m["maybe"], n)(y, x, x, n)
            over(m["square"], n)(z, y, n)
            over(m["maybe"], n)(y, x, None, n)
        expected = z.copy()
        found = tape.program((x,), (z,))(x)
    else:
        with kg.record() as tape:
            (m["until"][1, 256] if name == "until" else over(m["positive"], n))(y, x, n)
        expected[0] = 3.0
        found = tape.program((x,), (y,))(other)
    assert (found == expected).all()


@pytest.mark.parametrize("budget", [None, 40 * 8 * LARGE])
def test_stencils_need_no_copy(m: Any, budget: int | None) -> None:
    """The ends of v are written by nobody."""
    u0, v, w = np.random.default_rng(0).random(LARGE), np.full(LARGE, 3.0), np.zeros(LARGE)
    u = u0
    with kg.record(tape_budget=budget) as tape:
        for _ in range(4):
            over(m["heat"], LARGE)(v, u, LARGE)
            u, v = v, u
        over(m["range"], LARGE)(w, u, 0, 4)
        over(m["range"], LARGE)(w, u, 4, LARGE)
    assert all(cell.beginning is None for cell in tape.cells)
    expected = w.copy()
    assert (tape.program((u0,), (w,))(np.random.default_rng(0).random(LARGE)) == expected).all()


@pytest.mark.parametrize("n", [N, LARGE])
def test_ends_that_another_launch_writes(m: Any, n: int) -> None:
    start = np.random.default_rng(0).random(n)
    u0, v = start.copy(), np.zeros(n)
    u = u0
    with kg.record() as tape:
        for _ in range(3):
            over(m["heat"], n)(v, u, n)
            m["ends"][1, 32](v, n)
            u, v = v, u
    expected = u.copy()
    p = tape.program((u0,), (u,))
    assert (p(start) == expected).all()
    assert any(cell.beginning is not None for cell in tape.cells)
    assert f"'v', of which ends may write a part: 1 x, {v.nbytes:,} bytes" in tape.explain()


def test_what_a_budget_has_no_room_for_is_refused(m: Any) -> None:
    x, y, z = np.ones(LARGE), np.zeros(LARGE), np.zeros(LARGE)
    with kg.record(tape_budget=3 * 8 * LARGE) as tape:
        over(m["positive"], LARGE)(y, x, LARGE)
    with pytest.raises(kg.TapeError, match="positive may write a part of 'y'.*among the inputs.*kg.fill"):
        tape.program((x,), (y,))
    p = tape.program((x, y), (y,))
    assert (p(-x, z) == 0).all()
    with kg.record(tape_budget=3 * 8 * LARGE) as tape:
        kg.fill(y, 1.0)
        over(m["positive"], LARGE)(y, x, LARGE)
    assert (tape.program((x,), (y,))(-x) == 1).all()


def test_parts_of_arrays(m: Any) -> None:
    """A copy is one of all parts that the array is split into later."""
    x, y, z = np.ones(N), np.arange(N) * 1.0, np.zeros(N)
    before = y.copy()
    with kg.record() as tape:
        m["positive"][1, N](y, x, N)
        m["square"][1, N](z, y[3:6], 3)
        kg.fill(y[4:], 9.0)
    found = tape.program((x,), (y, z))(-x)
    assert (found[0] == [0, 1, 2, 3, 9, 9, 9, 9]).all()
    assert (found[1][:3] == before[3:6] ** 2).all()


def test_who_decides(m: Any) -> None:
    found = {}
    for name in ("heat", "range", "above", "positive", "until", "scatter", "ends"):
        function = m[name].function
        values = store_deciders(function)
        found[name] = None if values is None else {p.name for p in function.params if p.value in values} - {"v", "y"}
    assert found == {
        "heat": {"n"},
        "range": {"from", "to"},
        "above": {"a", "n"},
        "positive": None,
        "until": None,
        "scatter": None,
        "ends": {"n"},
    }


@pytest.mark.parametrize("arrays", [4, 40])
def test_copies_for_programs_make_no_budget_too_small(m: Any, arrays: int) -> None:
    """The least that a reverse takes is enough; what is kept for programs is within it, many small copies, too."""
    n = LARGE if arrays == 4 else SMALL // 80
    x, ys = np.random.default_rng(0).random(n), [np.zeros(n) for _ in range(arrays)]

    def recorded(budget: int) -> Any:
        for y in ys:
            y[:] = 0
        with kg.record(tape_budget=budget, check=False) as tape:
            for y in ys * 2:
                over(m["positive"], n)(y, x, n)
        copies = {id(c.beginning): c.nbytes for c in tape.cells if c.beginning and c.beginning.memory is not None}
        assert tape.store.peak <= budget + x.nbytes and sum(copies.values()) <= tape.nbytes
        return tape

    enough = 2 * 8 * n * arrays
    with pytest.raises(kg.TapeError, match=f"it takes {enough:,}"):
        recorded(1)
    tape = recorded(enough)
    with pytest.raises(kg.TapeError, match="may write a part of 'y'.*larger tape_budget"):
        tape.program((x,), ys)
    tape.backward(ys[-1], np.ones(n))
    np.testing.assert_array_equal(tape.grad(x), x > 0)
    large = recorded(8 * enough)
    assert (large.program((x,), ys[:1])(-x) == 0).all()
    large.backward(ys[0], np.ones(n))
    assert large.nbytes > 0  # what programs need is kept


def test_zeros_need_no_copy(m: Any) -> None:
    x = np.ones(LARGE)
    with kg.record() as tape:
        y = kg.zeros(LARGE, "f8")
        over(m["positive"], LARGE)(y, x, LARGE)
        kg.fill(y[:2], 3.0)
        over(m["positive"], LARGE)(y, x, LARGE)
    assert tape.nbytes == 0 and all(cell.beginning is None for cell in tape.cells)
    found = tape.program((x,), (y,))(-x)
    assert (found[:2] == 3).all() and not found[2:].any()
