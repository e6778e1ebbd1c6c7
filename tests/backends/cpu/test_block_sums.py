"""Sums of blocks that every thread adds to by itself (Note [Block sums]): at a kernel's end, and nowhere else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from kernelgrad.backends.cpu import block_sums
from kernelgrad.backends.cpu.kernel import lower
from kernelgrad.ir.ops import BarrierReduce, Function
from kernelgrad.ir.traverse import walk
from kernelgrad.ir.types import F32, U32, Pointer

PF32 = Pointer(F32, "global")
BLOCK, BLOCKS = 48, 7


def sums(function: Function) -> int:
    return sum(isinstance(op, BarrierReduce) for op in walk(function.body))


def first_thread(k: Any, axes: int = 3) -> Any:
    bits = k.b.builtin("thread_idx", 0)
    for axis in range(1, axes):
        bits = k.op("or", bits, k.b.builtin("thread_idx", axis))
    return k.op("eq", bits, k.const(0, U32))


def add_sum(k: Any, value: Any, axes: int = 3, ptr: Any = None) -> Any:
    total = k.b.emit(BarrierReduce, "sum", value, type=F32)
    with k.when(first_thread(k, axes)), k.when(k.op("ne", total, k.const(0.0, F32))):
        k.b.atomic("add", k.out if ptr is None else ptr, total)
    return total


def kernel(make: Any, extra: str = "", restrict: bool = True) -> Any:
    """out[0] += x[i]: the sum of a block, added by its first thread; and something else."""
    k = make(restrict, out=PF32, x=PF32, y=PF32)
    i = k.index(0)
    value = k.get(k.x, i)
    if extra == "a barrier before":
        k.put(k.y, i, value)
        k.barrier()
        value = k.get(k.y, i)
    total = add_sum(
        k,
        value,
        axes=2 if extra == "a column's threads" else 3,
        ptr=k.b.offset(k.out, k.b.builtin("block_idx")) if extra == "each block its own" else None,
    )
    if extra == "two":
        add_sum(k, k.op("mul", value, value), ptr=k.b.offset(k.out, k.const(1)))
    if extra == "the sum is used":
        k.put(k.y, i, total)
    if extra == "a store after it":
        k.put(k.y, k.op("sub", k.const(BLOCK * BLOCKS - 1), i), value)
    if extra == "read too":
        k.put(k.y, i, k.get(k.out, k.const(3)))
    return k


# What else the kernel does, and how many sums stay a block's.
EXTRAS = {
    "": 0,
    "two": 0,
    "a barrier before": 0,
    "a column's threads": 1,
    "each block its own": 1,
    "the sum is used": 1,
    "a store after it": 1,
    "read too": 1,
}


@pytest.mark.parametrize("extra", EXTRAS)
def test_is_chosen_where_it_is_right(make: Any, extra: str) -> None:
    function = kernel(make, extra).module().functions["k"]
    assert sums(block_sums.run(function)) == EXTRAS[extra]


def test_pointers_that_may_overlap(make: Any) -> None:
    assert sums(block_sums.run(kernel(make, restrict=False).module().functions["k"])) == 1


@pytest.mark.parametrize("extra", EXTRAS)
def test_values(make: Any, extra: str) -> None:
    x = np.random.default_rng(1).random(BLOCK * BLOCKS, np.float32)
    out, y = np.zeros(BLOCKS, np.float32), np.zeros_like(x)
    kernel(make, extra).run(BLOCKS, BLOCK, out=out, x=x, y=y)
    each = x.reshape(BLOCKS, BLOCK).sum(axis=1, dtype=np.float64)
    second = (x.astype(np.float64) ** 2).sum() if extra == "two" else 0.0
    expected = each if extra == "each block its own" else [each.sum(), second, 0, 0, 0, 0, 0]
    np.testing.assert_allclose(out, expected, rtol=1e-5)
    if extra == "the sum is used":
        np.testing.assert_allclose(y, np.repeat(each, BLOCK), rtol=1e-5)


def test_without_meetings_a_row_runs_at_once(make: Any) -> None:
    assert lower(kernel(make).module(), "k").slot_bytes == 0
    assert lower(kernel(make, "the sum is used").module(), "k").slot_bytes > 0


@pytest.mark.parametrize("block", [(48, 1), (8, 6)])
def test_gradients_of_numbers(block: tuple[int, int]) -> None:
    """Two numbers of which all threads need one, the other only some."""
    source = """__global__ void k(float *y, const float *x, float a, float b, int n) {
        int i = (blockIdx.x * blockDim.x + threadIdx.x) * blockDim.y + threadIdx.y;
        if (i < n) y[i] = x[i] * a + (x[i] > 0.5f ? b * b : 0.0f);
    }"""
    n = BLOCK * BLOCKS - 5
    random = np.random.default_rng(2)
    x, y_adj = random.random(n, np.float32), random.random(n, np.float32)
    gradient = kg.gradient(kg.compile(source)["k"], "y, a, b", primal=False, keep="y")
    a_adj, b_adj = np.ones(1, np.float32), np.zeros(1, np.float32)
    gradient[BLOCKS, block](np.zeros(n, np.float32), x, 2.0, 3.0, n, y_adj, a_adj, b_adj)
    np.testing.assert_allclose(a_adj, 1.0 + x @ y_adj, rtol=1e-5)
    np.testing.assert_allclose(b_adj, 6.0 * y_adj[x > 0.5].sum(), rtol=1e-5)


def test_long_sums_keep_small_numbers() -> None:
    """Added one by one to a float that is large already, a tenth is rounded again and again."""
    kernel = kg.compile("""__global__ void k(float *__restrict__ out, const float *__restrict__ x, int n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) atomicAdd(out, x[i]);
    }""")["k"]
    x, out = np.full(3 << 20, 0.1, np.float32), np.zeros(1, np.float32)
    kernel[x.size // 256, 256](out, x, x.size)
    np.testing.assert_allclose(out, x.sum(dtype=np.float64), rtol=1e-5)


@pytest.mark.parametrize(
    ("body", "listed", "said"),
    [
        ("y[i] = x[i] * a;", "y, a", ["'d_a': added up in registers"]),
        ("y[i] = x[i] * w[t];", "y, x, w", ["'d_w': each core adds up in memory of its own"]),
        ("y[i] = x[i] * x[i];", "y, x", []),
    ],
)
def test_explain_tells(body: str, listed: str, said: list[str]) -> None:
    source = f"""__global__ void k(float *y, const float *x, const float *w, float a) {{
        int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
        {body}
    }}"""
    told = kg.gradient(kg.compile(source)["k"], listed).explain(300, 64, *(np.ones(19200, np.float32),) * 3, 1.0)
    section = told.split("on the CPU:\n")[1].split("\n\n")[0].splitlines() if said else []
    assert len(section) == len(said) and all(part in line for part, line in zip(said, section, strict=True))
    assert said or "on the CPU:" not in told
