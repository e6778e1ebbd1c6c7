"""The finishing step of a number's adjoint: every block has left its sum; they are added up in a fixed order."""

from __future__ import annotations

import struct
from functools import cache, partial
from typing import Any

from .ir.builder import Builder, pointee
from .ir.ops import BarrierReduce, Block, Function, Module, Param, Value
from .ir.types import I64, Pointer, Scalar
from .kernels import Kernel
from .runtime.arguments import Placement
from .runtime.config import Launch, make_launch
from .runtime.launch import BoundArguments, Buffer
from .runtime.own import Own
from .runtime.scratch import Scratch
from .variants import Variant

_THREADS = 1024
_BLOCKS = 64  # that add up many sums before one block adds up theirs


def add_partials(variant: Variant, launch: Launch, placement: Placement, stream: int | None, own: Own) -> None:
    for param in variant.derivative.partials.values():
        own.add(param.name, Scratch(_blocks(launch) * pointee(param.value).size, placement.cuda, stream))


def finish_partials(variant: Variant, bound: BoundArguments, launch: Launch, placement: Placement, own: Own) -> None:
    """After the launch, adds the blocks' sums to the adjoints the user gave."""
    for name, param in variant.derivative.partials.items():
        type = pointee(param.value)
        assert isinstance(type, Scalar)
        memory = next(m for m in own.kept if m.address == own.supplied[param.name].value)
        adjoint = variant.derivative.adjoints[name].name
        target = next(b for b in bound.buffers if b.name == adjoint)
        sums = Buffer("sums", memory.address, memory.nbytes)
        own.after.append(partial(_finish, type, sums, target, launch, placement, own))


def _finish(type: Scalar, sums: Buffer, target: Buffer, launch: Launch, placement: Placement, own: Own) -> None:
    count = sums.nbytes // type.size
    if count > _BLOCKS * _THREADS:
        between = Scratch(_BLOCKS * type.size, placement.cuda, own.kept[0].stream).zero()
        own.kept.append(between)
        first = Buffer("sums", between.address, between.nbytes)
        _add(type, first, sums, count, _BLOCKS, launch, placement)
        sums, count = first, _BLOCKS
    _add(type, target, sums, count, 1, launch, placement)


def _add(
    type: Scalar, target: Buffer, sums: Buffer, count: int, blocks: int, launch: Launch, placement: Placement
) -> None:
    packed = struct.pack("<QQq", target.address, sums.address, count)
    plain = make_launch(blocks, _THREADS, 0, launch.stream)
    _adder(type).run(plain, BoundArguments(packed, (target, sums)), placement, {})


def _blocks(launch: Launch) -> int:
    x, y, z = launch.grid
    return x * y * z


@cache
def _adder(type: Scalar) -> Kernel:
    """Block b adds sums[k] for all k of its threads, in steps of the grid, to total[b]."""
    total, sums = Value(Pointer(type, "global"), "total"), Value(Pointer(type, "global"), "sums")
    count = Value(I64, "count")
    b = Builder()
    block, width, thread, blocks = (
        b.convert(b.builtin(n), I64) for n in ("block_idx", "block_dim", "thread_idx", "grid_dim")
    )
    start = b.apply("add", b.apply("mul", block, width), thread)
    step = b.apply("mul", blocks, width)
    k, sum_, inside, part = Value(I64, "k"), Value(type, "sum"), Value(I64, "k"), Value(type, "sum")
    with b.region() as before:
        more = b.apply("lt", k, count)
    with b.region() as body:
        added = b.apply("add", part, b.load(b.offset(sums, inside)))
        following = b.apply("add", inside, step)
    zero = b.constant(-0.0, type)
    _, mine = b.while_(
        (start, zero), before.block((k, sum_), (more, k, sum_)), body.block((inside, part), (following, added))
    )
    whole = b.emit(BarrierReduce, "sum", mine, type=type)
    with b.region() as first:
        place = b.offset(total, block)
        b.store(place, b.apply("add", b.load(place), whole))
    b.if_(b.apply("eq", thread, b.constant(0, I64)), first.block())
    params = (Param(total, "void *"), Param(sums, "const void *", const=True), Param(count, "long long"))
    name = f"kernelgrad_add_{type.name}"
    function = Function(name, "kernel", params, Block((), tuple(b.ops), ()))
    return Kernel(name, Module({name: function}), _no_variable)


def _no_variable(name: str) -> Any:
    raise KeyError(name)
