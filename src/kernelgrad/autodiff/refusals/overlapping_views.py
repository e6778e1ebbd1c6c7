"""Shared memory that a kernel cuts into views of different types which overlap in a launch.

    double *u = (double *)(raw + 8); int *h = (int *)raw; ... u[t] ... h[t]

Where views begin is known before, and those that begin at the same place are dealt with then (`calculus/views`). How
far they reach is known only of a launch: here, h reaches into u. What one stores is lost for the other, with its
derivative (rule 15).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ...analysis.access.intervals import Intervals
from ...analysis.access.shared_parts import accesses_of, reaches_of
from ...errors import UnsupportedError
from ...ir.builder import pointee
from ...ir.ops import Atomic, Function, GlobalRef, Load, Member, Offset, PtrCast, Store, Value
from ...ir.traverse import walk
from ...ir.types import Scalar
from ..calculus.views import View, leaves, views_of, zero_words

_Found = tuple[int, int, Load | Store | Atomic, list[View]]


def cut_variables(function: Function) -> tuple[str, ...]:
    """Those in shared memory that hold floats and something else."""
    names = {op.name for op in walk(function.body) if isinstance(op, GlobalRef) and _is_shared(op)}
    seen = _types_seen(function)
    return tuple(name for name in sorted(names) if _is_cut({seen(op.ptr) for op in accesses_of(function, name)}))


def refuse_overlapping_views(function: Function, variables: Iterable[str], nbytes: int, intervals: Intervals) -> None:
    """`variables`: those through which derivatives flow. `nbytes`: of a block's shared memory: what is not known to end
    within is not known at all."""
    zeros, views = zero_words(function), views_of(function)
    for variable in variables:
        accesses = [op for op in accesses_of(function, variable) if id(op) not in zeros]
        reaches = reaches_of(function, accesses, intervals)
        found = [(*ends, op, views(op)) for op in accesses if (ends := reaches.get(id(op))) is not None]
        within = [own for own in found if own[0] >= 0 and own[1] <= nbytes]
        for one in within:
            for other in within:
                if _meet(one, other):
                    later = max(one[2], other[2], key=lambda op: (op.span.line, op.span.column))
                    raise UnsupportedError(
                        f"'{variable}' holds floating-point numbers and something else in the same place, in this"
                        " launch: the derivative would be lost",
                        later.span,
                        "give each type a part of its own, or an array of its own",
                    )


def _meet(one: _Found, other: _Found) -> bool:
    """Whether they do in this launch, though they do not begin together."""
    if not (one[0] < other[1] and other[0] < one[1]):
        return False
    pairs = [(own, its) for own in one[3] for its in other[3]]
    mixed = any(own.types != its.types and (own.has_floats or its.has_floats) for own, its in pairs)
    return mixed and not any(own.meets(its) for own, its in pairs)


def _types_seen(function: Function) -> Callable[[Value], frozenset[Scalar]]:
    """What the view of a pointer holds: by the cast that makes the view, of a record if it is of records."""
    definition = {v: op for op in walk(function.body) for v in op.results}

    def seen(ptr: Value) -> frozenset[Scalar]:
        op = definition.get(ptr)
        if isinstance(op, PtrCast) and leaves(pointee(op.ptr)) != leaves(pointee(ptr)):
            return leaves(pointee(ptr))
        return seen(op.ptr) if isinstance(op, Offset | Member | PtrCast) else leaves(pointee(ptr))

    return seen


def _is_cut(types: set[frozenset[Scalar]]) -> bool:
    return len(types) > 1 and any(t.is_float for own in types for t in own)


def _is_shared(op: GlobalRef) -> bool:
    return op.result.type.space == "shared"  # type: ignore[union-attr]
