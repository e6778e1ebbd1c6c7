"""Running a function before and after passes, and comparing what can be seen of it."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from ir_interpreter import Machine
from ir_interpreter import apply as reference
from kernelgrad.ir.builder import Builder
from kernelgrad.ir.ops import Apply, Block, Function, Global, Module, Op, Param, Value
from kernelgrad.ir.traverse import walk
from kernelgrad.ir.types import Struct
from kernelgrad.ir.verifier import verify, verify_function

__all__ = [
    "BUFFER",
    "count",
    "function",
    "functions_applied",
    "module_of",
    "names",
    "observe",
    "reference",
    "the",
    "transformed",
]

Pass = Callable[[Function, Module], Function]


def observe(function: Function, module: Module, *args: Any, buffer: int = 8) -> tuple[Any, ...]:
    """Results, what is in the buffers afterwards, and printed lines. BUFFER as an argument is a buffer of i32."""
    machine = Machine(module)
    start = struct.pack(f"<{buffer}i", *range(buffer))
    given = [machine.allocate(start) if arg is BUFFER else arg for arg in args]
    results = machine.run(function, *given)
    written = [bytes(machine.memory[k + 1]) for k in range(args.count(BUFFER))]
    return repr(results), written, machine.printed


BUFFER = object()


def transformed(module: Module, name: str, *passes: Pass) -> Function:
    """The function after the passes, verified after each."""
    function = module.functions[name]
    for run in passes:
        function = run(function, module)
        verify_function(function, module, run.__module__)
    return function


def function(name: str, params: tuple[Value, ...], builder: Builder, *results: Value, kind: Any = "device") -> Function:
    """A function of what was built."""
    declared = tuple(Param(v, "T") for v in params)
    return Function(name, kind, declared, Block((), tuple(builder.ops), results))


def module_of(*functions: Function, structs: tuple[Struct, ...] = (), variables: tuple[Global, ...] = ()) -> Module:
    module = Module({f.name: f for f in functions}, {g.name: g for g in variables}, {s.name: s for s in structs})
    verify(module, "building")
    return module


def count(function: Function, kind: type[Op]) -> int:
    return sum(isinstance(op, kind) for op in walk(function.body))


def the(function: Function, kind: type[Op]) -> Any:
    """The only operation of the kind."""
    (op,) = (op for op in walk(function.body) if isinstance(op, kind))
    return op


def functions_applied(function: Function) -> list[str]:
    return [op.fn for op in walk(function.body) if isinstance(op, Apply)]


def names(values: tuple[Value, ...]) -> list[str | None]:
    return [v.name for v in values]
