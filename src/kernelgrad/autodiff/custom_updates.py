"""Where a pullback adds to the adjoints behind pointers: what that says of the function's derivative.

`d_b[k] += v` becomes `r = custom(r, b[k], v)`; pointers to adjoints are gone after that. Anything else that is done
with them is refused.
"""

from __future__ import annotations

from dataclasses import replace

from ..analysis.roots import Memory
from ..errors import UnsupportedError
from ..ir.builder import Builder, pointee
from ..ir.ops import (
    Aggregate,
    Apply,
    Atomic,
    Block,
    Constant,
    Extract,
    Function,
    Load,
    Member,
    Offset,
    Op,
    Param,
    PtrCast,
    Store,
    Value,
)
from ..ir.traverse import operands, rebuild, uses, walk
from ..ir.types import I64, Array, Pointer
from .custom_linear import ZERO, Linearity, not_linear

_MOVES = (Offset, Member, PtrCast)
_HINT = "add to it, as in `*d_x += ...`, and do nothing else with it"


class Updates:
    """A pullback's body for number `number` of the adjoint, the sum in `cell`, or a tangent's for one of its numbers.
    What depends on others of them alone is zero."""

    def __init__(
        self,
        called: Function,
        memory: Memory,
        linearity: Linearity,
        shadows: dict[Value, int],
        params: tuple[Param, ...],
        cell: Value | None,
        fn: str,
        number: int,
    ):
        self.memory, self.linearity, self.shadows, self.cell = memory, linearity, shadows, cell
        self.fn, self.number = fn, number
        self.own = {shadow: called.params[k].value for shadow, k in shadows.items()}
        self.names = {shadow: params[k].name for shadow, k in shadows.items()}
        self.definitions = {v: op for op in walk(called.body) for v in op.results}
        self.stores = [op for op in walk(called.body) if isinstance(op, Store)]
        self.used = uses(called.body)
        self.sums = self.find_sums()
        self.same: dict[Value, Value] = {}  # what zero is added to
        self.b = Builder(called.span)
        self.body = self.block(called.body)

    def find_sums(self) -> set[Value]:
        """What is stored as an adjoint: the old one and what is added."""
        found = [op.value for op in self.stores if self.leads_to_adjoint(op.ptr)]
        wholes = [op for op in map(self.definitions.get, found) if isinstance(op, Aggregate)]
        return {*found, *(part for whole in wholes for part in whole.args)}

    def block(self, block: Block) -> Block:
        with self.b.region() as region:
            for op in block.ops:
                self.op(op)
        return region.block(block.args, tuple(map(self.value, block.results)))

    def value(self, value: Value) -> Value:
        return self.same.get(value, value)

    def op(self, op: Op) -> None:
        self.b.span = op.span
        match op:
            case Store(ptr, value) if self.leads_to_adjoint(ptr):
                self.store(op, ptr, value)
            case Atomic(kind, ptr, args):
                self.check(not self.used.get(op.result), op, ptr)
                self.add(op, ptr, args[0], kind == "sub")
            case Load(ptr) if self.leads_to_adjoint(ptr):
                pass  # only what is added to it may use it
            case Apply("eq" | "ne" as fn, (ptr, other)) if self.leads_to_adjoint(ptr) and self.is_null(other):
                self.b.add(Constant(fn == "ne", results=op.results, span=op.span))
            case _ if isinstance(op, _MOVES) and self.leads_to_adjoint(op.ptr):
                pass
            case Extract() if self.is_old(op.result):
                pass
            case Apply("add" | "sub") | Aggregate() if op.result in self.sums:
                pass
            case Apply() if self.is_zero(op):
                self.b.add(Constant(0.0, results=op.results, span=op.span))
            case Apply("add", (first, second)) if ZERO in map(self.linearity.value, op.args):
                other = second if self.linearity.value(first) == ZERO else first
                self.same[op.result] = self.value(other)
            case _:
                for v in operands(op):
                    self.check(not self.leads_to_adjoint(v) and not self.is_old(v), op, v)
                self.b.add(rebuild(op, self.value, self.block))

    def is_zero(self, op: Apply) -> bool:
        parts = self.linearity.value(op.result).parts
        return bool(parts) and self.number not in parts

    # ---- pointers to adjoints

    def leads_to_adjoint(self, ptr: Value) -> bool:
        return isinstance(ptr.type, Pointer) and bool(self.memory.of(ptr) & self.own.keys())

    def is_old(self, value: Value) -> bool:
        """What an adjoint was before."""
        op = self.definitions.get(value)
        if isinstance(op, Extract):
            return self.is_old(op.aggregate)
        return isinstance(op, Load) and self.leads_to_adjoint(op.ptr)

    def is_null(self, value: Value) -> bool:
        op = self.definitions.get(value)
        return isinstance(op, Constant) and op.value == 0

    def check(self, holds: bool, op: Op, ptr: Value) -> None:
        if not holds:
            names = sorted(self.names[root] for root in self.memory.of(ptr) & self.own.keys())
            name = names[0] if names else "an argument"
            problem = f"a custom derivative does something with the adjoint of '{name}' other than add to it"
            raise UnsupportedError(problem, op.span, _HINT)

    def primal(self, op: Op, ptr: Value) -> Value:
        """The pointer that a pointer to an adjoint belongs to."""
        if ptr in self.own:
            return self.own[ptr]
        move = self.definitions.get(ptr)
        if not isinstance(move, _MOVES):
            problem = "which adjoint a custom derivative adds to is decided by a branch: not supported"
            raise UnsupportedError(problem, op.span, "add in each branch")
        moved = rebuild(move, self.value, self.block, ptr=self.primal(op, move.ptr))
        return self.b.add(replace(moved, results=(Value(ptr.type, ptr.name),))).result

    # ---- what is added

    def store(self, op: Store, ptr: Value, value: Value) -> None:
        whole = self.definitions.get(value)
        if isinstance(whole, Aggregate):
            for k, part in enumerate(whole.args):
                old, added, negative = self.increment(op, ptr, part)
                source = self.definitions.get(old)
                self.check(isinstance(source, Extract) and source.index == k, op, ptr)
                assert isinstance(source, Extract)
                self.check(self.is_at(source.aggregate, ptr), op, ptr)
                self.add(op, ptr, added, negative, k)
            return
        old, added, negative = self.increment(op, ptr, value)
        self.check(self.is_at(old, ptr), op, ptr)
        self.add(op, ptr, added, negative)

    def is_at(self, old: Value, ptr: Value) -> bool:
        load = self.definitions.get(old)
        return isinstance(load, Load) and load.ptr is ptr

    def increment(self, op: Op, ptr: Value, value: Value) -> tuple[Value, Value, bool]:
        """What was there, what is added, and whether it is subtracted."""
        total = self.definitions.get(value)
        self.check(isinstance(total, Apply) and total.fn in ("add", "sub") and self.used[value] == 1, op, ptr)
        assert isinstance(total, Apply)
        first, second = total.args
        if total.fn == "add" and self.is_old(second):
            first, second = second, first
        self.check(self.is_old(first) and not self.is_old(second) and self.used[first] == 1, op, ptr)
        return first, second, total.fn == "sub"

    def add(self, op: Op, ptr: Value, added: Value, negative: bool, index: int | None = None) -> None:
        found = self.linearity.value(added)
        if found.flaw is not None or found.apart:
            (root,) = self.memory.of(ptr)
            raise not_linear(found.flaw or op.span, self.names[root], apart=not found.parts)
        if self.number not in found.parts:
            return
        place = self.primal(op, ptr)
        if index is not None:
            array = isinstance(pointee(place), Array)
            place = (
                self.b.offset(self.b.decay(place), self.b.constant(index, I64))
                if array
                else self.b.member(place, index)
            )
        assert self.cell is not None
        x, old, added = self.b.load(place), self.b.load(self.cell), self.value(added)
        slope = self.b.convert(self.b.apply("neg", added) if negative else added, old.type)
        self.b.store(self.cell, self.b.apply(self.fn, old, self.b.convert(x, old.type), slope))
