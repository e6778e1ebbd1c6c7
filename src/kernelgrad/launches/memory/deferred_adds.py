"""Additions that follow a launch (see `autodiff/accumulate/deferred`): memory for what threads leave, and adding it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache
from typing import Any

from ...autodiff.accumulate.deferred import EMPTY, Slots
from ...ir.builder import Builder, pointee
from ...ir.ops import Block, Function, Module, Param
from ...ir.ops import Value as IRValue
from ...ir.types import I64, Pointer, Scalar
from ...kernel import Kernel
from ...runtime.arguments import Placement
from ...runtime.config import Launch
from ...runtime.launch import BoundArguments
from ...runtime.launch_memory import LaunchMemory
from ..choice.variant import Variant
from .additions import Addition, add_after
from .buffers import Memory, Need, Number, Sized, supply

_THREADS = 128


def slots(variant: Variant, at: Sized) -> list[Need]:
    found: list[Need] = []
    for own in variant.derivative.deferred.values():
        count, role = _count(variant, own, at), f"to the adjoint of '{own.of.name}'"
        found.append(Memory(own.places.name, Number(count * I64.size), EMPTY, f"where additions {role} go"))
        nbytes = Number(count * pointee(own.values.value).size)
        found.append(Memory(own.values.name, nbytes, None, f"what is added {role} there, after the launch"))
    return found


def additions_after(variant: Variant, at: Sized) -> Iterator[Addition]:
    for own in variant.derivative.deferred.values():
        count, type = _count(variant, own, at), pointee(own.values.value)
        assert isinstance(type, Scalar)
        adjoint, blocks = variant.derivative.adjoints[own.of.name].name, Number(-(-count // _THREADS))
        yield Addition(
            _adder(type), blocks, _THREADS, adjoint, own.values.name, (Number(count),), more=(own.places.name,)
        )


def _count(variant: Variant, own: Slots, at: Sized) -> int:
    return math.prod(at.grid) * own.of.slots(variant.rows or at.block)


def add_slots(variant: Variant, launch: Launch, placement: Placement, stream: int | None, own: LaunchMemory) -> None:
    at = Sized(launch.grid, launch.block, {})
    supply(slots(variant, at), at, placement, stream, own)


def finish_slots(
    variant: Variant, bound: BoundArguments, launch: Launch, placement: Placement, own: LaunchMemory
) -> None:
    at = Sized(launch.grid, launch.block, {})
    add_after(additions_after(variant, at), at, bound, launch, placement, own)


@cache
def _adder(type: Scalar) -> Kernel:
    """A thread adds what is in a slot, if anything is."""
    total, values = IRValue(Pointer(type, "global"), "total"), IRValue(Pointer(type, "global"), "values")
    places, count = IRValue(Pointer(I64, "global"), "places"), IRValue(I64, "count")
    b = Builder()
    block, width, thread = (b.convert(b.builtin(n), I64) for n in ("block_idx", "block_dim", "thread_idx"))
    slot = b.apply("add", b.apply("mul", block, width), thread)
    empty = b.constant(int.from_bytes(bytes([EMPTY] * I64.size), "little", signed=True), I64)
    with b.region() as inside:
        place = b.load(b.offset(places, slot))
        with b.region() as some:
            b.atomic("add", b.offset(total, place), b.load(b.offset(values, slot)))
        b.if_(b.apply("ne", place, empty), some.block())
    b.if_(b.apply("lt", slot, count), inside.block())
    read = (Param(v, "const void *", const=True) for v in (values, places))
    params = (Param(total, "void *"), *read, Param(count, "long long"))
    name = f"kernelgrad_deferred_{type.name}"
    function = Function(name, "kernel", params, Block((), tuple(b.ops), ()))
    return Kernel(name, Module({name: function}), _no_variable)


def _no_variable(name: str) -> Any:
    raise KeyError(name)
