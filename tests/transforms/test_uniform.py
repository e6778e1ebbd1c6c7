"""What is the same for all threads of a block."""

from __future__ import annotations

from dataclasses import replace

from kernelgrad.analysis.uniform import uniform_values
from kernelgrad.ir.builder import Builder
from kernelgrad.ir.ops import BarrierReduce, Function, Value
from kernelgrad.ir.types import F32, I32, U32, Pointer

from .checking import function, module_of


def uniform_names(original: Function, *read_only: str) -> set[str]:
    params = tuple(replace(p, const=p.name in read_only, restrict=p.name in read_only) for p in original.params)
    kernel = replace(original, kind="kernel", params=params)
    module_of(kernel)
    return {v.name for v in uniform_values(kernel) if v.name}


def test_where_values_come_from() -> None:
    b, n, p, q = Builder(), Value(U32, "n"), Value(Pointer(F32, "global"), "p"), Value(Pointer(F32, "global"), "q")
    block = b.builtin("block_idx")
    thread = b.builtin("thread_idx")
    b.apply("mul", block, n, name="same")
    b.apply("add", thread, n, name="own")
    b.load(b.offset(p, n), name="fixed")
    b.load(b.offset(p, thread), name="gathered")
    b.load(b.offset(q, n), name="written")
    b.load(b.cast_pointer(q, Pointer(F32, "constant")), name="table")
    b.load(p, volatile=True, name="volatile")
    b.emit(BarrierReduce, "or", b.convert(thread, I32), type=I32, name="any")
    b.alloca(F32, "address")
    found = uniform_names(function("f", (n, p, q), b), "p")
    assert found == {"n", "p", "q", "same", "fixed", "table", "any"}


def branch(b: Builder, cond: Value, name: str) -> Value:
    with b.region() as then:
        one = b.constant(1, U32)
    with b.region() as orelse:
        two = b.constant(2, U32)
    (result,) = b.if_(cond, then.block((), (one,)), orelse.block((), (two,)))
    return b.apply("add", result, b.constant(0, U32), name=name)


def test_branches_and_loops() -> None:
    b, n = Builder(), Value(U32, "n")
    thread = b.builtin("thread_idx")
    zero = b.constant(0, U32)
    branch(b, b.apply("gt", n, zero), "chosen")
    branch(b, b.apply("gt", thread, zero), "chosen_by_thread")
    for label, upper in (("all", n), ("own", thread)):
        k, acc, mixed = Value(U32, f"k_{label}"), Value(U32, f"acc_{label}"), Value(U32, f"mixed_{label}")
        with b.region() as body:
            following, other = b.apply("add", acc, k), b.apply("add", mixed, thread)
        block = body.block((k, acc, mixed), (following, other))
        total, varied = b.for_(zero, upper, (zero, zero), 1, block)
        b.apply("add", total, zero, name=f"after_{label}")
        b.apply("add", varied, zero, name=f"after_mixed_{label}")
    found = uniform_names(function("f", (n,), b))
    assert found == {"n", "chosen", "k_all", "acc_all", "after_all"}


def test_a_while_whose_condition_turns_out_to_vary() -> None:
    b, n = Builder(), Value(U32, "n")
    thread, zero = b.builtin("thread_idx"), b.constant(0, U32)
    i, j, i2, j2 = Value(U32, "i"), Value(U32, "j"), Value(U32, "i"), Value(U32, "j")
    with b.region() as before:
        cond = b.apply("lt", i, n)
    with b.region() as body:
        next_i = b.apply("add", i2, j2)
        next_j = b.apply("add", j2, thread)
    b.while_((zero, zero), before.block((i, j), (cond, i, j)), body.block((i2, j2), (next_i, next_j)))
    assert uniform_names(function("f", (n,), b)) == {"n"}


def test_parameters_of_device_functions_may_differ() -> None:
    b, n = Builder(), Value(U32, "n")
    assert not uniform_values(function("f", (n,), b, b.apply("add", n, n)))
