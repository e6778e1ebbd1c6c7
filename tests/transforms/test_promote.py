"""Locals become values where they can, keep their names, and stay memory where they must."""

from __future__ import annotations

import pytest

from counted_calls import counted_calls
from kernelgrad.ir.builder import Builder
from kernelgrad.ir.ops import Alloca, Apply, Atomic, Block, For, Function, If, Load, Module, Store, Undef, Value, While
from kernelgrad.ir.types import BOOL, F32, I32, I64, U32, Array, Field, Pointer, Struct
from kernelgrad.transforms import promote

from .checking import count, function, functions_applied, module_of, names, observe, the, transformed

PAIR = Struct("Pair", (Field("x", F32, 0), Field("y", F32, 4)), 8, 4)
MIXED = Struct("Mixed", (Field("a", Array(I32, 4), 0), Field("n", I32, 16), Field("p", PAIR, 20)), 28, 4)
PUN = Struct("Pun", (Field("f", F32, 0), Field("u", U32, 0)), 4, 4)
WIDE = Struct("Wide", (Field("f", F32, 0), Field("d", I64, 0)), 8, 8)
CLOSURE = Struct("Closure", (Field("total", Pointer(F32), 0),), 8, 8)
STRUCTS = (PAIR, MIXED, PUN, WIDE, CLOSURE)


def promoted(original: Function, *arguments: object) -> Function:
    """After the pass, which must not change what the function does on the arguments."""
    module = module_of(original, structs=STRUCTS)
    result = transformed(module, original.name, promote.run)
    assert observe(result, module, *arguments) == observe(original, module, *arguments)
    return result


def memory_operations(result: Function) -> int:
    return count(result, Alloca) + count(result, Load) + count(result, Store)


def test_straight_code_loses_its_variables() -> None:
    b, x = Builder(), Value(F32, "x")
    var = b.alloca(F32, "v")
    b.store(var, x)
    b.store(var, b.apply("mul", b.load(var), b.load(var)))
    result = promoted(function("f", (x,), b, b.load(var)), 3.0)
    assert memory_operations(result) == 0
    assert the(result, Apply).result.name == "v"


def test_reading_before_writing_is_undefined() -> None:
    b = Builder()
    var = b.alloca(F32, "v")
    result = promoted(function("f", (), b, b.load(var)))
    assert names(the(result, Undef).results) == ["v"]


def test_a_branch_gives_results_only_for_what_is_read_later() -> None:
    b, c = Builder(), Value(BOOL, "c")
    used, unused = b.alloca(I32, "used"), b.alloca(I32, "unused")
    b.store(used, b.constant(1, I32))
    with b.region() as then:
        b.store(used, b.constant(2, I32))
        b.store(unused, b.constant(3, I32))
    b.if_(c, then.block())
    result = promoted(function("f", (c,), b, b.load(used)), True)
    assert names(the(result, If).results) == ["used"]
    assert memory_operations(result) == 0


def counting_loop(b: Builder, n: Value, body: object) -> Value:
    i = b.alloca(I32, "i")
    b.store(i, b.constant(0, I32))
    with b.region() as before:
        cond = b.apply("lt", b.load(i), n)
    with b.region() as inside:
        body()  # type: ignore[operator]
        b.store(i, b.apply("add", b.load(i), b.constant(1, I32)))
    b.while_((), before.block((), (cond,)), inside.block())
    return i


def test_a_loop_carries_named_values_and_nothing_local_to_an_iteration() -> None:
    b, n = Builder(), Value(I32, "n")
    total, scratch = b.alloca(F32, "total"), b.alloca(F32, "scratch")
    b.store(total, b.constant(0.0, F32))

    def body() -> None:
        b.store(scratch, b.apply("add", b.load(total), b.constant(1.0, F32)))
        inner = b.alloca(F32, "inner")
        b.store(inner, b.load(scratch))
        b.store(total, b.load(inner))

    counting_loop(b, n, body)
    result = promoted(function("f", (n,), b, b.load(total)), 5)
    loop = the(result, While)
    assert sorted(map(str, names(loop.before.args))) == ["i", "total"]
    assert sorted(map(str, names(loop.body.args))) == ["i", "total"]
    assert memory_operations(result) == 0


def test_carried_through_a_for() -> None:
    b, n = Builder(), Value(I32, "n")
    total = b.alloca(I32, "total")
    b.store(total, b.constant(1, I32))
    iv = Value(I32, "k")
    with b.region() as body:
        b.store(total, b.apply("add", b.apply("mul", b.load(total), b.constant(3, I32)), iv))
    b.for_(b.constant(0, I32), n, (), 1, body.block((iv,)))
    result = promoted(function("f", (n,), b, b.load(total)), 4)
    assert names(the(result, For).results) == ["total"] == names(the(result, For).body.args[1:])


def test_struct_members_and_constant_elements_become_scalars() -> None:
    b, x = Builder(), Value(I32, "x")
    var, copy = b.alloca(MIXED, "m"), b.alloca(MIXED, "copy")
    for k in range(4):
        b.store(b.offset(b.decay(b.member(var, 0)), b.constant(k, I32)), b.apply("add", x, b.constant(k, I32)))
    b.store(b.member(var, 1), x)
    b.store(b.member(b.member(var, 2), 0), b.constant(1.0, F32))
    b.store(b.member(b.member(var, 2), 1), b.constant(2.0, F32))
    b.store(copy, b.load(var))
    last = b.load(b.offset(b.decay(b.member(copy, 0)), b.convert(b.constant(3, I32), I64)))
    pair = b.load(b.member(copy, 2))
    result = promoted(function("f", (x,), b, last, pair), 10)
    assert memory_operations(result) == 0


def test_only_the_dynamically_indexed_array_stays_memory() -> None:
    b, x = Builder(), Value(I32, "x")
    var = b.alloca(MIXED, "m")
    for k in range(4):
        b.store(b.offset(b.decay(b.member(var, 0)), b.constant(k, I32)), b.constant(k, I32))
    b.store(b.member(var, 1), x)
    b.store(b.member(var, 2), b.aggregate(PAIR, (b.constant(1.0, F32), b.constant(2.0, F32))))
    element = b.load(b.offset(b.decay(b.member(var, 0)), x))
    whole = b.load(var)
    result = promoted(function("f", (x,), b, element, b.load(b.member(var, 1)), whole), 2)
    alloca = the(result, Alloca)
    assert alloca.result.type == Pointer(Array(I32, 4), "local") and alloca.result.name == "m_a"


def test_references_and_closures_are_seen_through() -> None:
    b, n = Builder(), Value(I32, "n")
    total, closure, ref = b.alloca(F32, "total"), b.alloca(CLOSURE, "closure"), b.alloca(Pointer(CLOSURE), "self")
    b.store(total, b.constant(0.5, F32))
    b.store(closure, b.aggregate(CLOSURE, (b.cast_pointer(total, Pointer(F32)),)))
    b.store(ref, b.cast_pointer(closure, Pointer(CLOSURE)))

    def body() -> None:
        target = b.load(b.member(b.load(ref), 0))
        b.store(target, b.apply("add", b.load(target), b.constant(1.0, F32)))

    counting_loop(b, n, body)
    result = promoted(function("f", (n,), b, b.load(total)), 3)
    assert memory_operations(result) == 0
    assert "total" in names(the(result, While).before.args)


def test_the_same_reference_from_both_sides_of_a_branch() -> None:
    b, c = Builder(), Value(BOOL, "c")
    var, ref = b.alloca(F32, "v"), b.alloca(Pointer(F32), "ref")
    with b.region() as then:
        b.store(ref, b.cast_pointer(var, Pointer(F32)))
    with b.region() as orelse:
        b.store(ref, b.cast_pointer(var, Pointer(F32)))
    b.if_(c, then.block(), orelse.block())
    b.store(b.load(ref), b.constant(4.0, F32))
    result = promoted(function("f", (c,), b, b.load(var)), False)
    assert memory_operations(result) == 0


def chosen(b: Builder, c: Value) -> tuple[Value, Value, Value]:
    """Two variables, and the address of one of them."""
    left, right = b.alloca(F32, "left"), b.alloca(F32, "right")
    b.store(left, b.constant(1.0, F32))
    b.store(right, b.constant(2.0, F32))
    (ptr,) = b.if_(c, Block((), (), (left,)), Block((), (), (right,)))
    return left, right, ptr


def test_a_load_of_a_chosen_variable_is_a_choice_of_loads() -> None:
    b, c = Builder(), Value(BOOL, "c")
    *_, ptr = chosen(b, c)
    result = promoted(function("f", (c,), b, b.load(ptr)), False)
    assert memory_operations(result) == 0


def test_writing_to_a_chosen_variable_needs_memory() -> None:
    b, c = Builder(), Value(BOOL, "c")
    left, right, ptr = chosen(b, c)
    b.store(ptr, b.constant(5.0, F32))
    result = promoted(function("f", (c,), b, b.load(left), b.load(right)), False)
    assert count(result, Alloca) == 2


def test_same_size_puns_are_bitcasts() -> None:
    b, x = Builder(), Value(F32, "x")
    pun, var = b.alloca(PUN, "pun"), b.alloca(F32, "v")
    b.store(b.member(pun, 0), x)
    b.store(var, x)
    bits = b.load(b.cast_pointer(var, Pointer(I32, "local")))
    result = promoted(function("f", (x,), b, b.load(b.member(pun, 1)), bits), 1.5)
    assert memory_operations(result) == 0
    assert functions_applied(result) == ["bitcast", "bitcast"]


def test_fields_of_different_size_that_overlap_stay_memory() -> None:
    b, x = Builder(), Value(F32, "x")
    var = b.alloca(WIDE, "w")
    b.store(b.member(var, 1), b.constant(-1, I64))
    b.store(b.member(var, 0), x)
    result = promoted(function("f", (x,), b, b.load(b.member(var, 1))), 1.5)
    assert count(result, Alloca) == 1


@pytest.mark.parametrize("use", ["atomic", "volatile", "stored", "arithmetic", "returned"])
def test_what_escapes_stays_memory(use: str) -> None:
    b, x = Builder(), Value(I32, "x")
    var, other = b.alloca(I32, "v"), b.alloca(I32, "other")
    out = b.alloca(Array(Pointer(I32, "local"), 2), "out")
    b.store(other, x)
    b.store(var, x)
    results = [b.load(other)]
    if use == "atomic":
        b.effect(Atomic, "add", var, (x,), results=(Value(I32),))
    elif use == "volatile":
        results.append(b.load(var, volatile=True))
    elif use == "stored":
        b.store(b.offset(b.decay(out), x), var)
        results.append(b.load(b.load(b.offset(b.decay(out), x))))
    elif use == "arithmetic":
        results.append(b.load(b.offset(var, b.apply("sub", x, b.constant(1, I32)))))
    else:
        results.append(b.apply("eq", var, other))
    result = promoted(function("f", (x,), b, *results), 1)
    kept = {v.name for op in result.body.ops if isinstance(op, Alloca) for v in op.results}
    assert "v" in kept and ("other" in kept) == (use == "returned")


def test_a_pointer_to_a_vectors_first_member_reaches_the_others() -> None:
    b, k = Builder(), Value(I32, "k")
    var = b.alloca(PAIR, "v")
    b.store(b.member(var, 0), b.constant(1.0, F32))
    b.store(b.member(var, 1), b.constant(2.0, F32))
    result = promoted(function("f", (k,), b, b.load(b.offset(b.member(var, 0), k))), 1)
    assert the(result, Alloca).result.type == Pointer(PAIR, "local")


def test_the_end_of_one_array_is_not_the_start_of_the_next() -> None:
    twins = Struct("Twins", (Field("a", Array(I32, 2), 0), Field("b", Array(I32, 2), 8)), 16, 4)
    b = Builder()
    var, at = b.alloca(twins, "t"), b.alloca(Pointer(I32, "local"), "at")
    b.store(at, b.decay(b.member(var, 0)))
    end = b.offset(b.decay(b.member(var, 0)), b.constant(2, I32))
    b.store(b.offset(b.decay(b.member(var, 1)), b.constant(0, I32)), b.constant(7, I32))
    with b.region() as before:
        cond = b.apply("ne", b.load(at), end)
    with b.region() as body:
        b.store(b.load(at), b.constant(3, I32))
        b.store(at, b.offset(b.load(at), b.constant(1, I32)))
    b.while_((), before.block((), (cond,)), body.block())
    original = function("f", (), b, b.load(var))
    module = module_of(original, structs=(twins,))
    result = transformed(module, "f", promote.run)
    assert observe(result, module) == observe(original, module)


def test_large_locals_are_left_alone() -> None:
    b = Builder()
    var = b.alloca(Array(F32, 5000), "big")
    b.store(b.offset(b.decay(var), b.constant(4, I32)), b.constant(1.0, F32))
    result = promoted(function("f", (), b, b.load(b.offset(b.decay(var), b.constant(4, I32)))))
    assert count(result, Alloca) == 1


def test_long_code_takes_linear_time() -> None:
    calls = []
    for n in (500, 1000, 2000):
        module = _long_code(n)
        made, result = counted_calls(promote.run, module.functions["f"], module)
        assert memory_operations(result) == 0
        calls.append(made)
    short, double, long = calls
    assert long - double <= 2.2 * (double - short), calls


def _long_code(statements: int) -> Module:
    b, x = Builder(), Value(F32, "x")
    variables = [b.alloca(F32, f"v{k}") for k in range(300)]
    for var in variables:
        b.store(var, x)
    for k in range(statements):
        a, c = variables[k % 300], variables[(k * 7) % 300]
        b.store(a, b.apply("add", b.load(a), b.load(c)))
    return module_of(function("f", (x,), b, b.load(variables[5])))
