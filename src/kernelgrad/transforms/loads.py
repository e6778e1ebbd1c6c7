"""Redundant loads: a load of an address that was just loaded or stored gives that value again.

Within one block and the blocks inside it, as long as nothing in between may have written the memory or waited for other
threads.
"""

from __future__ import annotations

from ..ir.ops import Block, Function, Load, Module, Op, Store, Value
from ..ir.traverse import blocks, rebuild, walk, with_body
from .aliases import Aliases


def run(function: Function, module: Module) -> Function:
    return with_body(function, _Forwarding(function).block(function.body, {}))


class _Forwarding:
    def __init__(self, function: Function):
        self.aliases = Aliases(function)
        self.replaced: dict[Value, Value] = {}

    def value(self, v: Value) -> Value:
        return self.replaced.get(v, v)

    def block(self, block: Block, known: dict[Value, Value]) -> Block:
        """`known`: address -> contents; changed as the block goes on."""
        ops: list[Op] = []
        for op in block.ops:
            if isinstance(op, Load) and not op.volatile and self.value(op.ptr) in known:
                self.replaced[op.result] = known[self.value(op.ptr)]
                continue
            op = self.control(op, known) if blocks(op) else rebuild(op, self.value, lambda b: b)
            ops.append(op)
            self.learn(op, known)
        return Block(block.args, tuple(ops), tuple(map(self.value, block.results)))

    def control(self, op: Op, known: dict[Value, Value]) -> Op:
        """What is known before holds inside, less what the inside writes: a loop's body may run again."""
        for inner in blocks(op):
            for nested in walk(inner):
                self.forget(nested, known)
        return rebuild(op, self.value, lambda b: self.block(b, dict(known)))

    def learn(self, op: Op, known: dict[Value, Value]) -> None:
        self.forget(op, known)
        if isinstance(op, Load) and not op.volatile:
            known[op.ptr] = op.result
        elif isinstance(op, Store) and not op.volatile:
            known[op.ptr] = op.value

    def forget(self, op: Op, known: dict[Value, Value]) -> None:
        for pointer in [p for p in known if self.aliases.may_change(op, p)]:
            del known[pointer]
