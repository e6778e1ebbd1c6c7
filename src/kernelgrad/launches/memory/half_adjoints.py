"""Adjoints of half-precision buffers. A gradient accumulates them in float; an adjoint that is itself in half precision
is copied to float before the launch and rounded back, once, after it. Which ones need no copy is known when the launch
is planned (`launches/kept_halves`): until then all are bound as though they were floats, and none is read."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from functools import cache, lru_cache
from typing import Any, NamedTuple

import numpy as np

from ...autodiff.calculus.shadows import adjoint_type
from ...errors import ArgumentError
from ...ir.builder import Builder
from ...ir.layout import param_layout
from ...ir.ops import Block, Function, Module, Param, Value
from ...ir.types import BF16, F16, F32, I64, Pointer, Scalar, Struct
from ...kernel import Kernel
from ...runtime.arguments import Placement
from ...runtime.arrays import ArrayView, is_part, view
from ...runtime.config import Launch, flat_launch
from ...runtime.launch import BoundArguments, Buffer
from ...runtime.launch_memory import LaunchMemory
from ...runtime.layouts import flat_dtypes, same_layout, scalar_dtype
from ...runtime.scratch import Scratch
from ...transforms.half_steps import half_of

_BLOCK = 256
_FLOAT = np.dtype("f4")


def in_float(
    function: Function, adjoints: dict[str, Any], launch: Launch, own: LaunchMemory, kept: tuple[str, ...] = ()
) -> dict[str, Any]:
    """The adjoints, those of halves copied to float; `own` learns to round them back after the launch. `kept`: those
    that the launch does not write to."""
    if not _has_halves(function):
        return adjoints
    params = {p.name: p for p in function.params}
    return {
        name: _in_float(params[name], value, launch, own, name in kept) if name in params else value
        for name, value in adjoints.items()
    }


class Half(NamedTuple):
    """An adjoint of half precision that was bound as though it were floats."""

    name: str  # of the listed parameter
    type: Scalar
    array: ArrayView


def bound_as_floats(
    function: Function, adjoints: dict[str, Any], kept: tuple[str, ...]
) -> tuple[dict[str, Any], tuple[Half, ...]]:
    """The adjoints, those of halves as that many floats at the same address: only until `HalfAdjoints.settle`."""
    if not _has_halves(function):
        return adjoints, ()
    params, found = {p.name: p for p in function.params}, dict[str, Half]()
    for name, value in adjoints.items():
        half = half_of(params[name].type) if name in params else None
        array = None if value is None or half is None else view(value)
        if array is None or half is None or _half_type(params[name], array) != half:
            continue
        if array.contiguous and not is_part(array) and (array.writable or name in kept):
            found[name] = Half(name, half, array)
    return adjoints | {name: _as_floats(half) for name, half in found.items()}, tuple(found.values())


def _as_floats(half: Half) -> ArrayView:
    array = half.array
    return array._replace(nbytes=2 * array.nbytes, dtype=_FLOAT, shape=(array.nbytes // half.type.size,), around=(0, 0))


class HalfAdjoints:
    """Those of a launch's packed arguments. `names`: of the adjoints' parameters, by the listed ones'."""

    def __init__(self, function: Function, names: Mapping[str, str]):
        params = zip(function.params, param_layout(function)[0], strict=True)
        self._offsets = {p.name: offset for p, offset in params}
        self._names = names

    def settle(
        self,
        bound: BoundArguments,
        halves: tuple[Half, ...],
        stay: frozenset[str],
        kept: tuple[str, ...],
        launch: Launch,
        own: LaunchMemory,
        placement: Placement,
    ) -> BoundArguments:
        """The arguments with the halves that `stay` as what they are, and with copies of the others in float."""
        stream = launch.stream if launch.stream is not None else placement.stream()
        packed, buffers = bytearray(bound.packed), {b.name: b for b in bound.buffers}
        for half in halves:
            name = self._names[half.name]
            original = buffers[name]._replace(nbytes=half.array.nbytes)
            buffers[name] = original
            if half.name not in stay:
                copy = _Copied(half, original, launch, stream, placement)
                copy.make(own, half.name in kept)
                at = self._offsets[name]
                packed[at : at + 8] = copy.floats.address.to_bytes(8, "little")
                buffers[name] = original._replace(address=copy.floats.address, nbytes=copy.floats.nbytes)
        return bound._replace(packed=bytes(packed), buffers=tuple(buffers[b.name] for b in bound.buffers))


class _Copied:
    """A copy in float of a buffer of halves."""

    def __init__(self, half: Half, original: Buffer, launch: Launch, stream: int | None, placement: Placement):
        self.half, self.original, self.placement = half, original, placement
        self.count = original.nbytes // half.type.size
        self.floats = Scratch(4 * self.count, placement.cuda, stream)
        self._launch = flat_launch(max(1, -(-self.count // _BLOCK)), _BLOCK, stream)

    def make(self, own: LaunchMemory, kept: bool) -> None:
        """`kept`: nothing is written to it."""
        own.kept.append(self.floats)
        own.originals[self.original] = not kept
        there = Buffer("floats", self.floats.address, self.floats.nbytes)
        self._convert(self.half.type, F32, self.original, there)
        if not kept:
            mutated = (self.half.array.owner,) if self.half.array.versioned else ()
            own.after.append(lambda: self._convert(F32, self.half.type, there, self.original, mutated))

    def _convert(
        self, source: Scalar, target: Scalar, origin: Buffer, to: Buffer, mutated: tuple[Any, ...] = ()
    ) -> None:
        _convert(source, target, origin, to, self.count, self._launch, self.placement, mutated)


@lru_cache(1024)
def _has_halves(function: Function) -> bool:
    return any(adjoint_type(p.type) != p.type for p in function.params)


def _in_float(param: Param, value: Any, launch: Launch, own: LaunchMemory, kept: bool) -> Any:
    array = None if value is None else view(value)
    half = None if array is None else _half_type(param, array)
    if array is None or half is None or not array.contiguous:
        return value
    if not (kept or array.writable):
        raise ArgumentError(f"the adjoint of '{param.name}' wants a writable array, got one that is read-only")
    placement = Placement(array.device[1] if isinstance(array.device, tuple) else None, array.owner)
    stream = launch.stream if launch.stream is not None else placement.stream()
    before, behind = array.around or (0, 0)
    nbytes = before + array.nbytes + behind
    count = nbytes // half.size
    floats = Scratch(4 * count, placement.cuda, stream)
    own.kept.append(floats)
    plain = flat_launch(max(1, -(-count // _BLOCK)), _BLOCK, stream)
    original = Buffer(f"adjoint of {param.name}", array.address - before, nbytes)
    own.originals[original] = not kept
    _convert(half, F32, original, Buffer("floats", floats.address, 4 * count), count, plain, placement)
    back = Buffer("floats", floats.address, 4 * count)
    if not kept:
        mutated = (array.owner,) if array.versioned else ()
        own.after.append(lambda: _convert(F32, half, back, original, count, plain, placement, mutated))
    return array._replace(
        address=floats.address + 2 * before,
        nbytes=2 * array.nbytes,
        dtype=_FLOAT,
        shape=(array.nbytes // half.size,),
        owner=floats,
        versioned=False,
        around=(2 * before, 2 * behind),
    )


def _half_type(param: Param, array: ArrayView) -> Scalar | None:
    """The half-precision type of the parameter, if the array holds just that."""
    type = param.type.pointee if isinstance(param.type, Pointer) else param.type
    for half in (F16, BF16):
        flat = array.dtype == scalar_dtype(half) and array.dtype in flat_dtypes(type)
        if flat or (isinstance(type, Struct) and scalar_dtype(half) in flat_dtypes(type) and _is_laid_out(array, type)):
            return half
    return None


def _is_laid_out(array: ArrayView, type: Struct) -> bool:
    """Like half2, in a dtype with its fields."""
    return isinstance(array.dtype, np.dtype) and array.dtype.fields is not None and same_layout(array.dtype, type)


def _convert(
    source_type: Scalar,
    target_type: Scalar,
    source: Buffer,
    target: Buffer,
    count: int,
    launch: Launch,
    placement: Placement,
    mutated: tuple[Any, ...] = (),
) -> None:
    packed = struct.pack("<QQq", target.address, source.address, count)
    bound = BoundArguments(packed, (target, source), mutated=mutated)
    converter(source_type, target_type).run(launch, bound, placement, {})


@cache
def converter(source: Scalar, target: Scalar) -> Kernel:
    to, origin = Value(Pointer(target, "global"), "to"), Value(Pointer(source, "global"), "from")
    count = Value(I64, "count")
    b = Builder()
    block, width, thread = (b.convert(b.builtin(n), I64) for n in ("block_idx", "block_dim", "thread_idx"))
    at = b.apply("add", b.apply("mul", block, width), thread, name="i")
    with b.region() as then:
        b.store(b.offset(to, at), b.convert(b.load(b.offset(origin, at)), target))
    b.if_(b.apply("lt", at, count), then.block())
    params = (Param(to, "void *"), Param(origin, "const void *", const=True), Param(count, "long long"))
    name = f"kernelgrad_{source.name}_to_{target.name}"
    function = Function(name, "kernel", params, Block((), tuple(b.ops), ()))
    return Kernel(name, Module({name: function}), _no_variable)


def _no_variable(name: str) -> Any:
    raise KeyError(name)
