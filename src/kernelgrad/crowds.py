"""The launcher's part in copies of adjoints (see autodiff/adding/crowds.py): memory for them, and adding them up."""

from __future__ import annotations

import struct
from functools import cache, partial
from typing import Any

from .autodiff.adding.crowds import COPIES
from .ir.builder import Builder, pointee
from .ir.ops import BarrierReduce, Block, Function, Module, Param, Value
from .ir.types import I64, Pointer, Scalar
from .kernels import Kernel
from .runtime.arguments import Placement, Supplied
from .runtime.config import Launch, flat_launch
from .runtime.launch import BoundArguments
from .runtime.own import Own
from .runtime.scratch import Scratch
from .variants import Variant


def add_copies(variant: Variant, bound: BoundArguments, placement: Placement, stream: int | None, own: Own) -> None:
    sizes = {b.name: b.nbytes for b in bound.buffers}
    for name, copies in variant.derivative.copies.items():
        adjoint = variant.derivative.adjoints[name]
        length = min(sizes[name], sizes[adjoint.name]) // pointee(adjoint.value).size
        nbytes = COPIES * length * pointee(copies.memory.value).size
        own.add(copies.memory.name, Scratch(nbytes, placement.cuda, stream).zero())
        own.supplied[copies.length.name] = Supplied(length)


def finish_copies(variant: Variant, bound: BoundArguments, launch: Launch, placement: Placement, own: Own) -> None:
    """After the launch, adds the copies to the adjoints the user gave."""
    for name, copies in variant.derivative.copies.items():
        adjoint = variant.derivative.adjoints[name]
        target = next(b for b in bound.buffers if b.name == adjoint.name)
        memory, length = (int(own.supplied[p.name].value) for p in copies.params)
        type, wide = pointee(adjoint.value), pointee(copies.memory.value)
        assert isinstance(type, Scalar) and isinstance(wide, Scalar)
        count = min(length, target.nbytes // type.size)  # an adjoint may be shorter than its buffer
        packed = struct.pack("<QQq", target.address, memory, length)
        if count:
            own.after.append(partial(_add, type, wide, packed, count, launch, placement))


def _add(type: Scalar, wide: Scalar, packed: bytes, count: int, launch: Launch, placement: Placement) -> None:
    plain = flat_launch(count, COPIES, launch.stream)
    _adder(type, wide).run(plain, BoundArguments(packed, ()), placement, {})


@cache
def _adder(type: Scalar, wide: Scalar) -> Kernel:
    """Block e adds copies[t][e] of all its threads t to total[e]. `wide`: the type of the copies."""
    total, copies = Value(Pointer(type, "global"), "total"), Value(Pointer(wide, "global"), "copies")
    length = Value(I64, "length")
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
