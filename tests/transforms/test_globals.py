"""Module variables become parameters after the user's own."""

from __future__ import annotations

from functools import partial

from kernelgrad.ir.builder import Builder
from kernelgrad.ir.ops import Function, Global, GlobalRef, Module, Value
from kernelgrad.ir.types import F32, I32, Array, Pointer
from kernelgrad.transforms.globals import run, used_globals

from .checking import count, function, module_of, transformed

VARIABLES = (Global("table", Array(F32, 4), "constant"), Global("total", F32, "global"), Global("tile", F32, "shared"))


def reader() -> tuple[Module, Function]:
    b, n = Builder(), Value(I32, "n")
    with b.region() as then:
        b.store(b.global_ref("total", F32, "global"), b.load(b.global_ref("tile", F32, "shared")))
    b.if_(b.apply("gt", n, b.constant(0, I32)), then.block())
    first = b.load(b.decay(b.global_ref("table", Array(F32, 4), "constant")))
    again = b.load(b.global_ref("total", F32, "global"))
    original = function("f", (n,), b, first, again)
    return module_of(original, variables=VARIABLES), original


def test_in_order_of_first_use_after_the_users_own() -> None:
    module, original = reader()
    assert used_globals(original) == ("total", "tile", "table")
    result = transformed(module, "f", partial(run, spaces=("global", "constant")))
    assert [(p.name, p.variable) for p in result.params] == [("n", None), ("total", "total"), ("table", "table")]
    assert result.params[2].type == Pointer(Array(F32, 4), "constant") and result.params[2].const
    assert used_globals(result) == ("tile",)


def test_other_spaces_stay() -> None:
    module, original = reader()
    result = transformed(module, "f", partial(run, spaces=("global",)))
    assert used_globals(result) == ("tile", "table") and count(result, GlobalRef) == 2
    assert run(original, module, ()) is original
