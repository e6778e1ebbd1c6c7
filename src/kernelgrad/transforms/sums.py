"""Updates of adjoints at an address that a loop does not change: added up in a register, and added once after the loop.

    for (...) atomicAdd(&_d_x[row], v)      becomes      sum = 0; for (...) sum += v; if (sum != 0) atomicAdd(..., sum)

The address is computed again behind `sum != 0`: then some iteration has computed it too, so that no load in it reads
what the kernel would not have read. Inner loops come first, and their updates may go on outwards. Only in loops where
threads do not wait for each other, and where nothing else touches what may be the same memory, but to add to it too:
`_d_x[p] += u; _d_x[q] += v` is the same in any order. `autodiff/prepare/contributions` counts on all of this.

What is added to doubles in place of floats (`autodiff/prepare/double_cells`) is a float each time; so is the register
of a counted loop, whose sum `sum_pieces` looks after.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import islice

from ..analysis.adjoint_values import adjoint_values
from ..analysis.aliases import Aliases
from ..analysis.machine import LOOP_SUMS, ONLY_SUMS
from ..analysis.roots import Memory, analyse
from ..ir.builder import Builder, pointee
from ..ir.effects import MEETINGS, is_pure
from ..ir.ops import (
    Alloca,
    Apply,
    Atomic,
    Block,
    Call,
    Constant,
    For,
    Function,
    GlobalRef,
    If,
    Load,
    Member,
    Module,
    Offset,
    Op,
    Store,
    Value,
    While,
)
from ..ir.traverse import blocks, clone, descend, operands, uses, walk, with_body
from ..ir.types import F32, Pointer, Scalar
from ..locks import cached_property
from . import promote, simplify


def run(
    function: Function,
    module: Module,
    shadows: frozenset[str],
    only_sums: bool = False,
    wide: frozenset[str] = frozenset(),
) -> Function:
    """`shadows`: the parameters and variables that hold adjoints. `only_sums`: the function does nothing else. `wide`:
    the parameters that are doubles in place of floats."""
    return at_most(function, module, shadows, ONLY_SUMS if only_sums else LOOP_SUMS, wide)


def at_most(
    function: Function, module: Module, shadows: frozenset[str], most: int, wide: frozenset[str] = frozenset()
) -> Function:
    """`most`: sums of one loop."""
    found = function
    while True:  # from loops to the loops around them
        sums = _Sums(found, shadows, most, wide)
        body = sums.block(found.body)
        if not sums.variables:
            return found if found is function else simplify.run(promote.run(found, module), module)
        found = with_body(found, Block(body.args, (*sums.variables, *body.ops), body.results))


@dataclass
class _Updates:
    """Of one address: `+=` by atomics, or by loads and stores."""

    atomics: list[Atomic] = field(default_factory=list)
    loads: list[Load] = field(default_factory=list)
    stores: list[Store] = field(default_factory=list)

    @property
    def ops(self) -> list[Op]:
        return [*self.atomics, *self.loads, *self.stores]

    def is_within(self, ids: set[int]) -> bool:
        return all(id(op) in ids for op in self.ops)


class _Sums:
    def __init__(self, function: Function, shadows: frozenset[str], most: int, wide: frozenset[str]):
        self.aliases, self.most = Aliases(function), most
        self.wide = {p.value for p in function.params if p.name in wide}
        self.used = uses(function.body)
        self.definition = {r: op for op in walk(function.body) for r in op.results}
        named = {p.value for p in function.params if p.name in shadows}
        self.shadows = named | {
            op.result for op in walk(function.body) if isinstance(op, GlobalRef) and op.name in shadows
        }
        self.function, self.names = function, shadows
        self.variables: list[Op] = []  # in which sums are kept

    @cached_property
    def arrays(self) -> set[Value]:
        """Of the function's own, that hold adjoints. Single numbers, sums among them, are values soon."""
        own = {v for v in self.aliases.local if isinstance(v.type, Pointer) and not isinstance(v.type.pointee, Scalar)}
        return adjoint_values(self.function, self.names) & own if own else own

    @cached_property
    def memory(self) -> Memory:
        return analyse(self.function)

    def block(self, block: Block) -> Block:
        ops: list[Op] = []
        for op in block.ops:
            inner = descend(op, self.block)
            ops += self.loop(inner) if isinstance(inner, For | While) and inner is op else [inner]
        return block if ops == list(block.ops) else Block(block.args, tuple(ops), block.results)

    def loop(self, loop: For | While) -> list[Op]:
        inside = [op for inner in blocks(loop) for op in walk(inner)]
        if any(isinstance(op, (*MEETINGS, Call)) for op in inside):
            return [loop]
        before, after, body = Builder(loop.span), Builder(loop.span), loop.body
        for ptr, updates, address in islice(self.sums(loop, inside), self.most):
            narrow = isinstance(loop, For) and self.aliases.root(ptr) in self.wide
            body = self.moved(body, ptr, updates, address, before, after, narrow)
        return [*before.ops, replace(loop, body=body), *after.ops] if after.ops else [loop]

    # ---- what is updated

    def sums(self, loop: For | While, inside: list[Op]) -> Iterator[tuple[Value, _Updates, list[Op]]]:
        """What a loop adds to one address, and the operations in it that make the address."""
        found = self.updates(loop)
        ids = {id(op) for op in inside}
        adding = {id(op) for updates in found.values() if updates.is_within(ids) for op in updates.ops}
        for ptr, updates in found.items():
            if updates.is_within(ids) and self.is_sum(ptr, updates, inside, adding):
                address = self.address(ptr, loop, inside)
                if address is not None:
                    yield ptr, updates, address

    def updates(self, loop: For | While) -> dict[Value, _Updates]:
        found: dict[Value, _Updates] = {}
        for op in walk(loop.body):
            if isinstance(op, Atomic) and self.only_adds(op):
                found.setdefault(op.ptr, _Updates()).atomics.append(op)
            elif isinstance(op, Store) and not op.volatile:
                load = self.updated(op)
                if load is not None:
                    found.setdefault(op.ptr, _Updates()).loads.append(load)
                    found[op.ptr].stores.append(op)
        return found

    def updated(self, store: Store) -> Load | None:
        """The load of the same address to which something is added, for this store alone."""
        op = self.definition.get(store.value)
        while isinstance(op, Apply) and op.fn in ("add", "sub") and self.used.get(op.result) == 1:
            sides = [self.definition.get(a) for a in op.args]
            if op.fn == "add" and self.leads_to(sides[1], store.ptr):
                sides.reverse()
            op = sides[0]
        is_it = isinstance(op, Load) and op.ptr is store.ptr and not op.volatile and self.used.get(op.result) == 1
        return op if is_it and isinstance(op, Load) else None

    def leads_to(self, op: Op | None, ptr: Value) -> bool:
        while isinstance(op, Apply) and op.fn in ("add", "sub"):
            sides = [self.definition.get(a) for a in op.args]
            if op.fn == "add" and self.leads_to(sides[1], ptr):
                return True
            op = sides[0]
        return isinstance(op, Load) and op.ptr is ptr

    def is_sum(self, ptr: Value, updates: _Updates, inside: list[Op], adding: set[int]) -> bool:
        """Whether nothing touches the memory in the loop but the updates, and others that add to it."""
        type = ptr.type.pointee if isinstance(ptr.type, Pointer) else None
        if not (isinstance(type, Scalar) and type.is_float) or (updates.atomics and updates.stores):
            return False
        others = (op for op in inside if isinstance(op, Load | Store | Atomic) and id(op) not in adding)
        return self.holds_adjoints(ptr) and not any(self.aliases.may_alias(op.ptr, ptr) for op in others)

    def holds_adjoints(self, ptr: Value) -> bool:
        if self.aliases.root(ptr) in self.shadows:
            return True
        roots = self.memory.of(ptr)
        return bool(roots) and roots <= self.shadows | self.arrays

    def only_adds(self, op: Op) -> bool:
        return isinstance(op, Atomic) and op.kind == "add" and not self.used.get(op.result)

    def address(self, ptr: Value, loop: For | While, inside: list[Op]) -> list[Op] | None:
        """The operations in the loop that it comes from, in order; None if it may change there."""
        made = {r: op for op in inside for r in op.results}
        arguments = {arg for op in (loop, *inside) for inner in blocks(op) for arg in inner.args}
        wanted, todo = set[int](), [ptr]
        while todo:
            value = todo.pop()
            if value in arguments:
                return None
            op = made.get(value)
            if op is None or id(op) in wanted:
                continue
            if not (is_pure(op) or (isinstance(op, Load) and self.is_constant(op, inside))):
                return None
            wanted.add(id(op))
            todo += operands(op)
        return [op for op in inside if id(op) in wanted]

    def is_constant(self, load: Load, inside: list[Op]) -> bool:
        return not load.volatile and not any(self.aliases.may_change(op, load.ptr) for op in inside)

    # ---- the sum

    def moved(
        self,
        body: Block,
        ptr: Value,
        updates: _Updates,
        address: list[Op],
        before: Builder,
        after: Builder,
        narrow: bool,
    ) -> Block:
        assert isinstance(ptr.type, Pointer)
        type = ptr.type.pointee
        own = F32 if narrow else type
        total = Value(Pointer(own, "local"), f"{self.aliases.root(ptr).name or ''}_sum")
        self.variables.append(Alloca(results=(total,), span=before.span))
        before.store(total, before.constant(-0.0, own))
        body = self.summed(body, total, {id(op) for op in updates.ops})
        after.span = updates.ops[-1].span
        result = after.load(total) if own == type else after.convert(after.load(total), type)
        some = after.apply("ne", result, after.constant(0.0, type))
        with after.region() as region:
            mapping: dict[Value, Value] = {}
            after.ops += clone(Block((), tuple(address), ()), mapping).ops
            place = mapping.get(ptr, ptr)
            if updates.atomics:
                op = updates.atomics[0]
                after.add(replace(op, ptr=place, args=(result,), results=(Value(type),)))
            else:
                after.store(place, after.apply("add", after.load(place), result))
        after.if_(some, region.block())
        return body

    def summed(self, block: Block, total: Value, updates: set[int]) -> Block:
        ops: list[Op] = []
        for op in block.ops:
            match op:
                case Atomic(_, _, (value,)) if id(op) in updates:
                    b = Builder(op.span)
                    b.store(total, b.apply("add", b.load(total), self.as_summed(b, value, total, updates)))
                    ops += b.ops
                case Load(ptr) | Store(ptr) if id(op) in updates and pointee(ptr) == pointee(total):
                    ops.append(replace(op, ptr=total))
                case Load() if id(op) in updates:  # what a store makes of it is made anew
                    b = Builder(op.span)
                    b.add(Apply("convert", (b.load(total),), results=op.results, span=op.span))
                    ops += b.ops
                case Store(_, value) if id(op) in updates:
                    b = Builder(op.span)
                    b.store(total, self.as_summed(b, value, total, updates))
                    ops += b.ops
                case If() if self.is_test(op, updates):  # adding zero is cheaper than asking
                    ops += self.summed(op.then, total, updates).ops
                case _:
                    ops.append(descend(op, lambda inner: self.summed(inner, total, updates)))
        return Block(block.args, tuple(ops), block.results)

    def as_summed(self, b: Builder, value: Value, total: Value, updates: set[int]) -> Value:
        """What is added, or the sum of it and of what was there, in the type of a sum."""
        type, op = pointee(total), self.definition.get(value)
        match op:
            case _ if value.type == type:
                return value
            case Load() if id(op) in updates:
                return b.load(total)
            case Apply("add" | "sub" | "neg" | "select" as fn, args):
                return b.apply(fn, *(self.as_summed(b, v, total, updates) if v.type == value.type else v for v in args))
        return b.convert(value, type)

    def is_test(self, op: If, updates: set[int]) -> bool:
        """`if (v != 0) atomicAdd(..., v)`"""
        atomics = [inner for inner in op.then.ops if id(inner) in updates and isinstance(inner, Atomic)]
        cond = self.definition.get(op.cond)
        if len(atomics) != 1 or op.orelse.ops or op.results or not (isinstance(cond, Apply) and cond.fn == "ne"):
            return False
        others = all(inner in atomics or isinstance(inner, (Constant, Offset, Member)) for inner in op.then.ops)
        return others and atomics[0].args[0] is cond.args[0] and self.is_zero(cond.args[1])

    def is_zero(self, value: Value) -> bool:
        op = self.definition.get(value)
        return isinstance(op, Constant) and op.value == 0
