"""Who decides where a function stores: its numbers alone, or contents of memory, too.

From the addresses of its stores, and from the conditions of branches and loops around them, back to parameters. Where
that meets a load, what an atomic returns or what lanes exchange, other contents may be stored elsewhere. So may other
arrays, where it is an address that decides: its alignment, or whether it is another pointer's. Of a pointer, only
whether it is null is a number's equal.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..ir.effects import PURE, is_clock
from ..ir.ops import Alloca, Apply, Atomic, Constant, For, Function, If, Op, PtrDiff, Store, Value, While
from ..ir.traverse import blocks, operands
from ..ir.types import Pointer
from .structure import Place, Structure, analyse


def store_deciders(function: Function) -> frozenset[Value] | None:
    """The parameters that decide; None where something else does."""
    structure = analyse(function, apart=False)
    todo = [value for place in structure.places.values() for value in _stored_at(place)]
    seen: set[Value] = set()
    while todo:
        value = todo.pop()
        if value in seen:
            continue
        seen.add(value)
        op = structure.definition.get(value)
        if op is not None and (_is_unforeseen(op) or _looks_at_address(op, structure)):
            return None
        todo += _argument_sources(value, structure) if op is None else _sources(op)
    return frozenset(p.value for p in function.params if p.value in seen)


def _is_unforeseen(op: Op) -> bool:
    return is_clock(op) or not isinstance(op, (*PURE, Alloca, If, For, While))


def _looks_at_address(op: Op, structure: Structure) -> bool:
    """Whether a number comes of where pointers point to. Not of whether one is null."""
    if isinstance(op, PtrDiff):
        return True
    if not isinstance(op, Apply) or isinstance(op.result.type, Pointer):
        return False
    pointers = [value for value in op.args if isinstance(value.type, Pointer)]
    is_null_test = op.fn in ("eq", "ne") and any(isinstance(structure.definition.get(v), Constant) for v in pointers)
    return bool(pointers) and not is_null_test


def _stored_at(place: Place) -> list[Value]:
    """Addresses in a block, and the conditions around it."""
    found = [op.ptr for op in place.block.ops if isinstance(op, Store | Atomic)]
    if not found:
        return []
    owners = (around.owner for around in place.around() if around.owner is not None)
    return [*found, *(value for owner in owners for value in _conditions(owner))]


def _conditions(op: Op) -> Iterable[Value]:
    match op:
        case If(cond):
            return (cond,)
        case For(lower, upper):
            return (lower, upper)
        case While(_, before):
            return (before.results[0],)
    return ()


def _sources(op: Op) -> list[Value]:
    """All that any of its results comes from."""
    return [*operands(op), *_conditions(op), *(value for block in blocks(op) for value in block.results)]


def _argument_sources(value: Value, structure: Structure) -> list[Value]:
    """Of a block's argument, what its loop begins with and carries; a parameter comes from nowhere."""
    owner = structure.home[value].owner
    return [] if owner is None else _sources(owner)
