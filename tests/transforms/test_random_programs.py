"""Random programs mean the same before and after every pass."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from kernelgrad.ir.ops import Alloca, Call, Function, Module
from kernelgrad.ir.parser import parse_module
from kernelgrad.ir.printer import print_module
from kernelgrad.ir.traverse import walk
from kernelgrad.ir.types import Array, Pointer
from kernelgrad.ir.verifier import verify, verify_function
from kernelgrad.transforms import dce, inline, loops, promote, simplify, spaces

from .checking import BUFFER, count, observe
from .programs import program

PASSES = [inline.run, dce.run, promote.run, simplify.run, loops.run, simplify.run, spaces.run, promote.run]
SEEDS = st.integers(0, 1 << 32)


@settings(max_examples=25, deadline=None)
@given(seed=SEEDS, n=st.integers(-3, 6), x=st.sampled_from([0.0, 1.0, -2.5]))
def test_every_pass_keeps_the_meaning(seed: int, n: int, x: float) -> None:
    module = program(seed)
    verify(module, "building")
    function = module.functions["main"]
    expected = observe(function, module, BUFFER, n, x)
    for run in PASSES:
        function = run(function, module)
        verify_function(function, module, run.__module__)
        assert observe(function, module, BUFFER, n, x) == expected, run.__module__
    assert count(function, Call) == 0


@settings(max_examples=6, deadline=None)
@given(seed=SEEDS)
def test_passes_are_deterministic_and_do_not_touch_their_input(seed: int) -> None:
    module = program(seed)
    before = print_module(module)
    text = print_module(_after_all(module))
    assert print_module(module) == before
    assert print_module(_after_all(parse_module(before))) == text


@settings(max_examples=6, deadline=None)
@given(seed=SEEDS)
def test_only_indexed_arrays_and_chosen_variables_stay_memory(seed: int) -> None:
    function = _after_all(program(seed)).functions["main"]
    kept = [op.result.type for op in walk(function.body) if isinstance(op, Alloca)]
    scalars = [t for t in kept if isinstance(t, Pointer) and not isinstance(t.pointee, Array)]
    chosen = [op for op in walk(function.body) if any(isinstance(v.type, Pointer) for v in op.results)]
    assert not scalars or chosen


def _after_all(module: Module) -> Module:
    function: Function = module.functions["main"]
    for run in PASSES:
        function = run(function, module)
    return Module({"main": function}, module.globals, module.structs)
