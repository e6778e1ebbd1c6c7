"""Loops that count become `For`; all others stay, and all mean the same."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import kernelgrad as kg
from kernelgrad.ir.builder import Builder
from kernelgrad.ir.ops import For, Function, Print, Value, While
from kernelgrad.ir.types import BOOL, I32, I64, U32, U64, Pointer, Scalar
from kernelgrad.transforms import loops, simplify

from .checking import BUFFER, count, function, functions_applied, module_of, names, observe, the, transformed


def loop(
    fn: str = "lt",
    step: int = 1,
    first: int | None = 0,
    type: Scalar = I32,
    compared: Scalar | None = None,
    flipped: bool = False,
    read_after: bool = False,
    subtract: bool = False,
    last: int | None = None,
) -> Function:
    """`for (i = first; i fn n; i += step) { print(i); acc = acc * 3 + i; }`; from n where `first` is None."""
    b, n = Builder(), Value(compared or type, "n")
    init = b.convert(n, type) if first is None else b.constant(first, type)
    bound = n if last is None else b.constant(last, compared or type)
    i, acc, i2, acc2 = Value(type, "i"), Value(type, "acc"), Value(type, "i"), Value(type, "acc")
    with b.region() as before:
        sides = (b.convert(i, compared or type), bound)
        cond = b.apply(fn, *(reversed(sides) if flipped else sides))
    with b.region() as body:
        b.effect(Print, "%d", (i2,))
        total = b.apply("add", b.apply("mul", acc2, b.constant(3, type)), i2)
        amount = b.constant(-step if subtract else step, type)
        following = b.apply("sub" if subtract else "add", i2, amount)
    results = b.while_((init, init), before.block((i, acc), (cond, i, acc)), body.block((i2, acc2), (following, total)))
    return function("f", (n,), b, *(results if read_after else results[1:]))


def converted(original: Function, *arguments: object) -> Function:
    module = module_of(original)
    result = transformed(module, original.name, loops.run)
    for argument in arguments:
        assert observe(result, module, argument) == observe(original, module, argument)
    tidy = transformed(module, original.name, simplify.run, loops.run, simplify.run)
    assert count(tidy, For) == count(result, For)
    return result


COUNTED = {
    "i < n": (loop(), (5, 0, -3)),
    "n > i": (loop("gt", flipped=True), (5, 0, -3)),
    "i <= n": (loop("le"), (5, 0, -3)),
    "i += 3": (loop(step=3), (10, 9, 1)),
    "i > 0 downwards": (loop("gt", step=-1, first=9), (5, 9, 12)),
    "i >= n downwards": (loop("ge", step=-2, first=9), (5, 9, 12)),
    "i - 1": (loop("gt", step=-1, first=9, subtract=True), (5, 9)),
    "i != n": (loop("ne"), (5, 0)),
    "unsigned": (loop(type=U32), (5, 0)),
    "unsigned downwards": (loop("gt", step=-1, first=9, type=U32, subtract=True), (5, 9)),
    "unsigned != n": (loop("ne", type=U64), (5, 0)),
    "unsigned <= 7": (loop("le", type=U32, last=7), (5,)),
    "i < (long)n": (loop(compared=I64), (5, 0, -2)),
    "i < (unsigned)n": (loop(compared=U32), (5, 0)),
    "i < (size_t)n": (loop(compared=U64), (5, 0)),
    "counter read after": (loop(read_after=True), (5, 0, -3)),
    "counter read after <=": (loop("le", read_after=True), (5, 0, -3)),
    "counter read after, down": (loop("gt", step=-1, first=4, read_after=True), (1, 9)),
    "counter read after, wide": (loop(compared=I64, read_after=True), (5, -3)),
    "counter read after !=": (loop("ne", read_after=True), (5, 0)),
}


@pytest.mark.parametrize("name", COUNTED)
def test_counting_loops(name: str) -> None:
    original, arguments = COUNTED[name]
    result = converted(original, *arguments)
    assert count(result, While) == 0
    found = the(result, For)
    assert names(found.body.args) == ["i", "acc"] and names(found.results) == ["acc"]


OTHERS = {
    "counter with a step read after": (loop(step=2, read_after=True), (5,)),
    "wrong direction": (loop("gt", step=1, first=9), (12,)),
    "unsigned <= n may never end": (loop("le", type=U32), (5,)),
    "unsigned != n from beyond": (loop("ne", type=U32, first=3), (5,)),
    "!= with a step of two": (loop("ne", step=2), (4,)),
    "unsigned comparison of an int that may be negative": (loop(compared=U32, first=-1), (5,)),
    "equality": (loop("eq", first=5), (5,)),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_loops_stay(name: str) -> None:
    original, arguments = OTHERS[name]
    assert count(converted(original, *arguments), For) == 0


def test_a_bound_computed_in_the_condition_moves_out() -> None:
    b, n = Builder(), Value(I32, "n")
    i, i2 = Value(I32, "i"), Value(I32, "i")
    with b.region() as before:
        cond = b.apply("lt", i, b.apply("sub", b.apply("mul", n, b.constant(2, I32)), b.constant(1, I32)))
    with b.region() as body:
        b.effect(Print, "%d", (i2,))
        following = b.apply("add", b.constant(1, I32), i2)
    b.while_((n,), before.block((i,), (cond, i)), body.block((i2,), (following,)))
    result = converted(function("f", (n,), b), 4)
    assert count(result, For) == 1 and functions_applied(result) == ["mul", "sub"]


@pytest.mark.parametrize("what", ["load", "flag", "conditional step", "changing bound"])
def test_conditions_that_are_more_than_a_count(what: str) -> None:
    b, out, n = Builder(), Value(Pointer(I32, "global"), "out"), Value(I32, "n")
    i, flag, i2, flag2 = Value(I32, "i"), Value(BOOL, "flag"), Value(I32, "i"), Value(BOOL, "flag")
    one = b.constant(1, I32)
    with b.region() as before:
        bounds = {"load": lambda: b.load(b.offset(out, n))}
        bounds["changing bound"] = lambda: b.apply("sub", n, i)
        cond = b.apply("lt", i, bounds.get(what, lambda: n)())
        if what == "flag":
            cond = b.apply("and", cond, flag)
    with b.region() as body:
        b.effect(Print, "%d", (i2,))
        if what == "load":
            b.store(b.offset(out, n), b.apply("sub", n, one))
        following = b.apply("add", i2, one)
        if what == "conditional step":
            following = b.apply("select", b.apply("gt", i2, one), b.apply("add", following, one), following)
        going = b.apply("lt", i2, b.constant(2, I32))
    inits = (b.constant(0, I32), b.constant(True, BOOL))
    b.while_(inits, before.block((i, flag), (cond, i, flag)), body.block((i2, flag2), (following, going)))
    original = function("f", (out, n), b)
    module = module_of(original)
    result = transformed(module, "f", loops.run)
    assert observe(result, module, BUFFER, 5) == observe(original, module, BUFFER, 5)
    assert count(result, While) == 1 and count(result, For) == 0


def test_a_bound_from_memory_that_the_loop_leaves_alone() -> None:
    b, out, n = Builder(), Value(Pointer(I32, "global"), "out"), Value(I32, "n")
    i, i2 = Value(I32, "i"), Value(I32, "i")
    with b.region() as before:
        cond = b.apply("lt", i, b.load(b.offset(out, n)))
    with b.region() as body:
        b.effect(Print, "%d", (i2,))
        following = b.apply("add", i2, b.constant(1, I32))
    b.while_((b.constant(0, I32),), before.block((i,), (cond, i)), body.block((i2,), (following,)))
    original = function("f", (out, n), b)
    module = module_of(original)
    result = transformed(module, "f", loops.run)
    assert observe(result, module, BUFFER, 5) == observe(original, module, BUFFER, 5)
    assert count(result, While) == 0 and count(result, For) == 1


def test_nested_loops_whose_bounds_depend_on_each_other() -> None:
    b, n = Builder(), Value(I32, "n")
    zero, one = b.constant(0, I32), b.constant(1, I32)
    i, acc, i2, acc2 = Value(I32, "i"), Value(I32, "acc"), Value(I32, "i"), Value(I32, "acc")
    j, sum1, j2, sum2 = Value(I32, "j"), Value(I32, "acc"), Value(I32, "j"), Value(I32, "acc")
    with b.region() as outer_before:
        outer_cond = b.apply("lt", i, n)
    with b.region() as outer:
        with b.region() as inner_before:
            inner_cond = b.apply("le", j, i2)
        with b.region() as inner:
            more = b.apply("add", sum2, b.apply("mul", i2, j2))
            next_j = b.apply("add", j2, one)
        _, total = b.while_(
            (zero, acc2), inner_before.block((j, sum1), (inner_cond, j, sum1)), inner.block((j2, sum2), (next_j, more))
        )
        next_i = b.apply("add", i2, one)
    _, result = b.while_(
        (zero, zero), outer_before.block((i, acc), (outer_cond, i, acc)), outer.block((i2, acc2), (next_i, total))
    )
    found = converted(function("f", (n,), b, result), 6)
    assert count(found, For) == 2 and count(found, While) == 0


def test_an_unroll_request_survives() -> None:
    original = loop()
    ops = tuple(replace(op, unroll=4) if isinstance(op, While) else op for op in original.body.ops)
    unrolled = replace(original, body=replace(original.body, ops=ops))
    assert the(converted(unrolled, 3), For).unroll == 4


@pytest.mark.parametrize(("first", "turns"), [(-6, 0), (3, 7), (10, 0), (0, 10)])
def test_what_adds_up_from_beyond_what_has_a_sign(first: int, turns: int) -> None:
    kernel = kg.compile("""__global__ void k(long long *out, int a) {
        unsigned long long k = (unsigned long long)a; long long c = 0;
        while (k < 10) { c++; k += 1; }
        out[0] = c; out[1] = (long long)k;
    }""")["k"]
    out = np.zeros(2, np.int64)
    kernel[1, 1](out, first)
    assert out.tolist() == [turns, first + turns]
