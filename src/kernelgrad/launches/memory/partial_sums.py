"""The finishing step of a number's adjoint: every warp, or every block, has left its sum; they are added up in a fixed
order."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from ...ir.builder import Builder, pointee
from ...ir.ops import BarrierReduce, Block, Function, Module, Param, Value
from ...ir.types import I64, Array, Pointer, Scalar, Struct, Type
from ...kernel import Kernel
from ...runtime.arguments import Placement
from ...runtime.config import Launch
from ...runtime.launch import BoundArguments
from ...runtime.launch_memory import LaunchMemory
from ..choice.variant import Variant
from .additions import Addition, add_after
from .buffers import BLOCK_THREADS, BLOCKS, Expression, Memory, Need, Number, Sized, supply
from .started_grid import started_blocks

_THREADS = 1024
_BLOCKS = 64  # that add up many sums before one block adds up theirs


def partial_sums(variant: Variant, at: Sized) -> list[Need]:
    """Where each warp, or each block, leaves its sum of a number's adjoint; and where very many are added up first."""
    parts, found = _parts(variant), list[Need]()
    for name, p in variant.derivative.partials.items():
        found.append(Memory(p.name, parts * pointee(p.value).size, None, f"partial sums of the adjoint of '{name}'"))
        if _are_many(variant, at):
            for type, offset in _floats(pointee(p.value)):
                nbytes = Number(_BLOCKS * type.size)
                found.append(Memory(_between(p, offset), nbytes, 0, f"sums of the sums in {p.name}"))
    return found


def sums_after(variant: Variant, at: Sized) -> Iterator[Addition]:
    """After the launch, adds the warps' sums to the adjoints the user gave."""
    for name, param in variant.derivative.partials.items():
        adjoint, whole = variant.derivative.adjoints[name].name, pointee(param.value)
        for type, offset in _floats(whole):
            adder, numbers = _adder(type), (_parts(variant), Number(whole.size // type.size))
            if not _are_many(variant, at):
                yield Addition(adder, Number(1), _THREADS, adjoint, param.name, numbers, offset, offset)
                continue
            between = _between(param, offset)
            yield Addition(adder, Number(_BLOCKS), _THREADS, between, param.name, numbers, 0, offset)
            few = (Number(_BLOCKS), Number(1))
            yield Addition(adder, Number(1), _THREADS, adjoint, between, few, offset, 0)


def _are_many(variant: Variant, at: Sized) -> bool:
    return _parts(variant).value(at) > _BLOCKS * _THREADS


def _between(param: Param, offset: int) -> str:
    return f"{param.name}_between_{offset}"


def add_partials(variant: Variant, launch: Launch, placement: Placement, stream: int | None, own: LaunchMemory) -> None:
    at = Sized(launch.grid, launch.block, {})
    supply(partial_sums(variant, at), at, placement, stream, own)


def finish_partials(
    variant: Variant, bound: BoundArguments, launch: Launch, placement: Placement, own: LaunchMemory
) -> None:
    at = Sized(launch.grid, launch.block, {})
    add_after(sums_after(variant, at), at, bound, launch, placement, own)


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


def _parts(variant: Variant) -> Expression:
    """How many sums are left: one of each warp, or of each block that is started in place of many."""
    if variant.derivative.coarse is not None:
        return started_blocks(variant.derivative.coarse)
    return BLOCKS * BLOCK_THREADS.rounded_up(32)


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
