"""While loops in the form that reversal knows: the condition is a carried bool, all work is in the body.

    while (before(s) -> c, f) s = body(f)      becomes      c, f = before(s0); while (c) { c, f = before(body(f)) }

The iterations of the new body are what the reverse sweep runs backwards over. `For` loops stay as they are. `before`,
which is all of a `do` loop, is there twice then: of `do` loops nested in one another the innermost would be there many
times. So what holds a few of them already is not copied:

    c = true; while (c) { c, f = before(s); if (c) s = body(f) }
"""

from __future__ import annotations

from dataclasses import replace

from ..analysis.structure import is_rotated
from ..ir.builder import Builder
from ..ir.ops import Block, Function, If, Module, Op, Value, While
from ..ir.traverse import blocks, clone, descend, substitute, with_body

_COPIED = 2  # loops in one another that are copied with what is around them


def run(function: Function, module: Module) -> Function:
    return with_body(function, _block(function.body))


def _block(block: Block) -> Block:
    ops: list[Op] = []
    for op in block.ops:
        op = descend(op, _block)
        ops += _rotate(op) if isinstance(op, While) and not is_rotated(op) else [op]
    return Block(block.args, tuple(ops), block.results)


def _rotate(loop: While) -> list[Op]:
    if _nested(loop.before) > _COPIED:
        return _tested_after(loop)
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


def _nested(block: Block) -> int:
    """How many loops are in one another there."""
    return max((isinstance(op, While) + _nested(inner) for op in block.ops for inner in blocks(op)), default=0)


def _tested_after(loop: While) -> list[Op]:
    """The form without copies. It carries what `before` takes and what it gives on."""
    work, rest = clone(loop.before, {}), clone(loop.body, {})
    taken = work.args
    go, *given = work.results
    given_map = dict(zip(rest.args, given, strict=True))
    rest_ops = tuple(renamed(rest, given_map))
    follows = tuple(given_map.get(v, v) for v in rest.results)
    ops = list(work.ops)
    if rest_ops:
        then, orelse = Block((), rest_ops, follows), Block((), (), taken)
        follows = tuple(Value(v.type, v.name) for v in taken)
        ops.append(If(go, then, orelse, results=follows, span=loop.span))
    b = Builder(loop.span)
    inits = (b.constant(True, go.type), *loop.inits, *(b.undef(v.type) for v in given))
    old = tuple(Value(v.type, v.name) for v in given)
    body = Block((Value(go.type, "~go"), *taken, *old), tuple(ops), (go, *follows, *given))
    args = tuple(Value(v.type, v.name) for v in body.args)
    results = (Value(go.type, "~go"), *(Value(v.type, v.name) for v in taken), *loop.results)
    new = replace(loop, inits=inits, before=Block(args, (), (args[0], *args)), body=body, results=results)
    return [*b.ops, new]


def renamed(block: Block, mapping: dict[Value, Value]) -> list[Op]:
    return list(substitute(Block((), block.ops, ()), mapping).ops)
