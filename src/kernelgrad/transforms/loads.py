"""Redundant loads: a load of an address that was just loaded or stored gives that value again.

Within one block and the blocks inside it, as long as nothing in between may have written the memory or waited for other
threads. A store through one pointer ends what is known of every other, unless one of the two is a local array.
"""

from __future__ import annotations

from ..ir.ops import (
    Alloca,
    Atomic,
    Barrier,
    BarrierReduce,
    Block,
    Fence,
    Function,
    GlobalRef,
    Load,
    Member,
    Module,
    Offset,
    Op,
    PtrCast,
    Store,
    Value,
    Warp,
)
from ..ir.traverse import blocks, rebuild, walk, with_body
from ..ir.types import Pointer

_MEETING = (Barrier, BarrierReduce, Fence, Warp)


def run(function: Function, module: Module) -> Function:
    return with_body(function, _Forwarding(function).block(function.body, {}))


class _Forwarding:
    def __init__(self, function: Function):
        self.base: dict[Value, Value] = {}  # derived pointer -> what it is derived from
        self.local: set[Value] = set()
        self.named: set[Value] = {p.value for p in function.params}  # pointers whose memory has a name of its own
        for op in walk(function.body):
            if isinstance(op, Offset | Member | PtrCast):
                self.base[op.result] = op.ptr
            elif isinstance(op, Alloca | GlobalRef):
                self.named.add(op.result)
                if isinstance(op, Alloca):
                    self.local.add(op.result)
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
        if isinstance(op, _MEETING):
            for ptr in [p for p in known if self.root(p) not in self.local]:
                del known[ptr]
        elif isinstance(op, Store | Atomic):
            for ptr in [p for p in known if self.may_alias(p, op.ptr)]:
                del known[ptr]

    def may_alias(self, a: Value, b: Value) -> bool:
        one, other = self.root(a), self.root(b)
        if one is other or one not in self.named or other not in self.named:
            return True
        spaces = {v.type.space for v in (one, other) if isinstance(v.type, Pointer)}
        apart = len(spaces) == 2 and "generic" not in spaces
        return not (apart or one in self.local or other in self.local)

    def root(self, ptr: Value) -> Value:
        while ptr in self.base:
            ptr = self.base[ptr]
        return ptr
