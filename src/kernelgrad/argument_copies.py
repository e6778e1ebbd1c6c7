"""Copies that stand for a launch's arguments, where it must not change what the user gave."""

from __future__ import annotations

from collections.abc import Iterator

from .ir.layout import leaves, param_layout
from .ir.ops import Function
from .ir.types import Pointer
from .kernels import Kernel
from .runtime.arguments import Placement
from .runtime.launch import BoundArguments
from .runtime.own import Own
from .runtime.scratch import Scratch
from .variants import Variant


def sparing(
    variant: Variant, bound: BoundArguments, placement: Placement, stream: int | None, own: Own
) -> BoundArguments:
    """The arguments with copies for adjoints that are to be kept and would be consumed."""
    function = variant.reverse.function
    offsets = dict(zip((p.name for p in function.params), param_layout(function)[0], strict=True))
    packed, buffers = bytearray(bound.packed), list(bound.buffers)
    for name in variant.options.facts.unkept:
        adjoint = variant.derivative.adjoints[name].name
        k = next(k for k, b in enumerate(buffers) if b.name == adjoint)
        copy = Scratch(buffers[k].nbytes, placement.cuda, stream).copy_from(buffers[k].address)
        own.kept.append(copy)
        packed[offsets[adjoint] : offsets[adjoint] + 8] = copy.address.to_bytes(8, "little")
        buffers[k] = buffers[k]._replace(address=copy.address)
    return bound._replace(packed=bytes(packed), buffers=tuple(buffers)) if variant.options.facts.unkept else bound


def on_copies(
    function: Function, bound: BoundArguments, placement: Placement, stream: int | None, own: Own
) -> BoundArguments:
    """The arguments with every buffer replaced by a copy, so that counting leaves no trace (rule 5). What begins at the
    same address stays one."""
    packed = bytearray(bound.packed)
    copies: dict[bytes, bytes] = {}
    for buffer in sorted(bound.buffers, key=lambda b: b.nbytes):  # the longest of those that begin together counts
        if buffer.nbytes:
            scratch = Scratch(buffer.nbytes, placement.cuda, stream).copy_from(buffer.address)
            copy = own.add(f"copy of {buffer.name}", scratch)
            copies[buffer.address.to_bytes(8, "little")] = copy.address.to_bytes(8, "little")
    for at in _addresses(function, len(packed)):
        given = bytes(packed[at : at + 8])
        packed[at : at + 8] = copies.get(given, given)
    return bound._replace(packed=bytes(packed))


def _addresses(function: Function, end: int) -> Iterator[int]:
    """Where in the packed arguments, up to `end`, there are addresses."""
    for param, offset in zip(function.params, param_layout(function)[0], strict=True):
        if offset < end:
            yield from (at for _, at, type in leaves(param.type, offset=offset) if isinstance(type, Pointer))


def copy_variables(kernel: Kernel, placement: Placement, stream: int | None, own: Own) -> None:
    """The same for module variables that are parameters."""
    for param in kernel.function.params:
        if param.variable in kernel.module.globals:
            variable = kernel.variable(param.name)
            on_host = placement.cuda is None
            address = variable.host_address() if on_host else variable.device_address(placement.cuda or 0, stream or 0)
            own.add(param.name, Scratch(variable.type.size, placement.cuda, stream).copy_from(address))
