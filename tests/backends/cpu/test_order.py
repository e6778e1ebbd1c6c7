"""The order threads run in: rows of blocks, loops in step. Results must not depend on it, and speed does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kernelgrad.backends.cpu import strides
from kernelgrad.backends.cpu.indexing import IndexArithmetic, Variant
from kernelgrad.backends.cpu.kernel import lower
from kernelgrad.backends.cpu.loops import row_indices
from kernelgrad.backends.cpu.native import optimise
from kernelgrad.errors import KernelError
from kernelgrad.ir.ops import Assert, Value
from kernelgrad.ir.types import F32, I32, U32, Array, Pointer
from kernelgrad.ir.verifier import verify_function

PF32, PI32 = Pointer(F32, "global"), Pointer(I32, "global")


# ---- rows -----------------------------------------------------------------------------------------------------------


def transpose(make: Any, apart: bool) -> Any:
    """out[x][y] = in[y][x]; `apart` uses threadIdx.x once more, so that rows have two loops."""
    k = make(out=PI32, x=PI32, n=I32)
    col, row = k.index(0), k.index(1)
    inside = k.op("and", k.op("lt", col, k.n), k.op("lt", row, k.n))
    with k.when(inside):
        value = k.get(k.x, k.op("add", k.op("mul", row, k.n), col))
        if apart:
            value = k.op("sub", k.op("add", value, k.thread()), k.thread())
        k.put(k.out, k.op("add", k.op("mul", col, k.n), row), value)
    return k


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("block", [(16, 16), (5, 3), (1, 64), (64, 1)])
def test_rows_of_blocks(make: Any, apart: bool, block: tuple[int, int]) -> None:
    k, n = transpose(make, apart), 150
    x = np.arange(n * n, dtype=np.int32).reshape(n, n)
    out = np.zeros_like(x)
    k.run((-(-n // block[0]), -(-n // block[1])), block, out=out, x=x, n=n)
    np.testing.assert_array_equal(out, x.T)


def test_the_counter_of_a_row_is_the_index(make: Any) -> None:
    assert row_indices(transpose(make, apart=False).module().functions["k"], None)
    assert not row_indices(transpose(make, apart=True).module().functions["k"], None)


def test_a_literal_block_size_counts_as_blockdim(make: Any) -> None:
    k = make(out=PI32)
    first = k.op("mul", k.b.builtin("block_idx"), k.const(32, U32))
    k.put(k.out, k.op("add", first, k.b.builtin("thread_idx")), k.const(1))
    function = k.module().functions["k"]
    assert row_indices(function, 32) and not row_indices(function, 64)
    out = np.zeros(160, np.int32)
    k.run(4, 32, out=out)
    np.testing.assert_array_equal(out, [1] * 128 + [0] * 32)
    out[:] = 0
    k.run(4, 64, out=out)
    np.testing.assert_array_equal(out, [1] * 160)


def test_failures_in_a_row_name_the_right_thread(make: Any) -> None:
    k = make(n=I32)
    k.b.effect(Assert, k.op("ne", k.op("add", k.index(0), k.op("mul", k.index(1), k.const(100))), k.n), "here")
    with pytest.raises(KernelError, match=r"block \(2, 1, 0\), thread \(3, 1, 0\)"):
        k.run((4, 4), (8, 2), n=319)


# ---- loops in step ---------------------------------------------------------------------------------------------------


def grid_stride(make: Any, step: int | None = None) -> Any:
    """y[i] += a * x[i] and a count of trips, strided by the grid (or by a constant)."""
    k = make(y=PF32, x=PF32, trips=PI32, last=PI32, n=I32)
    start = k.index()

    def before(i: Value, count: Value) -> tuple[Value, ...]:
        return k.op("lt", i, k.n), i, count

    def body(i: Value, count: Value) -> tuple[Value, ...]:
        k.put(k.y, i, k.op("add", k.get(k.y, i), k.op("mul", k.const(2.0, F32), k.get(k.x, i))))
        stride = k.op("mul", k.b.builtin("grid_dim"), k.b.builtin("block_dim"))
        following = k.b.convert(k.op("add", k.b.convert(i, U32), stride), I32)
        return following, k.op("add", count, k.const(1))

    if step is None:
        end, count = k.repeat((start, k.const(0)), before, body)
        k.put(k.last, start, end)
    else:
        (count,) = k.loop(start, k.n, (k.const(0),), lambda i, c: body(i, c)[1:], step=step)
    k.put(k.trips, start, count)
    return k


@pytest.mark.parametrize("step", [None, 96])
@pytest.mark.parametrize("n", [1, 96, 1000])
def test_loops_in_step(make: Any, n: int, step: int | None) -> None:
    k = grid_stride(make, step)
    function, loops = strides.run(k.module().functions["k"])
    verify_function(function, k.module(), "strides")
    assert len(loops) == 1
    y, x = np.ones(n, np.float32), np.arange(n, dtype=np.float32)
    trips, last = np.zeros(96, np.int32), np.zeros(96, np.int32)
    k.run(3, 32, y=y, x=x, trips=trips, last=last, n=n)
    np.testing.assert_array_equal(y, 1 + 2 * x)
    np.testing.assert_array_equal(trips, [len(range(i, n, 96)) for i in range(96)])
    if step is None:
        np.testing.assert_array_equal(last, [i + 96 * len(range(i, n, 96)) for i in range(96)])


def test_loops_in_step_are_vectorised(make: Any) -> None:
    text = str(optimise(lower(grid_stride(make).module(), "k", Variant(True, (256, 1, 1))).text))
    assert " x float>" in text


def test_a_strided_sum_over_rows(make: Any) -> None:
    """A uniform loop around a strided one, inside a branch some threads do not take."""
    k = make(out=PF32, x=PF32, rows=I32, n=I32)
    t = k.thread()

    def row(r: Value) -> tuple[Value, ...]:
        def add(i: Value, total: Value) -> tuple[Value, ...]:
            return (k.op("add", total, k.get(k.x, k.op("add", k.op("mul", r, k.n), i))),)

        (total,) = k.loop(t, k.n, (k.const(0.0, F32),), add, step=8)
        k.b.atomic("add", k.b.offset(k.out, r), total)
        return ()

    with k.when(k.op("lt", t, k.const(8))):
        k.loop(k.const(0), k.rows, (), row)
    x = np.random.default_rng(0).random((5, 100), np.float32)
    out = np.zeros(5, np.float32)
    k.run(1, 32, out=out, x=x, rows=5, n=100)
    np.testing.assert_allclose(out, x.sum(1), rtol=1e-5)


def test_loops_with_different_trips_around_stay_as_they_are(make: Any) -> None:
    k = make(out=PI32)
    t = k.thread()

    def outer(j: Value, total: Value) -> tuple[Value, ...]:
        return k.loop(t, k.const(40), (total,), lambda i, s: (k.op("add", s, i),), step=8)

    (total,) = k.loop(k.const(0), t, (k.const(0),), outer)
    k.put(k.out, t, total)
    _, loops = strides.run(k.module().functions["k"])
    assert not loops
    out = np.zeros(16, np.int32)
    k.run(1, 16, out=out)
    np.testing.assert_array_equal(out, [t * sum(range(t, 40, 8)) for t in range(16)])


@pytest.mark.parametrize("guarded", [False, True])
@pytest.mark.parametrize("n", [0, 1, 31, 97, 1000])
def test_loops_that_count_down_in_step(make: Any, n: int, guarded: bool) -> None:
    """As the reverse of a strided loop: each thread joins in at its own last trip, and carries what it carries."""
    k = make(y=PF32, out=PI32, n=I32)
    start = k.index()
    distance = k.op("add", k.op("max", k.op("sub", k.n, start), k.const(0)), k.const(95))
    last = k.op("sub", k.op("div", distance, k.const(96)), k.const(1))

    def body(trip: Value, seen: Value) -> tuple[Value, ...]:
        i = k.op("add", start, k.op("mul", trip, k.const(96)))
        k.put(k.y, i, k.op("add", k.get(k.y, i), k.b.convert(seen, F32)))
        return (k.op("add", k.op("mul", seen, k.const(3)), trip),)

    def loop() -> None:
        (seen,) = k.loop(last, k.const(-1), (start,), body, step=-1)
        k.put(k.out, start, seen)

    if guarded:
        with k.when(k.op("ne", k.op("rem", start, k.const(5)), k.const(2))):
            loop()
    else:
        loop()
    _, loops = strides.run(k.module().functions["k"])
    assert len(loops) == 1
    y, out = np.ones(n, np.float32), np.full(96, -7, np.int32)
    want_y, want = y.copy(), out.copy()
    for t in range(96):
        if not guarded or t % 5 != 2:
            want[t] = t
            for trip in reversed(range(len(range(t, n, 96)))):
                want_y[t + trip * 96] += np.float32(want[t])
                want[t] = want[t] * 3 + trip
    k.run(3, 32, y=y, out=out, n=n)
    np.testing.assert_array_equal(y, want_y)
    np.testing.assert_array_equal(out, want)


# ---- index arithmetic ------------------------------------------------------------------------------------------------


def test_index_arithmetic_is_judged_by_the_launch(make: Any) -> None:
    k = make(out=PI32)
    k.put(
        k.out,
        k.op("add", k.op("mul", k.b.builtin("block_idx"), k.const(1000, U32)), k.b.builtin("thread_idx")),
        k.const(1),
    )
    arithmetic = IndexArithmetic(k.module().functions["k"])
    assert {op.fn for op in arithmetic.ops} == {"mul", "add"}
    assert arithmetic.stays_small((2_000_000, 1, 1), (32, 1, 1))
    assert not arithmetic.stays_small((2_200_000, 1, 1), (32, 1, 1))


def test_what_depends_on_data_is_left_to_wrap(make: Any) -> None:
    k = make(out=PI32, n=U32)
    k.put(k.out, k.op("add", k.n, k.b.builtin("thread_idx")), k.const(1))
    assert not IndexArithmetic(k.module().functions["k"]).ops


def test_shared_memory_without_barriers_is_per_block(make: Any) -> None:
    k = make(out=PI32)
    cell = k.shared("cell", Array(I32, 8))
    t = k.thread()
    k.put(cell, t, k.index())
    k.put(k.out, k.index(), k.get(cell, t))
    out = np.zeros(64, np.int32)
    k.run(8, 8, out=out)
    np.testing.assert_array_equal(out, np.arange(64))
