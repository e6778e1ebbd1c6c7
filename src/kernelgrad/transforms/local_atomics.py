"""Atomics on memory that only this thread knows are loads and stores.

Before: any function. After: no `Atomic` of one operand has an address that comes from local variables alone: CUDA has
no atomics there, and `promote` makes values of variables that are loaded and stored.
"""

from __future__ import annotations

from ..analysis import roots
from ..ir.builder import Builder
from ..ir.ops import Alloca, Atomic, Block, Function, Load, Module, Op, Value
from ..ir.traverse import rebuild, walk, with_body

# By kind, what is done to what is loaded, before it is stored; None: the operand is.
PLAIN = {"add": "add", "sub": "sub", "exch": None, "take": None, "min": "min", "max": "max"}


def run(function: Function, module: Module) -> Function:
    memory = roots.analyse(function)
    own = {op.result for op in walk(function.body) if isinstance(op, Alloca)}

    def is_local(op: Op) -> bool:
        found = memory.of(op.ptr) if isinstance(op, Atomic) and op.kind in PLAIN else frozenset[Value]()
        return bool(found) and found <= own

    def block(b: Block) -> Block:
        ops: list[Op] = []
        for op in b.ops:
            if is_local(op):
                assert isinstance(op, Atomic)
                ops += as_loads_and_stores(op)
            else:
                ops.append(rebuild(op, lambda v: v, block))
        return Block(b.args, tuple(ops), b.results)

    return with_body(function, block(function.body))


def as_loads_and_stores(op: Atomic) -> list[Op]:
    b = Builder(op.span)
    b.add(Load(op.ptr, results=op.results, span=op.span))
    (operand,) = op.args
    fn = PLAIN[op.kind]
    b.store(op.ptr, operand if fn is None else b.apply(fn, op.result, operand))
    return b.ops
