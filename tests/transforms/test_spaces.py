"""Generic pointers get the space that all their sources agree on."""

from __future__ import annotations

from kernelgrad.ir.builder import Builder
from kernelgrad.ir.ops import Alloca, Apply, Block, Function, If, Load, PtrCast, Store, Value, While
from kernelgrad.ir.traverse import walk
from kernelgrad.ir.types import BOOL, F32, I32, Field, Pointer, Space, Struct
from kernelgrad.transforms import spaces

from .checking import BUFFER, count, function, module_of, observe, the, transformed

NODE = Struct("Node", (Field("value", F32, 0), Field("next", Pointer(F32), 8)), 16, 8)
GLOBAL = Pointer(F32, "global")


def inferred(original: Function, *arguments: object) -> Function:
    module = module_of(original, structs=(NODE,))
    result = transformed(module, original.name, spaces.run)
    assert observe(result, module, *arguments) == observe(original, module, *arguments)
    return result


def accessed(result: Function) -> list[Space]:
    return [op.ptr.type.space for op in walk(result.body) if isinstance(op, Load | Store)]  # type: ignore[union-attr]


def test_casts_that_only_forget_the_space_go() -> None:
    b, p, i = Builder(), Value(GLOBAL, "p"), Value(I32, "i")
    at = b.offset(b.cast_pointer(p, Pointer(F32)), i)
    as_int = b.cast_pointer(at, Pointer(I32))
    result = inferred(function("f", (p, i), b, b.load(at), b.load(as_int)), BUFFER, 2)
    assert accessed(result) == ["global", "global"]
    assert the(result, PtrCast).result.type == Pointer(I32, "global")


def test_branches_and_selects_with_null() -> None:
    b, p, c = Builder(), Value(GLOBAL, "p"), Value(BOOL, "c")
    generic, null = b.cast_pointer(p, Pointer(F32)), b.null(Pointer(F32))
    one = b.apply("select", c, generic, null)
    (two,) = b.if_(c, Block((), (), (generic,)), Block((), (), (null,)))
    same = b.apply("eq", one, null)
    result = inferred(function("f", (p, c), b, b.load(one), b.load(two), same), BUFFER, True)
    assert accessed(result) == ["global", "global"]
    assert the(result, If).results[0].type == GLOBAL


def test_a_pointer_carried_through_a_loop() -> None:
    b, p, n = Builder(), Value(GLOBAL, "p"), Value(I32, "n")
    start = b.cast_pointer(p, Pointer(F32))
    end = b.offset(start, n)
    at, at2 = Value(Pointer(F32), "at"), Value(Pointer(F32), "at")
    with b.region() as before:
        cond = b.apply("ne", at, end)
    with b.region() as body:
        b.store(at2, b.constant(1.0, F32))
        following = b.offset(at2, b.constant(1, I32))
    b.while_((start,), before.block((at,), (cond, at)), body.block((at2,), (following,)))
    result = inferred(function("f", (p, n), b), BUFFER, 3)
    assert accessed(result) == ["global"] and count(result, PtrCast) == 0
    assert the(result, While).body.args[0].type == GLOBAL


def test_sources_that_disagree_stay_generic() -> None:
    b, p, c = Builder(), Value(GLOBAL, "p"), Value(BOOL, "c")
    local = b.alloca(F32, "v")
    b.store(local, b.constant(2.0, F32))
    chosen = b.apply("select", c, b.cast_pointer(p, Pointer(F32)), b.cast_pointer(local, Pointer(F32)))
    same = b.apply("eq", b.cast_pointer(p, Pointer(F32)), b.cast_pointer(local, Pointer(F32)))
    result = inferred(function("f", (p, c), b, b.load(chosen), same), BUFFER, False)
    assert accessed(result) == ["local", "generic"]
    assert count(result, Apply) == 2


def test_memory_that_holds_pointers_keeps_its_type() -> None:
    b, p = Builder(), Value(GLOBAL, "p")
    node = b.alloca(NODE, "node")
    b.store(b.member(node, 1), b.cast_pointer(p, Pointer(F32)))
    value = b.load(b.load(b.member(node, 1)))
    result = inferred(function("f", (p,), b, value, b.cast_pointer(p, Pointer(F32))), BUFFER)
    assert the(result, Alloca).result.type == Pointer(NODE, "local")
    assert accessed(result) == ["local", "local", "generic"]


def test_nothing_to_do_gives_the_same_function() -> None:
    b, p = Builder(), Value(GLOBAL, "p")
    original = function("f", (p,), b, b.load(p))
    assert spaces.run(original, module_of(original)) is original
