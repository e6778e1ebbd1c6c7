"""Dead store elimination: one that is overwritten before anyone can look, and one that writes what is there already.

Within one block. Derivatives are full of them: `y[i] += v` clears the adjoint of y[i] and puts it back.
"""

from __future__ import annotations

from dataclasses import replace

from ..analysis.aliases import Aliases, arguments_apart
from ..ir.ops import Block, Constant, Function, Load, Module, Op, Store, Value
from ..ir.traverse import blocks, descend, walk, with_body, with_ops
from .access_index import Accesses, Contents, looks, writes


def run(function: Function, module: Module) -> Function:
    return with_body(function, _Stores(function).block(function.body))


def with_arguments_apart(function: Function, module: Module) -> Function:
    """The same, where no two arguments overlap."""
    return with_body(function, run(arguments_apart(function), module).body)


Inside = tuple[int, int]  # of an access index: those in the regions of an operation


class _Stores:
    """Blocks are done before those they are in, and what is left of them is indexed then."""

    def __init__(self, function: Function):
        self.aliases = Aliases(function)
        self.writes, self.looks = Accesses(self.aliases, writes), Accesses(self.aliases, looks)
        self.written: dict[Op, Inside] = {}
        self.seen: dict[Op, Inside] = {}

    def block(self, block: Block) -> Block:
        ops = [self.op(op) for op in block.ops]
        ops = self.without_unchanged(self.without_overwritten(ops))
        for op in ops:
            self.writes.add(op)
            self.looks.add(op)
        return with_ops(block, ops)

    def op(self, op: Op) -> Op:
        if not blocks(op):
            return op
        write, look = len(self.writes), len(self.looks)
        op = descend(op, self.block)
        self.written[op], self.seen[op] = (write, len(self.writes)), (look, len(self.looks))
        return op

    def without_overwritten(self, ops: list[Op]) -> list[Op]:
        """Backwards: `pending` are addresses that a later store fills and nothing in between reads."""
        pending = Contents(self.aliases, looks)
        kept: list[Op] = []
        for op in reversed(ops):
            if isinstance(op, Store) and not op.volatile:
                if pending.get(op.ptr) is not None:
                    continue
                pending.put(op.ptr, op.value)
            elif op in self.seen:
                pending.forget_all(self.looks, *self.seen[op])
            else:
                pending.forget(op)
            kept.append(op)
        return kept[::-1]

    def without_unchanged(self, ops: list[Op]) -> list[Op]:
        """Forwards: `known` is what memory holds, from a load or a store."""
        known = Contents(self.aliases)
        kept: list[Op] = []
        for op in ops:
            if isinstance(op, Store) and not op.volatile and known.get(op.ptr) is op.value:
                continue
            if op in self.written:
                known.forget_all(self.writes, *self.written[op])
            else:
                known.forget(op)
            if isinstance(op, Load) and not op.volatile:
                known.put(op.ptr, op.result)
            elif isinstance(op, Store) and not op.volatile:
                known.put(op.ptr, op.value)
            kept.append(op)
        return kept


def positive_zeros(function: Function, _: Module, shadows: frozenset[str]) -> Function:
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
                ops.append(descend(op, block))
        return with_ops(b, ops)

    return with_body(function, block(function.body))
