"""Additions that follow the launch: of reads here and there, where all other elements of the buffer are their threads'.

    loss[row] = logf(sum) + top - x[row * n + label[row]];

Whose element that is, nobody knows, and for its sake every addition to the adjoint of x would be atomic. Instead, a
thread leaves where this one goes, and how much it is, in a slot of its own; when all threads are done, a launch adds
what it finds. All others add plainly, or write what nobody has written before.

Where conditions leave one thread of a block to make the addition, or one of so many neighbours, others have no slot.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from ...analysis.roots import Memory, Place, place_of
from ...ir.builder import Builder, linear_block
from ...ir.ops import Load, Param, Value
from ...ir.types import I64, Pointer, Scalar

EMPTY = 0x80  # in every byte of an empty slot's place: no element has such a number


class Deferred(NamedTuple):
    """An addition to the adjoint of a parameter, by where the read is that it is of. `every`: along each axis of a
    block, of how many neighbours one makes it; 0 of all."""

    name: str
    where: Place
    every: tuple[int, int, int]

    def slots(self, block: tuple[int, int, int]) -> int:
        return slots_of_block(self.every, block)


def slots_of_block(every: tuple[int, int, int], block: tuple[int, int, int]) -> int:
    found = 1
    for extent, one in zip(block, every, strict=True):
        found *= -(-extent // one) if one else 1
    return found


@dataclass(frozen=True)
class Slots:
    """`places`: the numbers of elements, from the first of an adjoint, `base`, on; `values`: what is added to each."""

    of: Deferred
    places: Param
    values: Param
    base: Value

    @property
    def params(self) -> tuple[Param, Param]:
        return self.places, self.values

    def leave(self, b: Builder, ptr: Value, value: Value) -> None:
        slot = self._slot(b)
        b.store(b.offset(self.places.value, slot), b.pointer_difference(ptr, self.base))
        b.store(b.offset(self.values.value, slot), value)

    def _slot(self, b: Builder) -> Value:
        """Of this thread."""
        found = linear_block(b)
        for axis, every in reversed([*enumerate(self.of.every)]):
            if every:
                thread, extent = (b.convert(b.builtin(name, axis), I64) for name in ("thread_idx", "block_dim"))
                if every > 1:
                    thread = b.apply("div", thread, b.constant(every, I64))
                    extent = b.apply("add", extent, b.constant(every - 1, I64))
                    extent = b.apply("div", extent, b.constant(every, I64))
                found = b.apply("add", b.apply("mul", found, extent), thread)
        return found


def reads_of(memory: Memory, deferred: Iterable[Deferred]) -> dict[int, Deferred]:
    """The reads, by their identity, of which additions are deferred."""
    by_place = {own.where: own for own in deferred}
    found = {}
    for op in memory.loads if by_place else ():
        for root in memory.of(op.ptr):
            own = by_place.get(place_of(op, root.name or ""))
            if own is not None:
                found[id(op)] = own
    return found


def slots_of(
    loads: Iterable[Load], deferred: Mapping[int, Deferred], adjoints: Mapping[str, Param]
) -> dict[int, Slots]:
    """Each read has its own."""
    chosen = [id(op) for op in loads if id(op) in deferred]
    return {key: _slots(number, deferred[key], adjoints) for number, key in enumerate(chosen)}


def _slots(number: int, own: Deferred, adjoints: Mapping[str, Param]) -> Slots:
    adjoint = adjoints[own.name]
    assert isinstance(adjoint.type, Pointer) and isinstance(adjoint.type.pointee, Scalar)
    places = Param(Value(Pointer(I64, "global"), f"_places{adjoint.name}_{number}"), "long long *", restrict=True)
    values = Param(Value(adjoint.type, f"_values{adjoint.name}_{number}"), adjoint.c_type, restrict=True)
    return Slots(own, places, values, adjoint.value)
