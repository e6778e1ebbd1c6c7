"""Tests of guards (Note [Masks]) as comparisons and selects, for the backends."""

from __future__ import annotations

from ..ir.builder import Builder
from ..ir.ops import Apply, Block, Function, Module, Op, Value
from ..ir.traverse import descend, substitute, walk, with_body


def run(function: Function, module: Module) -> Function:
    if not any(isinstance(op, Apply) and op.fn == "masked" for op in walk(function.body)):
        return function
    return with_body(function, _Tests().block(function.body))


def guards_in(block: Block) -> frozenset[Value]:
    return frozenset(op.args[1] for op in walk(block) if isinstance(op, Apply) and op.fn == "masked")


def without_tests(block: Block, nonzero: frozenset[Value]) -> Block:
    """For where some guards are known not to be zero. The operations stay, if only to be dead."""
    masks = (op for op in walk(block) if isinstance(op, Apply) and op.fn == "masked" and op.args[1] in nonzero)
    found: dict[Value, Value] = {}
    for op in masks:
        found[op.result] = found.get(op.args[0], op.args[0])
    return substitute(block, found)


class _Tests:
    """One comparison for each guard in a block, and those around it."""

    def __init__(self) -> None:
        self.scopes: list[dict[tuple[Value, ...], Value]] = []
        self.masks: dict[Value, tuple[Value, tuple[Value, ...]]] = {}  # what is masked, and by which guards

    def block(self, block: Block) -> Block:
        self.scopes.append({})
        ops: list[Op] = []
        for op in block.ops:
            if isinstance(op, Apply) and op.fn == "masked":
                ops += self.masked(op)
            else:
                ops.append(descend(op, self.block))
        self.scopes.pop()
        return Block(block.args, tuple(ops), block.results)

    def masked(self, op: Apply) -> list[Op]:
        value, guard = op.args
        inner, guards = self.masks.get(value, (value, ()))
        self.masks[op.result] = inner, (*guards, guard)
        b = Builder(op.span)
        some, zero = self.all_of(b, (*guards, guard)), b.constant(0.0, op.result.type)
        b.add(Apply("select", (some, inner, zero), results=op.results, span=op.span))
        return b.ops

    def all_of(self, b: Builder, guards: tuple[Value, ...]) -> Value:
        for scope in self.scopes:
            if guards in scope:
                return scope[guards]
        *first, last = guards
        found = b.apply("ne", last, b.constant(0.0, last.type))
        if first:
            found = b.apply("and", self.all_of(b, tuple(first)), found)
        self.scopes[-1][guards] = found
        return found
