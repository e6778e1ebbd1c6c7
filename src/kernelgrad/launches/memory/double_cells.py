"""Doubles in place of a parameter's adjoint (see `autodiff/prepare/double_cells`), and adding them to what the user
gave; and of how many elements blocks have cells (see `autodiff/accumulate/block_cells`)."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import cache, partial
from typing import Any, Literal, NamedTuple

from ...analysis.access.affine import Shape, Sums
from ...analysis.access.reach import reach
from ...autodiff.calculus.flat_numbers import numbers_in
from ...autodiff.prepare.double_cells import FEW_CELLS
from ...ir.builder import Builder, pointee
from ...ir.ops import Block, Function, Module, Param, Value
from ...ir.types import F64, I64, Array, Pointer, Scalar, Struct, Type
from ...kernel import Kernel
from ...runtime.arguments import Placement, Supplied
from ...runtime.config import Launch, flat_launch
from ...runtime.integers import integers_of
from ...runtime.launch import BoundArguments
from ...runtime.launch_memory import LaunchMemory
from ...runtime.scratch import Scratch
from ...runtime.tracing import trace_on
from ..choice.variant import Variant
from .buffers import Bytes, Expression, Memory, Need, supply
from .buffers import Value as Number
from .tape_memory import sized

_BLOCK = 256

Step = Literal["widen", "narrow", "add"]


class _Floats(NamedTuple):
    """Floats of an adjoint, and doubles: where the first of each is, how far from one to the next, and how many."""

    type: Scalar
    narrow: int
    narrow_step: int
    wide: int
    wide_step: int
    length: int


def wide_adjoints(variant: Variant) -> list[Need]:
    """Doubles in place of adjoints; `add_wide` makes them."""
    derivative, found = variant.derivative, list[Need]()
    roots = _roots(variant)
    for name, param in derivative.wide.items():
        nbytes = _count(variant, name) * pointee(param.value).size
        fill = None if roots[name] in derivative.prepared.memory.written() else 0
        found.append(Memory(param.name, nbytes, fill, f"doubles for the adjoint of '{name}'"))
    return found


def cell_lengths(variant: Variant) -> list[Need]:
    cells = variant.derivative.cells.items()
    return [Number(own.length.name, _numbers(variant, name), f"numbers in '{name}'") for name, own in cells]


def _roots(variant: Variant) -> dict[str, Value]:
    return {p.name: p.value for p in variant.derivative.prepared.function.params}


def _count(variant: Variant, name: str) -> Expression:
    """The elements of an adjoint, which may be shorter than its buffer, but not than a variable of the source."""
    param = next(p for p in variant.derivative.prepared.function.params if p.name == name)
    adjoint, is_buffer = variant.derivative.adjoints[name], isinstance(param.type, Pointer) and param.variable is None
    count: Expression = Bytes(adjoint.name) // pointee(adjoint.value).size
    return count.at_most(Bytes(name) // pointee(param.value).size) if is_buffer else count


def _numbers(variant: Variant, name: str) -> Expression:
    """The numbers in these."""
    each = numbers_in(pointee(variant.derivative.adjoints[name].value))
    return _count(variant, name) * each if each > 1 else _count(variant, name)


def add_lengths(
    variant: Variant, bound: BoundArguments, placement: Placement, stream: int | None, own: LaunchMemory
) -> None:
    supply(cell_lengths(variant), sized(flat_launch(1, 1, stream), bound), placement, stream, own)


def add_wide(
    variant: Variant, bound: BoundArguments, launch: Launch, placement: Placement, stream: int | None, own: LaunchMemory
) -> None:
    """Memory that the launch adds to: zeros, or what the adjoint holds where the launch reads it too. Afterwards, it is
    added to the adjoint, or is the adjoint."""
    buffers = {b.name: b for b in bound.buffers}
    derivative = variant.derivative
    written = derivative.prepared.memory.written()
    roots = {p.name: p.value for p in derivative.prepared.function.params}
    for name, param in derivative.wide.items():
        target, adjoint = buffers[derivative.adjoints[name].name], pointee(derivative.adjoints[name].value)
        count = target.nbytes // adjoint.size
        if name in buffers:  # whose adjoint may be shorter
            count = min(count, buffers[name].nbytes // pointee(roots[name]).size)
        first, end = _reached(variant, roots[name], launch, bound, placement, count)
        wide, count = pointee(param.value), end - first
        memory = own.add(param.name, Scratch(count * wide.size, placement.cuda, stream))
        own.supplied[param.name] = Supplied(memory.address - first * wide.size, memory.nbytes)  # of the first of all
        parts = _parts(adjoint, wide, target.address + first * adjoint.size, memory.address, count)
        if roots[name] in written:
            for part in parts:
                _run("widen", part, launch, placement)
        else:
            memory.zero()
        for part in parts:
            own.after.append(partial(_run, "narrow" if roots[name] in written else "add", part, launch, placement))


def _reached(
    variant: Variant, root: Value, launch: Launch, bound: BoundArguments, placement: Placement, count: int
) -> tuple[int, int]:
    """The elements of a parameter's memory that a launch may touch: others need no doubles. Where a launch is written
    down for later, addresses stay within what was allocated."""
    found = _bytes_reached(variant, root, launch, bound) if count > FEW_CELLS else None
    if found is None:
        return 0, count
    size = pointee(root).size
    first = 0 if trace_on(placement.cuda) is not None else min(count, found[0] // size)
    return first, max(first, min(count, -(-found[1] // size)))


def _bytes_reached(variant: Variant, root: Value, launch: Launch, bound: BoundArguments) -> tuple[int, int] | None:
    prepared = variant.derivative.prepared
    if not isinstance(root.type, Pointer):
        return None
    known = integers_of(variant.kernel.function).known(bound.packed)
    sums = Sums(prepared.structure, Shape(launch.grid, launch.block), known)
    return reach(prepared.function, prepared.memory, root, sums)


def _parts(narrow: Type, wide: Type, adjoint: int, memory: int, count: int) -> list[_Floats]:
    pairs = list(_pairs(narrow, wide))
    (type, _, _), *_ = pairs
    whole = len(pairs) * type.size == narrow.size and len(pairs) * F64.size == wide.size
    if whole and all(t == type for t, _, _ in pairs):
        return [_Floats(type, adjoint, 1, memory, 1, count * len(pairs))]
    steps = [(narrow.size // t.size, wide.size // F64.size) for t, _, _ in pairs]
    return [
        _Floats(type, adjoint + at, step, memory + wide_at, wide_step, count)
        for (type, at, wide_at), (step, wide_step) in zip(pairs, steps, strict=True)
    ]


def _pairs(narrow: Type, wide: Type, at: int = 0, wide_at: int = 0) -> Iterator[tuple[Scalar, int, int]]:
    """The floats of an element, and where they are in either form."""
    match narrow, wide:
        case Scalar(), Scalar() if narrow.is_float:
            yield narrow, at, wide_at
        case Array(element, count), Array(doubles, _):
            for k in range(count):
                yield from _pairs(element, doubles, at + k * element.size, wide_at + k * doubles.size)
        case Struct(), Struct():
            for one, other in zip(narrow.fields, wide.fields, strict=True):
                yield from _pairs(one.type, other.type, at + one.offset, wide_at + other.offset)


def _run(step: Step, floats: _Floats, launch: Launch, placement: Placement) -> None:
    if floats.length:
        type, narrow, narrow_step, wide, wide_step, count = floats
        packed = struct.pack("<QQqqq", narrow, wide, narrow_step, wide_step, count)
        plain = flat_launch(-(-count // _BLOCK), _BLOCK, launch.stream)
        _mover(step, type).run(plain, BoundArguments(packed, ()), placement, {})


@cache
def _mover(step: Step, type: Scalar) -> Kernel:
    """Thread i is for floats[i * narrow_step] and doubles[i * wide_step]."""
    floats, doubles = Value(Pointer(type, "global"), "floats"), Value(Pointer(F64, "global"), "doubles")
    steps, count = (Value(I64, "narrow_step"), Value(I64, "wide_step")), Value(I64, "count")
    b = Builder()
    block, width, thread = (b.convert(b.builtin(n), I64) for n in ("block_idx", "block_dim", "thread_idx"))
    at = b.apply("add", b.apply("mul", block, width), thread, name="i")
    with b.region() as then:
        narrow, wide = (b.offset(p, b.apply("mul", at, s)) for p, s in zip((floats, doubles), steps, strict=True))
        _MOVES[step](b, narrow, wide, type)
    b.if_(b.apply("lt", at, count), then.block())
    numbers = tuple(Param(v, "long long") for v in (*steps, count))
    name = f"kernelgrad_{step}_{type.name}"
    params = (Param(floats, "void *"), Param(doubles, "void *"), *numbers)
    function = Function(name, "kernel", params, Block((), tuple(b.ops), ()))
    return Kernel(name, Module({name: function}), _no_variable)


def _widen(b: Builder, narrow: Value, wide: Value, _: Scalar) -> None:
    b.store(wide, b.convert(b.load(narrow), F64))


def _narrow(b: Builder, narrow: Value, wide: Value, type: Scalar) -> None:
    b.store(narrow, b.convert(b.load(wide), type))


def _add(b: Builder, narrow: Value, wide: Value, type: Scalar) -> None:
    """Unless there is nothing to add."""
    more = b.load(wide)
    with b.region() as some:
        b.store(narrow, b.convert(b.apply("add", b.convert(b.load(narrow), F64), more), type))
    b.if_(b.apply("ne", more, b.constant(0.0, F64)), some.block())


_MOVES = {"widen": _widen, "narrow": _narrow, "add": _add}


def _no_variable(name: str) -> Any:
    raise KeyError(name)
