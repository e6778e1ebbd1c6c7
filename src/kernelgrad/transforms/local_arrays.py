"""Scalar replacement of local arrays: short loops over their elements are unrolled, so that every index is a constant.

    float a[4]; for (int i = 0; i < 4; ++i) a[i] = x[i];      becomes      float a_0 = x[0], a_1 = x[1], ...

An array in memory costs its reverse a tape: nothing else knows what it held. As values its elements are recomputed or
saved like any other, and carried by the loops around. It is done for whole arrays: where one index depends on more than
constants and the counters of loops of constant trip count, or a pointer escapes, the array stays memory and its loops
stay loops, unless another array wants them. Tables of integers, `constexpr int dx[9] = {...}`, are treated alike: their
elements become constants.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..analysis.access.constant_offsets import spot_of
from ..ir.ops import (
    Alloca,
    Apply,
    Block,
    Constant,
    For,
    Function,
    Global,
    GlobalRef,
    Load,
    Member,
    Module,
    Offset,
    Op,
    PtrCast,
    Store,
    Value,
)
from ..ir.traverse import blocks, descend, operands, walk, with_body
from ..ir.types import Array, Pointer, Scalar, Struct, Type
from . import loads, promote, simplify
from .unroll import constants_of, trips, unroll

_MOST_OPERATIONS = 4096  # that a function may have when its loops are unrolled
_MOST_ELEMENTS = 256  # of an array: the limit of `slots`, too
_ROUNDS = 4  # in the next, bounds that were the counters of unrolled loops are constants


def run(function: Function, module: Module) -> Function:
    given = function
    function = _with_constants(function, module)
    for _ in range(_ROUNDS):
        chosen = _Arrays(function, module).loops()
        if not chosen:
            break
        unrolled = promote.run(unroll(function, chosen.__contains__), module)
        function = _with_constants(simplify.run(unrolled, module), module)
    if function is given:
        return function
    # What the iterations of such a loop have stored in arrays that stay memory is known to those that follow.
    return simplify.run(loads.run(function, module), module)


class _Arrays:
    def __init__(self, function: Function, module: Module):
        self.body, self.tables = function.body, _tables(function, module)
        self.constants = constants_of(function)
        self.definition = {v: op for op in walk(self.body) for v in op.results}
        self.counters = {op.body.args[0]: op for op in walk(self.body) if isinstance(op, For)}
        self.root: dict[Value, Value] = {}
        self.wanted: dict[Value, set[For] | None] = {}  # by array: the loops that choose its elements; None: it stays
        self._scan()

    def loops(self) -> set[For]:
        """Those to unroll for all arrays that can be values, as far as the function does not become too long."""
        chosen: set[For] = set()
        for loops in sorted((found for found in self.wanted.values() if found), key=len):
            both = chosen | loops
            if _length(self.body, both, self.constants) <= _MOST_OPERATIONS:
                chosen = both
        return chosen

    def _scan(self) -> None:
        for op in walk(self.body):
            match op:
                case Alloca():
                    assert isinstance(op.result.type, Pointer)
                    if 0 < _elements(op.result.type.pointee) <= _MOST_ELEMENTS:
                        self.root[op.result], self.wanted[op.result] = op.result, set()
                case GlobalRef() if op.result in self.tables:
                    self.root[op.result], self.wanted[op.result] = op.result, set()
                case Offset(ptr, index) if ptr in self.root:
                    self._derive(op.result, ptr)
                    self._note_index(self.root[ptr], index)
                case Member(ptr) | PtrCast(ptr) if ptr in self.root:
                    self._derive(op.result, ptr)
                case Load():
                    pass
                case Store(value=value):
                    self._escape((value,))
                case _:
                    self._escape(operands(op))
        for block in _all_blocks(self.body):
            self._escape(block.results)

    def _derive(self, value: Value, ptr: Value) -> None:
        self.root[value] = self.root[ptr]

    def _escape(self, values: Iterator[Value] | tuple[Value, ...]) -> None:
        for value in values:
            if value in self.root:
                self.wanted[self.root[value]] = None

    def _note_index(self, array: Value, index: Value) -> None:
        loops = self._loops_of(index)
        known = self.wanted[array]
        self.wanted[array] = None if loops is None or known is None else known | loops

    def _loops_of(self, value: Value) -> set[For] | None:
        """The loops that make an integer a constant when unrolled; None if it depends on more than their counters."""
        if value in self.constants:
            return set()
        if value in self.counters:
            return self._loops_to_unroll(self.counters[value])
        op = self.definition.get(value)
        if not isinstance(op, Apply):
            return set() if isinstance(op, Constant) else None
        parts = [self._loops_of(arg) for arg in op.args]
        return None if any(p is None for p in parts) else set().union(*(p for p in parts if p is not None))

    def _loops_to_unroll(self, loop: For) -> set[For] | None:
        """The loop, or those that its bounds depend on, which are unrolled first."""
        if trips(loop, self.constants) is not None:
            return {loop}
        bounds = [self._loops_of(bound) for bound in (loop.lower, loop.upper)]
        return None if any(b is None for b in bounds) else set().union(*(b for b in bounds if b is not None))


def _tables(function: Function, module: Module) -> dict[Value, Global]:
    """Constant tables of integers, by their addresses."""
    references = ((op.result, module.globals.get(op.name)) for op in walk(function.body) if isinstance(op, GlobalRef))
    found = {ptr: table for ptr, table in references if table is not None and table.fixed and table.init is not None}
    return {
        ptr: table
        for ptr, table in found.items()
        if _is_integer(_innermost(table.type)) and 0 < _elements(table.type) <= _MOST_ELEMENTS
    }


def _innermost(type: Type) -> Type:
    while isinstance(type, Array):
        type = type.element
    return type


def _is_integer(type: Type) -> bool:
    return isinstance(type, Scalar) and type.kind in ("int", "uint")


def _with_constants(function: Function, module: Module) -> Function:
    """With loads from tables at constant indices as constants."""
    tables = _tables(function, module)
    if not tables:
        return function
    definition = {v: op for op in walk(function.body) for v in op.results}

    def block(old: Block) -> Block:
        ops = (_element(op, tables, definition) or descend(op, block) for op in old.ops)
        return Block(old.args, tuple(ops), old.results)

    return simplify.run(with_body(function, block(function.body)), module)


def _element(op: Op, tables: dict[Value, Global], definition: dict[Value, Op]) -> Op | None:
    """The constant that a load from a table gives; None for other operations."""
    if not isinstance(op, Load) or not isinstance(type := op.result.type, Scalar) or not _is_integer(type):
        return None
    ptr, at = op.ptr, 0
    while ptr not in tables:
        spot, cast = spot_of(ptr, definition), definition.get(ptr)
        if isinstance(cast, PtrCast):
            ptr = cast.ptr
        elif spot.terms or spot.root is ptr:
            return None
        else:
            ptr, at = spot.root, at + spot.bytes
    if not 0 <= at <= tables[ptr].type.size - type.size:
        return None
    data = (tables[ptr].init or b"")[at : at + type.size]
    number = int.from_bytes(data, "little", signed=type.is_signed)
    return Constant(number, results=op.results, span=op.span)


def _elements(type: Type) -> int:
    """How many scalars an array has; 0 for what has no array in it."""
    match type:
        case Array(element, count):
            return count * max(1, _elements(element))
        case Struct():
            return sum(_elements(part.type) for part in type.fields)
        case _:
            return 0


def _all_blocks(block: Block) -> Iterator[Block]:
    for op in walk(block):
        yield from blocks(op)


def _length(block: Block, unrolled: set[For], constants: dict[Value, int]) -> int:
    """The operations that a block has when these loops are unrolled."""
    total = 0
    for op in block.ops:
        inside = sum(_length(inner, unrolled, constants) for inner in blocks(op))
        times = (trips(op, constants) or 0) if isinstance(op, For) and op in unrolled else 1
        total += 1 + inside * times
    return total
