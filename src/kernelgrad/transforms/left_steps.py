"""Counters of loops that are left in the middle go on counting.

    for (int s = 0; s < n; ++s) { ...; if (done) break; }

carries `s = done ? s : s + 1`, which is no step of a counter. When `done` is set the loop ends, whatever s is; so
inside it, s may be s + 1. What s is after the loop is carried besides, where it is used there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ..ir.ops import Apply, Block, Constant, Function, Module, Op, Value, While
from ..ir.traverse import descend, substitute, uses, with_body, with_ops
from ..ir.types import Scalar, Type


def run(function: Function, module: Module) -> Function:
    used = uses(function.body)
    body = _block(function.body, used)
    return function if body is function.body else with_body(function, body)


def _block(block: Block, used: dict[Value, int]) -> Block:
    ops = tuple(_with_steps(descend(op, lambda inner: _block(inner, used)), used) for op in block.ops)
    same = all(a is b for a, b in zip(ops, block.ops, strict=True))
    return block if same else with_ops(block, list(ops), block.results)


def _with_steps(op: Op, used: dict[Value, int]) -> Op:
    if not isinstance(op, While) or not _only_tests(op):
        return op
    for flag in _flags(op):
        for number, step in list(_steps(op, flag)):
            op = _stepping(op, number, step, used)
    return op


def _only_tests(loop: While) -> bool:
    """Whether the condition computes nothing that the loop hands on, and nothing that must not be computed."""
    plain = all(isinstance(op, Apply | Constant) for op in loop.before.ops)
    return plain and all(v in loop.before.args for v in loop.before.results[1:])


def _flags(loop: While) -> Iterator[int]:
    """The carried values that end the loop when they are set."""
    definition = {op.result: op for op in loop.before.ops}
    todo = [loop.before.results[0]]
    while todo:
        match definition.get(todo.pop()):
            case Apply("and", args):
                todo += args
            case Apply("not", (flag,)) if flag in loop.before.args:
                yield loop.before.args.index(flag)


def _steps(loop: While, flag: int) -> Iterator[tuple[int, Value]]:
    """The carried integers that stay where the flag is set, and what they are else."""
    definition = {v: op for op in loop.body.ops for v in op.results}
    for number, result in enumerate(loop.body.results):
        match definition.get(result):
            case Apply("select", (cond, _, step)) if cond is loop.body.results[flag] and _is_integer(step.type):
                yield number, step


def _is_integer(type: Type) -> bool:
    return isinstance(type, Scalar) and type.kind in ("int", "uint")


def _stepping(loop: While, number: int, step: Value, used: dict[Value, int]) -> While:
    before, body = loop.before, loop.body
    arg = before.args[number]
    after = [v for v, of in zip(loop.results, before.results[1:], strict=True) if of is arg]
    if not any(used.get(v) for v in after):
        return replace(loop, body=replace(body, results=_replaced(body.results, number, step)))
    counter, inner = Value(arg.type, arg.name), Value(arg.type, arg.name)
    passed = [v for v, of in zip(body.args, before.results[1:], strict=True) if of is arg]
    test = substitute(Block((), before.ops, before.results[:1]), {arg: counter})
    inside = substitute(Block((), body.ops, (*body.results, step)), dict.fromkeys(passed, inner))
    return replace(
        loop,
        inits=(*loop.inits, loop.inits[number]),
        before=Block((*before.args, counter), test.ops, (*test.results, *before.results[1:], counter)),
        body=Block((*body.args, inner), inside.ops, inside.results),
        results=(*loop.results, Value(arg.type, arg.name)),
    )


def _replaced(values: tuple[Value, ...], number: int, value: Value) -> tuple[Value, ...]:
    return (*values[:number], value, *values[number + 1 :])
