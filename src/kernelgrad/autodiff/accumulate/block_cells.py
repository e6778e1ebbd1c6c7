"""Each block's own cells, in shared memory, of the adjoint of a small input that very many threads read: weights, a
bias, a table. Whatever the addresses are, the block's threads add there, and when it is done it adds each cell that is
not zero once. Blocks that do the work of many (see `fewer_blocks`) make that few additions.

Floats hold the sum of a cell as long as one block makes few additions to it, and doubles otherwise; so it is with the
sums of the blocks (see launches/choice/block_cells.py). An address that is not known to lie within the buffer is
compared: what is outside goes to the adjoint itself, as it does without cells.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from ...ir.builder import Builder, pointee
from ...ir.effects import MEETINGS
from ...ir.ops import (
    Atomic,
    Barrier,
    Block,
    Builtin,
    Call,
    Global,
    GlobalRef,
    Leave,
    Load,
    Op,
    Param,
    Print,
    PtrCast,
    Store,
    Value,
    Warp,
)
from ...ir.traverse import uses, walk
from ...ir.types import I64, U64, Array, Pointer, Scalar, Type
from ..calculus.cooperate import together, zero_shared
from ..calculus.flat_numbers import as_numbers, flat
from ..calculus.shadows import wide_type
from .fewer_blocks import INDICES


class InBlock(NamedTuple):
    """A small input, and how many cells each block has of its adjoint. `wide`: they are doubles, whatever the adjoint
    is; `wide_total`: the sums of the blocks are added to doubles. `inside`: no address is outside of the buffer.
    `apart`: the lanes of a warp are at different cells."""

    name: str
    capacity: int
    wide: bool
    wide_total: bool
    inside: bool
    apart: bool


@dataclass(frozen=True)
class Cells:
    """`pointer`: to the block's cells; `length`: how many of them stand for elements. `total`: what they are added to
    in the end, the adjoint itself or doubles in its place."""

    variable: Global
    pointer: Value
    length: Param
    total: Value
    adjoint: Value

    def find(self, b: Builder) -> None:
        base = b.global_ref(self.variable.name, self.variable.type, "shared")
        b.add(PtrCast(base, results=(self.pointer,)))

    def add(self, b: Builder, k: Value) -> None:
        found, total = b.load(b.offset(as_numbers(b, self.pointer), k)), as_numbers(b, self.total)
        type = pointee(total)
        assert isinstance(type, Scalar)
        with b.region() as some:
            b.atomic("add", b.offset(total, k), b.convert(found, type))
        b.if_(b.apply("ne", found, b.constant(0.0, found.type)), some.block())

    def update(
        self, b: Builder, ptr: Value, type: Type, inside: Callable[[Value], None], outside: Callable[[Value], None]
    ) -> None:
        """Of the cells that a pointer leads to, or of the elements where there are no cells of all of them. `type`: of
        these elements."""
        cells, adjoint = as_numbers(b, self.pointer), as_numbers(b, self.adjoint)
        assert isinstance(cells.type, Pointer) and isinstance(adjoint.type, Pointer)
        k = b.pointer_difference(b.cast_pointer(ptr, cells.type), cells)
        with b.region() as cell:
            inside(ptr)
        with b.region() as element:
            outside(b.cast_pointer(b.offset(adjoint, k), Pointer(type, adjoint.type.space)))
        is_inside, last = self._has(b, k), -(-pointee(ptr).size // pointee(cells).size) - 1
        if last:
            is_inside = b.apply("and", is_inside, self._has(b, b.apply("add", k, b.constant(last, I64))))
        b.if_(is_inside, cell.block(), element.block())

    def _has(self, b: Builder, k: Value) -> Value:
        """Unsigned, what lies before the first is far behind the last."""
        return b.apply("lt", b.convert(k, U64), b.convert(self.length.value, U64))


def clear(b: Builder, cells: Iterable[Cells]) -> None:
    """Before the threads start with their work."""
    for own in cells:
        own.find(b)
    zero_shared(b, {own.variable.name: own.variable for own in cells}, b.constant(0, I64))


def add_up(b: Builder, cells: Iterable[Cells]) -> None:
    """When all threads of the block are done."""
    b.effect(Barrier, "block")
    for own in cells:
        together(b, own.length.value, lambda k, own=own: own.add(b, k))  # type: ignore[misc]


def capacity(count: int) -> int:
    """Elements, so that buffers of similar sizes share their code."""
    return 1 << max(0, count - 1).bit_length()


def cells_of(
    chosen: Iterable[InBlock], params: Mapping[str, Param], adjoints: Mapping[str, Param], totals: Mapping[str, Value]
) -> dict[str, Cells]:
    """`totals`: what blocks add their cells to."""
    return {
        own.name: _cells(own, pointee(params[own.name].value), adjoints[own.name], totals[own.name])
        for own in sorted(chosen)
    }


def _cells(own: InBlock, type: Type, adjoint: Param, total: Value) -> Cells:
    whole = wide_type(type) if own.wide else pointee(adjoint.value)
    number = flat(whole)
    assert number is not None
    variable = Global(f"_cells{adjoint.name}", Array(number, own.capacity), "shared")
    pointer = Value(Pointer(whole, "shared"), adjoint.name)
    length = Param(Value(I64, f"_length{adjoint.name}"), "long long")
    return Cells(variable, pointer, length, total, adjoint.value)


def can_take_turns(ops: Iterable[Op]) -> bool:
    """Whether a block may do this for one block of the launch after the other: its warps at their own pace, and none
    of them waits for another block."""
    block = Block((), tuple(ops), ())
    used = uses(block)
    return all(_may_come_again(op, used) for op in walk(block))


def _may_come_again(op: Op, used: Mapping[Value, object]) -> bool:
    match op:
        case Store(volatile=volatile) | Load(volatile=volatile):
            return not volatile
        case Builtin(name, _):
            return name in (*INDICES, "lane_id")
        case GlobalRef():
            return isinstance(op.result.type, Pointer) and op.result.type.space != "shared"
        case Atomic():
            return not used.get(op.result)
        case Warp():
            return True
    return not isinstance(op, (*MEETINGS, Call, Print, Leave))
