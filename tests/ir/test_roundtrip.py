"""IR text reads back to the same text, and the verifier catches what is malformed."""

import pytest

from kernelgrad.errors import InternalError
from kernelgrad.ir.builder import Builder
from kernelgrad.ir.ops import Block, Function, Global, Module, Param, Value
from kernelgrad.ir.parser import parse_module
from kernelgrad.ir.printer import print_module
from kernelgrad.ir.types import BOOL, F32, I8, I32, U16, U32, Array, Field, Pointer, Scalar, Struct
from kernelgrad.ir.verifier import verify


def sum_kernel() -> Module:
    out, n = Value(Pointer(F32, "global"), "out"), Value(I32, "n")
    b = Builder()
    tid = b.apply("convert", b.builtin("thread_idx", 0), type=I32, name="tid")
    inside = b.apply("lt", tid, n)
    with b.region() as then:
        zero = b.constant(0.0, F32)
        with b.region() as body:
            i, acc = Value(I32, "i"), Value(F32, "acc")
            total = b.apply("add", acc, b.convert(i, F32))
        loop = body.block((i, acc), (total,))
        (result,) = b.for_(b.constant(0, I32), n, (zero,), 1, loop)
        b.store(b.offset(out, tid), result)
    b.if_(inside, then.block(), exits=True)
    pair = Struct("Pair<int, 2>", (Field("x", F32, 0), Field("next", Pointer(F32), 8)), 16, 8)
    shared = Global("tile", Array(F32, 32), "shared")
    kernel = Function("sum", "kernel", (Param(out, "float *"), Param(n, "int")), Block((), tuple(b.ops), ()))
    return Module({"sum": kernel}, {"tile": shared, "c": Global("c", I32, "constant", b"\1\0\0\0")}, {pair.name: pair})


def test_text_reads_back() -> None:
    module = sum_kernel()
    verify(module, "building")
    text = print_module(module)
    again = parse_module(text)
    verify(again, "parsing")
    assert print_module(again) == text


@pytest.mark.parametrize("value", [0.1, -0.0, 1e300, float("inf"), float("-inf"), float("nan"), 5e-324])
def test_float_constants_survive(value: float) -> None:
    b = Builder()
    result = b.constant(value, F32)
    module = Module({"f": Function("f", "device", (), Block((), tuple(b.ops), (result,)))})
    text = print_module(module)
    assert print_module(parse_module(text)) == text


def test_use_before_definition_blames_the_pass() -> None:
    b = Builder()
    stray = Value(U32, "stray")
    b.apply("add", stray, stray)
    with pytest.raises(InternalError, match="after 'cse'.*stray.*before its definition"):
        verify(Module({"f": Function("f", "device", (), Block((), tuple(b.ops), ()))}), "cse")


@pytest.mark.parametrize("type", [BOOL, I8, U16, F32])
def test_index_must_be_32_or_64_bits_wide(type: Scalar) -> None:
    x, k = Value(Pointer(F32, "global"), "x"), Value(type, "k")
    b = Builder()
    b.offset(x, k)
    function = Function("f", "device", (Param(x, "float *"), Param(k, "")), Block((), tuple(b.ops), ()))
    with pytest.raises(InternalError, match="index is .*, not an integer of 32 or 64 bits"):
        verify(Module({"f": function}), "test")


def test_condition_must_be_bool() -> None:
    b = Builder()
    b.if_(b.constant(1, I32), Block((), (), ()))
    with pytest.raises(InternalError, match="condition is not bool"):
        verify(Module({"f": Function("f", "device", (), Block((), tuple(b.ops), ()))}), "test")
    assert BOOL.size == 1
