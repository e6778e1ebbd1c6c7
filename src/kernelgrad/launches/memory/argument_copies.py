"""Copies that stand for a launch's arguments, where it must not change what the user gave."""

from __future__ import annotations

from collections.abc import Iterator

from ...ir.layout import leaves, param_layout
from ...ir.ops import Function
from ...ir.types import Pointer, Type
from ...kernel import Kernel
from ...runtime.arguments import Placement
from ...runtime.launch import BoundArguments
from ...runtime.launch_memory import LaunchMemory
from ...runtime.reach import Copy
from ...runtime.scratch import Scratch
from ..choice.variant import Variant


def sparing(
    variant: Variant, bound: BoundArguments, placement: Placement, stream: int | None, own: LaunchMemory
) -> BoundArguments:
    """The arguments with copies for adjoints that are to be kept and would be consumed."""
    function, spared = variant.reverse.function, variant.options.facts.unkept
    names = {variant.derivative.adjoints[name].name for name in spared}
    copies: dict[int, int] = {}
    buffers = list(bound.buffers)
    for k, buffer in enumerate(buffers):
        if buffer.name.partition(".")[0] in names and buffer.nbytes:
            copy = Scratch(buffer.nbytes, placement.cuda, stream).copy_from(buffer.address)
            own.kept.append(copy)
            copies[buffer.address] = copy.address
            buffers[k] = buffer._replace(address=copy.address)
    packed = bytearray(bound.packed)
    for param, offset in zip(function.params, param_layout(function)[0], strict=True):
        for at in _pointers(param.type, offset) if param.name in names else ():
            given = int.from_bytes(packed[at : at + 8], "little")
            packed[at : at + 8] = copies.get(given, given).to_bytes(8, "little")
    return bound._replace(packed=bytes(packed), buffers=tuple(buffers))


def on_copies(
    function: Function, bound: BoundArguments, placement: Placement, stream: int | None, own: LaunchMemory
) -> BoundArguments:
    """The arguments with every buffer replaced by a copy, so that counting leaves no trace (rule 5). What begins at the
    same address stays one."""
    packed = bytearray(bound.packed)
    copies: dict[bytes, bytes] = {}
    for buffer in sorted(bound.buffers, key=lambda b: b.nbytes):  # the longest of those that begin together counts
        if buffer.nbytes:
            copy = Copy(buffer, placement.cuda, stream)
            own.add(f"copy of {buffer.name}", copy.memory)
            copies[buffer.address.to_bytes(8, "little")] = copy.address.to_bytes(8, "little")
    for at in _addresses(function, len(packed)):
        given = bytes(packed[at : at + 8])
        packed[at : at + 8] = copies.get(given, given)
    return bound._replace(packed=bytes(packed))


def _addresses(function: Function, end: int) -> Iterator[int]:
    """Where in the packed arguments, up to `end`, there are addresses."""
    for param, offset in zip(function.params, param_layout(function)[0], strict=True):
        if offset < end:
            yield from _pointers(param.type, offset)


def _pointers(type: Type, offset: int) -> Iterator[int]:
    return (at for _, at, leaf in leaves(type, offset=offset) if isinstance(leaf, Pointer))


def copy_variables(kernel: Kernel, placement: Placement, stream: int | None, own: LaunchMemory) -> None:
    """The same for module variables that are parameters."""
    for param in kernel.function.params:
        if param.variable in kernel.module.globals:
            variable = kernel.variable(param.name)
            on_host = placement.cuda is None
            address = variable.host_address() if on_host else variable.device_address(placement.cuda or 0, stream or 0)
            own.add(param.name, Scratch(variable.type.size, placement.cuda, stream).copy_from(address))
