"""Full unrolling of chosen loops whose number of iterations is a small constant."""

from __future__ import annotations

from collections.abc import Callable

from ..ir.ops import Block, Constant, For, Function, Op, Value
from ..ir.traverse import clone, rebuild, substitute, walk, with_body


def iterations(loop: For, constants: dict[Value, int]) -> range | None:
    """The values of the loop's variable, where its bounds are constants."""
    if loop.lower not in constants or loop.upper not in constants:
        return None
    return range(constants[loop.lower], constants[loop.upper], loop.step)


def constants_of(function: Function) -> dict[Value, int]:
    return {op.result: op.value for op in walk(function.body) if isinstance(op, Constant) and isinstance(op.value, int)}


def unroll(function: Function, chosen: Callable[[For], bool]) -> Function:
    """The function with the chosen loops, all of constant bounds, replaced by their iterations."""
    constants = constants_of(function)

    def block(b: Block) -> Block:
        mapping: dict[Value, Value] = {}
        ops: list[Op] = []
        for op in b.ops:
            # Choose by the original: rebuilding gives a new object.
            unrolled = isinstance(op, For) and chosen(op) and iterations(op, constants) is not None
            op = rebuild(op, lambda v: mapping.get(v, v), lambda inner: substitute(block(inner), mapping))
            if unrolled:
                assert isinstance(op, For)
                ops += _copies(op, constants, mapping)
            else:
                ops.append(op)
        return Block(b.args, tuple(ops), tuple(mapping.get(v, v) for v in b.results))

    return with_body(function, block(function.body))


def _copies(loop: For, constants: dict[Value, int], mapping: dict[Value, Value]) -> list[Op]:
    ops: list[Op] = []
    carried = loop.inits
    for number in iterations(loop, constants) or ():
        iv = Value(loop.body.args[0].type, loop.body.args[0].name)
        constants[iv] = number
        ops.append(Constant(number, results=(iv,), span=loop.span))
        copy = clone(loop.body, {})
        given = dict(zip(copy.args, (iv, *carried), strict=True))
        inner = substitute(Block((), copy.ops, copy.results), given)
        for original, made in zip(walk(Block((), loop.body.ops, ())), walk(Block((), inner.ops, ())), strict=True):
            if isinstance(original, Constant) and isinstance(original.value, int):
                constants[made.result] = original.value
        ops += inner.ops
        carried = inner.results
    mapping.update(zip(loop.results, carried, strict=True))
    return ops


def copies_of(loop: For, count: int) -> int:
    """How many operations unrolling would make."""
    return count * sum(1 for _ in walk(loop.body))
