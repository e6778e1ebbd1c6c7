"""What operations do besides giving results: one row each. A new operation gets its row here; passes ask.

Operations with blocks (`If`, `For`, `While`) do what is in them, and a `While` may never end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeGuard

from .ops import (
    Aggregate,
    Alloca,
    Apply,
    Assert,
    Atomic,
    Barrier,
    BarrierReduce,
    Builtin,
    Call,
    Constant,
    Derivative,
    Extract,
    Fence,
    For,
    GlobalRef,
    HostCall,
    If,
    Insert,
    KernelLaunch,
    Leave,
    Load,
    Member,
    Offset,
    Op,
    Print,
    PtrCast,
    PtrDiff,
    Registered,
    Store,
    Trap,
    Undef,
    Warp,
    While,
)
from .traverse import blocks, holds


@dataclass(frozen=True, slots=True)
class Effects:
    """`pure`: the results follow from operands and attributes, and of `Builtin` from the thread. `reads`, `writes`:
    memory. `meets`: waits for other threads, exchanges values with them, or orders memory for them. `seen`: outside of
    the launch, or it ends it. `nests`: has blocks."""

    pure: bool = False
    reads: bool = False
    writes: bool = False
    meets: bool = False
    seen: bool = False
    nests: bool = False


_PURE, _MEETS, _SEEN, _NESTS = Effects(pure=True), Effects(meets=True), Effects(seen=True), Effects(nests=True)

EFFECTS: dict[type[Op], Effects] = {
    Constant: _PURE,
    Undef: _PURE,
    Apply: _PURE,
    Aggregate: _PURE,
    Extract: _PURE,
    Insert: _PURE,
    Builtin: _PURE,
    GlobalRef: _PURE,
    Offset: _PURE,
    Member: _PURE,
    PtrCast: _PURE,
    PtrDiff: _PURE,
    Alloca: Effects(),  # a place of its own at every execution
    Load: Effects(reads=True),
    Store: Effects(writes=True),
    Atomic: Effects(reads=True, writes=True),
    Barrier: _MEETS,
    BarrierReduce: _MEETS,
    Warp: _MEETS,
    Fence: _MEETS,
    Print: _SEEN,
    Assert: _SEEN,
    Trap: _SEEN,
    Leave: _SEEN,
    Call: Effects(reads=True, writes=True, meets=True, seen=True),
    Derivative: Effects(reads=True, writes=True, meets=True, seen=True),
    Registered: Effects(reads=True, writes=True, meets=True, seen=True),
    HostCall: Effects(reads=True, writes=True, meets=True, seen=True),
    KernelLaunch: Effects(reads=True, writes=True, meets=True, seen=True),
    If: _NESTS,
    For: _NESTS,
    While: _NESTS,
}


def _kinds(*names: str) -> tuple[type[Op], ...]:
    return tuple(kind for kind, row in EFFECTS.items() if any(getattr(row, name) for name in names))


PURE = _kinds("pure")
OF_OPERANDS = tuple(kind for kind in PURE if kind is not Builtin)  # threads with the same operands get the same
MEETINGS = tuple(kind for kind in _kinds("meets") if kind is not Call)
CHANGES = _kinds("writes", "meets")  # without these, memory stays as it is, but for data races
EFFECTIVE = (*_kinds("writes", "meets", "seen"), While)  # what runs though nobody uses its results
NESTING = _kinds("nests")
ADDRESSES = (GlobalRef, Alloca, Offset, Member, PtrCast)  # what gives a pointer, but for loads and choices
ADDRESSING = (Constant, Builtin, Apply, Extract, GlobalRef, Offset, Member, PtrCast)

_PICKS = frozenset(("max", "min", "exch", "cas"))
_CLOCKS = frozenset(("clock", "clock64", "globaltimer"))


def is_clock(op: Op) -> bool:
    """A `Builtin` that gives another number each time."""
    return isinstance(op, Builtin) and op.name in _CLOCKS


def is_pure(op: Op | None) -> TypeGuard[Op]:
    """Whether the operation may be moved, shared and repeated at will, where its operands are."""
    return isinstance(op, PURE) and not is_clock(op)


def is_addressing(op: Op | None) -> TypeGuard[Op]:
    """Arithmetic of the kind that addresses are made of."""
    return isinstance(op, ADDRESSING) and not is_clock(op)


def has_barrier(op: Op) -> bool:
    """Whether it is, or holds, a barrier of the whole block."""
    if isinstance(op, BarrierReduce) or (isinstance(op, Barrier) and op.scope == "block"):
        return True
    return holds(op, BarrierReduce, Barrier) and any(
        has_barrier(nested) for inner in blocks(op) for nested in inner.ops
    )


def picks(op: Op) -> bool:
    """Whether an atomic on a float leaves the old number or puts its operand there, unchanged."""
    return isinstance(op, Atomic) and op.kind in _PICKS and len(op.args) == 1
