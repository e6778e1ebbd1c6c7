"""Recognises atomic operations on floats that are written with operations on their bits.

- A loop around atomicCAS that adds or subtracts: it tries until it succeeds, each time with the sum of what
  it expects to find and one other value. `cas_rounds` checks that by running it on symbols.
- Code that leaves a number in place or puts one certain other value there: loops around atomicCAS that take a maximum
  or a minimum, atomicMax, atomicMin and atomicExch on the bits, tests of the contents or of the value around them.
  Which of the two it is may depend on nothing but the contents and the value, so that who put the final value there
  can be told from the values alone.

Everything else stays as it is, and is refused where derivatives would pass through it.
"""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import NamedTuple

from ..ir.builder import pointee
from ..ir.ops import (
    Apply,
    Atomic,
    AtomicKind,
    Block,
    Builtin,
    Constant,
    For,
    Function,
    If,
    Load,
    Module,
    Offset,
    Op,
    PtrCast,
    Scope,
    Undef,
    Value,
    While,
)
from ..ir.traverse import (
    blocks,
    control_flows,
    descend,
    free_values,
    operands,
    rebuild,
    substitute,
    uses,
    walk,
    with_body,
)
from ..ir.types import BF16, F32, Array, Pointer, Scalar, Type
from . import simplify
from .cas_rounds import FLOATS, Rounds, stripped
from .spellings import Spelled, Spelling

_PURE = (Constant, Undef, Apply, PtrCast, Offset)
_INDICES = ("thread_idx", "block_idx", "block_dim", "grid_dim", "lane_id", "warp_size")
_KINDS = ("cas", "max", "min", "exch")


def run(function: Function, module: Module) -> Function:
    if not any(isinstance(op, Atomic) and op.kind in _KINDS for op in walk(function.body)):
        return function
    prepared = _through_elements(function)
    work = _Recognizer(prepared)
    body = work.block(prepared.body)
    if body is prepared.body:
        return function
    return simplify.run(with_body(function, substitute(body, work.floats(prepared.body))), module)


def _through_elements(function: Function) -> Function:
    """A cast of an array of floats to integers goes through the address of its first float."""
    arrays = {op.ptr: _first(op.ptr) for op in walk(function.body) if isinstance(op, PtrCast)}
    firsts = {ptr: first for ptr, first in arrays.items() if first is not None}

    def added(values: tuple[Value, ...]) -> list[Op]:
        return [PtrCast(v, results=(firsts[v],)) for v in values if v in firsts]

    def block(b: Block) -> Block:
        ops = added(b.args)
        for op in b.ops:
            if isinstance(op, PtrCast) and op.ptr in firsts:
                op = replace(op, ptr=firsts[op.ptr])
            ops += [descend(op, block), *added(op.results)]
        return Block(b.args, tuple(ops), b.results)

    if not firsts:
        return function
    body = block(function.body)
    params = added(tuple(p.value for p in function.params))
    return with_body(function, replace(body, ops=(*params, *body.ops)))


def _first(ptr: Value) -> Value | None:
    """The address of the first float of an array of them."""
    type = pointee(ptr)
    while isinstance(type, Array):
        type = type.element
    assert isinstance(ptr.type, Pointer)
    return Value(Pointer(type, ptr.type.space), ptr.name) if pointee(ptr) != type and type in FLOATS else None


class Match(NamedTuple):
    """What a piece of code does: `kind` to the float at `cell`, with `value` (None: with the constant `bits`)."""

    kind: AtomicKind
    scope: Scope
    cell: Value
    value: Value | None
    bits: int = 0


class _Recognizer:
    def __init__(self, function: Function):
        self.definitions: dict[Value, Op] = {}
        self.sources: dict[Value, list[Value]] = {}  # what flows into results and arguments of regions
        self._index(function.body)
        self.uses = uses(function.body)
        self.old: dict[Value, Value] = {}  # bits that such code gave as the old contents -> the number

    def _index(self, body: Block) -> None:
        for op in walk(body):
            for result in op.results:
                self.definitions[result] = op
            for target, found in control_flows(op):
                self.sources.setdefault(target, []).extend(found)

    # ---- rewriting

    def block(self, block: Block) -> Block:
        ops: list[Op] = []
        mapping: dict[Value, Value] = {}
        changed = False
        for op in block.ops:
            made = self.recognized(op)
            if made is None:
                new = rebuild(op, lambda v: mapping.get(v, v), self.block)
                ops.append(new)
                changed |= new is not op
            else:
                ops += [rebuild(o, lambda v: mapping.get(v, v), lambda b: b) for o in made]
                self._rename(op, made[-1], mapping)
                changed = True
        if not changed:
            return block
        return substitute(Block(block.args, tuple(ops), block.results), mapping)

    def _rename(self, op: Op, last: Op, mapping: dict[Value, Value]) -> None:
        for result in op.results:
            if self.uses.get(result):
                mapping[result] = last.result

    def floats(self, body: Block) -> dict[Value, Value]:
        """What old contents become when their bits are taken as a number again: that number."""
        casts = [op for op in walk(body) if isinstance(op, Apply) and op.fn == "bitcast" and op.result.type in FLOATS]
        pairs = ((op.result, self.old.get(self.stripped(op.args[0]))) for op in casts)
        return {result: number for result, number in pairs if number is not None and number.type == result.type}

    def recognized(self, op: Op) -> list[Op] | None:
        """The operations to stand in for one: hoisted ones, the atomic, and its result as the bits that were used."""
        hoisted: list[Op] = []
        if isinstance(op, While):
            hoisted, op = self.hoist(op)
        match = self.match(op)
        if match is None:
            return None
        used = [r for r in op.results if self.uses.get(r)]
        cell_type = pointee(match.cell)
        if len(used) > 1 or not all(_is_number(r, cell_type.size) for r in used):
            return None
        value, constants = match.value, list[Op]()
        if value is None:
            value = Value(cell_type)
            constants = [Constant(_as_float(match.bits, cell_type), results=(value,), span=op.span)]
        copied = self.closure(op, {match.cell, value})
        if copied is None:
            return None
        inputs = tuple(v for v in free_values(Block((), (*copied, op), ())))
        old, tail = None, list[Op]()
        if used:
            old = used[0] if used[0].type == cell_type else Value(cell_type)
            tail = [] if old is used[0] else [Apply("bitcast", (used[0],), results=(old,), span=op.span)]
        spelling = Spelling(inputs, (*copied, op, *tail), old)
        result = Value(cell_type, used[0].name if used else None)
        atomic = Spelled(
            match.kind,
            match.cell,
            (value,),
            match.scope,
            inputs=inputs,
            spelling=spelling,
            results=(result,),
            span=op.span,
        )
        made: list[Op] = [*hoisted, *constants, atomic]
        if used and used[0].type != cell_type:
            self.old[used[0]] = result
            made.append(Apply("bitcast", (result,), results=(Value(used[0].type, used[0].name),), span=op.span))
        return made

    def closure(self, op: Op, given: set[Value]) -> list[Op] | None:
        """The definitions to copy for the operation to use nothing but `given`; None if it depends on more."""
        found: dict[Value, Op] = {}

        def visit(value: Value) -> bool:
            if value in given or value in found:
                return True
            definition = self.definitions.get(value)
            if isinstance(definition, Load):
                allowed = self.cell_of(definition.ptr) in given
            else:
                allowed = isinstance(definition, _PURE)
            if definition is None or not allowed or not all(map(visit, operands(definition))):
                return False
            found[value] = definition
            return True

        return list(found.values()) if all(map(visit, free_values(Block((), (op,), ())))) else None

    def hoist(self, loop: While) -> tuple[list[Op], While]:
        """Moves what every round computes alike out of the loop: what its first block always runs."""
        inside = set(loop.before.args) | set(loop.body.args)
        inside |= {r for b in (loop.before, loop.body) for op in walk(b) for r in op.results}
        out: list[Op] = []
        kept: list[Op] = []
        cells = {self.cell_of(op.ptr) for b in (loop.before, loop.body) for op in walk(b) if isinstance(op, Atomic)}
        for op in loop.before.ops:
            load = isinstance(op, Load) and not op.volatile and self.cell_of(op.ptr) not in cells
            index = isinstance(op, Builtin) and op.name in _INDICES
            if (load or index or isinstance(op, _PURE)) and not any(v in inside for v in operands(op)):
                out.append(op)
                inside.difference_update(op.results)
            else:
                kept.append(op)
        return (out, replace(loop, before=replace(loop.before, ops=tuple(kept)))) if out else ([], loop)

    # ---- what code does

    def cell_of(self, ptr: Value) -> Value | None:
        """The pointer to the float whose bits, or which itself, a pointer leads to."""
        size = pointee(ptr).size
        while True:
            type = pointee(ptr)
            if type in FLOATS and type.size == size:
                return ptr
            definition = self.definitions.get(ptr)
            if not isinstance(definition, PtrCast):
                return None
            ptr = definition.ptr

    def match(self, op: Op) -> Match | None:
        if not isinstance(op, While | If | Atomic):
            return None
        inner = [op, *(o for b in blocks(op) for o in walk(b))]
        atomics = [o for o in inner if isinstance(o, Atomic)]
        cells = {self.cell_of(a.ptr) for a in atomics}
        cell = next(iter(cells)) if len(cells) == 1 else None
        if cell is None or any(isinstance(o, If) and o.exits for o in inner):
            return None
        if any(pointee(a.ptr) in FLOATS or a.scope != atomics[0].scope for a in atomics):
            return None
        allowed = (*_PURE, If, While, For, Atomic)
        if not all(isinstance(o, allowed) or (isinstance(o, Load) and self.cell_of(o.ptr) is cell) for o in inner):
            return None
        if isinstance(op, While) and len(atomics) == 1 and atomics[0].kind == "cas":
            found = Rounds(op, atomics[0], self.definitions).match()
            if found is not None and found[1].type == pointee(cell):
                return Match(found[0], atomics[0].scope, cell, found[1])
        return self.pick(op, atomics, cell)

    def pick(self, op: Op, atomics: list[Atomic], cell: Value) -> Match | None:
        if isinstance(op, Atomic) and op.kind == "cas":  # whether it does anything depends on what it expects
            return None
        leaves: set[Value] = set()
        for atomic in atomics:
            found = self.leaves(atomic, op) if atomic.kind in _KINDS else None
            if found is None:
                return None
            leaves |= found
        if len(leaves) != 1:
            return None
        (value,) = leaves
        kind: AtomicKind = op.kind if isinstance(op, Atomic) else "cas"
        scope, definition = atomics[0].scope, self.definitions.get(value)
        if isinstance(definition, Constant) and value.type != pointee(cell):
            return Match(kind, scope, cell, None, int(definition.value))
        return Match(kind, scope, cell, value) if value.type == pointee(cell) else None

    def leaves(self, atomic: Atomic, region: Op) -> set[Value] | None:
        """Where the bits that an atomic may write come from, other than from what is there; None if not known."""
        inside = {r for o in walk(Block((), (region,), ())) for r in o.results}
        inside |= {v for o in walk(Block((), (region,), ())) for b in blocks(o) for v in b.args}
        expected = self.stripped(atomic.args[0]) if atomic.kind == "cas" else None
        found: set[Value] = set()
        seen: set[Value] = set()
        todo = [atomic.args[-1]]
        while todo:
            value = self.stripped(todo.pop())
            if value in seen or value is expected:
                continue
            seen.add(value)
            definition = self.definitions.get(value)
            if value in self.sources and value in inside:
                todo += self.sources[value]
            elif isinstance(definition, Apply) and definition.fn in ("select", "max", "min") and value in inside:
                todo += definition.args[1:] if definition.fn == "select" else definition.args
            elif value not in inside or isinstance(definition, Constant):
                found.add(value)
            else:
                return None
        return found

    def stripped(self, value: Value) -> Value:
        return stripped(value, self.definitions)


# ---- small things ---------------------------------------------------------------------------------------------------

_FORMATS = {16: ("<H", "<e"), 32: ("<I", "<f"), 64: ("<Q", "<d")}


def _as_float(bits: int, type: Type) -> float:
    assert isinstance(type, Scalar)
    bits %= 1 << type.bits
    if type == BF16:  # the upper half of a float
        bits, type = bits << 16, F32
    integer, number = _FORMATS[type.bits]
    return float(struct.unpack(number, struct.pack(integer, bits))[0])


def _is_number(value: Value, size: int) -> bool:
    return isinstance(value.type, Scalar) and value.type.kind != "bool" and value.type.size == size
