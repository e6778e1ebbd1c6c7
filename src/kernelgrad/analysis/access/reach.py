"""Which part of a buffer a launch reaches at most, where its addresses show it: few cells of a large one, perhaps."""

from __future__ import annotations

from ...ir.ops import Atomic, Function, Load, Member, Offset, Op, PtrCast, Store, Value
from ...ir.traverse import operands, walk
from ...ir.types import Pointer
from ..roots import Memory
from .affine import Sums
from .ranges import Answers, Indices, Range, Ranges

_ENDLESS = 1 << 62  # iterations of a loop of which nothing is known


def reach(function: Function, memory: Memory, root: Value, sums: Sums) -> Range | None:
    """The first byte of a parameter's memory that a launch may touch, and where it ends; None where that is not known,
    or where it touches some before the memory. `sums`: of the launch."""
    ranges = Ranges(Indices(function), sums.shape.grid, sums.shape.block, Answers(sums.known))
    start, end = _ENDLESS, 0
    for op in walk(function.body):
        ptrs = [v for v in operands(op) if root in memory.of(v)]
        if isinstance(op, Offset | Member | PtrCast) or not ptrs:
            continue
        size = _touched(op)
        if size is None or ptrs != [op.ptr] or not _begins_at(root, op.ptr, sums):  # type: ignore[attr-defined]
            return None
        found = ranges.offset(ptrs[0]) or _of_sum(ptrs[0], root, sums)
        if found is None or found[0] < 0:
            return None
        start, end = min(start, found[0]), max(end, found[1] + size)
    return min(start, end), end


def _of_sum(ptr: Value, root: Value, sums: Sums) -> Range | None:
    """The same for addresses that loops go on with by steps of the launch."""
    address = sums.address(ptr, root)
    if address is None or any(basis in sums.wrapping for basis, _ in address.terms):
        return None
    return sums.range(address, _ENDLESS)


def _touched(op: Op) -> int | None:
    if not isinstance(op, Load | Store | Atomic) or not isinstance(op.ptr.type, Pointer):
        return None
    return op.ptr.type.pointee.size


def _begins_at(root: Value, ptr: Value, sums: Sums) -> bool:
    """Whether a pointer is a parameter's, moved: not one that a loop carries, or that was chosen."""
    op = sums.structure.definition.get(ptr)
    while isinstance(op, Offset | Member | PtrCast):
        ptr = op.ptr
        op = sums.structure.definition.get(ptr)
    return ptr is root
