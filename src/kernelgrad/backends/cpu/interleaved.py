"""Note [Interleaved accesses]: a workaround for a miscompilation in LLVM 22.1.

Where neighbouring iterations are several elements apart, p[5 * i + 1] and p[5 * i + 3], the vectoriser makes groups of
accesses: the loads of a group move up to its first, its stores down to its last. Whether something in between touches
the same element it looks up among the dependences that were found, and in loops marked as parallel it looks for none.
So what a thread stores and then loads or stores again is not marked, where its steps are such.
"""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

from ...analysis.aliases import Aliases
from ...ir.effects import MEETINGS
from ...ir.ops import (
    Apply,
    Block,
    Constant,
    For,
    Function,
    GlobalRef,
    Load,
    Member,
    Offset,
    Op,
    PtrCast,
    Store,
    Value,
    While,
)
from ...ir.traverse import blocks, walk
from ...ir.types import Array, Pointer, Struct
from ...locks import cached_property

_SUMS = ("add", "sub", "convert", "neg")
_BITS = ("or", "xor")  # sums, where no bit is set in both
_PRODUCTS = ("mul", "shl")
_MOST = 128  # accesses whose pairs are looked at


class _Access(NamedTuple):
    op: Load | Store
    number: int  # in the order of the program
    phase: int  # between which meetings: each has its own loop over threads
    loops: tuple[Op, ...]  # inside of that


def ordered_accesses(function: Function) -> frozenset[Op]:
    """The loads and stores that must stay in their order."""
    accesses = _accesses(function)
    if len(accesses) <= _MOST and not any(isinstance(a.op, Store) for a in accesses):
        return frozenset()
    search = _Search(function)
    found = [a for a in accesses if search.is_spread(a.op.ptr)]
    if len(found) > _MOST:
        return frozenset(a.op for a in found)
    stores = [a for a in found if isinstance(a.op, Store)]
    return frozenset(a.op for pair in product(stores, found) if search.must_stay(*pair) for a in pair)


def _accesses(function: Function) -> list[_Access]:
    found: list[_Access] = []
    meetings = 0

    def visit(block: Block, loops: tuple[Op, ...]) -> None:
        nonlocal meetings
        for op in block.ops:
            meetings += isinstance(op, MEETINGS)
            if isinstance(op, Load | Store) and _is_visible(op):
                found.append(_Access(op, len(found), meetings, loops))
            inside = isinstance(op, For | While) and not any(
                isinstance(o, MEETINGS) for b in blocks(op) for o in walk(b)
            )
            for inner in blocks(op):
                visit(inner, (*loops, op) if inside else loops)

    visit(function.body, ())
    return found


def _is_visible(op: Load | Store) -> bool:
    return isinstance(op.ptr.type, Pointer) and op.ptr.type.space != "local"


class _Search:
    def __init__(self, function: Function):
        self.function = function
        self.params = {p.value for p in function.params}
        self.definition = {v: op for op in walk(function.body) for v in op.results}

    @cached_property
    def aliases(self) -> Aliases:
        return Aliases(self.function)

    @cached_property
    def uniform(self) -> set[Value]:
        from ...analysis.uniform import uniform_values

        return uniform_values(self.function)

    def must_stay(self, store: _Access, other: _Access) -> bool:
        """Whether an access may be to what a store of the same thread wrote."""
        one, two = store.op.ptr, other.op.ptr
        if store.phase != other.phase or not self.aliases.may_share(self.aliases.root(one), self.aliases.root(two)):
            return False
        again = [loop for loop in store.loops if loop in other.loops]
        if one is two:
            return not self.moves(one, again) or other.number > store.number
        if again:
            return True
        follows = isinstance(other.op, Store) or other.number > store.number
        return follows and self.aliases.may_alias(one, two)

    def moves(self, ptr: Value, loops: list[Op]) -> bool:
        """Whether it is another address in every iteration."""
        counters = [loop.body.args[0] for loop in loops if isinstance(loop, For)]
        return not loops or (len(loops) == len(counters) == 1 and self.times(ptr, counters[0]) == 1)

    def times(self, value: Value, counter: Value) -> int:
        """How often a counter is among what an address is the sum of."""
        if value is counter:
            return 1
        match self.definition.get(value):
            case Offset(ptr, index):
                return self.times(ptr, counter) + self.times(index, counter)
            case Member(ptr, _) | PtrCast(ptr):
                return self.times(ptr, counter)
            case Apply(fn, args) if fn in (*_SUMS, *_PRODUCTS):
                return sum(self.times(v, counter) for v in args)
        return 0

    def is_spread(self, ptr: Value) -> bool:
        """Whether neighbouring threads may be a known number of elements apart, several of them."""
        type = ptr.type.pointee if isinstance(ptr.type, Pointer) else None
        assert type is not None
        if isinstance(type, Struct | Array):
            return True
        seen = set[Value]()
        while (op := self.definition.get(ptr)) is not None:
            if isinstance(op, Offset):
                step = op.ptr.type.pointee if isinstance(op.ptr.type, Pointer) else type
                if step.size != type.size or self.is_multiple(op.index, seen):
                    return True
            elif not isinstance(op, Member | PtrCast):
                return not isinstance(op, GlobalRef)
            ptr = op.ptr
        return ptr not in self.params

    def is_multiple(self, index: Value, seen: set[Value]) -> bool:
        """Whether a constant times something that threads differ in is among what an index is the sum of; twice the
        same, as in i + i, is a multiple too. `seen`: what was added to the address before."""
        todo = [index]
        while todo:
            value = todo.pop()
            if value in seen or self.is_product(value):
                if value not in self.uniform:
                    return True
                continue  # so are the parts of a sum that threads share
            seen.add(value)
            op = self.definition.get(value)
            todo += op.args if isinstance(op, Apply) and op.fn in (*_SUMS, *_BITS) else ()
        return False

    def is_product(self, value: Value) -> bool:
        op = self.definition.get(value)
        constant = isinstance(op, Apply) and any(isinstance(self.definition.get(v), Constant) for v in op.args)
        return constant and isinstance(op, Apply) and op.fn in _PRODUCTS
