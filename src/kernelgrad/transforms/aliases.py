"""Which pointers may reach the same memory, from what they are derived from."""

from __future__ import annotations

from ..ir.ops import (
    Alloca,
    Atomic,
    Barrier,
    BarrierReduce,
    Fence,
    Function,
    GlobalRef,
    Member,
    Offset,
    Op,
    PtrCast,
    Store,
    Value,
    Warp,
)
from ..ir.traverse import walk
from ..ir.types import Pointer

MEETINGS = (Barrier, BarrierReduce, Fence, Warp)


class Aliases:
    """A local array is reached only through pointers derived from it; so is what a `__restrict__` parameter points to.
    Pointers whose origin is a choice or memory may reach anything."""

    def __init__(self, function: Function):
        self._base: dict[Value, Value] = {}  # derived pointer -> what it is derived from
        self.local: set[Value] = set()
        self._named: set[Value] = {p.value for p in function.params}  # pointers whose memory has a name of its own
        self._own: set[Value] = {p.value for p in function.params if p.restrict}
        for op in walk(function.body):
            if isinstance(op, Offset | Member | PtrCast):
                self._base[op.result] = op.ptr
            elif isinstance(op, Alloca | GlobalRef):
                self._named.add(op.result)
                if isinstance(op, Alloca):
                    self.local.add(op.result)
        self._own |= self.local

    def root(self, pointer: Value) -> Value:
        while pointer in self._base:
            pointer = self._base[pointer]
        return pointer

    def may_alias(self, a: Value, b: Value) -> bool:
        one, other = self.root(a), self.root(b)
        if one is other or one not in self._named or other not in self._named:
            return True
        spaces = {v.type.space for v in (one, other) if isinstance(v.type, Pointer)}
        apart = len(spaces) == 2 and "generic" not in spaces
        return not (apart or one in self._own or other in self._own)

    def may_change(self, op: Op, pointer: Value) -> bool:
        """Whether an operation without regions may change the memory behind a pointer, or wait for who does."""
        if isinstance(op, MEETINGS):
            return self.root(pointer) not in self.local
        return isinstance(op, Store | Atomic) and self.may_alias(op.ptr, pointer)
