"""Conditions that change what they test: `while (n--)` becomes `while (n) { n -= 1; ... }`, with one more after it.

What a loop's condition computes for the body is computed in the body instead, and again after the loop, where it is
used there: the condition then only tests, which is what `loops` and `walks` know. Only counting moves.
"""

from __future__ import annotations

from dataclasses import replace

from ..ir.effects import is_pure
from ..ir.ops import Block, Function, Module, Op, Value, While
from ..ir.traverse import clone, descend, operands, substitute, with_body
from ..ir.types import Scalar
from .dce import eliminate


def run(function: Function, module: Module) -> Function:
    body = _block(function.body)
    return function if body is function.body else with_body(function, eliminate(body))


def _block(block: Block) -> Block:
    ops: list[Op] = []
    renamed: dict[Value, Value] = {}
    for op in block.ops:
        op = descend(op, _block)
        ops += _tested(op, renamed) if isinstance(op, While) and _computes(op) else [op]
    same = len(ops) == len(block.ops) and all(a is b for a, b in zip(ops, block.ops, strict=True))
    return block if same else substitute(Block(block.args, tuple(ops), block.results), renamed)


def _computes(loop: While) -> bool:
    """Whether the condition hands on what it computes, and nothing but counting computes it."""
    computed = any(v not in loop.before.args for v in loop.before.results[1:])
    return computed and all(map(_counts, loop.before.ops))


def _counts(op: Op) -> bool:
    """Arithmetic of integers and addresses: what floats are computed to is not computed twice."""
    values = (*operands(op), *op.results)
    return is_pure(op) and not any(isinstance(v.type, Scalar) and v.type.is_float for v in values)


def _tested(loop: While, renamed: dict[Value, Value]) -> list[Op]:
    """`renamed`: gets what stands for the loop's results."""
    before = loop.before
    passed = tuple(Value(v.type, v.name) for v in before.args)
    ops, values = _again(before, passed)
    inner = substitute(Block((), loop.body.ops, loop.body.results), dict(zip(loop.body.args, values, strict=True)))
    ends = tuple(Value(v.type, v.name) for v in before.args)
    after, final = _again(before, ends)
    renamed |= dict(zip(loop.results, final, strict=True))
    test = Block(before.args, before.ops, (before.results[0], *before.args))
    body = Block(passed, (*ops, *inner.ops), inner.results)
    return [replace(loop, before=test, body=body, results=ends), *after]


def _again(before: Block, args: tuple[Value, ...]) -> tuple[tuple[Op, ...], tuple[Value, ...]]:
    """What the condition's block computes from other arguments, and what it hands on of that."""
    copy = clone(before, {})
    given = substitute(Block((), copy.ops, copy.results), dict(zip(copy.args, args, strict=True)))
    return given.ops, given.results[1:]
