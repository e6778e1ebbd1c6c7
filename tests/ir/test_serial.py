"""Modules as plain JSON: everything comes back, also what the text form leaves out."""

import math
import struct

import pytest

from kernelgrad.errors import Source, Span
from kernelgrad.ir import serial
from kernelgrad.ir.builder import Builder
from kernelgrad.ir.ops import Block, Constant, Function, Global, If, Module, Param, Value
from kernelgrad.ir.printer import print_module
from kernelgrad.ir.traverse import walk
from kernelgrad.ir.types import BOOL, F32, F64, I32, Array, Field, Pointer, Struct
from kernelgrad.ir.verifier import verify

MAIN, HEADER = Source("a.cu", "kernel\ntext é\n"), Source("b.h")


def a_module() -> Module:
    node = Struct("ns::Node<int, 2>")
    node.define((Field("next", Pointer(node), 0), Field("x", Array(F32, 3), 8)), 24, 8)
    out, n, nodes = Value(Pointer(F32, "global"), "s::out"), Value(I32, "x.1"), Value(Pointer(node), None)
    b = Builder(Span(HEADER, 3, 4, 5))
    with b.region() as body:
        i, acc = Value(I32, "i"), Value(F32, None)
        total = b.apply("add", acc, b.convert(i, F32))
    (result,) = b.for_(b.constant(0, I32), n, (b.constant(-0.0, F32),), 1, body.block((i, acc), (total,)))
    b.store(b.offset(out, n), result)
    empty = Block((), (), ())
    ops = (*b.ops, Constant(True, results=(flag := Value(BOOL, "f"),)), If(flag, empty, empty), If(flag, empty, empty))
    params = (Param(out, "float *", restrict=True), Param(n, "int"), Param(nodes, "Node *", const=True, variable="v"))
    kernel = Function("k<1>", "kernel", params, Block((), ops, ()), Span(MAIN, 1, 1, 6), (128, 2))
    variables = {"c": Global("c", I32, "constant", b"\1\0\0\0", Span(MAIN, 2, 1)), "t": Global("t", F32, "shared")}
    return Module({"k<1>": kernel}, variables, {node.name: node})


def facts(module: Module) -> list[object]:
    """What there is to an operation besides its text."""
    found: list[object] = []
    for function in module.functions.values():
        found += [(p.name, p.type, p.c_type, p.const, p.restrict, p.variable) for p in function.params]
        for op in walk(function.body):
            place = op.span.source.name, op.span.source.text, op.span.line, op.span.column, op.span.length
            found.append((type(op), place, [(v.name, v.type) for v in op.results]))
        found += [function.kind, function.launch_bounds, function.span.source.text, function.span.length]
    found += [(g.name, g.type, g.space, g.init, g.span.line) for g in module.globals.values()]
    return found + [
        (s.name, s.size, s.align, [(f.name, str(f.type)) for f in s.fields]) for s in module.structs.values()
    ]


def test_everything_comes_back() -> None:
    module = a_module()
    verify(module, "building")
    again = serial.load(serial.dump(module))
    verify(again, "reading")
    assert print_module(again) == print_module(module)
    assert facts(again) == facts(module)
    assert serial.dump(again) == serial.dump(module)


BITS = [0x0000000000000000, 0x8000000000000000, 0x7FF0000000000000, 0xFFF8000000000001, 1, 0x3FB999999999999A]


@pytest.mark.parametrize("bits", BITS)
def test_constants_keep_their_bits(bits: int) -> None:
    (value,) = struct.unpack("<d", struct.pack("<Q", bits))
    b = Builder()
    result = b.constant(value, F64)
    module = Module({"f": Function("f", "device", (), Block((), tuple(b.ops), (result,)))})
    (op,) = serial.load(serial.dump(module)).functions["f"].body.ops
    assert isinstance(op, Constant)
    assert struct.pack("<d", op.value) == struct.pack("<d", value)
    assert math.isnan(op.value) == math.isnan(value)


def test_no_depth_is_too_deep() -> None:
    body = Block((), (), ())
    cond = Value(BOOL, "c")
    for _ in range(5000):
        body = Block((), (If(cond, body, Block((), (), ())),), ())
    module = Module({"f": Function("f", "device", (Param(cond, "bool"),), body)})
    again = serial.load(serial.dump(module)).functions["f"]
    assert sum(1 for _ in walk(again.body)) == 5000


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b'{"sources": [], "spans": []}'])
def test_what_is_no_module_is_an_error(data: bytes) -> None:
    with pytest.raises((ValueError, LookupError, TypeError)):
        serial.load(data)
