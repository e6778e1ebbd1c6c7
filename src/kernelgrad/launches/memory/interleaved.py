"""Memory in which several adjoints lie side by side (see `schedule/interleave`), and adding to them what is in it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, reduce
from typing import Any

from ...ir.builder import Builder
from ...ir.ops import Block, Function, Module, Param
from ...ir.ops import Value as IRValue
from ...ir.types import F32, I64, Pointer
from ...kernel import Kernel
from ...runtime.arguments import Placement
from ...runtime.config import Launch, make_launch
from ...runtime.launch import BoundArguments
from ...runtime.launch_memory import LaunchMemory
from ...schedule.interleave import memory_of, width_of
from ..choice.variant import Variant
from .additions import Addition, add_after
from .buffers import Bytes, Expression, Memory, Need, supply
from .tape_memory import sized

_THREADS = 256


def interleaved(variant: Variant) -> list[Need]:
    """Zeroed, an element of each adjoint next to those of the others."""
    found: list[Need] = []
    for number, group in enumerate(variant.options.facts.interleaved):
        nbytes = _longest(group) * (width_of(group) * F32.size)
        found.append(Memory(memory_of(number), nbytes, 0, f"{', '.join(group)} side by side"))
    return found


def interleaved_after(variant: Variant) -> Iterator[Addition]:
    """After the launch, adds that to the adjoints the user gave."""
    for number, group in enumerate(variant.options.facts.interleaved):
        first, *more = group
        lengths = tuple(Bytes(name) // F32.size for name in group)
        blocks = _longest(group).rounded_up(_THREADS)
        yield Addition(_adder(len(group)), blocks, _THREADS, first, memory_of(number), lengths, more=tuple(more))


def _longest(group: tuple[str, ...]) -> Expression:
    lengths: list[Expression] = [Bytes(name) // F32.size for name in group]
    return reduce(lambda a, b: a.at_least(b), lengths)


def add_interleaved(
    variant: Variant, bound: BoundArguments, placement: Placement, stream: int | None, own: LaunchMemory
) -> None:
    supply(interleaved(variant), sized(make_launch(1, 1), bound), placement, stream, own)


def finish_interleaved(
    variant: Variant, bound: BoundArguments, launch: Launch, placement: Placement, own: LaunchMemory
) -> None:
    add_after(interleaved_after(variant), sized(launch, bound), bound, launch, placement, own)


@cache
def _adder(count: int) -> Kernel:
    """Thread i adds memory[width * i + k] to element i of the k-th array, as far as that goes."""
    b, width = Builder(), width_of(("",) * count)
    names = ("total", *(f"total_{k}" for k in range(1, count)))
    totals = [IRValue(Pointer(F32, "global"), name) for name in names]
    memory = IRValue(Pointer(F32, "global"), "together")
    lengths = [IRValue(I64, f"length_{k}") for k in range(count)]
    block, threads, thread = (b.convert(b.builtin(n), I64) for n in ("block_idx", "block_dim", "thread_idx"))
    i = b.apply("add", b.apply("mul", block, threads), thread)
    first = b.apply("mul", i, b.constant(width, I64))
    for k, (total, length) in enumerate(zip(totals, lengths, strict=True)):
        with b.region() as inside:
            more = b.load(b.offset(memory, b.apply("add", first, b.constant(k, I64))))
            place = b.offset(total, i)
            with b.region() as some:
                b.store(place, b.apply("add", b.load(place), more))
            b.if_(b.apply("ne", more, b.constant(0.0, F32)), some.block())
        b.if_(b.apply("lt", i, length), inside.block())
    pointers = (Param(totals[0], "void *"), Param(memory, "const void *", const=True))
    params = (*pointers, *(Param(t, "void *") for t in totals[1:]), *(Param(n, "long long") for n in lengths))
    name = f"kernelgrad_together_{count}"
    function = Function(name, "kernel", params, Block((), tuple(b.ops), ()))
    return Kernel(name, Module({name: function}), _no_variable)


def _no_variable(name: str) -> Any:
    raise KeyError(name)
