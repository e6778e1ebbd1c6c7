"""Sines and cosines of one argument, as gradients have them: `sincosf` reduces it to a quarter turn once for both."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ...ir.ops import Apply, Block, Function, Module, Op, Value
from ...ir.traverse import blocks, descend, uses, with_body
from ...ir.types import F32, F64

_FUNCTIONS = {F32: "sincosf", F64: "sincos"}


class Pair(NamedTuple):
    """Next to each other; `second`: the one that comes later."""

    sine: Apply
    cosine: Apply
    second: Apply

    @property
    def function(self) -> str:
        return _FUNCTIONS[self.sine.result.type]  # type: ignore[index]


def run(function: Function, _: Module) -> Function:
    """The function with the second of each pair right behind the first."""
    used = uses(function.body)

    def arranged(block: Block) -> Block:
        ops = [descend(op, arranged) for op in block.ops]
        partner = {id(one): other for one, other in _partners(ops) if used.get(one.result) and used.get(other.result)}
        second = {id(other) for other in partner.values()}
        behind = [[op, partner[id(op)]] if id(op) in partner else [op] for op in ops if id(op) not in second]
        return Block(block.args, tuple(op for group in behind for op in group), block.results)

    return with_body(function, arranged(function.body))


def pairs(block: Block) -> Iterator[Pair]:
    """Those of a function that `run` gave, in the block and inside."""
    taken: Op | None = None
    for one, other in zip(block.ops, block.ops[1:], strict=False):
        if one is not taken and isinstance(one, Apply) and isinstance(other, Apply) and _is_pair(one, other):
            yield Pair(one, other, other) if one.fn == "sin" else Pair(other, one, other)
            taken = other
    for op in block.ops:
        for inner in blocks(op):
            yield from pairs(inner)


def _partners(ops: list[Op]) -> Iterator[tuple[Apply, Apply]]:
    """The first sine and the first cosine of each argument, as they come."""
    seen: dict[tuple[str, Value], Apply] = {}
    for op in ops:
        if not isinstance(op, Apply) or op.fn not in ("sin", "cos") or (op.fn, op.args[0]) in seen:
            continue
        seen[op.fn, op.args[0]] = op
        other = seen.get(("cos" if op.fn == "sin" else "sin", op.args[0]))
        if other is not None and _is_pair(other, op):
            yield other, op


def _is_pair(one: Apply, other: Apply) -> bool:
    return {one.fn, other.fn} == {"sin", "cos"} and one.args == other.args and one.result.type in _FUNCTIONS
