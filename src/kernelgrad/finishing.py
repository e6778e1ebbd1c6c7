"""The finishing step of a number's adjoint: every warp, or every block, has left its sum; they are added up in a fixed
order."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from functools import cache, partial
from typing import Any, NamedTuple

from .autodiff.adding.coarse import blocks_for
from .ir.builder import Builder, pointee
from .ir.ops import BarrierReduce, Block, Function, Module, Param, Value
from .ir.types import I64, Array, Pointer, Scalar, Struct, Type
from .kernels import Kernel
from .runtime.arguments import Placement
from .runtime.config import Launch, flat_launch
from .runtime.launch import BoundArguments
from .runtime.own import Own
from .runtime.scratch import Scratch
from .variants import Variant

_THREADS = 1024
_BLOCKS = 64  # that add up many sums before one block adds up theirs


def add_partials(variant: Variant, launch: Launch, placement: Placement, stream: int | None, own: Own) -> None:
    for param in variant.derivative.partials.values():
        own.add(param.name, Scratch(_parts(variant, launch) * pointee(param.value).size, placement.cuda, stream))


def finish_partials(variant: Variant, bound: BoundArguments, launch: Launch, placement: Placement, own: Own) -> None:
    """After the launch, adds the warps' sums to the adjoints the user gave."""
    for name, param in variant.derivative.partials.items():
        memory = next(m for m in own.kept if m.address == own.supplied[param.name].value)
        adjoint = variant.derivative.adjoints[name].name
        target = next(b for b in bound.buffers if b.name == adjoint)
        whole = pointee(param.value)
        for type, offset in _floats(whole):
            sums = _Sums(type, memory.address + offset, _parts(variant, launch), whole.size // type.size)
            own.after.append(partial(_finish, sums, target.address + offset, launch, placement, own))


def _floats(type: Type, offset: int = 0) -> Iterator[tuple[Scalar, int]]:
    """The floats of a number or a struct, and where in it they are."""
    if isinstance(type, Scalar):
        if type.is_float:
            yield type, offset
    elif isinstance(type, Array):
        for k in range(type.count):
            yield from _floats(type.element, offset + k * type.element.size)
    elif isinstance(type, Struct):
        for field in type.fields:
            yield from _floats(field.type, offset + field.offset)


class _Sums(NamedTuple):
    """The warps' sums of a float: so many, each `step` floats behind the other."""

    type: Scalar
    address: int
    length: int
    step: int


def _finish(sums: _Sums, target: int, launch: Launch, placement: Placement, own: Own) -> None:
    if sums.length > _BLOCKS * _THREADS:
        between = Scratch(_BLOCKS * sums.type.size, placement.cuda, own.kept[0].stream).zero()
        own.kept.append(between)
        _add(sums, between.address, _BLOCKS, launch, placement)
        sums = _Sums(sums.type, between.address, _BLOCKS, 1)
    _add(sums, target, 1, launch, placement)


def _add(sums: _Sums, target: int, blocks: int, launch: Launch, placement: Placement) -> None:
    packed = struct.pack("<QQqq", target, sums.address, sums.length, sums.step)
    plain = flat_launch(blocks, _THREADS, launch.stream)
    _adder(sums.type).run(plain, BoundArguments(packed, ()), placement, {})


def _parts(variant: Variant, launch: Launch) -> int:
    """How many sums are left: one of each warp, or of each block that is started in place of many."""
    if variant.derivative.coarse is not None:
        return blocks_for(launch.block)
    return math.prod(launch.grid) * -(-math.prod(launch.block) // 32)


@cache
def _adder(type: Scalar) -> Kernel:
    """Block b adds sums[k * step] for all k of its threads, in strides of the grid, to total[b]."""
    total, sums = Value(Pointer(type, "global"), "total"), Value(Pointer(type, "global"), "sums")
    count, step = Value(I64, "count"), Value(I64, "step")
    b = Builder()
    block, width, thread, blocks = (
        b.convert(b.builtin(n), I64) for n in ("block_idx", "block_dim", "thread_idx", "grid_dim")
    )
    start = b.apply("add", b.apply("mul", block, width), thread)
    stride = b.apply("mul", blocks, width)
    k, sum_, inside, part = Value(I64, "k"), Value(type, "sum"), Value(I64, "k"), Value(type, "sum")
    with b.region() as before:
        more = b.apply("lt", k, count)
    with b.region() as body:
        added = b.apply("add", part, b.load(b.offset(sums, b.apply("mul", inside, step))))
        following = b.apply("add", inside, stride)
    zero = b.constant(-0.0, type)
    _, mine = b.while_(
        (start, zero), before.block((k, sum_), (more, k, sum_)), body.block((inside, part), (following, added))
    )
    whole = b.emit(BarrierReduce, "sum", mine, type=type)
    with b.region() as first:
        place = b.offset(total, block)
        b.store(place, b.apply("add", b.load(place), whole))
    b.if_(b.apply("eq", thread, b.constant(0, I64)), first.block())
    numbers = (Param(count, "long long"), Param(step, "long long"))
    params = (Param(total, "void *"), Param(sums, "const void *", const=True), *numbers)
    name = f"kernelgrad_add_{type.name}"
    function = Function(name, "kernel", params, Block((), tuple(b.ops), ()))
    return Kernel(name, Module({name: function}), _no_variable)


def _no_variable(name: str) -> Any:
    raise KeyError(name)
