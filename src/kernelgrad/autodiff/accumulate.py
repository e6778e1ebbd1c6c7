"""The accumulation plan: how each read's adjoint is added to the shadow of what it read.

Memory of this thread alone is updated plainly: local arrays, and buffers whose every access in the kernel is at the
thread's own index. That proof depends on the launch (rule 11): `conditions` says on what, and a launch that does not
meet them uses the variant in which such updates are atomic too.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from ..ir.ops import Alloca, Apply, Atomic, Builtin, GlobalRef, Load, Member, Offset, Op, PtrCast, Store, Value
from ..ir.types import Array, Pointer, Scalar, Type
from .roots import Memory
from .structure import Structure

Index = Literal["grid", "block", "row"]
# Which launches make an index private to its thread.
CONDITIONS: dict[Index, str] = {
    "grid": "the grid and the block extend along x only",
    "block": "there is one block, and it extends along x only",
    "row": "the block extends along x only",
}


@dataclass(frozen=True)
class Facts:
    """What is known of a launch. `private`: its threads' own indices are theirs alone (rule 11). `refill`: the tiles'
    fills cover what is read (rule 8). `partials`: the blocks leave their sums for a finishing step, since so many
    blocks would wait for each other at one address. `alone`: there is one thread."""

    private: bool = True
    refill: bool = True
    partials: bool = False
    alone: bool = False


USUAL = Facts()  # of most launches


@dataclass
class Accumulation:
    atomic: set[int] = field(default_factory=set)  # loads whose update is atomic
    reasons: dict[int, str] = field(default_factory=dict)
    conditions: set[Index] = field(default_factory=set)

    def is_atomic(self, op: Load) -> bool:
        return id(op) in self.atomic


def plan_updates(memory: Memory, structure: Structure, active: frozenset[Value], assume_private: bool) -> Accumulation:
    plan = Accumulation()
    private = {root: _own_index(root, memory, structure) for root in active}
    for load in memory.loads:
        roots = memory.of(load.ptr) & active
        if not roots:
            continue
        if all(_is_local(root, structure) for root in roots):
            plan.reasons[id(load)] = "a local array of this thread"
            continue
        kinds = {private[root] for root in roots if not _is_local(root, structure)}
        if assume_private and None not in kinds and len(memory.of(load.ptr)) == 1:
            plan.conditions |= {kind for kind in kinds if kind is not None}
            plan.reasons[id(load)] = "only this thread touches the element"
        else:
            plan.atomic.add(id(load))
            plan.reasons[id(load)] = "other threads may read the element too"
    return plan


def _is_local(root: Value, structure: Structure) -> bool:
    return isinstance(structure.definition.get(root), Alloca)


def _own_index(root: Value, memory: Memory, structure: Structure) -> Index | None:
    """The index by which every access of the kernel finds the root's memory, if that is the thread's own."""
    kinds: set[Index | None] = set()
    for op in (*memory.loads, *memory.stores):
        if root in memory.of(op.ptr):  # type: ignore[attr-defined]
            kinds.add(_access_kind(op, root, structure))
    kind = kinds.pop() if len(kinds) == 1 else None
    if isinstance(structure.definition.get(root), GlobalRef):  # shared memory: every block has its own
        return "row" if kind == "block" else None
    return kind


def _access_kind(op: Op, root: Value, structure: Structure) -> Index | None:
    assert isinstance(op, Load | Store | Atomic)
    ptr = op.ptr
    while True:
        step = structure.definition.get(ptr)
        if isinstance(step, Member):
            ptr = step.ptr
        elif isinstance(step, Offset) and _is_start_of(step.ptr, root, structure):
            return thread_index(step.index, structure)
        else:
            return None


def _is_start_of(ptr: Value, root: Value, structure: Structure) -> bool:
    """Whether a pointer is the root, or the first element of the array that the root is."""
    if ptr is root:
        return True
    op = structure.definition.get(ptr)
    if not isinstance(op, PtrCast) or op.ptr is not root:
        return False
    array = root.type.pointee if isinstance(root.type, Pointer) else None
    element = ptr.type.pointee if isinstance(ptr.type, Pointer) else None
    return isinstance(array, Array) and array.element == element


def thread_index(index: Value, structure: Structure) -> Index | None:
    """'grid' for blockIdx.x * blockDim.x + threadIdx.x, 'block' for threadIdx.x, through integer conversions."""
    op = _unconverted(index, structure)
    if _is_builtin(op, "thread_idx"):
        return "block"
    if isinstance(op, Apply) and op.fn == "add":
        parts = [_unconverted(arg, structure) for arg in op.args]
        for one, other in (parts, parts[::-1]):
            if _is_builtin(one, "thread_idx") and _is_block_start(other, structure):
                return "grid"
    return None


def _unconverted(value: Value, structure: Structure) -> Op | None:
    """What an index comes from, through conversions that keep different numbers different."""
    op = structure.definition.get(value)
    while isinstance(op, Apply) and op.fn == "convert" and _keeps_indices(op.result.type):
        op = structure.definition.get(op.args[0])
    return op


def _keeps_indices(type: Type) -> bool:
    return isinstance(type, Scalar) and not type.is_float and type.bits >= 32


def _is_block_start(op: Op | None, structure: Structure) -> bool:
    if not (isinstance(op, Apply) and op.fn == "mul"):
        return False
    names = {getattr(_unconverted(arg, structure), "name", None) for arg in op.args}
    return names == {"block_idx", "block_dim"} and all(
        getattr(_unconverted(arg, structure), "axis", 1) == 0 for arg in op.args
    )


def _is_builtin(op: Op | None, name: str) -> bool:
    return isinstance(op, Builtin) and op.name == name and op.axis == 0
