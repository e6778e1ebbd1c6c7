"""Replicas of adjoints (see `autodiff/accumulate/replicas`): memory for them, and adding them up."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from ...autodiff.calculus.flat_numbers import flat, numbers_in
from ...ir.builder import Builder, pointee
from ...ir.ops import BarrierReduce, Block, Function, Module, Param
from ...ir.ops import Value as IRValue
from ...ir.types import I64, Pointer, Scalar, innermost
from ...kernel import Kernel
from ...runtime.arguments import Placement
from ...runtime.config import Launch, make_launch
from ...runtime.launch import BoundArguments
from ...runtime.launch_memory import LaunchMemory
from ..choice.variant import Variant
from .additions import Addition, add_after
from .buffers import Bytes, Expression, Memory, Need, Value, supply
from .tape_memory import sized


def replicas(variant: Variant) -> list[Need]:
    """Zeroed copies of adjoints that many threads add to, each block to one of them."""
    found: list[Need] = []
    for name, copies in variant.derivative.copies.items():
        length, number = _length(variant, name), flat(pointee(copies.memory.value))
        assert number is not None
        nbytes = length * number.size * copies.count
        found.append(Memory(copies.memory.name, nbytes, 0, f"{copies.count} replicas of the adjoint of '{name}'"))
        found.append(Value(copies.length.name, length, f"elements of a replica of the adjoint of '{name}'"))
    return found


def add_copies(
    variant: Variant, bound: BoundArguments, placement: Placement, stream: int | None, own: LaunchMemory
) -> None:
    supply(replicas(variant), sized(make_launch(1, 1), bound), placement, stream, own)


def replicas_after(variant: Variant) -> Iterator[Addition]:
    """After the launch, adds the copies to the adjoints the user gave."""
    for name, copies in variant.derivative.copies.items():
        adjoint, length = variant.derivative.adjoints[name], _length(variant, name)
        type, wide = flat(pointee(adjoint.value)), flat(pointee(copies.memory.value))
        assert isinstance(type, Scalar) and isinstance(wide, Scalar)
        yield Addition(_adder(type, wide), length, copies.count, adjoint.name, copies.memory.name, (length,))


def _length(variant: Variant, name: str) -> Expression:
    """The numbers of an adjoint, which may be shorter than its buffer, but not than a variable of the source."""
    adjoint, params = variant.derivative.adjoints[name], variant.derivative.prepared.function.params
    param = next(p for p in params if p.name == name)
    whole, own = innermost(pointee(adjoint.value)), innermost(pointee(param.value)).size  # floats, of halves
    size, each = whole.size, numbers_in(whole)
    if param.variable is not None:
        count: Expression = Bytes(adjoint.name) // size
    elif size == own:
        count = Bytes(name).at_most(Bytes(adjoint.name)) // size
    else:
        count = (Bytes(name) // own).at_most(Bytes(adjoint.name) // size)
    return count * each if each > 1 else count


def finish_copies(
    variant: Variant, bound: BoundArguments, launch: Launch, placement: Placement, own: LaunchMemory
) -> None:
    add_after(replicas_after(variant), sized(launch, bound), bound, launch, placement, own)


@cache
def _adder(type: Scalar, wide: Scalar) -> Kernel:
    """Block e adds copies[t][e] of all its threads t to total[e]. `wide`: the type of the copies."""
    total, copies = IRValue(Pointer(type, "global"), "total"), IRValue(Pointer(wide, "global"), "copies")
    length = IRValue(I64, "length")
    b = Builder()
    element, thread = (b.convert(b.builtin(n), I64) for n in ("block_idx", "thread_idx"))
    mine = b.load(b.offset(copies, b.apply("add", b.apply("mul", thread, length), element)))
    whole = b.emit(BarrierReduce, "sum", mine, type=wide)
    with b.region() as first:
        place = b.offset(total, element)
        b.store(place, b.convert(b.apply("add", b.convert(b.load(place), wide), whole), type))
    b.if_(b.apply("eq", thread, b.constant(0, I64)), first.block())
    params = (Param(total, "void *"), Param(copies, "const void *", const=True), Param(length, "long long"))
    name = f"kernelgrad_copies_{wide.name}_{type.name}"
    function = Function(name, "kernel", params, Block((), tuple(b.ops), ()))
    return Kernel(name, Module({name: function}), _no_variable)


def _no_variable(name: str) -> Any:
    raise KeyError(name)
