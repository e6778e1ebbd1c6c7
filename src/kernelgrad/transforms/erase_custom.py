"""Erases what a source says of derivatives (`stop`, `custom`): to a backend each is its first argument.

Before: any function that derivatives may be taken of. After: nothing of it is left, nor what only slopes were made of.
"""

from __future__ import annotations

from ..ir.functions import GIVEN
from ..ir.ops import Apply, Block, Function, Module, Op, Value
from ..ir.traverse import rebuild, substitute, walk, with_body
from . import loads, simplify


def run(function: Function, module: Module) -> Function:
    found = {op.result: op.args[0] for op in walk(function.body) if isinstance(op, Apply) and is_given(op)}
    if not found:
        return function
    for value in found:  # in order: what is in a chain leads to its beginning
        found[value] = found.get(found[value], found[value])
    erased = with_body(function, substitute(_without(function.body), found))
    return simplify.run(loads.run(simplify.run(erased, module), module), module)


def custom_places(function: Function) -> list[str]:
    """Where derivatives end or are the user's, with the reason."""
    stops = (op for op in walk(function.body) if isinstance(op, Apply) and op.fn == "stop")
    return list(dict.fromkeys(f"{op.span}: {op.span.why or 'stop_gradient'}" for op in stops))


def is_given(op: Op) -> bool:
    return isinstance(op, Apply) and op.fn in GIVEN


def _without(block: Block) -> Block:
    def same(v: Value) -> Value:
        return v

    kept = (op for op in block.ops if not is_given(op))
    return Block(block.args, tuple(rebuild(op, same, _without) for op in kept), block.results)
