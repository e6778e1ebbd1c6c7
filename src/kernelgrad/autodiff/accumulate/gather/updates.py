"""The updates of an adjoint in a gradient, and the conditions and loops around each."""

from __future__ import annotations

from typing import NamedTuple

from ....analysis.ownership.private import places_of
from ....analysis.structure import Place, analyse
from ....ir.ops import Atomic, Block, Function, Member, Offset, Op, PtrCast, Value
from ....ir.traverse import descend, operands, uses, walk, with_body


class Update(NamedTuple):
    number: int
    op: Atomic
    path: tuple[tuple[Op, Block], ...]  # the Ifs and loops around it, from outside


def updates_of(function: Function, shadow: Value) -> list[Update] | None:
    """Every update through a pointer; None if something else happens to it."""
    pointers, found, used = {shadow}, list[Update](), uses(function.body)
    for op, path, number in _with_paths(function):
        touched = pointers & set(operands(op))
        if not touched:
            continue
        match op:
            case Offset(ptr, _) | Member(ptr, _) | PtrCast(ptr) if ptr in touched:
                pointers.add(op.result)
            case Atomic("add", ptr, (value,)) if ptr in touched and value not in touched and not used.get(op.result):
                found.append(Update(number, op, path))
            case _:
                return None
    return found


def _with_paths(function: Function) -> list[tuple[Op, tuple[tuple[Op, Block], ...], int]]:
    places = places_of(analyse(function, apart=False))
    return [(op, _path(places[id(op)]), number) for number, op in enumerate(walk(function.body))]


def _path(place: Place | None) -> tuple[tuple[Op, Block], ...]:
    found = []
    while place is not None:
        if place.owner is not None:
            found.append((place.owner, place.block))
        place = place.parent
    return tuple(reversed(found))


def without_updates(function: Function, shadows: frozenset[str]) -> Function:
    """With nothing added to these parameters."""
    pointers = {p.value for p in function.params if p.name in shadows}
    for op in walk(function.body):
        if isinstance(op, Offset | Member | PtrCast) and op.ptr in pointers:
            pointers.add(op.result)

    def block(old: Block) -> Block:
        kept = (op for op in old.ops if not (isinstance(op, Atomic) and op.ptr in pointers))
        return Block(old.args, tuple(descend(op, block) for op in kept), old.results)

    return with_body(function, block(function.body))
