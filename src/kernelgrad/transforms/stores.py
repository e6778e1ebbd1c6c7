"""Needless stores: one that is overwritten before anyone can look, and one that writes what is there already.

Within one block. Derivatives are full of them: `y[i] += v` clears the adjoint of y[i] and puts it back.
"""

from __future__ import annotations

from dataclasses import replace

from ..ir.effects import MEETINGS
from ..ir.ops import Atomic, Block, Constant, Function, Load, Module, Op, Store, Value
from ..ir.traverse import blocks, rebuild, walk, with_body
from .aliases import Aliases


def run(function: Function, module: Module) -> Function:
    return with_body(function, _Stores(function).block(function.body))


class _Stores:
    def __init__(self, function: Function):
        self.aliases = Aliases(function)

    def block(self, block: Block) -> Block:
        ops = [rebuild(op, lambda v: v, self.block) for op in block.ops]
        ops = self.without_unchanged(self.without_overwritten(ops))
        return Block(block.args, tuple(ops), block.results)

    def without_overwritten(self, ops: list[Op]) -> list[Op]:
        """Backwards: `pending` are addresses that a later store fills and nothing in between reads."""
        pending: set[Value] = set()
        kept: list[Op] = []
        for op in reversed(ops):
            if isinstance(op, Store) and not op.volatile:
                if op.ptr in pending:
                    continue
                pending.add(op.ptr)
            else:
                pending -= {p for p in pending if self.may_look(op, p)}
            kept.append(op)
        return kept[::-1]

    def may_look(self, op: Op, pointer: Value) -> bool:
        """Whether an operation may read the memory, or let others read it."""
        nested = [inner for b in blocks(op) for inner in walk(b)]
        return any(self._reads(one, pointer) for one in (op, *nested))

    def _reads(self, op: Op, pointer: Value) -> bool:
        if isinstance(op, MEETINGS):
            return self.aliases.root(pointer) not in self.aliases.local
        if isinstance(op, Store):
            return op.volatile
        return isinstance(op, Load | Atomic) and self.aliases.may_alias(op.ptr, pointer)

    def without_unchanged(self, ops: list[Op]) -> list[Op]:
        """Forwards: `known` is what memory holds, from a load or a store."""
        known: dict[Value, Value] = {}
        kept: list[Op] = []
        for op in ops:
            if isinstance(op, Store) and not op.volatile and known.get(op.ptr) is op.value:
                continue
            nested = [inner for b in blocks(op) for inner in walk(b)]
            for pointer in [p for p in known if any(self.aliases.may_change(one, p) for one in (op, *nested))]:
                del known[pointer]
            if isinstance(op, Load) and not op.volatile:
                known[op.ptr] = op.result
            elif isinstance(op, Store) and not op.volatile:
                known[op.ptr] = op.value
            kept.append(op)
        return kept


def positive_zeros(function: Function, shadows: frozenset[str]) -> Function:
    """Adjoints are cleared with -0.0, which simplifies; what is left of that shows as 0.0 to who looks at them."""
    aliases = Aliases(function)
    roots = {p.value for p in function.params if p.name in shadows}
    zeros = {op.result: op for op in walk(function.body) if isinstance(op, Constant) and str(op.value) == "-0.0"}

    def block(b: Block) -> Block:
        ops: list[Op] = []
        for op in b.ops:
            if isinstance(op, Store) and op.value in zeros and aliases.root(op.ptr) in roots:
                zero = replace(zeros[op.value], value=0.0, results=(Value(op.value.type),), span=op.span)
                ops += [zero, replace(op, value=zero.result)]
            else:
                ops.append(rebuild(op, lambda v: v, block))
        return Block(b.args, tuple(ops), b.results)

    return with_body(function, block(function.body))
