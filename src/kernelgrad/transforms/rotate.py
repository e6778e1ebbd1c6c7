"""While loops in the form that reversal knows: the condition is a carried bool, all work is in the body.

    while (before(s) -> c, f) s = body(f)      becomes      c, f = before(s0); while (c) { c, f = before(body(f)) }

The iterations of the new body are what the reverse sweep runs backwards over. `For` loops stay as they are.
"""

from __future__ import annotations

from dataclasses import replace

from ..analysis.structure import is_rotated
from ..ir.ops import Block, Function, Module, Op, Value, While
from ..ir.traverse import clone, descend, substitute, with_body


def run(function: Function, module: Module) -> Function:
    return with_body(function, _block(function.body))


def _block(block: Block) -> Block:
    ops: list[Op] = []
    for op in block.ops:
        op = descend(op, _block)
        ops += _rotate(op) if isinstance(op, While) and not is_rotated(op) else [op]
    return Block(block.args, tuple(ops), block.results)


def _rotate(loop: While) -> list[Op]:
    first = clone(loop.before, dict(zip(loop.before.args, loop.inits, strict=True)))
    entry_map = dict(zip(first.args, loop.inits, strict=True))
    entry_ops = renamed(first, entry_map)
    inits = tuple(entry_map.get(v, v) for v in first.results)
    body = clone(loop.body, {})
    again = clone(loop.before, {})
    again_map = dict(zip(again.args, body.results, strict=True))
    again_ops = renamed(again, again_map)
    results = tuple(again_map.get(v, v) for v in again.results)
    go = Value(loop.before.results[0].type, "~go")
    body_go = Value(go.type, "~go")
    test_args = (go, *(Value(v.type, v.name) for v in body.args))
    rotated_body = Block((body_go, *body.args), (*body.ops, *again_ops), results)
    # `before` yields (condition, *forwarded); the condition itself is forwarded too, to be carried on.
    test = Block(test_args, (), (test_args[0], *test_args))
    done = Value(go.type, "~go")
    new = replace(loop, inits=inits, before=test, body=rotated_body, results=(done, *loop.results))
    return [*entry_ops, new]


def renamed(block: Block, mapping: dict[Value, Value]) -> list[Op]:
    return list(substitute(Block((), block.ops, ()), mapping).ops)
