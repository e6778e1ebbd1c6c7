"""Dynamic shared memory as an array of a launch's size: what is known of arrays then holds of it, too."""

from __future__ import annotations

from dataclasses import replace

from ..ir.layout import leaves
from ..ir.ops import Block, Function, Global, GlobalRef, Module, Op, PtrCast, Value
from ..ir.traverse import rebuild, uses, walk, with_body
from ..ir.types import Array, Pointer, Scalar, Type


def dynamic_variable(function: Function, module: Module) -> Global | None:
    """The function's dynamic shared memory, if it is one array of floats, or of structs of such, that nothing reads as
    something else."""
    names = {op.name for op in walk(function.body) if isinstance(op, GlobalRef)}
    found = [g for name, g in module.globals.items() if name in names and is_dynamic_array(g)]
    if len(found) != 1 or not isinstance(found[0].type, Array):
        return None
    element = found[0].type.element
    casts = [op.result.type for op in walk(function.body) if isinstance(op, PtrCast) and _is_shared(op.ptr)]
    plain = _holds_floats(element) and all(t.pointee == element for t in casts)  # type: ignore[union-attr]
    refs = {op.result for op in walk(function.body) if isinstance(op, GlobalRef) and op.name == found[0].name}
    decays = sum(op.ptr in refs for op in walk(function.body) if isinstance(op, PtrCast))
    used = uses(function.body)
    return found[0] if plain and decays == sum(used.get(ref, 0) for ref in refs) else None


def sized(function: Function, module: Module, variable: Global, nbytes: int) -> Module:
    """The module in which the array has that many bytes."""
    assert isinstance(variable.type, Array)
    made = replace(variable, type=Array(variable.type.element, nbytes // variable.type.element.size))
    mapping: dict[Value, Value] = {}
    for op in walk(function.body):
        if isinstance(op, GlobalRef) and op.name == variable.name:
            assert isinstance(op.result.type, Pointer)
            mapping[op.result] = Value(replace(op.result.type, pointee=made.type), op.result.name)

    def renamed(block: Block) -> Block:
        return Block(block.args, tuple(map(one, block.ops)), tuple(mapping.get(v, v) for v in block.results))

    def one(op: Op) -> Op:
        if isinstance(op, GlobalRef) and op.result in mapping:
            return replace(op, results=(mapping[op.result],))
        return rebuild(op, lambda v: mapping.get(v, v), renamed)

    functions = {**module.functions, function.name: with_body(function, renamed(function.body))}
    return replace(module, functions=functions, globals={**module.globals, variable.name: made})


def _holds_floats(element: Type) -> bool:
    """Nothing else."""
    return all(isinstance(leaf, Scalar) and leaf.is_float for _, _, leaf in leaves(element))


def is_dynamic_array(variable: Global) -> bool:
    return variable.space == "shared" and isinstance(variable.type, Array) and variable.type.count == 0


def _is_shared(ptr: Value) -> bool:
    return isinstance(ptr.type, Pointer) and ptr.type.space == "shared"
