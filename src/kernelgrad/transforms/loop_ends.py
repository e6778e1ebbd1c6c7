"""What a loop carries on may be anything where it ends, if nobody uses what it ends with.

    while (go) { ...; i = broke ? i : i + 1; go = !broke && i < n; }      i = i + 1
    while (go) { ...; at = at + (broke ? 0 : 3); ... }                    at = at + 3

A `break` leaves such choices behind. Without them `i` is a counter. Loops are in the form of `rotate`, and stay so.
"""

from __future__ import annotations

from dataclasses import replace

from ..analysis.loop_ends import GoingOn
from ..analysis.structure import is_rotated
from ..ir.builder import Builder
from ..ir.ops import Apply, Block, Function, Module, Op, Value, While
from ..ir.traverse import descend, uses, walk, with_body
from ..ir.types import Scalar
from . import rotate, simplify


def run(function: Function, module: Module) -> Function:
    used = uses(function.body)
    definition = {v: op for op in walk(function.body) for v in op.results}
    found = False

    def rewritten(block: Block) -> Block:
        nonlocal found
        ops: list[Op] = []
        for op in block.ops:
            op = descend(op, rewritten)
            if isinstance(op, While) and is_rotated(op):
                chosen = _simplified(op, [r for r in op.results if not used.get(r)], GoingOn(op, definition))
                found = found or chosen is not op
                op = chosen
            ops.append(op)
        return Block(block.args, tuple(ops), block.results)

    body = rewritten(function.body)
    if not found:
        return function
    return rotate.run(simplify.run(with_body(function, body), module), module)


def _simplified(loop: While, unused: list[Value], going_on: GoingOn) -> While:
    results, b = list(loop.body.results), Builder(loop.span)
    for k, result in enumerate(loop.results):
        if k and result in unused:
            results[k] = _where_it_goes_on(b, results[k], going_on)
    if tuple(results) == loop.body.results:
        return loop
    return replace(loop, body=Block(loop.body.args, (*loop.body.ops, *b.ops), tuple(results)))


def _is_whole(value: Value) -> bool:
    """Of a float, what is computed in vain may be infinite, and its adjoint of zero meet that."""
    return isinstance(value.type, Scalar) and not value.type.is_float


def _where_it_goes_on(b: Builder, value: Value, going_on: GoingOn) -> Value:
    """The side of a choice that is taken there; of a sum, `at + (broke ? 0 : 3)`, that of what is added."""
    op = going_on.definition.get(value)
    if not isinstance(op, Apply) or not _is_whole(value):
        return value
    if op.fn == "select":
        truth = going_on.truth(op.args[0])
        return value if truth is None else _where_it_goes_on(b, op.args[1] if truth else op.args[2], going_on)
    if op.fn in ("add", "sub"):
        args = [_where_it_goes_on(b, arg, going_on) for arg in op.args]
        return value if args == list(op.args) else b.apply(op.fn, *args, name=value.name)
    return value
