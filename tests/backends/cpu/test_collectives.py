"""Threads that meet: barriers, shared memory, warp functions, warp-synchronous code."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from kernelgrad.backends.cpu.kernel import lower
from kernelgrad.backends.cpu.native import optimise
from kernelgrad.errors import KernelError
from kernelgrad.ir.ops import Barrier, BarrierReduce, Value, Warp
from kernelgrad.ir.types import BOOL, F32, F64, I32, U32, Array, Pointer, Scalar

PF32, PI32, PU32, PF64 = (Pointer(t, "global") for t in (F32, I32, U32, F64))
FULL = 0xFFFFFFFF


def test_values_live_across_a_barrier(make: Any) -> None:
    """Reverse within the block through shared memory."""
    k = make(x=PF32)
    tile = k.shared("tile", Array(F32, 64))
    t, i = k.thread(), k.index()
    value = k.get(k.x, i)
    root = k.op("sqrt", value)
    k.put(tile, t, value)
    k.barrier()
    other = k.op("sub", k.const(63), t)
    k.put(k.x, i, k.op("add", k.get(tile, other), root))
    x = np.arange(256, dtype=np.float32)
    want = x.reshape(4, 64)[:, ::-1].ravel() + np.sqrt(x)
    k.run(4, 64, x=x)
    np.testing.assert_allclose(x, want)


@pytest.mark.parametrize("threads", [64, 256])
def test_tree_reduction(make: Any, threads: int) -> None:
    """A uniform loop of phases; the If inside the loop holds no barrier, so it is part of a phase."""
    k = make(x=PF32, out=PF32)
    cell = k.shared("cell", Array(F32, 256))
    t = k.thread()
    k.put(cell, t, k.get(k.x, k.index()))
    k.barrier()

    def before(s: Value) -> tuple[Value, ...]:
        return k.op("gt", s, k.const(0)), s

    def body(s: Value) -> tuple[Value, ...]:
        with k.when(k.op("lt", t, s)):
            k.put(cell, t, k.op("add", k.get(cell, t), k.get(cell, k.op("add", t, s))))
        k.barrier()
        return (k.op("shr", s, k.const(1)),)

    half = k.op("div", k.b.convert(k.b.builtin("block_dim"), I32), k.const(2))
    k.repeat((half,), before, body)
    with k.when(k.op("eq", t, k.const(0))):
        k.put(k.out, k.b.convert(k.b.builtin("block_idx"), I32), k.get(cell, k.const(0)))
    x = np.random.default_rng(0).random(4 * threads, np.float32)
    out = np.zeros(4, np.float32)
    k.run(4, threads, x=x, out=out)
    np.testing.assert_allclose(out, x.reshape(4, threads).sum(1), rtol=1e-5)
    assert "loop" not in [m.side for m in _masks(k)]


def _masks(k: Any) -> list[Any]:
    from kernelgrad.backends.cpu.plan import Mask, make_plan

    return [slot for slot in make_plan(k.module().functions["k"]).slots if isinstance(slot, Mask)]


TILE = 16


def tiled_matmul(make: Any) -> Any:
    k = make(True, c=PF32, a=PF32, b_=PF32, n=I32)
    left = k.shared("left", Array(F32, TILE * TILE))
    right = k.shared("right", Array(F32, TILE * TILE))
    tx, ty, size = k.thread(0), k.thread(1), k.const(TILE)
    row, col = k.index(1), k.index(0)

    def tile(t: Value, total: Value) -> tuple[Value, ...]:
        start = k.op("mul", t, size)
        here = k.op("add", k.op("mul", ty, size), tx)
        k.put(left, here, k.get(k.a, k.op("add", k.op("mul", row, k.n), k.op("add", start, tx))))
        k.put(right, here, k.get(k.b_, k.op("add", k.op("mul", k.op("add", start, ty), k.n), col)))
        k.barrier()

        def inner(j: Value, s: Value) -> tuple[Value, ...]:
            x = k.get(left, k.op("add", k.op("mul", ty, size), j))
            y = k.get(right, k.op("add", k.op("mul", j, size), tx))
            return (k.op("add", s, k.op("mul", x, y)),)

        (total,) = k.loop(k.const(0), size, (total,), inner)
        k.barrier()
        return (total,)

    (total,) = k.loop(k.const(0), k.op("div", k.n, size), (k.const(0.0, F32),), tile)
    k.put(k.c, k.op("add", k.op("mul", row, k.n), col), total)
    return k


def test_tiled_matrix_product(make: Any) -> None:
    k, n = tiled_matmul(make), 64
    a, b = np.random.default_rng(0).random((2, n, n), np.float32)
    c = np.zeros((n, n), np.float32)
    k.run((n // TILE, n // TILE), (TILE, TILE), c=c, a=a, b_=b, n=n)
    np.testing.assert_allclose(c, a @ b, rtol=1e-5)


def test_uniform_code_needs_no_masks(make: Any) -> None:
    k = tiled_matmul(make)
    assert not _masks(k)
    assert " x float>" in str(optimise(lower(k.module(), "k").text))


def test_dynamic_shared_memory_starts_after_the_static(make: Any) -> None:
    k = make(out=PI32)
    fixed, dynamic = k.shared("dynamic", Array(I32, 3)), k.shared("extra", Array(I32, 0))
    t = k.thread()
    k.put(dynamic, t, k.op("mul", t, k.const(2)))
    k.put(fixed, k.op("rem", t, k.const(3)), k.const(-1))
    k.barrier()
    k.put(k.out, t, k.op("add", k.get(dynamic, t), k.get(fixed, k.const(0))))
    out = np.zeros(40, np.int32)
    k.run(1, 40, shared=160, out=out)
    np.testing.assert_array_equal(out, 2 * np.arange(40) - 1)


def test_local_arrays_live_across_barriers(make: Any) -> None:
    k = make(out=PI32)
    t = k.thread()
    own = k.b.decay(k.b.alloca(Array(I32, 2)))
    k.put(own, k.const(0), t)
    k.barrier()
    k.put(own, k.const(1), k.get(own, k.const(0)))
    k.barrier()
    k.put(k.out, t, k.get(own, k.const(1)))
    out = np.zeros(48, np.int32)
    k.run(1, 48, out=out)
    np.testing.assert_array_equal(out, np.arange(48))


# ---- leaving, and parting -----------------------------------------------------------------------------------------


def test_barrier_after_an_early_return(make: Any) -> None:
    """if (i >= n) return; ... __syncthreads(): the threads that left do not count."""
    k = make(x=PF32, n=I32)
    cell = k.shared("cell", Array(F32, 64))
    t, i = k.thread(), k.index()
    with k.when(k.op("lt", i, k.n), exits=True):
        k.put(cell, t, k.get(k.x, i))
        k.barrier()
        k.put(k.x, i, k.op("add", k.get(cell, k.const(0)), k.get(k.x, i)))
    x = np.arange(100, dtype=np.float32) + 1
    want = x.copy()
    want[:100] += np.where(np.arange(100) < 64, x[0], x[64])
    k.run(2, 64, x=x, n=100)
    np.testing.assert_array_equal(x, want)


def parting(make: Any) -> Any:
    k = make(n=I32)
    k.at(7)
    with k.when(k.op("lt", k.thread(), k.n)):
        k.at(8)
        k.barrier()
    return k


def test_a_divergent_barrier_is_an_error(make: Any) -> None:
    k = parting(make)
    k.run(2, 64, n=64)
    k.run(2, 64, n=0)
    with pytest.raises(
        KernelError, match=r"test.cu:8:1: error: divergent barrier.*block \(0, 0, 0\), thread \(40, 0, 0\)"
    ):
        k.run(2, 64, n=40)


def test_a_divergent_barrier_among_the_remaining_threads(make: Any) -> None:
    k = make(n=I32, m=I32)
    t = k.thread()
    with k.when(k.op("lt", t, k.n), exits=True), k.when(k.op("lt", t, k.m)):
        k.barrier()
    k.run(1, 64, n=30, m=50)
    with pytest.raises(KernelError, match="thread \\(20, 0, 0\\)"):
        k.run(1, 64, n=30, m=20)


def test_a_loop_left_at_different_times_around_a_barrier(make: Any) -> None:
    k = make(n=I32)

    def body(j: Value) -> tuple[Value, ...]:
        k.barrier()
        return ()

    k.loop(k.const(0), k.op("min", k.thread(), k.n), (), body)
    k.run(1, 32, n=0)
    with pytest.raises(KernelError, match="divergent barrier"):
        k.run(1, 32, n=3)


def test_branches_around_warp_functions(make: Any) -> None:
    """Both sides meet; results come out of each side's threads."""
    k = make(out=PI32)
    t = k.thread()
    odd = k.op("ne", k.op("and", t, k.const(1)), k.const(0))
    with k.b.region() as then:
        first = k.warp("reduce_add", k.const(FULL, U32), t, type=I32)
    with k.b.region() as orelse:
        second = k.op("neg", k.warp("reduce_max", k.const(FULL, U32), t, type=I32))
    (result,) = k.b.if_(odd, then.block((), (first,)), orelse.block((), (second,)))
    k.put(k.out, t, result)
    out = np.zeros(40, np.int32)
    k.run(1, 40, out=out)
    lanes = np.arange(40)
    odd_sum = {w: sum(i for i in range(32 * w, min(40, 32 * w + 32)) if i % 2) for w in (0, 1)}
    even_max = {0: 30, 1: 38}
    np.testing.assert_array_equal(out, [odd_sum[i // 32] if i % 2 else -even_max[i // 32] for i in lanes])


def test_loops_left_at_different_times(make: Any) -> None:
    """for and while: each thread counts its own trips, and sees how many lanes are still with it."""
    k = make(out=PI32)
    t = k.thread()

    def body(j: Value, total: Value) -> tuple[Value, ...]:
        active = k.warp("activemask", type=U32)
        return (k.op("add", total, k.op("popc", active, type=I32)),)

    (counted,) = k.loop(k.const(0), t, (k.const(0),), body)

    def before(j: Value, total: Value) -> tuple[Value, ...]:
        return k.op("lt", j, t), j, total

    def rest(j: Value, total: Value) -> tuple[Value, ...]:
        active = k.warp("activemask", type=U32)
        return k.op("add", j, k.const(1)), k.op("add", total, k.op("popc", active, type=I32))

    _, again = k.repeat((k.const(0), k.const(0)), before, rest)
    k.put(k.out, t, k.op("sub", k.op("mul", counted, k.const(2)), again))
    out = np.zeros(32, np.int32)
    k.run(1, 32, out=out)
    np.testing.assert_array_equal(out, [sum(31 - j for j in range(t)) for t in range(32)])


def test_carried_values_are_swapped_at_once(make: Any) -> None:
    k = make(out=PI32)
    t = k.thread()

    def body(j: Value, a: Value, b: Value) -> tuple[Value, ...]:
        k.barrier()
        return b, a

    a, b = k.loop(k.const(0), k.const(3), (t, k.op("mul", t, k.const(10))), body)
    k.put(k.out, t, k.op("sub", a, b))
    out = np.zeros(8, np.int32)
    k.run(1, 8, out=out)
    np.testing.assert_array_equal(out, 9 * np.arange(8))


def test_uniform_branches(make: Any) -> None:
    k = make(out=PI32, n=I32)
    t = k.thread()
    cond = k.op("lt", k.b.convert(k.b.builtin("block_idx"), I32), k.n)
    with k.b.region() as then:
        k.barrier()
        yes = k.op("add", t, k.const(100))
    with k.b.region() as orelse:
        no = t
    value, scalar = k.b.if_(cond, then.block((), (yes, k.const(1))), orelse.block((), (no, k.n)))
    k.put(k.out, k.index(), k.op("add", value, scalar))
    out = np.zeros(32, np.int32)
    k.run(4, 8, out=out, n=2)
    np.testing.assert_array_equal(out.reshape(4, 8), np.arange(8) + np.array([[101], [101], [2], [2]]))


@pytest.mark.parametrize(("kind", "want"), [("count", 30), ("and", 0), ("or", 1)])
def test_barrier_reductions(make: Any, kind: Any, want: int) -> None:
    k = make(out=PI32, n=I32)
    t = k.thread()
    inside = k.b.convert(k.op("lt", t, k.n), I32)
    k.put(k.out, t, k.b.emit(BarrierReduce, kind, inside, type=I32))
    out = np.zeros(64, np.int32)
    k.run(1, 64, out=out, n=30)
    np.testing.assert_array_equal(out, want)
    k.run(1, 64, out=out, n=64)
    np.testing.assert_array_equal(out, 64 if kind == "count" else 1)


# ---- warps --------------------------------------------------------------------------------------------------------


def shuffled(make: Any, fn: str, operand: int, width: int = 32, threads: int = 32, type: Scalar = I32) -> np.ndarray:
    k = make(out=Pointer(type, "global"))
    t = k.thread()
    value = k.b.convert(k.op("mul", t, k.const(10)), type)
    got = k.warp(fn, k.const(FULL, U32), value, k.const(operand), k.const(width), type=type)
    k.put(k.out, t, got)
    out = np.zeros(threads, np.float64 if type == F64 else np.int32)
    k.run(1, threads, out=out)
    return out // 10


def test_shuffles(make: Any) -> None:
    lanes = np.arange(32)
    np.testing.assert_array_equal(shuffled(make, "shfl_idx", 5), 5)
    np.testing.assert_array_equal(shuffled(make, "shfl_idx", 37), 5)
    np.testing.assert_array_equal(shuffled(make, "shfl_idx", 2, width=8), lanes // 8 * 8 + 2)
    np.testing.assert_array_equal(shuffled(make, "shfl_up", 3), np.where(lanes >= 3, lanes - 3, lanes))
    np.testing.assert_array_equal(shuffled(make, "shfl_up", 1, width=4), np.where(lanes % 4 > 0, lanes - 1, lanes))
    np.testing.assert_array_equal(shuffled(make, "shfl_down", 16), np.where(lanes < 16, lanes + 16, lanes))
    np.testing.assert_array_equal(shuffled(make, "shfl_down", 2, width=4), np.where(lanes % 4 < 2, lanes + 2, lanes))
    np.testing.assert_array_equal(shuffled(make, "shfl_xor", 1), lanes ^ 1)
    np.testing.assert_array_equal(shuffled(make, "shfl_xor", 4, width=4), np.where(lanes & 4, lanes ^ 4, lanes))
    np.testing.assert_array_equal(shuffled(make, "shfl_xor", 3, type=F64), lanes ^ 3)


def test_shuffles_in_a_partial_warp(make: Any) -> None:
    got = shuffled(make, "shfl_down", 4, threads=40)
    want = [t + 4 if t % 32 < 28 and t + 4 < 40 else t for t in range(40)]
    np.testing.assert_array_equal(got, want)


def test_warp_reduction_by_shuffles(make: Any) -> None:
    k = make(x=PF32, out=PF32)
    i = k.index()
    total = k.get(k.x, i)
    for delta in (16, 8, 4, 2, 1):
        other = k.warp("shfl_down", k.const(FULL, U32), total, k.const(delta, U32), k.const(32), type=F32)
        total = k.op("add", total, other)
    with k.when(k.op("eq", k.b.builtin("lane_id"), k.const(0, U32))):
        k.put(k.out, k.op("div", i, k.const(32)), total)
    x = np.random.default_rng(0).random(256, np.float32)
    out = np.zeros(8, np.float32)
    k.run(2, 128, x=x, out=out)
    np.testing.assert_allclose(out, x.reshape(8, 32).sum(1), rtol=1e-5)


def test_votes(make: Any) -> None:
    k = make(out=PU32, n=I32)
    t = k.thread()
    full, below = k.const(FULL, U32), k.op("lt", t, k.n)
    ballot = k.warp("vote_ballot", full, below, type=U32)
    flags = [k.warp(f"vote_{kind}", full, below, type=BOOL) for kind in ("any", "all", "uni")]
    for slot, value in enumerate((ballot, *(k.b.convert(f, U32) for f in flags))):
        k.put(k.out, k.op("add", k.op("mul", t, k.const(4)), k.const(slot)), value)
    out = np.zeros((64, 4), np.uint32)
    k.run(1, 64, out=out, n=35)
    np.testing.assert_array_equal(out[:32], [[FULL, 1, 1, 1]] * 32)
    np.testing.assert_array_equal(out[32:], [[7, 1, 0, 0]] * 32)


def test_matches_and_reductions_over_groups(make: Any) -> None:
    """match_any gives each group its mask; reductions then run per group."""
    k = make(out=PI32)
    t = k.thread()
    group = k.op("rem", t, k.const(3))
    mask = k.warp("match_any", k.const(FULL, U32), group, type=U32)
    total = k.warp("reduce_add", mask, t, type=I32)
    lowest = k.warp("reduce_min", mask, k.op("neg", t), type=I32)
    whole = Value(U32), Value(BOOL)
    k.b.add(Warp("match_all", (k.const(FULL, U32), k.op("and", t, k.const(32))), results=whole))
    values = (total, lowest, k.b.convert(mask, I32), k.b.convert(whole[1], I32), k.b.convert(whole[0], I32))
    for slot, value in enumerate(values):
        k.put(k.out, k.op("add", k.op("mul", t, k.const(5)), k.const(slot)), value)
    out = np.zeros((32, 5), np.int32)
    k.run(1, 32, out=out)
    for t in range(32):
        members = range(t % 3, 32, 3)
        mask = sum(1 << m for m in members)
        assert out[t, 0] == sum(members) and out[t, 1] == -max(members)
        assert int(out[t, 2]) & FULL == mask and out[t, 3] == 1 and out[t, 4] == -1


def test_volatile_shared_memory_is_warp_synchronous(make: Any) -> None:
    """The classic last-warp reduction, without a barrier."""
    k = make(x=PF32, out=PF32)
    cell = k.shared("cell", Array(F32, 64))
    t = k.thread()
    k.put(cell, t, k.get(k.x, t))
    k.barrier()
    with k.when(k.op("lt", t, k.const(32))):
        for step in (32, 16, 8, 4, 2, 1):
            other = k.get(cell, k.op("add", t, k.const(step)), volatile=True)
            k.put(cell, t, k.op("add", k.get(cell, t, volatile=True), other), volatile=True)
    with k.when(k.op("eq", t, k.const(0))):
        k.put(k.out, t, k.get(cell, t))
    x = np.random.default_rng(0).random(64, np.float32)
    out = np.zeros(1, np.float32)
    k.run(1, 64, x=x, out=out)
    np.testing.assert_allclose(out[0], x.sum(), rtol=1e-5)


def test_warp_barriers_split_phases(make: Any) -> None:
    k = make(out=PI32)
    cell = k.shared("cell", Array(I32, 32))
    t = k.thread()
    k.put(cell, t, t)
    k.b.effect(Barrier, "warp", (k.const(FULL, U32),))
    k.put(k.out, t, k.get(cell, k.op("sub", k.const(31), t)))
    out = np.zeros(32, np.int32)
    k.run(1, 32, out=out)
    np.testing.assert_array_equal(out, np.arange(32)[::-1])


@pytest.mark.parametrize("call", ["__shfl_down_sync(masks[r], v, 1)", "__popc(__ballot_sync(masks[r], v > 0))"])
def test_lanes_out_of_step_are_an_error(call: str) -> None:
    """Each counts down from its own number: a GPU would have those with more iterations go first."""
    source = f"""
        __global__ void k(double *y, const int *m, const unsigned *masks) {{
          int i = threadIdx.x; double v = i;
          for (int r = m[i] - 1; r >= 0; r--) v += {call};
          y[i] = v;
        }}"""
    m = np.arange(32, dtype=np.int32) % 4
    masks = np.array([sum(1 << lane for lane in range(32) if m[lane] > r) for r in range(4)], np.uint32)
    with pytest.raises(kg.KernelError, match="lanes out of step"):
        kg.compile(source)["k"][1, 32](np.zeros(32), m, masks)


def test_a_lane_that_the_mask_does_not_name_is_not_read() -> None:
    source = """
        __global__ void k(int *y, unsigned mask) {
          int t = threadIdx.x;
          if (mask >> t & 1) y[t] = __shfl_xor_sync(mask & 0xff, t, 8);
        }"""
    y = np.full(32, -1, np.int32)
    kg.compile(source)["k"][1, 32](y, 0xFFFF)
    np.testing.assert_array_equal(y[:16], [*range(8), *range(8)])
