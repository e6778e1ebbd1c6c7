"""Redundant load elimination: a load of an address that was just loaded or stored gives that value again.

Within one block and the blocks inside it, as long as nothing in between may have written the memory or waited for other
threads.
"""

from __future__ import annotations

from ..analysis.aliases import Aliases, arguments_apart
from ..ir.ops import Block, Function, Load, Module, Op, Store, Value
from ..ir.traverse import blocks, rebuild, with_body, with_ops
from .access_index import Accesses, Contents


def run(function: Function, module: Module) -> Function:
    return with_body(function, _Forwarding(function).block(function.body))


def with_arguments_apart(function: Function, module: Module) -> Function:
    """The same, where no two arguments overlap."""
    return with_body(function, run(arguments_apart(function), module).body)


class _Forwarding:
    def __init__(self, function: Function):
        aliases = Aliases(function)
        self.writes = Accesses(aliases)
        self.inside: dict[Op, tuple[int, int]] = {}  # the writes in the regions of an operation
        self.index(function.body)
        self.known = Contents(aliases)
        self.replaced: dict[Value, Value] = {}

    def index(self, block: Block) -> None:
        for op in block.ops:
            start = len(self.writes)
            for inner in blocks(op):
                self.index(inner)
            if blocks(op):
                self.inside[op] = start, len(self.writes)
            else:
                self.writes.add(op)

    def value(self, v: Value) -> Value:
        return self.replaced.get(v, v)

    def block(self, block: Block) -> Block:
        ops: list[Op] = []
        for op in block.ops:
            found = self.known.get(self.value(op.ptr)) if isinstance(op, Load) and not op.volatile else None
            if found is not None:
                self.replaced[op.result] = found
                continue
            op = self.control(op) if blocks(op) else rebuild(op, self.value, lambda b: b)
            ops.append(op)
            self.learn(op)
        return with_ops(block, ops, tuple(map(self.value, block.results)))

    def control(self, op: Op) -> Op:
        """What is known before holds inside, less what the inside writes: a loop's body may run again."""
        self.known.forget_all(self.writes, *self.inside[op])
        return rebuild(op, self.value, self.scoped)

    def scoped(self, block: Block) -> Block:
        with self.known.scope():
            return self.block(block)

    def learn(self, op: Op) -> None:
        self.known.forget(op)
        if isinstance(op, Load) and not op.volatile:
            self.known.put(op.ptr, op.result)
        elif isinstance(op, Store) and not op.volatile:
            self.known.put(op.ptr, op.value)
