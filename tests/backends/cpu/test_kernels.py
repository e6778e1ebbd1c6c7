"""Kernels whose threads do not meet: control flow, memory, structs, atomics, effects."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from kernelgrad.backends.cpu.indexing import Variant
from kernelgrad.backends.cpu.kernel import lower
from kernelgrad.backends.cpu.native import optimise
from kernelgrad.errors import KernelError
from kernelgrad.ir.ops import Assert, Fence, Print, Trap, Value
from kernelgrad.ir.types import (
    BF16,
    BOOL,
    F16,
    F32,
    F64,
    I8,
    I32,
    I64,
    U8,
    U32,
    U64,
    Array,
    Field,
    Pointer,
    Scalar,
    Struct,
)
from kernelgrad.runtime.cpu import compile_cpu
from kernelgrad.runtime.launch import LaunchConfig

PF32, PI32, PU32, PF64 = (Pointer(t, "global") for t in (F32, I32, U32, F64))


def saxpy(make: Any, restrict: bool = False) -> Any:
    k = make(restrict, y=PF32, x=PF32, a=F32, n=I32)
    i = k.index()
    with k.when(k.op("lt", i, k.n), exits=True):
        k.put(k.y, i, k.op("add", k.op("mul", k.a, k.get(k.x, i)), k.get(k.y, i)))
    return k


@pytest.mark.parametrize("n", [1, 255, 256, 100_003])
def test_saxpy(make: Any, n: int) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.random((2, n), np.float32)
    want = (2.5 * x + y).astype(np.float32)
    saxpy(make).run((n + 255) // 256, 256, y=y, x=x, a=2.5, n=n)
    np.testing.assert_allclose(y, want, rtol=1e-6)


@pytest.mark.parametrize("restrict", [False, True])
def test_elementwise_code_is_vectorised(make: Any, restrict: bool) -> None:
    code = lower(saxpy(make, restrict).module(), "k")
    assert " x float>" in str(optimise(code.text))


def test_huge_grids_use_wrapping_arithmetic(make: Any) -> None:
    """With 2**31 threads or more along an axis, unsigned indices are not promised to stay small."""
    k = make(out=PU32)
    first = k.op("mul", k.b.builtin("block_idx"), k.b.builtin("block_dim"))
    i = k.op("add", first, k.b.builtin("thread_idx"))
    k.put(k.out, k.const(0), i)
    assert "add nuw nsw i32" in lower(k.module(), "k").text.split("kg.entry")[0]
    wrapping = lower(k.module(), "k", Variant(small=False)).text
    assert "add i32" in wrapping and "mul i32" in wrapping


def test_three_dimensions(make: Any) -> None:
    k = make(out=PI32)
    flat = k.const(0)
    for axis in (2, 1, 0):
        block, dim = (k.b.convert(k.b.builtin(name, axis), I32) for name in ("block_idx", "grid_dim"))
        flat = k.op("add", k.op("mul", flat, dim), block)
    for axis in (2, 1, 0):
        thread, dim = (k.b.convert(k.b.builtin(name, axis), I32) for name in ("thread_idx", "block_dim"))
        flat = k.op("add", k.op("mul", flat, dim), thread)
    old = k.get(k.out, flat)
    k.put(k.out, flat, k.op("add", old, k.op("add", flat, k.const(1))))
    out = np.zeros(2 * 3 * 4 * 5 * 6 * 7, np.int32)
    k.run((2, 3, 4), (5, 6, 7), out=out)
    np.testing.assert_array_equal(out, np.arange(len(out)) + 1)


def test_loops(make: Any) -> None:
    """sum of i..10 by 3, downwards, and a data-dependent while (Collatz)."""
    k = make(out=PI32)
    i = k.thread()
    (up,) = k.loop(i, k.const(10), (k.const(0),), lambda j, s: (k.op("add", s, j),), step=3)
    (down,) = k.loop(i, k.const(-5), (k.const(0),), lambda j, s: (k.op("add", s, j),), step=-2)

    def before(n: Value, steps: Value) -> tuple[Value, ...]:
        return k.op("gt", n, k.const(1)), n, steps

    def body(n: Value, steps: Value) -> tuple[Value, ...]:
        odd = k.op("ne", k.op("rem", n, k.const(2)), k.const(0))
        tripled = k.op("add", k.op("mul", n, k.const(3)), k.const(1))
        return k.op("select", odd, tripled, k.op("div", n, k.const(2))), k.op("add", steps, k.const(1))

    _, steps = k.repeat((i, k.const(0)), before, body)
    for slot, value in enumerate((up, down, steps)):
        k.put(k.out, k.op("add", k.op("mul", i, k.const(3)), k.const(slot)), value)
    out = np.zeros((20, 3), np.int32)
    k.run(1, 20, out=out)

    def collatz(n: int) -> int:
        steps = 0
        while n > 1:
            n, steps = (3 * n + 1 if n % 2 else n // 2), steps + 1
        return steps

    np.testing.assert_array_equal(out[:, 0], [sum(range(i, 10, 3)) for i in range(20)])
    np.testing.assert_array_equal(out[:, 1], [sum(range(i, -5, -2)) for i in range(20)])
    np.testing.assert_array_equal(out[:, 2], [collatz(i) for i in range(20)])


def test_local_arrays(make: Any) -> None:
    k = make(out=PI32)
    i = k.thread()
    array = k.b.decay(k.b.alloca(Array(I32, 8)))

    def fill(j: Value) -> tuple[Value, ...]:
        k.put(array, j, k.op("mul", j, i))
        return ()

    k.loop(k.const(0), k.const(8), (), fill)
    k.put(k.out, i, k.get(array, k.op("rem", i, k.const(8))))
    out = np.zeros(32, np.int32)
    k.run(1, 32, out=out)
    np.testing.assert_array_equal(out, [i * (i % 8) for i in range(32)])


# ---- structs ------------------------------------------------------------------------------------------------------

PAIR = Struct("Pair", (Field("tag", I8, 0), Field("x", F64, 8), Field("inner", Array(I32, 3), 16)), 32, 8)
UNION = Struct("Bits", (Field("f", F32, 0), Field("u", U32, 0)), 4, 4)
PAIR_DTYPE = np.dtype([("tag", "i1"), ("x", "f8"), ("inner", "i4", 3)], align=True)


def test_structs_by_value_and_in_memory(make: Any) -> None:
    k = make(out=Pointer(PAIR, "global"), given=PAIR)
    k.structs["Pair"] = PAIR
    i = k.thread()
    ptr = k.b.offset(k.out, i)
    loaded = k.b.load(ptr)
    doubled = k.b.insert(loaded, k.op("mul", k.b.extract(loaded, 1), k.b.extract(k.given, 1)), 1)
    k.b.store(ptr, doubled)
    inner = k.b.decay(k.b.member(ptr, 2))
    k.put(inner, k.const(1), k.b.convert(k.b.extract(k.given, 0), I32))
    out = np.zeros(4, PAIR_DTYPE)
    out["x"] = [1, 2, 3, 4]
    out["inner"] = 9
    given = np.zeros(1, PAIR_DTYPE)
    given["tag"], given["x"] = -3, 10
    k.run(1, 4, out=out, given=given.tobytes())
    np.testing.assert_array_equal(out["x"], [10, 20, 30, 40])
    np.testing.assert_array_equal(out["inner"], [[9, -3, 9]] * 4)


def test_unions(make: Any) -> None:
    k = make(out=Pointer(UNION, "global"))
    k.structs["Bits"] = UNION
    value = k.b.insert(k.b.load(k.out), k.const(1.0, F32), 0)
    bits = k.op("add", k.b.extract(value, 1), k.const(1, U32))
    k.b.store(k.out, k.b.aggregate(UNION, (k.b.extract(k.b.insert(value, bits, 1), 0), bits)))
    out = np.zeros(1, np.uint32)
    k.run(1, 1, out=out)
    assert out[0] == 0x3F800001


def test_pointers(make: Any) -> None:
    k = make(x=PF32, out=Pointer(I64, "global"))
    end = k.b.offset(k.x, k.const(10, U64))
    k.put(k.out, k.const(0), k.b.pointer_difference(end, k.x))
    k.put(k.out, k.const(1), k.b.convert(k.op("lt", k.x, end), I64))
    address = k.op("sub", k.op("address", end, type=U64), k.op("address", k.x, type=U64))
    k.put(k.out, k.const(2), k.b.convert(address, I64))
    k.put(k.out, k.const(3), k.b.convert(k.op("eq", k.x, k.b.null(PF32)), I64))
    out = np.zeros(4, np.int64)
    k.run(1, 1, x=np.zeros(16, np.float32), out=out)
    np.testing.assert_array_equal(out, [10, 1, 40, 0])


# ---- atomics ------------------------------------------------------------------------------------------------------

ATOMICS: list[tuple[str, Scalar, list[float], float, float]] = [
    ("add", I32, [3] * 4096, 0, 3 * 4096),
    ("add", U64, [1] * 4096, 5, 4101),
    ("add", F32, [0.5] * 4096, 0, 2048),
    ("add", F64, [0.25] * 4096, 0, 1024),
    ("sub", I32, [1] * 4096, 0, -4096),
    ("min", I32, list(range(-7, 4089)), 0, -7),
    ("max", U32, list(range(4096)), 3, 4095),
    ("max", F32, list(range(4096)), 3, 4095),
    ("and", U32, [0xFFF0] * 4096, 0xFF, 0xF0),
    ("or", U32, [1, 2, 4, 8] * 1024, 0, 15),
    ("xor", U32, [1] * 4095 + [2], 0, 3),
    ("inc", U32, [6] * 4096, 0, 4096 % 7),
    ("dec", U32, [6] * 4096, 0, (-4096) % 7),
]


@pytest.mark.parametrize(("kind", "type", "values", "start", "want"), ATOMICS, ids=lambda v: str(v)[:8])
def test_atomics(make: Any, kind: Any, type: Scalar, values: list[float], start: float, want: float) -> None:
    dtype = np.dtype(type.name.replace("i", "int").replace("u", "uint").replace("f", "float"))
    k = make(total=Pointer(type, "global"), x=Pointer(type, "global"))
    k.b.atomic(kind, k.total, k.get(k.x, k.index()))
    total = np.array([start], dtype)
    k.run(64, 64, total=total, x=np.array(values, dtype))
    assert total[0] == want


@pytest.mark.parametrize(("kind", "type", "values", "start", "want"), ATOMICS, ids=lambda v: str(v)[:8])
def test_atomics_in_shared_memory(
    make: Any, kind: Any, type: Scalar, values: list[float], start: float, want: float
) -> None:
    """Plain code; it must not be vectorised, though the loop over threads may be."""
    dtype = np.dtype(type.name.replace("i", "int").replace("u", "uint").replace("f", "float"))
    k = make(total=Pointer(type, "global"), x=Pointer(type, "global"))
    cell = k.shared("cell", Array(type, 1))
    t = k.thread()
    with k.when(k.op("eq", t, k.const(0))):
        k.b.store(cell, k.b.load(k.total))
    k.barrier()

    def add(j: Value) -> tuple[Value, ...]:
        k.b.atomic(kind, cell, k.get(k.x, k.op("add", k.op("mul", j, k.const(64)), t)))
        return ()

    k.loop(k.const(0), k.const(64), (), add)
    k.barrier()
    with k.when(k.op("eq", t, k.const(0))):
        k.b.store(k.total, k.b.load(cell))
    total = np.array([start], dtype)
    k.run(1, 64, total=total, x=np.array(values, dtype))
    assert total[0] == want


def test_exchange_and_compare_in_shared_memory(make: Any) -> None:
    k = make(out=PF32)
    cell = k.shared("cell", Array(F32, 1))
    k.b.store(cell, k.const(1.0, F32))
    k.put(k.out, k.const(0), k.b.atomic("exch", cell, k.const(2.0, F32)))
    k.put(k.out, k.const(1), k.b.atomic("cas", cell, k.const(2.0, F32), k.const(3.0, F32)))
    k.put(k.out, k.const(2), k.b.atomic("cas", cell, k.const(2.0, F32), k.const(4.0, F32)))
    k.put(k.out, k.const(3), k.b.load(cell))
    out = np.zeros(4, np.float32)
    k.run(1, 1, out=out)
    np.testing.assert_array_equal(out, [1, 2, 3, 3])


def test_exchange_and_compare_and_swap(make: Any) -> None:
    k = make(cell=PF32, out=PF32)
    k.put(k.out, k.const(0), k.b.atomic("exch", k.cell, k.const(2.0, F32)))
    k.put(k.out, k.const(1), k.b.atomic("cas", k.cell, k.const(2.0, F32), k.const(3.0, F32)))
    k.put(k.out, k.const(2), k.b.atomic("cas", k.cell, k.const(2.0, F32), k.const(4.0, F32)))
    cell, out = np.array([1], np.float32), np.zeros(3, np.float32)
    k.run(1, 1, cell=cell, out=out)
    np.testing.assert_array_equal(out, [1, 2, 3])
    assert cell[0] == 3


def test_short_float_atomics(make: Any) -> None:
    k = make(half=Pointer(F16, "global"), bf16=Pointer(BF16, "global"))
    k.b.atomic("add", k.half, k.const(1.0, F16))
    k.b.atomic("add", k.bf16, k.const(1.0, BF16))
    half, bf16 = np.zeros(1, np.float16), np.zeros(1, np.uint16)
    k.run(8, 16, half=half, bf16=bf16)
    assert half[0] == 128 and bf16[0] == 0x4300


def test_vector_atomics(make: Any) -> None:
    float2 = Struct("float2", (Field("x", F32, 0), Field("y", F32, 4)), 8, 8)
    k = make(total=Pointer(float2, "global"))
    k.structs["float2"] = float2
    k.b.atomic("add", k.total, k.b.aggregate(float2, (k.const(1.0, F32), k.const(2.0, F32))))
    total = np.zeros(2, np.float32)
    k.run(16, 8, total=total)
    np.testing.assert_array_equal(total, [128, 256])


# ---- effects ------------------------------------------------------------------------------------------------------


def test_print(make: Any, capfd: pytest.CaptureFixture[str]) -> None:
    k = make(x=F32)
    k.b.effect(Print, "%d %u %.2f %lld %c %%\n", (
        k.const(-1, I8), k.const(7, U8), k.x, k.const(2**40, I64), k.const(65, I8),
    ))  # fmt: skip
    k.run(1, 1, x=1.5)
    assert capfd.readouterr().out == "-1 7 1.50 1099511627776 A %\n"


def test_blocks_print_in_order(make: Any, capfd: pytest.CaptureFixture[str]) -> None:
    k = make(x=F32)
    k.b.effect(Print, "%u%u ", (k.b.builtin("block_idx"), k.b.builtin("thread_idx", 1)))
    k.run(2, (1, 2), x=0.0)
    assert capfd.readouterr().out == "00 01 10 11 "


def test_assertions_stop_the_kernel(make: Any) -> None:
    k = make(n=I32)
    k.at(12)
    k.b.effect(Assert, k.op("lt", k.index(), k.n), "i < n")
    k.run(4, 8, n=32)
    with pytest.raises(
        KernelError, match=r"test.cu:12:1: error: assertion failed: i < n \(block \(2, 0, 0\), thread \(3"
    ):
        k.run(4, 8, n=19)


def test_trap(make: Any) -> None:
    k = make(n=I32)
    with k.when(k.op("eq", k.index(), k.n)):
        k.b.effect(Trap)
    k.b.effect(Fence, "device")
    k.run(2, 8, n=99)
    with pytest.raises(KernelError, match=r"trap \(block \(1, 0, 0\), thread \(1, 0, 0\)\)"):
        k.run(2, 8, n=9)


def test_clocks_grow(make: Any) -> None:
    k = make(out=Pointer(I64, "global"))
    for slot in range(2):
        k.put(k.out, k.const(slot), k.b.builtin("clock64", type=I64))
    out = np.zeros(2, np.int64)
    k.run(1, 1, out=out)
    assert 0 < out[0] <= out[1]


def test_volatile_global_memory(make: Any) -> None:
    k = make(x=PF64, flag=Pointer(BOOL, "global"))
    k.put(k.x, k.const(0), k.op("add", k.get(k.x, k.const(0), volatile=True), k.const(1.0, F64)), volatile=True)
    k.put(k.flag, k.const(0), k.op("not", k.get(k.flag, k.const(0), volatile=True)), volatile=True)
    x, flag = np.ones(1), np.zeros(1, np.bool_)
    k.run(1, 1, x=x, flag=flag)
    assert x[0] == 2 and flag[0]


def test_concurrent_launches(make: Any) -> None:
    """One executable, launched from several Python threads at once."""
    k = saxpy(make)
    executable = compile_cpu(k.module(), "k")
    n = 40_000
    config = LaunchConfig(((n + 255) // 256, 1, 1), (256, 1, 1))

    def launch(a: int) -> bool:
        x, y = np.ones(n, np.float32), np.zeros(n, np.float32)
        for _ in range(20):
            executable.launch(config, k.bind(y=y, x=x, a=float(a), n=n))
        return bool((y == 20 * a).all())

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(launch, range(4)))
