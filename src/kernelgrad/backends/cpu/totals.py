"""Note [Totals]: atomic additions of all threads to the same element.

`atomicAdd(&sum, x[i])` costs a locked instruction for each thread, and keeps the loop over threads from being
vectorised. Where the address is the same for all threads of that loop, and nothing in the kernel looks at the memory,
the loop adds up in a register, and one atomic follows it. In a loop of few iterations that picks the address,
`atomicAdd(&w[k], ...)`, each iteration has a register of its own: such loops are unrolled. The register is a double: a
row of threads adds up thousands of floats, and it is not known here whether in a vector.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

from llvmlite import ir

from ...ir.ops import Apply, Atomic, Fence, For, Function, If, Member, Offset, Op, PtrCast, Value
from ...ir.traverse import blocks, kinds, operands, uses, walk
from ...ir.types import F32, F64, Pointer
from . import llvm_types as lt
from .frame import Frame, failing_ops
from .memory import add_to_own
from .sections import Invariants

_MOST_TRIPS = 32
_MOST_COPIES = 512  # operations that unrolling may make


def expanded(function: Function) -> Function:
    """With the loops unrolled that pick the addresses of additions."""
    candidates = _additions(function) if For in kinds(function.body) else set[Atomic]()
    if not candidates:
        return function
    from ...transforms.unroll import constants_of, unroll

    constants = constants_of(function)
    loops = _short_loops(function, constants)
    fixed = Invariants(function, True, frozenset(loops))
    chosen = {id(loop) for op in candidates for loop in _picking(op, loops, fixed, constants)}
    return unroll(function, lambda loop: id(loop) in chosen) if chosen else function


def _short_loops(function: Function, constants: dict[Value, int]) -> dict[Value, For]:
    """By their counters."""
    from ...transforms.unroll import trips

    found = {}
    for op in walk(function.body):
        count = trips(op, constants) if isinstance(op, For) else None
        if isinstance(op, For) and count is not None and count <= _MOST_TRIPS and not failing_ops(op.body):
            found[op.body.args[0]] = op
    return found


def _picking(op: Atomic, loops: dict[Value, For], fixed: Invariants, constants: dict[Value, int]) -> list[For]:
    """The loops around an addition that pick its address; none if something else does too."""
    from ...transforms.unroll import copies_of, trips

    if not fixed.holds(op.ptr):
        return []
    found = [loops[c] for c in fixed.counters_of(op.ptr)]
    copies = math.prod(trips(loop, constants) or 0 for loop in found) * max(
        (copies_of(loop, 1) for loop in found), default=0
    )
    return found if copies <= _MOST_COPIES else []


def find(function: Function, by_row: bool) -> dict[Op, Invariants]:
    """The additions that a register can stand for, and how to find their addresses before the loop over threads."""
    additions = _additions(function)
    if not additions:
        return {}
    invariants = Invariants(function, by_row)
    single = _by_single_threads(function, invariants)
    return {op: invariants for op in additions - single if invariants.holds(op.ptr)}


def _by_single_threads(function: Function, invariants: Invariants) -> set[Op]:
    """`if (threadIdx.x == 0)`: what one thread does need not be added up."""
    found = set[Op]()
    for op in walk(function.body):
        condition = invariants.definitions.get(op.cond) if isinstance(op, If) else None
        if isinstance(op, If) and isinstance(condition, Apply) and condition.fn == "eq":
            found.update(walk(op.then))
    return found


def _additions(function: Function) -> set[Atomic]:
    return set().union(*additions_by_root(function).values())


def additions_by_root(function: Function) -> dict[Value, set[Atomic]]:
    """Of floats, through parameters that nothing else in the kernel is done with."""
    held = kinds(function.body)
    if Atomic not in held or Fence in held:
        return {}
    used = uses(function.body)
    roots = {p.value: p.value for p in function.params if p.restrict and isinstance(p.type, Pointer)}
    found: dict[Value, set[Atomic]] = {root: set() for root in roots}
    for op in walk(function.body):
        touched = {roots[v] for v in operands(op) if v in roots}
        match op:
            case Offset(ptr) | Member(ptr) | PtrCast(ptr) if ptr in roots:
                roots[op.result] = roots[ptr]
            case Atomic("add", ptr, (value,)) if (
                ptr in roots and value not in roots and value.type in (F32, F64) and not used.get(op.result)
            ):
                found.get(roots[ptr], set()).add(op)
            case _:
                _forget(found, touched | {roots[v] for inner in blocks(op) for v in inner.results if v in roots})
    return {root: ops for root, ops in found.items() if ops}


def _forget(found: dict[Value, set[Atomic]], roots: set[Value]) -> None:
    for root in roots:
        found.pop(root, None)


# ---- code ---------------------------------------------------------------------------------------------------------


@contextmanager
def added_up(frame: Frame, ops: list[Op]) -> Iterator[None]:
    """Around loops over threads that run these operations: their totals are cleared before and added after."""
    b = frame.b
    mine = [op for top in ops for op in (top, *(x for inner in blocks(top) for x in walk(inner))) if op in frame.summed]
    cells: dict[Op, ir.Value] = {}
    for op in mine:
        assert isinstance(op, Atomic)
        cells[op] = frame.stack(F64.size, F64.size)
        b.store(ir.Constant(lt.register_type(F64), -0.0), cells[op], align=F64.size)
    frame.totals = cells
    yield
    frame.totals = {}
    for op, cell in cells.items():
        _flush(frame, op, cell)


def _flush(frame: Frame, op: Op, cell: ir.Value) -> None:
    assert isinstance(op, Atomic)
    b, type = frame.b, lt.register_type(op.result.type)
    total = b.load(cell, typ=lt.register_type(F64), align=F64.size)
    total = b.fptrunc(total, type) if op.result.type == F32 else total
    with b.if_then(b.fcmp_unordered("!=", total, ir.Constant(type, 0.0))), frame.scope():
        frame.summed[op].emit(frame, op.ptr)
        if op in frame.strays:
            add_to_own(frame, op, total)
        else:
            b.atomic_rmw("fadd", frame.get(op.ptr), total, "monotonic")
