"""Simplification is exact, shares what is equal, and never runs what a guard protects."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from kernelgrad.ir.builder import Builder
from kernelgrad.ir.ops import (
    Aggregate,
    Alloca,
    Apply,
    Block,
    Builtin,
    Constant,
    Extract,
    For,
    Function,
    If,
    Insert,
    Load,
    Print,
    Store,
    Value,
    While,
)
from kernelgrad.ir.types import BOOL, F32, F64, I32, I64, U8, U32, Array, Field, Pointer, Scalar, Struct
from kernelgrad.transforms import simplify

from .checking import BUFFER, count, function, functions_applied, module_of, names, observe, the, transformed

PAIR = Struct("Pair", (Field("x", F32, 0), Field("y", F32, 4)), 8, 4)


def simplified(original: Function, *arguments: object) -> Function:
    module = module_of(original, structs=(PAIR,))
    result = transformed(module, original.name, simplify.run)
    assert observe(result, module, *arguments) == observe(original, module, *arguments)
    return result


SAMPLES = {"float": (1.5, -0.0, math.inf, math.nan), "bool": (False, True), "int": (300, -1), "uint": (0, 300)}


def value_of(type: Scalar, build: Callable[[Builder, Value], Value]) -> tuple[Function, Value]:
    """What becomes of an expression of `x`."""
    b, x = Builder(), Value(type, "x")
    original = function("f", (x,), b, build(b, x))
    for sample in SAMPLES[type.kind]:
        result = simplified(original, sample)
    return result, x


IDENTITIES = {
    "int x+0": (I32, lambda b, x: b.apply("add", x, b.constant(0, I32))),
    "x-7+7": (I32, lambda b, x: b.apply("add", b.apply("sub", x, b.constant(7, I32)), b.constant(7, I32))),
    "7+(-7+x)": (I32, lambda b, x: b.apply("add", b.constant(7, I32), b.apply("add", b.constant(-7, I32), x))),
    "x+7-7": (U32, lambda b, x: b.apply("sub", b.apply("add", x, b.constant(7, U32)), b.constant(7, U32))),
    "0+x": (U32, lambda b, x: b.apply("add", b.constant(0, U32), x)),
    "x-0.0": (F32, lambda b, x: b.apply("sub", x, b.constant(0.0, F32))),
    "x+-0.0": (F32, lambda b, x: b.apply("add", x, b.constant(-0.0, F32))),
    "x*1.0": (F32, lambda b, x: b.apply("mul", x, b.constant(1.0, F32))),
    "x/1.0": (F64, lambda b, x: b.apply("div", x, b.constant(1.0, F64))),
    "--x": (F32, lambda b, x: b.apply("neg", b.apply("neg", x))),
    "!!x": (BOOL, lambda b, x: b.apply("not", b.apply("not", x))),
    "x&&true": (BOOL, lambda b, x: b.apply("and", x, b.constant(True, BOOL))),
    "x||false": (BOOL, lambda b, x: b.apply("or", b.constant(False, BOOL), x)),
    "x!=false": (BOOL, lambda b, x: b.apply("ne", b.convert(x, I32), b.constant(0, I32))),
    "x&-1": (I32, lambda b, x: b.apply("and", x, b.constant(-1, I32))),
    "x<<0": (I32, lambda b, x: b.apply("shl", x, b.constant(0, I32))),
    "(int)(long)x": (I32, lambda b, x: b.convert(b.convert(x, I64), I32)),
    "(float)(double)x": (F32, lambda b, x: b.convert(b.convert(x, F64), F32)),
    "select same": (F32, lambda b, x: b.apply("select", b.apply("lt", x, b.constant(2.0, F32)), x, x)),
    "select bool": (BOOL, lambda b, x: b.apply("select", x, b.constant(True, BOOL), b.constant(False, BOOL))),
}


@pytest.mark.parametrize("name", IDENTITIES)
def test_identities(name: str) -> None:
    type, build = IDENTITIES[name]
    result, x = value_of(type, build)
    assert result.body.results == (x,) and not result.body.ops


KEPT = {
    "x+0.0": (F32, lambda b, x: b.apply("add", x, b.constant(0.0, F32))),
    "x*0.0": (F32, lambda b, x: b.apply("mul", x, b.constant(0.0, F32))),
    "x-x": (F32, lambda b, x: b.apply("sub", x, x)),
    "x==x": (F32, lambda b, x: b.apply("eq", x, x)),
    "!(x<1)": (F32, lambda b, x: b.apply("not", b.apply("lt", x, b.constant(1.0, F32)))),
    "(int)(char)x": (I32, lambda b, x: b.convert(b.convert(x, U8), I32)),
    "(double)(float)x": (F64, lambda b, x: b.convert(b.convert(x, F32), F64)),
}


@pytest.mark.parametrize("name", KEPT)
def test_what_only_looks_like_an_identity(name: str) -> None:
    type, build = KEPT[name]
    b = Builder()
    build(b, Value(type, "x"))
    result, _ = value_of(type, build)
    assert functions_applied(result) == [op.fn for op in b.ops if isinstance(op, Apply)]


def test_constants_fold_in_their_own_precision() -> None:
    b = Builder()
    third = b.apply("div", b.constant(1.0, F32), b.constant(3.0, F32))
    wrapped = b.apply("mul", b.constant(1 << 20, I32), b.constant(1 << 12, I32))
    result = simplified(function("f", (), b, third, wrapped))
    assert [op.value for op in result.body.ops if isinstance(op, Constant)] == [0.3333333432674408, 0]


def test_equal_values_are_shared_inwards_but_not_outwards() -> None:
    b, x, out = Builder(), Value(I32, "x"), Value(Pointer(I32, "global"), "out")
    first = b.apply("mul", x, x)
    with b.region() as then:
        b.store(out, b.apply("mul", x, x))
        b.store(b.offset(out, x), b.apply("div", x, first))
    b.if_(b.apply("gt", x, b.constant(0, I32)), then.block())
    last = b.apply("div", x, first)
    result = simplified(function("f", (out, x), b, first, last), BUFFER, 2)
    assert sorted(functions_applied(result)) == ["div", "div", "gt", "mul"]


def test_commuted_operands_are_equal_and_clocks_are_not() -> None:
    b, x, y = Builder(), Value(F32, "x"), Value(F32, "y")
    total = b.apply("sub", b.apply("add", x, y), b.apply("add", y, x))
    ticks = [b.builtin("clock", type=I32), b.builtin("clock", type=I32)]
    lanes = [b.builtin("lane_id"), b.builtin("lane_id")]
    elapsed, none = b.apply("sub", *ticks), b.apply("sub", *lanes)
    result = simplified(function("f", (x, y), b, total, elapsed, none), 1.0, 2.0)
    assert functions_applied(result) == ["add", "sub", "sub"] and count(result, Builtin) == 2


def test_a_shared_value_keeps_the_name_of_the_one_it_replaces() -> None:
    b, x = Builder(), Value(F32, "x")
    unnamed = b.apply("mul", x, x)
    named = b.apply("mul", x, x, name="square")
    result = simplified(function("f", (x,), b, unnamed, named), 3.0)
    assert the(result, Apply).result.name == "square"


def test_parts_of_aggregates_are_seen_through() -> None:
    b, x, p = Builder(), Value(F32, "x"), Value(PAIR, "p")
    made = b.insert(b.insert(p, x, 0), x, 1)
    whole = b.aggregate(PAIR, (b.extract(p, 0), b.extract(p, 1)))
    result = simplified(function("f", (x, p), b, b.extract(made, 0), b.extract(made, 1), whole), 1.0, (2.0, 3.0))
    assert result.body.results == (x, x, p)
    assert not any(count(result, kind) for kind in (Aggregate, Extract, Insert))


def lazy_and(b: Builder, left: Value, build: Callable[[], Value]) -> Value:
    with b.region() as then:
        right = build()
    with b.region() as orelse:
        false = b.constant(False, BOOL)
    return b.if_(left, then.block((), (right,)), orelse.block((), (false,)))[0]


def test_short_circuits_of_comparisons_become_logic() -> None:
    b, i, n = Builder(), Value(I32, "i"), Value(I32, "n")
    one = b.constant(1, I32)

    def both() -> Value:
        return lazy_and(b, b.apply("lt", i, b.apply("sub", n, one)), lambda: b.apply("ne", i, b.constant(4, I32)))

    result = simplified(function("f", (i, n), b, lazy_and(b, b.apply("gt", i, one), both)), 2, 5)
    assert count(result, If) == 0 and functions_applied(result).count("and") == 2


@pytest.mark.parametrize("guarded", ["load", "div", "sqrt", "float"])
def test_what_a_guard_protects_stays_behind_it(guarded: str) -> None:
    b, i, x, out = Builder(), Value(I32, "i"), Value(F32, "x"), Value(Pointer(I32, "global"), "out")
    safe = b.apply("ne", i, b.constant(0, I32))
    builds = {
        "load": lambda: b.load(b.offset(out, i)),
        "div": lambda: b.apply("div", b.constant(7, I32), i),
        "sqrt": lambda: b.convert(b.apply("sqrt", x), I32),
        "float": lambda: b.convert(b.apply("mul", x, x), I32),
    }
    with b.region() as then:
        value = builds[guarded]()
    with b.region() as orelse:
        zero = b.constant(0, I32)
    (chosen,) = b.if_(safe, then.block((), (value,)), orelse.block((), (zero,)))
    result = simplified(function("f", (out, i, x), b, chosen), BUFFER, 0, -1.0)
    assert count(result, If) == 1 and {type(op) for op in result.body.ops} <= {Constant, Apply, If}
    assert functions_applied(Function("top", "device", (), Block((), result.body.ops[:-1], ()))) in ([], ["ne"])


def test_integer_choices_become_selects() -> None:
    b, i = Builder(), Value(I32, "i")
    with b.region() as then:
        more = b.apply("add", i, b.constant(1, I32))
    with b.region() as orelse:
        zero = b.constant(0, I32)
    (chosen,) = b.if_(b.apply("lt", i, b.constant(9, I32)), then.block((), (more,)), orelse.block((), (zero,)))
    result = simplified(function("f", (i,), b, chosen), 4)
    assert functions_applied(result) == ["lt", "add", "select"]


def test_conditions_known_inside_a_branch() -> None:
    b, c, d = Builder(), Value(BOOL, "c"), Value(BOOL, "d")
    with b.region() as inner:
        b.effect(Print, "inner", ())
    with b.region() as never:
        b.effect(Print, "never", ())
    with b.region() as then:
        b.if_(c, inner.block(), never.block())
        b.if_(b.apply("not", d), never.block())
    b.if_(b.apply("and", c, d), then.block())
    result = simplified(function("f", (c, d), b), True, True)
    assert count(result, If) == 1 and the(result, Print).format == "inner"


def test_an_empty_then_side_is_turned_around() -> None:
    b, i = Builder(), Value(I32, "i")
    with b.region() as orelse:
        b.effect(Print, "here", ())
    b.if_(b.apply("ge", i, b.constant(3, I32)), Block((), (), ()), orelse.block(), exits=True)
    result = simplified(function("f", (i,), b), 1)
    branch = the(result, If)
    assert functions_applied(result) == ["lt"] and branch.then.ops and not branch.orelse.ops and branch.exits


def test_struct_results_of_branches_are_split() -> None:
    b, c, p, q = Builder(), Value(BOOL, "c"), Value(PAIR, "p"), Value(PAIR, "q")
    with b.region() as then:
        b.effect(Print, "p", ())
    (chosen,) = b.if_(c, then.block((), (p,)), Block((), (), (q,)))
    result = simplified(function("f", (c, p, q), b, b.extract(chosen, 1)), True, (1.0, 2.0), (3.0, 4.0))
    assert [v.type for v in the(result, If).results] == [F32]


def test_dead_code_goes_and_effects_stay() -> None:
    b, n, out = Builder(), Value(I32, "n"), Value(Pointer(I32, "global"), "out")
    b.load(out)
    volatile = b.load(out, volatile=True)
    scratch = b.alloca(Array(I32, 4), "scratch")
    b.store(b.offset(b.decay(scratch), n), volatile)
    with b.region() as useless:
        k, carried = Value(I32, "k"), Value(I32, "carried")
        more = b.apply("add", carried, k)
    b.for_(b.constant(0, I32), n, (n,), 1, useless.block((k, carried), (more,)))
    result = simplified(function("f", (out, n), b), BUFFER, 3)
    assert [type(op) for op in result.body.ops] == [Load] and the(result, Load).volatile


def test_stores_into_a_local_that_is_read_stay() -> None:
    b, n = Builder(), Value(I32, "n")
    array = b.alloca(Array(I32, 4), "a")
    b.store(b.offset(b.decay(array), n), n)
    result = simplified(function("f", (n,), b, b.load(b.offset(b.decay(array), n))), 3)
    assert count(result, Alloca) == count(result, Store) == count(result, Load) == 1


def test_unchanging_dead_and_doubled_carried_values_go() -> None:
    b, n = Builder(), Value(I32, "n")
    zero, one = b.constant(0, I32), b.constant(1, I32)
    i, fixed, dead = Value(I32, "i"), Value(I32, "fixed"), Value(I32, "dead")
    with b.region() as before:
        cond = b.apply("lt", i, fixed)
    i2, fixed2, dead2, twin = Value(I32, "i"), Value(I32, "fixed"), Value(I32, "dead"), Value(I32, "twin")
    with b.region() as body:
        following = b.apply("add", twin, one)
        more = b.apply("add", dead2, i2)
    results = b.while_(
        (zero, n, zero),
        before.block((i, fixed, dead), (cond, i, fixed, dead, i)),
        body.block((i2, fixed2, dead2, twin), (following, fixed2, more)),
    )
    result = simplified(function("f", (n,), b, results[0], results[1]), 5)
    assert names(the(result, While).before.args) == ["i"] == names(the(result, While).body.args)


def test_the_condition_holds_inside_the_body() -> None:
    b, n = Builder(), Value(I32, "n")
    stop, stop2 = Value(BOOL, "stop"), Value(BOOL, "stop")
    with b.region() as before:
        going = b.apply("not", stop)
    with b.region() as body:
        with b.region() as then:
            b.effect(Print, "never", ())
        b.if_(stop2, then.block())
        b.effect(Print, "once", ())
        done = b.apply("or", stop2, b.constant(True, BOOL))
    b.while_((b.constant(False, BOOL),), before.block((stop,), (going, stop)), body.block((stop2,), (done,)))
    result = simplified(function("f", (n,), b), 5)
    assert the(result, Print).format == "once"


def test_loops_that_run_once_or_never() -> None:
    b, n = Builder(), Value(I32, "n")
    zero, one = b.constant(0, I32), b.constant(1, I32)
    totals = []
    for upper in (zero, one, b.constant(2, I32)):
        k, acc = Value(I32, "k"), Value(I32, "acc")
        with b.region() as body:
            b.effect(Print, "run", (k,))
            total = b.apply("add", b.apply("mul", acc, n), k)
        totals += b.for_(zero, upper, (n,), 1, body.block((k, acc), (total,)))
    with b.region() as before:
        never = b.apply("lt", zero, zero)
    with b.region() as endless:
        b.effect(Print, "never", ())
    b.while_((), before.block((), (never,)), endless.block())
    result = simplified(function("f", (n,), b, *totals), 3)
    assert count(result, For) == 1 and count(result, While) == 0 and count(result, Print) == 2


def test_a_while_that_may_wait_stays() -> None:
    b, out = Builder(), Value(Pointer(I32, "global"), "out")
    with b.region() as before:
        cond = b.apply("ne", b.load(out), b.constant(0, I32))
    b.while_((), before.block((), (cond,)), Block((), (), ()))
    assert count(simplified(function("f", (out,), b), BUFFER), While) == 1


def test_an_undefined_side_leaves_no_choice() -> None:
    b, c, x = Builder(), Value(BOOL, "c"), Value(F32, "x")
    with b.region() as then:
        b.effect(Print, "here", ())
    with b.region() as orelse:
        nothing = b.undef(F32)
    (value,) = b.if_(c, then.block((), (x,)), orelse.block((), (nothing,)))
    result = simplified(function("f", (c, x), b, value), True, 2.0)
    assert result.body.results == (x,) and not the(result, If).results
