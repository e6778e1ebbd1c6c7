"""Calls disappear, meanings and places stay, recursion is refused where it is written."""

from __future__ import annotations

from itertools import pairwise

import pytest

from counted_calls import counted_calls
from kernelgrad.errors import Source, Span, UnsupportedError
from kernelgrad.ir.builder import Builder
from kernelgrad.ir.ops import Apply, Call, Function, Module, Value
from kernelgrad.ir.traverse import walk
from kernelgrad.ir.types import I32
from kernelgrad.transforms import inline

from .checking import count, function, module_of, observe, transformed

SOURCE = Source("k.cu", "int f(int x) { return g(x); }\n")


def caller(name: str, callee: str, line: int = 1) -> Function:
    b, x = Builder(Span(SOURCE, line, 5)), Value(I32, "x")
    once = b.emit(Call, callee, (x,), type=I32)
    twice = b.emit(Call, callee, (once,), type=I32)
    return function(name, (x,), b, twice)


def add_three() -> Function:
    b, x = Builder(Span(SOURCE, 7, 2)), Value(I32, "x")
    return function("add_three", (x,), b, b.apply("add", x, b.constant(3, I32)))


def test_nested_calls_are_replaced_by_bodies_with_their_own_places() -> None:
    module = module_of(caller("outer", "inner"), caller("inner", "add_three"), add_three())
    result = transformed(module, "outer", inline.run)
    assert count(result, Call) == 0 and count(result, Apply) == 4
    assert {op.span.line for op in walk(result.body)} == {7}
    assert observe(result, module, 1) == observe(module.functions["outer"], module, 1)


def test_a_function_that_returns_its_argument() -> None:
    b, x = Builder(), Value(I32, "x")
    module = module_of(caller("outer", "same"), function("same", (x,), b, x))
    result = transformed(module, "outer", inline.run)
    assert result.body.results == (result.params[0].value,)


def test_a_function_without_calls_stays_the_same_object() -> None:
    module = module_of(add_three())
    assert inline.run(module.functions["add_three"], module) is module.functions["add_three"]


def _chain(n: int) -> Module:
    """f0 calls f1 and so on, each of which adds something."""

    def link(k: int) -> Function:
        b, x = Builder(Span(SOURCE, 1, 5)), Value(I32, "x")
        return function(f"f{k}", (x,), b, b.apply("add", x, b.emit(Call, f"f{k + 1}", (x,), type=I32)))

    b, x = Builder(), Value(I32, "x")
    return module_of(*map(link, range(n)), function(f"f{n}", (x,), b, b.apply("mul", x, x)))


def test_an_operation_is_copied_once_however_deep_its_call() -> None:
    calls = []
    for n in (20, 40, 80):
        module = _chain(n)
        made, function = counted_calls(inline.run, module.functions["f0"], module)
        assert count(function, Apply) == n + 1
        calls.append(made)
    short, double, long = calls
    assert long - double <= 2.2 * (double - short), calls


@pytest.mark.parametrize("chain", [("f", "f"), ("f", "g", "h", "f")])
def test_recursion_is_refused_at_the_call(chain: tuple[str, ...]) -> None:
    functions = [caller(name, callee, line=k + 1) for k, (name, callee) in enumerate(pairwise(chain))]
    module = Module({f.name: f for f in functions})
    with pytest.raises(UnsupportedError, match="recursion.*cannot be inlined") as caught:
        inline.run(module.functions["f"], module)
    assert caught.value.span.line == len(functions)
    assert "loop" in (caught.value.hint or "")
