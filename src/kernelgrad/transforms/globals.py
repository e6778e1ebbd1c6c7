"""Module variables of chosen spaces become parameters: the launcher passes their addresses.

Before: `GlobalRef`s anywhere in the body. After: those of the given spaces are gone; the function has one more
parameter per variable, after the user's own, in order of first use, with `Param.variable` naming the variable.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from ..ir.ops import Block, Function, GlobalRef, Module, Op, Param, Value
from ..ir.traverse import rebuild, walk
from ..ir.types import Pointer, Space


def used_globals(function: Function) -> tuple[str, ...]:
    """The module variables whose address the function takes itself, in order of first use."""
    return tuple(dict.fromkeys(op.name for op in walk(function.body) if isinstance(op, GlobalRef)))


def run(function: Function, module: Module, spaces: Collection[Space]) -> Function:
    """For variables of these spaces."""
    names = [name for name in used_globals(function) if module.globals[name].space in spaces]
    return _with_params(function, tuple(_param(name, module, module.globals[name].space) for name in names))


def as_params(function: Function, module: Module, names: Sequence[str]) -> Function:
    """Those variables become parameters that point to global memory, wherever the source put them."""
    return _with_params(function, tuple(_param(name, module, "global") for name in names))


def _with_params(function: Function, params: tuple[Param, ...]) -> Function:
    if not params:
        return function
    values = {param.name: param.value for param in params}
    return replace(function, params=function.params + params, body=_without_refs(function.body, values))


def _param(name: str, module: Module, space: Space) -> Param:
    value = Value(Pointer(module.globals[name].type, space), name)
    return Param(value, "void *", const=space == "constant", restrict=False, variable=name)


def _without_refs(body: Block, params: dict[str, Value]) -> Block:
    replaced: dict[Value, Value] = {}

    def value(v: Value) -> Value:
        return replaced.get(v, v)

    def block(b: Block) -> Block:
        ops: list[Op] = []
        for op in b.ops:
            if isinstance(op, GlobalRef) and op.name in params:
                replaced[op.result] = params[op.name]
            else:
                ops.append(rebuild(op, value, block))
        return Block(b.args, tuple(ops), tuple(map(value, b.results)))

    return block(body)
