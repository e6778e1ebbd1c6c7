"""Adjoints that a thread takes and leaves zero: for CUDA, the zero waits for what was there.

    d = _d_y[i]; _d_y[i] = 0;      becomes      d = _d_y[i]; if (d != 0) _d_y[i] = 0;

A store to a line of which a load is still under way keeps a multiprocessor from loading anything else meanwhile, and
compilers put the two as close together as they can. On an H200 a sum of d * x[i] over 64 Mi elements took 2.6 ms with
the store and 0.26 ms with it behind the test, which cannot be made before the load has come back. Where another
store of the block stands before it and needs the same value, it waits anyway.

An adjoint of -0.0 stays: it is as good as 0.0. What the kernel itself stores is left as it is written.
"""

from __future__ import annotations

from ...analysis.aliases import Aliases
from ...ir.builder import Builder
from ...ir.effects import MEETINGS
from ...ir.ops import ADJOINT, Apply, Atomic, Block, Constant, Function, Load, Module, Op, Store, Value
from ...ir.traverse import blocks, descend, operands, walk, with_body
from ...ir.types import Pointer, Scalar


def run(function: Function, module: Module) -> Function:
    zeros = {op.result for op in walk(function.body) if isinstance(op, Constant) and op.value == 0.0}
    if not any(isinstance(op, Store) and op.value in zeros for op in walk(function.body)):
        return function
    search = _Search(function, zeros)
    body = search.block(function.body)
    return with_body(function, body) if search.found else function


class _Search:
    def __init__(self, function: Function, zeros: set[Value]):
        self.aliases, self.zeros = Aliases(function), zeros
        self.adjoints = {p.value for p in function.params if p.name.startswith(ADJOINT)}
        self.found = False

    def block(self, block: Block) -> Block:
        ops: list[Op] = []
        taken = _Taken(self.aliases)
        for op in block.ops:
            value = taken.by(op) if isinstance(op, Store) and self.is_emptied(op) else None
            taken.note(op)
            if value is None:
                ops.append(descend(op, self.block))
            else:
                ops += _tested(op, value)
                self.found = True
        return Block(block.args, tuple(ops), block.results)

    def is_emptied(self, store: Store) -> bool:
        return store.value in self.zeros and self.aliases.root(store.ptr) in self.adjoints


class _Taken:
    """The values that were loaded and may still be under way, by their addresses."""

    def __init__(self, aliases: Aliases):
        self.aliases = aliases
        self.values: dict[Value, Value] = {}
        self.needs: dict[Value, set[Value]] = {}  # the loaded values that go into a value

    def by(self, store: Store) -> Value | None:
        """What a store leaves nothing of."""
        return None if store.volatile else self.values.get(store.ptr)

    def note(self, op: Op) -> None:
        if isinstance(op, Load) and _is_global_float(op):
            self.values[op.ptr] = op.result
            self.needs[op.result] = {op.result}
        elif isinstance(op, Apply):
            self.needs[op.result] = set().union(*(self.needs.get(v, set()) for v in operands(op)))
        if not self.values:
            return
        inside = [nested for inner in blocks(op) for nested in walk(inner)]
        waited = self.needs.get(op.value, set()) if isinstance(op, Store) else set()
        for ptr, value in list(self.values.items()):
            if value in waited or any(self.may_end(one, ptr) for one in (op, *inside)):
                del self.values[ptr]

    def may_end(self, op: Op, ptr: Value) -> bool:
        """Whether the value may be another one after this, or is there for sure."""
        return isinstance(op, MEETINGS) or (
            isinstance(op, Store | Atomic) and (self.aliases.may_alias(op.ptr, ptr) or op.ptr is ptr)
        )


def _is_global_float(load: Load) -> bool:
    type, from_ = load.result.type, load.ptr.type
    is_global = isinstance(from_, Pointer) and from_.space in ("global", "generic")
    return is_global and isinstance(type, Scalar) and type.is_float and not load.volatile


def _tested(store: Op, value: Value) -> list[Op]:
    b = Builder(store.span)
    some = b.apply("ne", value, b.constant(0.0, value.type))
    with b.region() as region:
        b.add(store)
    b.if_(some, region.block())
    return b.ops
