"""Elements of memory that a loop goes on storing are carried in registers through it. For derivatives.

    y[i] = 0;
    for (k = 0; k < m; ++k) y[i] += x[k * n + i] * w[k];

                        becomes     s = 0; for (k = 0; k < m; ++k) s += x[k * n + i] * w[k];     y[i] = s;

What is then stored and overwritten without being read goes too: y is written once, and nobody reads it. Inner loops
come first, and their elements may go on outwards.

An element is one address that the loop does not change. Nothing else in the loop may touch it, and there no thread
waits for another: between two meetings an element that a thread stores is its own. Nothing is loaded or stored that the
kernel would not: either the thread has stored the element before the loop, with no meeting since, or every iteration
stores it, and there is one:

    for (k = 0; k < m; ++k) y[i] += x[k];     becomes     if (0 < m) { s = y[i]; for (...) s += x[k]; y[i] = s; }
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice
from typing import NamedTuple

from ..analysis.aliases import Aliases, arguments_apart
from ..analysis.roots import holds_pointers
from ..ir.builder import Builder, pointee
from ..ir.effects import MEETINGS
from ..ir.ops import (
    Alloca,
    Assert,
    Atomic,
    Block,
    Call,
    For,
    Function,
    If,
    Leave,
    Load,
    Member,
    Module,
    Op,
    Store,
    Trap,
    Value,
    While,
)
from ..ir.traverse import blocks, descend, kinds, uses, walk, with_body
from ..ir.types import Array, Pointer, Struct
from . import invariant, loads, promote, simplify, stores
from .unroll import constants_of, iterations

_MOST, _MOST_TRIED = 16, 64  # elements of one loop
_MOST_BYTES = 64  # of one of them
_WAITING = frozenset((*MEETINGS, Call))
_LEAVING = frozenset((Leave, Trap, Assert))  # then others see what memory holds in the middle of the loop


def run(function: Function, module: Module) -> Function:
    """Where no two arguments overlap. The function as it is, where no loop has such an element."""
    if not any(map(_may_have_elements, _loops(function))):
        return function
    hoisted = invariant.with_addresses(function, module)
    if not any(map(_stores_fixed, _loops(hoisted))):
        return function
    found = _Loops(simplify.run(hoisted, module)).run()
    if found is None:
        return function
    carried = loads.with_arguments_apart(promote.run(found, module), module)
    if kinds(function.body).isdisjoint((Trap, Assert)):
        carried = stores.with_arguments_apart(carried, module)
    return simplify.run(carried, module)


def _may_have_elements(loop: For | While) -> bool:
    inside = _kinds(loop)
    return Store in inside and inside.isdisjoint(_WAITING | _LEAVING)


def _stores_fixed(loop: For | While) -> bool:
    """Whether it may have elements, and stores to an address that it does not make."""
    if not _may_have_elements(loop):
        return False
    changing = _values_of(loop)
    return any(isinstance(op, Store) and op.ptr not in changing for b in blocks(loop) for op in walk(b))


def _loops(function: Function) -> Iterator[For | While]:
    return (op for op in walk(function.body) if isinstance(op, For | While))


def _kinds(op: Op) -> frozenset[object]:
    return frozenset[object]().union(*map(kinds, blocks(op)))


class _Element(NamedTuple):
    """`loaded`: its register begins with what memory holds. `guarded`: only if the loop has an iteration."""

    ptr: Value
    accesses: list[Op]
    loaded: bool
    guarded: bool

    def as_access(self, kind: type[Load | Store], at: int) -> Builder:
        """For an access in place of one in the loop."""
        return Builder([op for op in self.accesses if isinstance(op, kind)][at].span)


class _Stored:
    """The addresses that the thread has stored to since it met others."""

    def __init__(self, pointers: Iterable[Value] = ()):
        self.pointers = set(pointers)

    def __contains__(self, pointer: Value) -> bool:
        return pointer in self.pointers

    def copy(self) -> _Stored:
        return _Stored(self.pointers)

    def note(self, op: Op) -> None:
        if isinstance(op, Store):
            self.pointers.add(op.ptr)

    def note_either(self, one: _Stored, other: _Stored) -> None:
        self.pointers = one.pointers & other.pointers

    def forget(self) -> None:
        self.pointers.clear()


class _Loops:
    def __init__(self, function: Function):
        self.function, self.aliases = function, Aliases(arguments_apart(function))
        self.used, self.constants = uses(function.body), constants_of(function)
        self.members = {op.result: op for op in walk(function.body) if isinstance(op, Member)}
        self.is_alone = kinds(function.body).isdisjoint(_WAITING)  # so that nobody notices who leaves
        self.registers: list[Op] = []
        self.own: set[Value] = set()

    def run(self) -> Function | None:
        """None where there is nothing to carry."""
        body = self.block(self.function.body, _Stored())
        if not self.registers:
            return None
        return with_body(self.function, Block(body.args, (*self.registers, *body.ops), body.results))

    # ---- the way through the function

    def block(self, block: Block, stored: _Stored) -> Block:
        ops: list[Op] = []
        for op in block.ops:
            new = self.op(op, stored)
            ops += new
            for each in new:
                stored.note(each)
        return block if ops == list(block.ops) else Block(block.args, tuple(ops), block.results)

    def op(self, op: Op, stored: _Stored) -> list[Op]:
        if isinstance(op, If):
            one, other = stored.copy(), stored.copy()
            op = replace(op, then=self.block(op.then, one), orelse=self.block(op.orelse, other))
            stored.note_either(one, other)
        elif self.waits(op):
            stored.forget()
            op = descend(op, lambda b: self.block(b, _Stored()))
        elif isinstance(op, For | While):
            inside = stored.copy()  # the blocks of a loop come one after the other
            loop = descend(op, lambda b: self.block(b, inside))
            assert isinstance(loop, For | While)
            return self.loop(loop, stored)
        return [op]

    def waits(self, op: Op) -> bool:
        """Whether other threads may come in: what an atomic gives tells of them."""
        if isinstance(op, Atomic):
            return bool(self.used.get(op.result))
        inside = _kinds(op)
        if isinstance(op, tuple(_WAITING)) or not inside.isdisjoint(_WAITING):
            return True
        return Atomic in inside and any(self.waits(inner) for b in blocks(op) for inner in b.ops)

    # ---- loops

    def loop(self, loop: For | While, stored: _Stored) -> list[Op]:
        elements = list(islice(self.elements(loop, stored), _MOST)) if self.is_plain(loop) else []
        if not elements:
            return [loop]
        registers = {element.ptr: self.register(element.ptr, loop) for element in elements}
        carried = descend(loop, lambda b: _moved(b, registers))
        guarded = [element for element in elements if element.guarded]
        always = [element for element in elements if not element.guarded]
        ops = _around([carried], guarded, registers)
        if guarded:
            assert isinstance(loop, For)
            ops = _guarded(loop, ops)
        return _around(ops, always, registers)

    def is_plain(self, loop: For | While) -> bool:
        if not _may_have_elements(loop):
            return False
        inside = [op for b in blocks(loop) for op in walk(b)]
        if any(isinstance(op, Load | Store) and op.volatile for op in inside):
            return False
        return self.is_alone or not any(isinstance(op, If) and op.exits for op in inside)

    def register(self, ptr: Value, loop: For | While) -> Value:
        register = Value(Pointer(pointee(ptr), "local"), f"{self.aliases.root(ptr).name or 'element'}_carried")
        self.registers.append(Alloca(results=(register,), span=loop.span))
        self.own.add(register)
        return register

    def elements(self, loop: For | While, stored: _Stored) -> Iterator[_Element]:
        accesses, changing, always = _accesses(loop, self.own), _values_of(loop), set(_certain(loop).ops)
        fixed = [(ptr, ops) for ptr, ops in accesses.items() if ptr not in changing and self.is_element(ptr, ops)]
        for ptr, ops in fixed[:_MOST_TRIED]:
            if any(self.may_touch(other, ptr) for other in accesses):
                continue
            is_read, first = any(isinstance(op, Load) for op in ops), ops[0]
            if is_read and ptr in stored:
                yield _Element(ptr, ops, loaded=True, guarded=False)
            elif any(isinstance(op, Store) and op in always for op in ops):
                loaded = is_read and not (isinstance(first, Store) and first in always)
                yield _Element(ptr, ops, loaded, guarded=isinstance(loop, For) and not self.has_turns(loop))

    def is_element(self, ptr: Value, accesses: list[Op]) -> bool:
        type = pointee(ptr)
        if isinstance(type, Array) or holds_pointers(type) or type.size > _MOST_BYTES:
            return False
        if self.aliases.root(ptr) in self.aliases.local:  # an array of its own: indices may still become constants
            return False
        plain = all(isinstance(op, Load | Store) and _type_of(op) == type for op in accesses)
        return plain and any(isinstance(op, Store) for op in accesses)

    def may_touch(self, other: Value, ptr: Value) -> bool:
        return other is not ptr and not self.are_members(other, ptr) and self.aliases.may_alias(other, ptr)

    def are_members(self, one: Value, other: Value) -> bool:
        """Whether they are different ones of one struct."""
        a, b = self.members.get(one), self.members.get(other)
        if a is None or b is None or a.ptr is not b.ptr or a.index == b.index:
            return False
        struct = pointee(a.ptr)
        return isinstance(struct, Struct) and not struct.is_union

    def has_turns(self, loop: For) -> bool:
        return bool(iterations(loop, self.constants))


def _values_of(loop: For | While) -> set[Value]:
    """What each iteration makes anew."""
    inside = (op for b in blocks(loop) for op in walk(b))
    own = {arg for b in blocks(loop) for arg in b.args}
    return own.union(*((*op.results, *(arg for b in blocks(op) for arg in b.args)) for op in inside))


def _certain(loop: For | While) -> Block:
    """What runs in every iteration; of a loop whose number of iterations nobody knows, that is its test."""
    return loop.body if isinstance(loop, For) else loop.before


def _accesses(loop: For | While, own: set[Value]) -> dict[Value, list[Op]]:
    """By their addresses, in order."""
    found: dict[Value, list[Op]] = {}
    for block in blocks(loop):
        for op in walk(block):
            if isinstance(op, Load | Store | Atomic) and op.ptr not in own:
                found.setdefault(op.ptr, []).append(op)
    return found


def _type_of(op: Load | Store) -> object:
    return op.value.type if isinstance(op, Store) else op.result.type


def _moved(block: Block, registers: dict[Value, Value]) -> Block:
    def moved(op: Op) -> Op:
        if isinstance(op, Load | Store) and op.ptr in registers:
            return replace(op, ptr=registers[op.ptr])
        return descend(op, lambda b: _moved(b, registers))

    return Block(block.args, tuple(map(moved, block.ops)), block.results)


def _around(ops: list[Op], elements: list[_Element], registers: dict[Value, Value]) -> list[Op]:
    """With what elements hold in their registers before, and in memory after."""
    before, after = list[Op](), list[Op]()
    for element in elements:
        register = registers[element.ptr]
        if element.loaded:
            b = element.as_access(Load, 0)
            b.store(register, b.load(element.ptr))
            before += b.ops
        b = element.as_access(Store, -1)
        b.store(element.ptr, b.load(register))
        after += b.ops
    return [*before, *ops, *after]


def _guarded(loop: For, ops: list[Op]) -> list[Op]:
    """Only if the loop has an iteration; it gives what it would give without one, else."""
    b = Builder(loop.span)
    some = b.apply("lt" if loop.step > 0 else "gt", loop.lower, loop.upper)
    inner = tuple(Value(v.type, v.name) for v in loop.results)
    then = tuple(replace(op, results=inner) if isinstance(op, For) else op for op in ops)
    orelse = Block((), (), loop.inits)
    b.add(If(some, Block((), then, inner), orelse, results=loop.results, span=loop.span))
    return b.ops
